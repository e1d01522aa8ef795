"""What ``ers doctor`` looks at, one check after the other.

A check yields findings. One that cannot be done since an earlier one failed is left out: its
finding would only repeat the other.
"""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

from encrypted_records import __version__
from encrypted_records.cli.session import Session, inline_settings
from encrypted_records.cli.terminal import DONE, FAILED, exit_code
from encrypted_records.client.resources import Resource
from encrypted_records.errors import ErsError, NotFound

#: Seconds that clocks may differ: tokens last fifteen minutes and are renewed a minute early.
_CLOCKS_DIFFER = 30.0
#: A proxy on this machine answers in milliseconds; what takes longer than this feels slow.
_SLOW_SECONDS = 0.5
_LITTLE_SPACE = 1 << 30


@dataclass(frozen=True)
class Finding:
    """``code`` is what the command exits with because of it; of a warning it is 0."""

    check: str
    state: Literal["ok", "warning", "failed"]
    found: str
    hint: str = ""
    code: int = DONE


def _failed(check: str, error: ErsError) -> Finding:
    return Finding(check, "failed", error.message, error.hint, exit_code(error))


async def findings(session: Session, schema: str | None) -> AsyncIterator[Finding]:
    """All that there is to say, for one schema or for all that can be reached."""
    yield Finding("version", "ok", f"ers {__version__}, Python {platform.python_version()}")
    yield _disk()
    try:
        yield await _service(session)
        yield await _clock(session)
        yield await _account(session)
    except ErsError as error:
        yield _failed("service", error)
        return
    try:
        schemas = await _schemas(session, schema)
    except ErsError as error:
        yield _failed("schema", error)
        return
    async for finding in _keyring(session, schemas):
        yield finding
    for one in schemas:
        answered = await _search(session, one)
        yield answered
        if answered.state != "failed":
            yield await _index(session, one)


def _disk() -> Finding:
    folder = inline_settings().data_dir
    if not folder.exists():
        return Finding("disk", "ok", f"{folder} is not there: the proxy keeps its data elsewhere")
    free = shutil.disk_usage(folder).free
    found = f"{free / (1 << 30):.1f} GiB are free below {folder}"
    if free < _LITTLE_SPACE:
        hint = "make room: uploads are kept there until they are stored"
        return Finding("disk", "warning", found, hint)
    return Finding("disk", "ok", found)


async def _service(session: Session) -> Finding:
    start = time.perf_counter()
    status = await session.client.status()
    seconds = time.perf_counter() - start
    if status.get("behind_proxy") is not True:
        hint = "that is an API; name a proxy with ERS_PROXY_URL or --proxy-url"
        return Finding("service", "failed", f"{session.proxy_url} is no proxy", hint, FAILED)
    version = status.get("api_version")
    found = f"{session.proxy_url} and its API {version} answer in {seconds:.3f} s"
    if version != __version__:
        return Finding("service", "warning", found, f"this is ers {__version__}: update the older")
    if seconds > _SLOW_SECONDS:
        hint = "each question takes several such answers: look at the load and at the way there"
        return Finding("service", "warning", found, hint)
    return Finding("service", "ok", found)


async def _clock(session: Session) -> Finding:
    there = await session.client.clock()
    if there is None:
        return Finding("clock", "ok", "the API does not tell its time")
    apart = abs(there - time.time())
    if apart > _CLOCKS_DIFFER:
        found = f"this machine's clock and the API's are {apart:.0f} s apart"
        return Finding("clock", "warning", found, "set both by NTP: tokens expire by the clock")
    return Finding("clock", "ok", "this machine's clock and the API's agree")


async def _account(session: Session) -> Finding:
    how = "by the login that ers login keeps" if session.who.login else "with a password"
    if os.environ.get("ERS_EMAIL") and os.environ.get("ERS_PASSWORD"):
        how = "by ERS_EMAIL and ERS_PASSWORD"
    user = await session.client.user()
    count = len(user.organizations)
    found = f"{user.email}, {how}, in {count} organization{'' if count == 1 else 's'}"
    return Finding("account", "ok", found)


async def _schemas(session: Session, schema: str | None) -> list[Resource]:
    if schema is not None:
        return [await session.names.schema(schema)]
    filters = await session.names.in_organization()
    return [one async for one in session.client.listing("schemas", **filters)]


async def _keyring(session: Session, schemas: list[Resource]) -> AsyncIterator[Finding]:
    """The keyring, and whether it has the keys of the schemas that have records."""
    try:
        found = await session.client.keyring()
    except NotFound:
        yield Finding("keyring", "ok", "there is none yet; the first records make one")
    except ErsError as error:
        yield _failed("keyring", error)
        return
    else:
        backup = "confirmed" if found.backup_confirmed else "not confirmed"
        text = f"{found.fingerprint}, version {found.versions[-1].version}, backup {backup}"
        if found.backup_confirmed:
            yield Finding("keyring", "ok", text)
        else:
            hint = "without a backup a lost disk is lost records: ers keyring backup"
            yield Finding("keyring", "warning", text, hint)
    looked_at = {one["url"] for one in schemas}
    for one in await session.client.sealed_schemas():
        if one.url in looked_at and not one.held:
            yield Finding(
                "keyring",
                "failed",
                f"the key {one.key_id} of {one.name} is not in it",
                "use the proxy that stored the records, or bring its keyring: ers keyring restore",
                FAILED,
            )


async def _search(session: Session, schema: Resource) -> Finding:
    """Whether a question is answered: the log, the key and the index are all needed for it."""
    check = f"schema {schema['slug']}"
    start = time.perf_counter()
    try:
        page = await session.client.search(schema["url"], limit=0)
    except ErsError as error:
        return _failed(check, error)
    seconds = time.perf_counter() - start
    return Finding(check, "ok", f"{page.count} records, counted in {seconds:.3f} s")


async def _index(session: Session, schema: Resource) -> Finding:
    """Into how many segments each question has to look, and whether they could be fewer."""
    check = f"index {schema['slug']}"
    try:
        index = await session.client.index_status(schema["url"])
    except ErsError as error:
        return _failed(check, error)
    live, mini = index.segments.live, index.segments.mini
    found = f"{live} segment{'' if live == 1 else 's'}, {mini} of them small"
    if not index.merge_pending:
        return Finding(check, "ok", f"{found}; none to merge")
    hint = f"have them merged: ers proxy merge --once {schema['url']}"
    return Finding(check, "warning", f"{found}; some to merge, and each slows questions", hint)

"""``ers doctor``: why is it slow, why are there no rows, why is it refused; ``ers status``.

The doctor's checks come first, in their order. A check yields findings. A check that depends on a
failed earlier check is skipped, because its finding would only repeat the earlier one.
"""

from __future__ import annotations

import asyncio
import functools
import os
import platform
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

import click

from encrypted_records import __version__
from encrypted_records.cli.command_group import STANDARD, CommandLimits
from encrypted_records.cli.commands.selection import question
from encrypted_records.cli.login.session import (
    NOBODY,
    SCHEMA,
    CommandSession,
    connected,
    inline_settings,
)
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.settings import Settings, takes_settings
from encrypted_records.cli.state_file import is_loopback
from encrypted_records.cli.supervise.operating import examine_stored
from encrypted_records.cli.terminal import DONE, FAILED, REFUSED, exit_code, format_count, say, warn
from encrypted_records.client.proxy.connection import ShownSchema
from encrypted_records.client.proxy.keyring import Devices, KeyringInfo
from encrypted_records.errors import ErsError, InvalidSetting, NotAuthenticated, NotFound, how_far

#: The hint for commands without a login.
LOG_IN = "run: ers login (or set ERS_EMAIL and ERS_PASSWORD); ers register makes an account"
#: Days until deleted data is erased, if proxies run and no hold keeps it longer.
_ERASED_WITHIN_DAYS = 31
#: A proxy on this machine answers in milliseconds; what takes longer than this feels slow.
_SLOW_SECONDS = 0.5
_SET_CLOCKS = "set both by NTP: tokens, invitations and codes expire by the clock"


@dataclass(frozen=True)
class Finding:
    """``code`` is what the command exits with because of it; of a warning it is 0."""

    check: str
    state: Literal["ok", "warning", "failed"]
    message: str
    hint: str = ""
    code: int = DONE


def _report_failure(check: str, error: ErsError) -> Finding:
    return Finding(check, "failed", error.message, error.hint, exit_code(error))


async def findings(session: CommandSession, schema: str | None) -> AsyncIterator[Finding]:
    """All findings, for one schema or for all that can be reached."""
    yield Finding("version", "ok", f"ers {__version__}, Python {platform.python_version()}")
    yield _disk(session.limits.little_space)
    try:
        yield await _service(session)
        yield await _clock(session)
    except ErsError as error:
        yield _report_failure("service", error)
        return
    if session.who == NOBODY:
        yield Finding("account", "failed", "you are not logged in", LOG_IN, REFUSED)
        return
    try:
        yield await _account(session)
    except ErsError as error:
        yield _report_failure("account", error)
        return
    try:
        access = await _access(session)
    except ErsError as error:
        access = _report_failure("access", error)
    yield access
    if access.state == "failed":
        return
    schemas: list[ShownSchema] | None = None
    try:
        schemas = await _schemas(session, schema)
    except ErsError as error:
        # A roster that is not believed resolves no names; a later check reports the reason.
        yield _report_failure("schema", error)
    async for finding in _keyring(session, schemas):
        yield finding
    async for finding in _webhooks(session):
        yield finding
    for resource in schemas or ():
        found = [await _search(session, resource.url, resource.slug)]
        if found[0].state != "failed":
            found += [await _index(session, resource), await _erasure(session, resource)]
        if schema is None and all(finding.state == "ok" for finding in found):
            # In a list of many schemas, one line each keeps those with problems visible.
            messages = "; ".join(finding.message for finding in found)
            found = [Finding(found[0].check, "ok", messages)]
        for finding in found:
            yield finding


def _disk(little: int) -> Finding:
    folder = inline_settings().data_dir
    try:
        free = shutil.disk_usage(folder).free
    except FileNotFoundError:
        return Finding("disk", "ok", f"{folder} does not exist: the proxy keeps its data elsewhere")
    except OSError as error:
        why = (error.strerror or "it fails").lower()
        return Finding("disk", "warning", f"{folder} cannot be read: {why}")
    message = f"{free / (1 << 30):.1f} GiB are free below {folder}"
    if free < little:
        hint = "make room: uploads are kept there until they are stored"
        return Finding("disk", "warning", message, hint)
    return Finding("disk", "ok", message)


def stored_findings(settings: Settings, little: int) -> list[Finding]:
    """Findings about an API's database and bulk store."""
    try:
        results = examine_stored(settings, little)
    except ErsError as error:
        return [_report_failure("database", error)]
    return [
        Finding(
            result.check,
            result.state,
            result.message,
            result.hint,
            FAILED if result.state == "failed" else DONE,
        )
        for result in results
    ]


async def _service(session: CommandSession) -> Finding:
    start = time.perf_counter()
    status = await session.client.status()
    seconds = time.perf_counter() - start
    if status.get("behind_proxy") is not True:
        hint = "that is an API; name a proxy with ERS_PROXY_URL or --proxy-url"
        return Finding("service", "failed", f"{session.proxy_url} is not a proxy", hint, FAILED)
    version = status.get("api_version")
    message = f"{session.proxy_url} and its API {version} answer in {seconds:.3f} s"
    if version != __version__:
        return Finding(
            "service", "warning", message, f"this is ers {__version__}: update the older"
        )
    if seconds > _SLOW_SECONDS:
        hint = "a search needs several such answers: check the load and the network"
        return Finding("service", "warning", message, hint)
    return Finding("service", "ok", message)


async def _clock(session: CommandSession) -> Finding:
    api_time = await session.client.clock()
    if api_time is None:
        return Finding("clock", "ok", "the API does not send its time")
    of_proxy = (await session.client.status()).get("clock_ahead", 0)
    for whose, ahead in (("this machine", time.time() - api_time), ("the proxy", of_proxy)):
        if abs(ahead) > session.limits.clocks_differ:
            message = f"{whose}'s clock is {how_far(ahead)} the API's"
            return Finding("clock", "warning", message, _SET_CLOCKS)
    return Finding("clock", "ok", "this machine's clock and the API's agree")


async def _account(session: CommandSession) -> Finding:
    how = "by the stored login" if session.who.login else "with a password"
    if os.environ.get("ERS_EMAIL") and os.environ.get("ERS_PASSWORD"):
        how = "by ERS_EMAIL and ERS_PASSWORD"
    user = await session.client.user()
    count = len(user.organizations)
    message = f"{user.email}, {how}, in {format_count(count, 'organization')}"
    return Finding("account", "ok", message)


async def _access(session: CommandSession) -> Finding:
    """At which level the proxy works, and whether this machine may use the keyring."""
    devices = await session.client.devices()
    return access_of(devices, session.proxy_url, shows_device=session.client.device is not None)


def access_of(devices: Devices, proxy_url: str, *, shows_device: bool) -> Finding:
    """The finding about a proxy's level.

    Args:
        shows_device: whether this machine has a device, which is registered when a keyring is made.
    """
    count = format_count(devices.count, "device")
    if devices.level == "api":
        message = "level api: credentials that the API accepts are enough"
        if devices.exposed or not is_loopback(proxy_url):
            hint = (
                "other machines can reach this proxy: start it with --access device, unless"
                " only one"
                " machine can reach it and you run the API yourself"
            )
            return Finding("access", "warning", message, hint)
        return Finding("access", "ok", message)
    if devices.enrolled:
        return Finding("access", "ok", f"level device: this machine is one of {count}")
    if devices.keyring is None and shows_device:
        message = (
            "level device: storing the first records creates the keyring and registers this machine"
        )
        return Finding("access", "ok", message)
    message = f"level device: this machine is not one of {count}"
    return Finding("access", "failed", message, "register it: ers device add", REFUSED)


async def _schemas(session: CommandSession, schema: str | None) -> list[ShownSchema]:
    if schema is not None:
        return [await session.names.schema(schema)]
    return [schema async for schema in session.names.schemas()]


async def _keyring(
    session: CommandSession, schemas: list[ShownSchema] | None
) -> AsyncIterator[Finding]:
    """The keyring; if the schemas are not known by their names, also why some do not open."""
    try:
        keyring = await session.client.keyring()
    except NotFound:
        hint = "if you had one on another machine, restore it first: ers keyring restore"
        found = "not created yet; storing the first records creates it"
        yield Finding("keyring", "ok", found, hint)
        return
    except ErsError as error:
        yield _report_failure("keyring", error)
        return
    else:
        backup = "confirmed" if keyring.backup_confirmed else "not confirmed"
        text = f"{keyring.fingerprint}, version {keyring.versions[-1].version}, backup {backup}"
        if keyring.backup_confirmed:
            yield Finding("keyring", "ok", text)
        else:
            hint = "without a backup, losing the disk loses the records: ers keyring backup"
            yield Finding("keyring", "warning", text, hint)
        async for finding in _owners(session, keyring):
            yield finding
    if schemas is None:
        for schema_key in await session.client.sealed_schemas():
            if not schema_key.held:
                yield await _search(session, schema_key.url, schema_key.name)


async def _webhooks(session: CommandSession) -> AsyncIterator[Finding]:
    """A finding for each webhook that is stopped, that waits, or whose deliveries fail."""
    try:
        webhooks = await session.client.webhooks()
    except ErsError as error:
        yield _report_failure("webhook", error)
        return
    for webhook in webhooks:
        renew = " --renew" if webhook.reason == "bad_token" else ""
        resume = f"once the cause is gone: ers webhook resume {webhook.id}{renew}"
        check = f"webhook {webhook.id}"
        if webhook.status == "stopped":
            yield Finding(check, "failed", f"stopped: {webhook.reason}", resume, FAILED)
        elif webhook.tries:
            message = f"{format_count(webhook.tries, 'failed attempt')}: {webhook.reason}"
            yield Finding(check, "warning", message, resume)
        elif webhook.reason:
            yield Finding(check, "warning", f"it waits: {webhook.reason}", resume)


async def _owners(session: CommandSession, keyring: KeyringInfo) -> AsyncIterator[Finding]:
    """Check whether an organization could be recovered if it depends on one owner. For an owner
    without other members, the finding about the keyring is sufficient.
    """
    if keyring.backup_confirmed:
        return
    for url in await session.names.organizations():
        try:
            people = (await session.client.people(url)).people
        except ErsError as error:
            if error.reason != "not_admitted":
                yield _report_failure("people", error)
            continue
        owners = [person for person in people if person.role == "owner"]
        if len(people) > 1 and len(owners) == 1 and owners[0].you:
            yield Finding(
                "people",
                "warning",
                f"{len(people)} people and services depend on you, the only owner, and no recovery"
                " words were confirmed",
                "ers keyring backup; or make a second owner: ers organization member update",
            )


async def _search(session: CommandSession, url: str, name: str) -> Finding:
    """Whether a question is answered: the log, the key and the index are all needed for it."""
    check = f"schema {name}"
    start = time.perf_counter()
    try:
        page = await session.client.search(url, limit=0)
    except ErsError as error:
        return _report_failure(check, error)
    seconds = time.perf_counter() - start
    return Finding(check, "ok", f"{page.count} records, counted in {seconds:.3f} s")


async def _erasure(session: CommandSession, schema: ShownSchema) -> Finding:
    """Whether what was deleted is still there for longer than it should be."""
    check = f"erasure {schema.slug}"
    try:
        look = await session.client.look_at_erasure(schema.url)
    except ErsError as error:
        return _report_failure(check, error)
    ended = None if look.api.since is None else look.api.since.timestamp() * 1000
    since = [day for day in (_days(ended), _days(look.index.since)) if day]
    days = max(since, default=0.0)
    rows = format_count(max(look.api.rows, look.index.rows), "deleted row")
    holds = ", ".join(f"{hold.email} ({hold.reason})" for hold in look.api.holds)
    readers = f"; held by {holds}" if holds else ""
    if days > _ERASED_WITHIN_DAYS:
        hint = f"erase them: ers api POST {schema.url}erasure/"
        message = f"{rows}, still there after {days:.0f} days{readers}"
        return Finding(check, "warning", message, hint)
    return Finding(check, "ok", f"{rows}, not erased yet{readers}")


def _days(milliseconds: float | None) -> float:
    """For how many days something has been so, since that many milliseconds after 1970 began."""
    return 0.0 if milliseconds is None else (time.time() - float(milliseconds) / 1000) / 86_400


async def _index(session: CommandSession, schema: ShownSchema) -> Finding:
    """Into how many segments each question has to look, and whether they could be fewer."""
    check = f"index {schema.slug}"
    try:
        index = await session.client.index_status(schema.url)
    except ErsError as error:
        return _report_failure(check, error)
    live, mini = index.segments.live, index.segments.mini
    message = f"{format_count(live, 'segment')}, {mini} of them small"
    if not index.merge_pending:
        return Finding(check, "ok", f"{message}; none to merge")
    hint = f"merge them: ers proxy merge --once {schema.url}"
    return Finding(check, "warning", f"{message}; some to merge, each slows searches", hint)


@takes_output
@connected(organization=True, login_optional=True)
async def _look(
    session: CommandSession, schema: str | None, why: str | None, output: Output
) -> int:
    if why is not None:
        if session.who == NOBODY:
            raise NotAuthenticated("you are not logged in", hint=LOG_IN)
        return await _explain(session, schema, why, output)
    return await _say(findings(session, schema), output)


async def _each(listed: list[Finding]) -> AsyncIterator[Finding]:
    for finding in listed:
        yield finding


@click.command()
@click.option("--schema", type=SCHEMA, metavar="NAME", help="Check only this schema.")
@click.option(
    "--why",
    metavar="CONDITION",
    help="Show what each comparison of the condition finds by itself; requires --schema.",
)
@click.option(
    "--stored",
    is_flag=True,
    help="Check the API's database and object store instead, as its operator.",
)
@takes_settings("data_dir", "database_url", "replica_url", "bulk_url", "bulk_before")
@functools.wraps(_look, assigned=(), updated=("__dict__",))
def doctor(
    settings: Settings, *, schema: str | None, why: str | None, stored: bool, **where: Any
) -> int:
    """Check versions, disk, proxy, API, clock, account, keyring, and each schema and its index, and
    say how to fix problems. Nothing is changed. Without a login, only the first five are checked. A
    schema without problems has one line; with --schema, each check of it has one.

    With --stored, for the operator of an API, on a machine that reaches its database and object
    store: check that both can be read and written and have room, how far a replica follows, whether
    a sample of objects exists, and whether deleted data is really gone.

    The exit code is 0 if no check failed, otherwise that of the first failure.

    \b
    Examples:
      ers doctor
      ers doctor --schema patient --output json
      ers doctor --schema patient --why 'city = "Roma" and age > 30'
    """
    if not stored:
        return int(_look(schema=schema, why=why, **where))
    if schema is not None or why is not None:
        raise click.UsageError("--stored takes neither --schema nor --why")
    limits = click.get_current_context().find_object(CommandLimits) or STANDARD
    found = stored_findings(settings, limits.little_space)
    return asyncio.run(_say(_each(found), where["output"]))


async def _say(produced: AsyncIterator[Finding], output: Output) -> int:
    seen: list[Finding] = []

    async def things() -> AsyncIterator[dict[str, Any]]:
        async for finding in produced:
            seen.append(finding)
            yield {
                "check": finding.check,
                "state": finding.state,
                "found": finding.message,
                "hint": finding.hint,
            }

    if output.form == "table":
        async for line in things():
            say(f"{line['state']:<8} {line['check']:<10} {line['found']}")
            if line["hint"]:
                say(f"{'':<8} {'':<10} hint: {line['hint']}")
    else:
        await output.many(things(), ("check", "state", "found", "hint"), called="findings")
    return next((finding.code for finding in seen if finding.code != DONE), DONE)


_COLUMNS = ("comparison", "count", "folded", "trimmed", "never")


async def _explain(session: CommandSession, name: str | None, why: str, output: Output) -> int:
    if name is None:
        raise InvalidSetting("--why is about one schema", hint="name it by --schema")
    schema, where, _ = await question(session, name, None, why, None)
    assert where is not None
    from msgspec.structs import asdict  # noqa: PLC0415 - slow to import

    found = await session.client.explain_nothing(schema.url, where)

    lines = [
        {"comparison": f"{reason.field} {reason.op}", **asdict(reason)}
        for reason in found.comparisons
    ]
    lines.append(dict.fromkeys(_COLUMNS) | {"comparison": "all of it", "count": found.count})
    await output.many(lines, _COLUMNS, called="comparisons")
    return DONE


@click.command()
@connected(anonymous=True)
@takes_output
async def status(session: CommandSession, output: Output) -> int:
    """Check whether the proxy and its API answer, and show their version. No account is needed. If
    the API itself answers instead of a proxy, the exit code is 4: records cannot be stored there.

    \b
    Example:
      ers status
    """
    answer = await session.client.status()
    output.write_object({"address": session.address, **answer, "ers_version": __version__})
    if answer.get("behind_proxy") is not True:
        warn(f"This is the API itself, not a proxy: {session.proxy_url}")
        warn("hint: name a proxy with --proxy-url or ERS_PROXY_URL")
        return REFUSED
    if ahead := answer.get("clock_ahead"):
        warn(f"The clock of the proxy's machine is {how_far(ahead)} the API's.")
        warn(f"hint: {_SET_CLOCKS}")
    if answer.get("clock_jumped") is True:
        warn(
            "The clock of the proxy's machine jumped ahead, or the machine was off for days:"
            " records that expired only during these days are not deleted yet"
        )
        warn(
            "hint: set the clock, or let the proxy run for a day; if it is right: ers retention run"
            " --clock-is-right"
        )
    return DONE

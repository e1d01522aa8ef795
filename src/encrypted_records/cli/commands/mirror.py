"""``ers mirror``: copy what an account reads at an API, as it is stored."""

from __future__ import annotations

import functools
import time

import click
from click.core import ParameterSource

from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.login.token_store import EARLY_SECONDS
from encrypted_records.cli.settings import Settings, takes_settings
from encrypted_records.cli.supervise.mirrors import authorization_of_service, copy_api
from encrypted_records.cli.terminal import format_count, say, warn
from encrypted_records.errors import InvalidSetting


@connected()
async def _copy(
    session: CommandSession, place: str, base_url: str, quiet: bool, forget: bool
) -> None:
    def tell(line: str) -> None:
        if not quiet:
            warn(line)

    copied = await copy_api(base_url, place, _Login(session).authorization, tell, forget=forget)
    written = format_count(copied.objects, "object")
    say(
        f"{format_count(copied.schemas, 'schema')} mirrored: {written} with {copied.bytes:,} bytes"
        f" written, {copied.deleted} deleted"
    )


@click.command(short_help="Copy log and encrypted data to a folder or bucket that needs no trust.")
@click.argument("place")
@click.option("--quiet", is_flag=True, help="Do not tell which schema is being copied.")
@click.option(
    "--forget",
    is_flag=True,
    help="Let go from the mirror what the API no longer lists.",
)
@takes_settings("base_url")
# With the options that say where the proxy is.
@functools.wraps(_copy, assigned=(), updated=("__dict__",))
def mirror(
    settings: Settings, *, place: str, quiet: bool, forget: bool, **where: str | bool
) -> None:
    """Copy everything that your account reads at the API to PLACE, a folder or
    s3://bucket/prefix?endpoint=https://host: logs, rosters, definitions and encrypted records, as
    the API stores them. No key and no password is copied, and nothing is decrypted.

    The first run copies everything, later runs what is new. A run that is interrupted leaves the
    mirror as it was; the next one goes on. Records that were deleted go from the mirror with the
    next run; so do schemas whose deletion the signed roster shows. Anything else that the API no
    longer lists ends the run with mirror_would_lose and stays, unless --forget is given. The copy
    of an owner serves all members, that of a member only the member.

    Read a mirror with ers proxy --mirror, serve it with ers api --mirror, and check it with ers
    verify --mirror.

    Your login goes to the API itself, so name its address: by --base-url, ERS_BASE_URL or the file
    of settings. On another machine it must begin with https://.

    \b
    Example:
      ers mirror ./mirror --base-url https://records.example.org
    """
    source = click.get_current_context().get_parameter_source("base_url")
    if source is ParameterSource.DEFAULT:
        raise InvalidSetting(
            "it is not known which API to mirror, and the login goes there",
            hint="name its address, as the proxy has it: --base-url https://records.example.org",
        )
    _copy(place=place, base_url=settings.base_url, quiet=quiet, forget=forget, **where)


class _Login:
    """The Authorization value of a session's account at the API itself."""

    def __init__(self, session: CommandSession) -> None:
        self._session = session
        self._token = ""
        self._until = 0.0

    async def authorization(self) -> str:
        from encrypted_records.model.jwt import lifetime  # noqa: PLC0415 - slow to import

        who = self._session.who
        if who.service:
            return authorization_of_service(who.service)
        if who.login is not None:
            return await who.login()
        if time.monotonic() >= self._until:
            self._token = await self._session.access_token()
            self._until = time.monotonic() + lifetime(self._token) - EARLY_SECONDS
        return f"Bearer {self._token}"

"""``ers logout``: end the login that ``ers login`` began."""

from __future__ import annotations

from contextlib import suppress

import click

from encrypted_records.cli.session import Session, bearer, connected
from encrypted_records.cli.terminal import say
from encrypted_records.errors import NotAuthenticated, NotFound


@click.command(short_help="End the login that is kept here.")
@connected(anonymous=True)
async def logout(session: Session) -> None:
    """End the login that ers login began: its tokens are void at once, here and elsewhere.

    \b
    Example:
      ers logout
    """
    from encrypted_records.cli.logins import Logins  # noqa: PLC0415 - slow to import

    logins = Logins()
    login = logins.find(session.address)
    if login is None:
        raise NotFound(f"no login for {session.address} is kept here", hint="nothing is to be done")
    with suppress(NotAuthenticated):  # the service has ended it already
        await session.client.log_out(await bearer(session.proxy_url, logins, session.address))
    await logins.forget(session.address)
    say(f"Logged out at {session.address}.")

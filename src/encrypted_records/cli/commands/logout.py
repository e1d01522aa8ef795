"""``ers logout``: end the login that ``ers login`` began."""

from __future__ import annotations

from contextlib import suppress

import click

from encrypted_records.cli.login.session import NOBODY, CommandSession, bearer, connected, device_at
from encrypted_records.cli.terminal import say
from encrypted_records.errors import NotAuthenticated, NotFound


@click.command(short_help="End the login that is kept here.")
@connected(anonymous=True)
async def logout(session: CommandSession) -> None:
    """End the login that ers login began: its tokens are void at once, here and elsewhere.

    The device of this machine stays; ers device revoke ends it.

    \b
    Example:
      ers logout
    """
    from encrypted_records.cli.login.token_store import Logins  # noqa: PLC0415 - slow to import

    logins = Logins()
    login = logins.find(session.address)
    if login is None:
        raise NotFound(f"no login for {session.address} is kept here", hint="nothing is to be done")
    email = login.email
    with suppress(NotAuthenticated):  # the service has ended it already
        auth = await bearer(session.proxy, logins, email)
        async with session.proxy.client(NOBODY, device_at(session.proxy, email)) as client:
            await client.log_out(auth)
    await logins.forget(session.address)
    say(f"Logged out at {session.address}.")

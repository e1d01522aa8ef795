"""``ers logout``: end the login that ``ers login`` began."""

from __future__ import annotations

from contextlib import suppress

import click

from encrypted_records.cli.login.session import NOBODY, CommandSession, bearer, connected, device_at
from encrypted_records.cli.terminal import say
from encrypted_records.errors import NotAuthenticated, NotFound


@click.command(short_help="Log out on this machine.")
@connected(anonymous=True)
async def logout(session: CommandSession) -> None:
    """Log out: the tokens of the login are void at once, on every machine.

    The device of this machine stays registered; ers device revoke revokes it.

    \b
    Example:
      ers logout
    """
    from encrypted_records.cli.login.token_store import Logins  # noqa: PLC0415 - slow to import

    logins = Logins()
    login = logins.find(session.address)
    if login is None:
        raise NotFound(f"you are not logged in at {session.address}", hint="nothing was changed")
    email = login.email
    with suppress(NotAuthenticated):  # the service has ended it already
        auth = await bearer(session.proxy, logins, email)
        async with session.proxy.client(NOBODY, device_at(session.proxy, email)) as client:
            await client.log_out(auth)
    await logins.forget(session.address)
    say(f"Logged out at {session.address}.")

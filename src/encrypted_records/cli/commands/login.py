"""``ers login``: keep a login, so that commands ask no more for a password."""

from __future__ import annotations

import os

import click

from encrypted_records.cli.session import Session, ask_credentials, connected
from encrypted_records.cli.terminal import say


@click.command(short_help="Log in, and stay logged in.")
@click.option("--email", envvar="ERS_EMAIL", show_envvar=True, help="Asked for where left out.")
@connected(anonymous=True)
async def login(session: Session, email: str | None) -> None:
    """Log in with e-mail and password, and keep the login for the commands that follow.

    It is kept in the keychain of the system, or where there is none in a file that only you can
    open; never the password. The password is asked for, or taken from ERS_PASSWORD. A login ends
    with ers logout, after a change of password, or after seven days without use.

    \b
    Example:
      ers login --email ada@example.org
    """
    from encrypted_records.cli.logins import Login, Logins  # noqa: PLC0415 - slow to import

    email, password = ask_credentials(email, os.environ.get("ERS_PASSWORD"))
    tokens = await session.client.tokens(email=email, password=password)
    where = await Logins().keep(session.address, Login(email, tokens))
    say(f"Logged in at {session.address} as {email}. The login is kept in {where}.")

"""``ers user``: the account behind the credentials."""

from __future__ import annotations

import os
import sys

import click

from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.session import Session, connected
from encrypted_records.cli.terminal import ask, say
from encrypted_records.errors import InvalidSetting


@click.group(short_help="Show your account, change its password.")
def user() -> None:
    """The account behind the credentials."""


@user.command(short_help="Show who you are.")
@connected()
@takes_output
async def get(session: Session, output: Output) -> None:
    """Show the account that commands run as, and its organizations.

    \b
    Example:
      ers user get
    """
    output.one(await session.client.resource("/api/users/self/"))


@user.command(short_help="Change your password.")
@connected()
async def password(session: Session) -> None:
    """Change the password. It ends all logins of the account, everywhere.

    The passwords are asked for; without a terminal, ERS_PASSWORD is the old one and the first line
    of standard input the new one.

    \b
    Example:
      ers user password < new-password.txt
    """
    old = os.environ.get("ERS_PASSWORD")
    if sys.stdin.isatty():
        old = old or ask("Present password", hide_input=True)
        new = ask("New password", hide_input=True, confirmation_prompt=True)
    else:
        new = sys.stdin.readline().rstrip("\n")
    if not (old and new):
        raise InvalidSetting(
            "the present or the new password is missing",
            hint="set ERS_PASSWORD, and give the new one on standard input",
        )
    await session.client.change_password(old, new)
    say("The password is changed, and all logins have ended. Log in again: ers login")

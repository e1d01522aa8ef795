"""``ers user``: the account behind the credentials."""

from __future__ import annotations

import os
import sys

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.login.confirmation import ask_link
from encrypted_records.cli.login.passwords import answer, set_password
from encrypted_records.cli.login.session import (
    NOBODY,
    CommandSession,
    connected,
    email_option,
    usual_device,
)
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import ask, say
from encrypted_records.cli.times import TIMES
from encrypted_records.errors import InvalidSetting


@click.group(cls=CommandGroup, short_help="Show your account, change or reset its password.")
def user() -> None:
    """Show your account, or change its password."""


@user.command(short_help="Show your account.")
@connected()
@takes_output
async def get(session: CommandSession, output: Output) -> None:
    """Show the account that commands run as, and its organizations.

    \b
    Example:
      ers user get
    """
    output.write_one(await session.client.resource("/api/users/self/"), times=TIMES)


@user.command(short_help="Change your password.")
@connected()
async def password(session: CommandSession) -> None:
    """Change the password. This ends all logins of the account on every machine.

    The command asks for the passwords. Without a terminal, ERS_PASSWORD is the old password and the
    first line of standard input the new one.

    \b
    Example:
      ers user password < new-password.txt
    """
    old = os.environ.get("ERS_PASSWORD")
    given = None
    if sys.stdin.isatty():
        old = old or ask("Present password", hide_input=True)
    else:
        given = sys.stdin.readline().rstrip("\n")
    if not old or given == "":
        raise InvalidSetting(
            "missing: the current or the new password",
            hint="set ERS_PASSWORD, and give the new password on standard input",
        )
    present = old
    await set_password(
        "New password", given, lambda new: session.client.change_password(present, new)
    )
    say("The password is changed, and all logins have ended. Log in again: ers login")


@user.command("reset-password", short_help="Set a new password if the old one is lost.")
@email_option
@click.option(
    "--link", "has_link", is_flag=True, help="Ask for the link of a message that you have received."
)
@connected(anonymous=True)
async def reset_password(session: CommandSession, email: str | None, has_link: bool) -> None:
    """Request a message with a link, then set a new password by that link. A link works once, for
    an hour. Your keyring does not change, and records can be decrypted as before.

    On a terminal the command asks for the link and the new password. Without a terminal it only
    requests the message; with --link it reads the link and the new password from the first two
    lines of standard input.

    \b
    Example:
      ers user reset-password --email ada@example.org
    """
    # From the usual device: a stranger at the proxy's port gets no password.
    async with session.proxy.client(NOBODY, usual_device(session.proxy)) as client:
        if not has_link:
            address = email or answer("E-mail", "the e-mail address")
            await client.send_reset_link(address)
            say(f"If {address} has an account, a message with a link was sent to it.")
            if not sys.stdin.isatty():
                say("When you have the link: ers user reset-password --link")
                return
        link = ask_link()
        given = None
        if not sys.stdin.isatty():
            given = answer("New password", "the new password")

        async def use(chosen: str) -> None:
            await client.reset_password(
                user_id=link.user_id,
                timestamp=link.timestamp,
                signature=link.signature,
                password=chosen,
            )

        await set_password("New password", given, use)
    say("The password is changed, and all logins have ended. Log in again: ers login")

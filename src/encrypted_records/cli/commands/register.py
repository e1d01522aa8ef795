"""``ers register``: open an account."""

from __future__ import annotations

import os
import sys

import click

from encrypted_records.cli.login.confirmation import ask_link, confirm_account
from encrypted_records.cli.login.passwords import set_password
from encrypted_records.cli.login.session import (
    NOBODY,
    CommandSession,
    Credentials,
    connected,
    email_option,
    usual_device,
)
from encrypted_records.cli.terminal import ask, say
from encrypted_records.errors import InvalidSetting


@click.command(short_help="Create an account with its own organization.")
@email_option
@click.option(
    "--organization",
    metavar="NAME",
    help="Name of the new organization (asked for if missing). Leave it empty if you were invited"
    " to one: no organization is created.",
)
@click.option(
    "--confirm", is_flag=True, help="Ask for the link in the message, and confirm the account."
)
@connected(anonymous=True)
async def register(
    session: CommandSession, email: str | None, organization: str | None, confirm: bool
) -> None:
    """Create an account. The account works once the link in the message to its address was opened,
    in a browser or with ers verify. With --confirm the command asks for the link at once.

    The password is asked for twice, or taken from ERS_PASSWORD: at least twelve characters, not a
    common password, not similar to the address.

    \b
    Example:
      ers register --email grace@example.org --organization "Harvard Mark I"
    """
    given = os.environ.get("ERS_PASSWORD") or None
    if (not (email and given) or organization is None) and not sys.stdin.isatty():
        raise InvalidSetting(
            "missing: --email, --organization or ERS_PASSWORD",
            hint="add the options, and set ERS_PASSWORD",
        )
    address = email or ask("E-mail")
    # From the usual device: a stranger at the proxy's port gets no password.
    async with session.proxy.client(NOBODY, usual_device(session.proxy)) as client:
        called = organization
        if called is None:
            called = ask(
                "Name of the organization, or nothing if you were invited to one", default=""
            )

        async def use(chosen: str) -> None:
            await client.register(email=address, password=chosen, organization_name=called)

        password = await set_password("Password", given, use)
    if not confirm:
        say(f"A message was sent to {address}. Open its link, or run: ers verify. Then: ers login")
        return
    say(f"A message was sent to {address}.")
    await confirm_account(session, ask_link(), Credentials(address, password))

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


@click.command(short_help="Open an account with an organization of its own.")
@email_option
@click.option("--organization", metavar="NAME", help="Name of the new organization; asked for.")
@click.option("--confirm", is_flag=True, help="Wait for the message's link, and confirm by it.")
@connected(anonymous=True)
async def register(
    session: CommandSession, email: str | None, organization: str | None, confirm: bool
) -> None:
    """Open an account. A message goes to the address; the account works once its link was opened,
    in a browser or with ers verify. With --confirm the link is asked for now.

    The password is asked for twice, or taken from ERS_PASSWORD: at least twelve characters, not a
    common one, not like the address.

    \b
    Example:
      ers register --email grace@example.org --organization "Harvard Mark I"
    """
    given = os.environ.get("ERS_PASSWORD") or None
    if not (email and organization and given) and not sys.stdin.isatty():
        raise InvalidSetting(
            "something is missing, and there is no terminal to ask on",
            hint="name --email and --organization, and set ERS_PASSWORD",
        )
    address = email or ask("E-mail")
    # From the usual device: a stranger at the proxy's port gets no password.
    async with session.proxy.client(NOBODY, usual_device(session.proxy)) as client:
        called = organization or ask("Name of the organization")

        async def use(chosen: str) -> None:
            await client.register(email=address, password=chosen, organization_name=called)

        password = await set_password("Password", given, use)
    if not confirm:
        say(f"A message goes to {address}. Open its link, or run: ers verify. Then: ers login")
        return
    say(f"A message goes to {address}.")
    await confirm_account(session, ask_link(), Credentials(address, password))

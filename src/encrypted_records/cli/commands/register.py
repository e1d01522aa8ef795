"""``ers register``: open an account."""

from __future__ import annotations

import os
import sys

import click

from encrypted_records.cli.session import Session, connected
from encrypted_records.cli.terminal import ask, say
from encrypted_records.errors import InvalidSetting


@click.command(short_help="Open an account with an organization of its own.")
@click.option("--email", envvar="ERS_EMAIL", show_envvar=True, help="Asked for where left out.")
@click.option("--organization", metavar="NAME", help="Name of the new organization; asked for.")
@connected(anonymous=True)
async def register(session: Session, email: str | None, organization: str | None) -> None:
    """Open an account. A message goes to the address; the account works once its link was opened.

    The password is asked for twice, or taken from ERS_PASSWORD: at least twelve characters.

    \b
    Example:
      ers register --email grace@example.org --organization "Harvard Mark I"
    """
    password = os.environ.get("ERS_PASSWORD")
    if not (email and organization and password) and not sys.stdin.isatty():
        raise InvalidSetting(
            "something is missing, and there is no terminal to ask on",
            hint="name --email and --organization, and set ERS_PASSWORD",
        )
    email = email or ask("E-mail")
    organization = organization or ask("Name of the organization")
    password = password or ask("Password", hide_input=True, confirmation_prompt=True)
    await session.client.register(email=email, password=password, organization_name=organization)
    say(f"A message goes to {email}. Open its link, then run: ers login")

"""``ers register``: open an account."""

from __future__ import annotations

import os
import sys

import click

from encrypted_records.cli.session import Session, connected
from encrypted_records.cli.terminal import say
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
    email = email or click.prompt("E-mail", err=True)
    organization = organization or click.prompt("Name of the organization", err=True)
    password = password or click.prompt(
        "Password", hide_input=True, confirmation_prompt=True, err=True
    )
    await session.client.register(
        email=str(email), password=str(password), organization_name=str(organization)
    )
    say(f"A message goes to {email}. Open its link, then run: ers login")

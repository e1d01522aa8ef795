"""``ers status``: whether proxy and API answer."""

from __future__ import annotations

import click

from encrypted_records import __version__
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.session import Session, connected


@click.command(short_help="Say whether proxy and API answer.")
@connected(anonymous=True)
@takes_output
async def status(session: Session, output: Output) -> None:
    """Say whether the proxy and its API answer, and their version. It needs no account.

    \b
    Example:
      ers status
    """
    found = await session.client.status()
    output.one({"address": session.address, **found, "ers_version": __version__})

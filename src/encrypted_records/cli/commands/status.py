"""``ers status``: whether proxy and API answer."""

from __future__ import annotations

import click

from encrypted_records import __version__
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import DONE, REFUSED, warn


@click.command(short_help="Check whether proxy and API answer.")
@connected(anonymous=True)
@takes_output
async def status(session: CommandSession, output: Output) -> int:
    """Check whether the proxy and its API answer, and show their version. No account is needed. If
    the API itself answers instead of a proxy, the exit code is 4: records cannot be stored there.

    \b
    Example:
      ers status
    """
    answer = await session.client.status()
    output.write_one({"address": session.address, **answer, "ers_version": __version__})
    if answer.get("behind_proxy") is not True:
        warn(f"This is the API itself, not a proxy: {session.proxy_url}")
        warn("hint: name a proxy with --proxy-url or ERS_PROXY_URL")
        return REFUSED
    if answer.get("clock_jumped") is True:
        warn(
            "The clock of the proxy's machine jumped ahead, or the machine was off for days:"
            " records that expired only during these days are not deleted yet"
        )
        warn(
            "hint: set the clock, or let the proxy run for a day; if it is right: ers retention run"
            " --clock-is-right"
        )
    return DONE

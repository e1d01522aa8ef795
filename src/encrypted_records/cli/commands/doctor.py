"""``ers doctor``: why is it slow, why are there no rows, why is it refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import click

from encrypted_records.cli.checks import Finding, findings
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.session import Session, connected
from encrypted_records.cli.terminal import DONE, say


@click.command(short_help="Look for what is wrong, and say what to do.")
@click.option("--schema", metavar="NAME", help="Look at this one only.")
@connected(organization=True)
@takes_output
async def doctor(session: Session, schema: str | None, output: Output) -> int:
    """Look at versions, disk, proxy, API, clock, account, keyring, and at each schema and its
    index, and say what to do about what is wrong. Nothing is changed.

    The exit code is 0 when nothing has failed, else that of the first failure.

    \b
    Examples:
      ers doctor
      ers doctor --schema patient --output json
    """
    seen: list[Finding] = []

    async def things() -> AsyncIterator[dict[str, Any]]:
        async for one in findings(session, schema):
            seen.append(one)
            yield {"check": one.check, "state": one.state, "found": one.found, "hint": one.hint}

    if output.form == "table":
        async for one in things():
            say(f"{one['state']:<8} {one['check']:<10} {one['found']}")
            if one["hint"]:
                say(f"{'':<8} {'':<10} hint: {one['hint']}")
    else:
        await output.many(things(), ("check", "state", "found", "hint"))
    return next((one.code for one in seen if one.code != DONE), DONE)

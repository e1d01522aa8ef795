"""``ers schema verify`` and ``ers schema sign``: what is stored, and called, as it was signed."""

from __future__ import annotations

from typing import Any

import click

from encrypted_records.cli.commands.salvage import lines_of
from encrypted_records.cli.login.session import (
    SCHEMA,
    CommandSession,
    connected,
)
from encrypted_records.cli.terminal import DONE, REFUSED, confirm, say, show, warn
from encrypted_records.errors import ApiFailed


@click.command(short_help="Compare everything stored with what was signed.")
@click.argument("schema", type=SCHEMA)
@connected(organization=True)
async def verify(session: CommandSession, schema: str) -> int:
    """Fetch every row and index page of a schema, and compare them with the digests in the signed
    log. Members who can read a schema could otherwise, together with the API, replace data
    unnoticed. Nothing is changed.

    Each difference is named; the exit code is then 4.

    \b
    Example:
      ers schema verify patient
    """
    from encrypted_records.model import strict_json  # noqa: PLC0415 - slow to import

    resource = await session.names.schema(schema)
    report: dict[str, Any] | None = None
    async with session.client.verify_schema(resource["url"]) as pieces:
        async for line in lines_of(pieces):
            members = strict_json.loads(line)
            if isinstance(members, dict) and isinstance(members.get("verify"), dict):
                report = members["verify"]
            elif isinstance(members, dict) and isinstance(members.get("altered"), str):
                show(members["altered"])
            else:
                raise ApiFailed("a line of the answer has an unexpected form")
    if report is None:
        raise ApiFailed(
            "the comparison did not finish", hint="the result is not complete; try again"
        )
    compared = f"{report['rows']} rows and {report['pages']} pages, up to version"
    if report["altered"]:
        warn(f"Compared {compared} {report['version']}: {report['altered']} places were altered.")
        warn("hint: restore the API's newest backup, or store these records again")
        return REFUSED
    say(f"Compared {compared} {report['version']}: nothing was altered.")
    return DONE


@click.command(short_help="Sign a schema as the API shows it.")
@click.argument("schema", type=SCHEMA)
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def sign(session: CommandSession, schema: str, yes: bool) -> None:
    """Sign slug, name and, before its first record, definition of a schema as the API shows them,
    if it was created at the API or a change was interrupted. The command shows all differences from
    what was signed, and asks.

    \b
    Example:
      ers schema sign patient
    """
    resource = await session.names.schema(schema)
    seen = await session.client.sign_schema(resource["url"], dry_run=True)
    if not seen.changes:
        say("There is nothing to sign: names and definition are as signed.")
        return
    for name in seen.changes:
        before = "nothing" if seen.signed is None else getattr(seen.signed, name) or "nothing"
        warn(f"{name}: {before} was signed, and the API shows {getattr(seen.shown, name)}")
    confirm("Sign what the API shows?", yes=yes, undone="nothing was signed")
    await session.client.sign_schema(resource["url"], seen=seen.shown)
    say("Signed.")

"""``ers schema repair``: make a schema whole again of which the API has lost something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.terminal import confirm, say, warn


@click.command(short_help="Build a lost index again, and give up lost records.")
@click.argument("schema")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def repair(session: CommandSession, schema: str, yes: bool) -> None:
    """Make a schema whole again of which the API has lost something, as after a restore of its
    database or its objects alone: an index that is lost is built again from its records, and
    records of which nothing is left are deleted, once you agree to their number. What is lost, the
    operator has noted before by ers storage reconcile.

    \b
    Example:
      ers schema repair patient
    """
    resource = await session.names.schema(schema)
    if not await repair_schema(session, resource, yes=yes):
        say(f"{resource['slug']}: nothing is lost.")


async def repair_schema(session: CommandSession, schema: Mapping[str, Any], *, yes: bool) -> bool:
    """Whether something of the schema was lost, and is repaired."""
    slug, url = schema["slug"], schema["url"]
    loss = await session.client.lost_of(url)
    if loss.done:
        return False
    if loss.records:
        warn(
            f"{slug}: of {_count(loss.records, 'record')} nothing is left at the API, since they"
            " were erased after the moment that was restored, or since objects are lost."
        )
        confirm(
            f"Delete {_count(loss.records, 'record')} of {slug}?",
            yes=yes,
            undone="nothing was deleted",
        )
    if loss.segments:
        segments, rows = _count(loss.segments, "segment"), _count(loss.rows, "record")
        warn(f"{slug}: {segments} of the index, of {rows}, is built again.")
    while not (await session.client.repair(url, confirm=loss.records)).done:
        pass
    say(f"Repaired: {slug}, {_count(loss.records, 'lost record')} deleted.")
    return True


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

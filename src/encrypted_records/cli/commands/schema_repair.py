"""``ers schema repair``: make a schema whole again of which the API has lost something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from encrypted_records.cli.login.session import (
    SCHEMA,
    CommandSession,
    connected,
)
from encrypted_records.cli.terminal import confirm, say, warn


@click.command(short_help="Rebuild a lost index, and delete records that are lost.")
@click.argument("schema", type=SCHEMA)
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def repair(session: CommandSession, schema: str, yes: bool) -> None:
    """Repair a schema of which the API has lost data, as after restoring its database or its
    objects alone. A lost index is built again from the records; records that are lost altogether
    are deleted after you confirm their number. The operator has to run ers storage reconcile first.

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
            f"{slug}: the API has lost {_count(loss.records, 'record')} entirely: they were"
            " erased after the restored moment, or their objects are lost."
        )
        confirm(
            f"Delete {_count(loss.records, 'record')} of {slug}?",
            yes=yes,
            undone="nothing was deleted",
        )
    if loss.segments:
        segments, rows = _count(loss.segments, "segment"), _count(loss.rows, "record")
        warn(f"{slug}: {segments} of the index, with {rows}, was rebuilt.")
    while not (await session.client.repair(url, confirm=loss.records)).done:
        pass
    say(f"Repaired: {slug}, {_count(loss.records, 'lost record')} deleted.")
    return True


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

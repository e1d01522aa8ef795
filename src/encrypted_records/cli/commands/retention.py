"""``ers retention``: records that go when they are old enough."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import click

from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import DONE, format_count, report, say
from encrypted_records.errors import ErsError


@click.group(short_help="Delete the records that are older than their schema lets them be.")
def retention() -> None:
    """Retention: for how long records stay. A schema's definition says it, at its root: with
    "retention": {"days": 365} a record goes by the day on which it was first stored, with {"field":
    "seen", "days": 365} by a date that it has. ers schema change sets it.
    """


@retention.command(short_help="Say what goes by now; delete nothing.")
@click.argument("schema")
@connected(organization=True)
@takes_output
async def show(session: CommandSession, schema: str, output: Output) -> None:
    """Say for how long the records of a schema stay, and how many are old enough to go.

    \b
    Example:
      ers retention show patient
    """
    url = (await session.names.schema(schema))["url"]
    due = await session.client.look_at_retention(url)
    if output.form == "table":
        say(_line_of(due))
    else:
        output.write_one(due)


@retention.command(short_help="Delete the records that are old enough.")
@click.argument("schemas", metavar="[SCHEMA]...", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Only say how many would go.")
@connected(organization=True)
@takes_output
async def run(
    session: CommandSession, schemas: tuple[str, ...], dry_run: bool, output: Output
) -> int:
    """Delete the records that are older than their schema's signed definition lets them be; without
    SCHEMA, in every schema that has such a rule. Proxies do it by themselves once a day, when
    somebody who may write searches or stores there; where nobody comes by, have cron do it, with a
    service's string. What was deleted is erased later, as after any deletion.

    \b
    Examples:
      ers retention run patient --dry-run
      ers retention run
    """
    every = [await session.names.schema(one) for one in schemas]
    if not schemas:
        filters = await session.names.in_organization()
        listed = session.client.listing("schemas", **filters)
        every = [one async for one in listed if "retention" in one["schema"]]
    codes = [DONE]

    async def found() -> AsyncIterator[Mapping[str, Any]]:
        for one in every:
            try:
                yield {"schema": one["slug"], **await _carry_out(session, one["url"], dry_run)}
            except ErsError as error:
                # The other schemas have theirs all the same.
                codes.append(report(error))

    columns = ("schema", "before", "records" if dry_run else "deleted")
    await output.many(found(), columns, called="schemas with a retention")
    return max(codes)


async def _carry_out(session: CommandSession, url: str, dry_run: bool) -> dict[str, Any]:
    if dry_run:
        return await session.client.look_at_retention(url)
    return await session.client.carry_out_retention(url)


def _line_of(due: Mapping[str, Any]) -> str:
    rule = due["retention"]
    if rule is None:
        return "Records stay until somebody deletes them."
    since = rule.get("field", "the day on which they were first stored")
    return (
        f"Records go {format_count(rule['days'], 'day')} after {since}:"
        f" by now {format_count(due['records'], 'record')}, of before {due['before']}."
    )

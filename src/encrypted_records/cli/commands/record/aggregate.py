"""``ers record aggregate``: measure records without opening them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import click

from encrypted_records.cli.commands.conditions import make_cells, question, split_groups
from encrypted_records.cli.commands.record.options import (
    dataset_option,
    schema_option,
    where_option,
)
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import warn
from encrypted_records.client.sdk import condition_language
from encrypted_records.client.sdk.measures import name_measures


@click.command(short_help="Count, sum, average or group records.")
@click.argument("expression", required=False)
@schema_option
@dataset_option
@where_option
@click.option(
    "--measure",
    "measures",
    multiple=True,
    metavar="MEASURE",
    help="count, min(F), max(F), sum(F), avg(F), variance(F), stddev(F), percentile(F, 50, 90),"
    " histogram(F, 10), histogram(F, month), distinct(F); may be repeated. count if left out.",
)
@click.option(
    "--group-by",
    metavar="FIELDS",
    help="Fields to group by; dates also as year(F), month(F), week(F), day(F).",
)
@click.option("--order", help="Order of groups: value, -value, count or -count.")
@click.option("--limit", type=click.IntRange(0), help="Maximum number of groups (default: 100).")
@connected(organization=True)
@takes_output
async def aggregate(
    session: CommandSession,
    expression: str | None,
    schema: str,
    dataset: str | None,
    where: str | None,
    measures: tuple[str, ...],
    group_by: str | None,
    order: str | None,
    limit: int | None,
    output: Output,
) -> None:
    """Compute measures of the records that match EXPRESSION, or of all, without decrypting them.

    \b
    Examples:
      ers record aggregate --schema patient 'age >= 18' --measure 'avg(age)' --measure count
      ers record aggregate --schema patient --group-by city --order=-count
    """
    texts = measures or ("count",)
    asked = [condition_language.parse_measure(text) for text in texts]
    resource, condition, known = await question(session, schema, dataset, expression, where)
    groups = None if group_by is None else split_groups(group_by, known)
    answer = await session.client.aggregate(
        resource["url"], asked, where=condition, group_by=groups, order=order, limit=limit
    )
    fields = [group if isinstance(group, str) else group["field"] for group in groups or []]
    named = name_measures(texts, fields)
    results = [named[text] for text in texts]
    rows = [answer] if groups is None else answer["groups"]

    async def things() -> AsyncIterator[Mapping[str, Any]]:
        for row in rows:
            yield row

    await output.many(
        things(),
        [*fields, *results],
        lambda group: make_cells(group, results),
        called="groups",
    )
    if groups is not None and answer["total"] > len(rows):
        warn(f"there are {answer['total']} groups: --limit shows more")

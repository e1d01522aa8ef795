"""``ers record list``, ``search``, ``get`` and ``decrypt``: read records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Any

import click

from encrypted_records.cli.commands.conditions import first, question, split_fields
from encrypted_records.cli.commands.record.options import (
    FILE,
    SHOWN,
    all_option,
    dataset_option,
    fields_option,
    limit_option,
    schema_option,
    where_option,
)
from encrypted_records.cli.input.files import objects_in
from encrypted_records.cli.input.record_batches import batches
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import format_count, say, warn
from encrypted_records.client.sdk.measures import own_column
from encrypted_records.model.csv_text import LEFT_OUT


@click.command("list", short_help="List records of a schema, oldest first.")
@schema_option
@dataset_option
@limit_option
@all_option
@click.option("--sealed", is_flag=True, help="Show the ciphertext that the API has.")
@connected(organization=True)
@takes_output
async def list_(
    session: CommandSession,
    schema: str,
    dataset: str | None,
    limit: int | None,
    all_: bool,
    sealed: bool,
    output: Output,
) -> None:
    """List the records of a schema in the order in which they were stored.

    \b
    Examples:
      ers record list --schema patient --limit 10
      ers record list --schema patient --sealed --all | ers record decrypt -
    """
    most = _most(limit, everything=all_)
    output = output.as_stream() if all_ else output
    resource = await session.names.schema(schema, dataset)
    records = session.client.records(resource["url"], limit=most and most + 1, sealed=sealed)
    if sealed:
        columns = ("id", "version", "fields")
        await output.many(first(records, most), columns, called="records")
    else:
        await _show(first(records, most), list(resource["schema"]["properties"]), output)


def _most(limit: int | None, *, everything: bool) -> int | None:
    """How many records --limit and --all ask for; None is all. To tell whether there are more, one
    more is asked for."""
    if everything and limit is not None:
        raise click.UsageError("--all and --limit contradict each other")
    return None if everything else limit or SHOWN


async def _show(
    records: AsyncIterator[Mapping[str, Any]], fields: list[str], output: Output
) -> None:
    """Write opened records; a table says how many there were. The record's id has a column of its
    own, which an upload of the CSV leaves out."""
    if output.form == "csv":
        taken = [name.removeprefix(LEFT_OUT) for name in fields if name.startswith(LEFT_OUT)]
        own = LEFT_OUT + own_column("id", "record", taken)
        columns = [*fields, own]
    else:
        own = own_column("id", "record", fields)
        columns = [own, *fields]
    shown = await output.many(
        records,
        columns,
        lambda record: {own: record["id"], **record["data"]},
        called="records",
    )
    if output.form == "table" and shown:
        warn(format_count(shown, "record"))


@click.command(short_help="Find records that match a condition.")
@click.argument("expression", required=False)
@schema_option
@dataset_option
@where_option
@click.option(
    "--order-by",
    metavar="FIELDS",
    help="Order, such as city,-age: by city, then by age, descending.",
)
@fields_option
@limit_option
@all_option
@click.option("--count", is_flag=True, help="Print only the number of records.")
@connected(organization=True)
@takes_output
async def search(
    session: CommandSession,
    expression: str | None,
    schema: str,
    dataset: str | None,
    where: str | None,
    order_by: str | None,
    fields: str | None,
    limit: int | None,
    all_: bool,
    count: bool,
    output: Output,
) -> None:
    """Find the records that match EXPRESSION, or all. docs/cli.md describes the language.

    \b
    Examples:
      ers record search --schema patient 'age >= 18 and city in ("Rome", "Oslo")'
      ers record search --schema patient 'name starts with "A"' --fields name,age --output csv
      ers record search --schema patient 'not (height is null)' --count
      ers record search --schema patient --where '{"field": "age", "op": "lt", "value": 40}' --all
    """
    most = _most(limit, everything=all_)
    output = output.as_stream() if all_ else output
    resource, condition, known = await question(session, schema, dataset, expression, where)
    if count:
        page = await session.client.search(resource["url"], where=condition, limit=0)
        say(str(page.count))
        return
    wanted = None if fields is None else split_fields(fields, known)
    records = session.client.search_all(
        resource["url"],
        where=condition,
        order_by=None if order_by is None else split_fields(order_by, known),
        fields=wanted,
        limit=most and most + 1,
    )
    await _show((asdict(record) async for record in first(records, most)), wanted or known, output)


@click.command(short_help="Show a record.")
@click.argument("id")
@click.option("--sealed", is_flag=True, help="Show the ciphertext that the API has.")
@connected()
@takes_output
async def get(session: CommandSession, id: str, sealed: bool, output: Output) -> None:  # noqa: A002
    """Show the record with this id.

    \b
    Example:
      ers record get "$RECORD" --sealed
    """
    record = await session.client.record(id, sealed=sealed)
    output.write_one(record["data"] if output.form in ("table", "csv") and not sealed else record)


@click.command(short_help="Decrypt records.")
@click.argument("file", type=FILE)
@connected()
@takes_output
async def decrypt(session: CommandSession, file: str, output: Output) -> None:
    """Decrypt records as the API or record get --sealed returns them, in a JSON or NDJSON file (-
    for standard input).

    \b
    Example:
      ers record get "$RECORD" --sealed | ers record decrypt -
    """

    async def open_records() -> AsyncIterator[Mapping[str, Any]]:
        async for sealed in batches(objects_in(file), session.limits.at_once):
            for record in await session.client.decrypt(sealed):
                yield record

    await output.as_stream().many(open_records(), ("id", "data"), called="records")

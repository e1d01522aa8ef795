"""``ers record``: store, find, measure, export and change records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import islice
from typing import Any

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.commands.erasure import cost_line, say_erased
from encrypted_records.cli.commands.job import (
    again_option,
    finish,
    going_on,
    send_pieces,
    warn_of_rounding,
)
from encrypted_records.cli.commands.selection import (
    FILE,
    SHOWN,
    all_option,
    dataset_option,
    default_schema_option,
    fields_option,
    file_format,
    first,
    limit_option,
    question,
    safe_cells_option,
    schema_id_option,
    schema_option,
    split_fields,
    split_groups,
    where_option,
)
from encrypted_records.cli.input.files import (
    LineCounter,
    batches,
    is_there,
    objects_in,
    open_result,
    records_from,
)
from encrypted_records.cli.input.upload_sources import KINDS, lines_of
from encrypted_records.cli.login.session import SCHEMA, CommandSession, connected
from encrypted_records.cli.output import Output, row_of, takes_output
from encrypted_records.cli.terminal import confirm, format_count, say, warn
from encrypted_records.client import MAX_DIRECT
from encrypted_records.client.proxy.records import (
    Aggregate,
    GroupedAggregate,
    MeasuredGroup,
    Record,
    require_record_id,
)
from encrypted_records.client.sdk import condition_language
from encrypted_records.client.sdk.files import bar
from encrypted_records.client.sdk.rows import measured, name_measures, own_column
from encrypted_records.errors import InvalidRecords, InvalidSetting, UploadedBefore
from encrypted_records.model.record_formats import LEFT_OUT


@click.command(short_help="Store the records of a JSON file, and print their ids.")
@default_schema_option
@dataset_option
@again_option
@click.option(
    "--file", type=FILE, required=True, help="File with JSON or NDJSON; - for standard input."
)
@connected(organization=True)
@takes_output
async def create(
    session: CommandSession,
    schema: str | None,
    dataset: str | None,
    again: bool,
    file: str,
    output: Output,
) -> int | None:
    """Store the records of a file: all of them, or none.

    A record is an object of field names and values, or an object with data and schema, as in the
    HTTP API. The ids of up to 100 records are printed, in the order of the file; larger files
    become a batch job, and the command waits for its end. ers import stores files of other formats.

    \b
    Example:
      ers record create --organization acme --dataset medical --schema patient --file patients.json
    """
    default = None
    if schema is not None:
        default = (await session.names.schema(schema, dataset)).url
    records = records_from(objects_in(file), default, session.names, session.limits.at_once)
    first_ones = await anext(records, None)
    if first_ones is None:
        raise InvalidRecords("the file has no records", hint="nothing was stored")
    if len(first_ones) > MAX_DIRECT:
        pieces = _lines(first_ones, records)
        try:
            job = await send_pieces(session, pieces, KINDS["ndjson"], {"again": again})
        except UploadedBefore as error:
            job = await going_on(session, error)
        return await finish(session, job, output)
    created = await session.client.ingest_records(first_ones)

    shown = (
        {"id": record.id, "url": record.url}
        | ({"rounded": record.rounded} if record.rounded else {})
        for record in created
    )
    await output.many(shown, ("id", "url"), called="records")
    warn_of_rounding(name for record in created for name in record.rounded)
    return None


async def _lines(
    first_ones: list[dict[str, Any]], more: AsyncIterator[list[dict[str, Any]]]
) -> AsyncIterator[bytes]:
    for piece in lines_of(iter(first_ones)):
        yield piece
    async for records in more:
        for piece in lines_of(iter(records)):
            yield piece


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
    url, limit = resource.url, most and most + 1
    if sealed:
        rows = session.client.sealed_records(url, limit=limit)
        await output.many(first(rows, most), ("id", "version", "fields"), called="records")
    else:
        records = session.client.records(url, limit=limit)
        await _show(first(records, most), list(resource.definition["properties"]), output)


def _most(limit: int | None, *, everything: bool) -> int | None:
    """The number of records of --limit and --all; None is all. One more is requested, to know
    whether there are more."""
    if everything and limit is not None:
        raise click.UsageError("--all and --limit contradict each other")
    return None if everything else limit or SHOWN


async def _show(records: AsyncIterator[Record], fields: list[str], output: Output) -> None:
    """Write opened records; a table says how many there were. The record's id has a column of its
    own, which an upload of the CSV leaves out."""
    if output.form == "csv":
        taken = [name.removeprefix(LEFT_OUT) for name in fields if name.startswith(LEFT_OUT)]
        id_column = LEFT_OUT + own_column("id", "record", taken)
        columns = [*fields, id_column]
    else:
        id_column = own_column("id", "record", fields)
        columns = [id_column, *fields]
    shown = await output.many(
        records,
        columns,
        lambda record: {id_column: record["id"], **record["data"]},
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
        page = await session.client.search(resource.url, where=condition, limit=0)
        say(str(page.count))
        return
    wanted = None if fields is None else split_fields(fields, known)
    records = session.client.search_all(
        resource.url,
        where=condition,
        order_by=None if order_by is None else split_fields(order_by, known),
        fields=wanted,
        limit=most and most + 1,
    )
    await _show(first(records, most), wanted or known, output)


def _check_id(text: str) -> None:
    """
    Raises:
        NotFound: ``text`` cannot be the id of a record.
    """
    require_record_id(text, "ers record list and ers record search show the ids of records")


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
    _check_id(id)
    if sealed:
        output.write_object(await session.client.sealed_record(id))
        return
    record, etag = await session.client.record(id)
    _write(output, record, etag)


def _write(output: Output, record: Record, etag: str | None) -> None:
    """Write a record, as JSON with its version."""
    if output.form in ("table", "csv"):
        output.write_object(record.data)
    else:
        output.write_object({**row_of(record), "version": etag and int(etag.strip('W/"'))})


if_version_option = click.option(
    "--if-version",
    type=int,
    metavar="VERSION",
    callback=lambda _, __, version: None if version is None else f'"{version}"',
    help="Only if the record still has this version (ers record get -o json).",
)


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

    async def open_records() -> AsyncIterator[Record]:
        async for sealed in batches(objects_in(file), session.limits.at_once):
            for record in await session.client.decrypt(sealed):
                yield record

    await output.as_stream().many(open_records(), ("id", "data"), called="records")


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
    parsed = [condition_language.parse_measure(text) for text in texts]
    resource, condition, known = await question(session, schema, dataset, expression, where)
    groups = None if group_by is None else split_groups(group_by, known)
    answer = await session.client.aggregate(
        resource.url, parsed, where=condition, group_by=groups, order=order, limit=limit
    )
    fields = [group if isinstance(group, str) else group["field"] for group in groups or []]
    named = name_measures(texts, fields)
    results = [named[text] for text in texts]
    rows: Sequence[Aggregate | MeasuredGroup] = (
        answer.groups if isinstance(answer, GroupedAggregate) else [answer]
    )

    await output.many(
        rows,
        [*fields, *results],
        lambda group: {**group.get("group", {}), **measured(group, results)},
        called="groups",
    )
    if isinstance(answer, GroupedAggregate) and answer.total > len(rows):
        warn(f"there are {answer.total} groups: --limit shows more")


@click.command(short_help="Export all records that match a condition.")
@click.argument("expression", required=False)
@schema_option
@dataset_option
@where_option
@click.option("--order-by", metavar="FIELDS", help="Order, such as city,-age.")
@fields_option
@click.option(
    "--output",
    "-o",
    "--format",
    "form",
    type=click.Choice(["csv", "ndjson"]),
    help="Format of the file (default: by its name; ndjson on standard output).",
)
@safe_cells_option
@schema_id_option
@click.option(
    "--file", type=click.Path(dir_okay=False), help="File to write (default: standard output)."
)
@click.option("--yes", "--force", is_flag=True, help="Do not ask before a file is overwritten.")
@connected(organization=True)
async def export(
    session: CommandSession,
    expression: str | None,
    schema: str,
    dataset: str | None,
    where: str | None,
    order_by: str | None,
    fields: str | None,
    form: str | None,
    safe_cells: bool,
    with_schema_id: bool,
    file: str | None,
    yes: bool,
) -> None:
    """Export all records that match EXPRESSION, or all, as of one moment. ers import
    stores such a file again.

    Import CSV into a spreadsheet as text, or use --safe-cells; such a file does not contain the
    stored values and should not be imported. An interrupted export leaves no file; on standard
    output the exit code is not 0.

    \b
    Examples:
      ers record export --schema patient -o csv --file patients.csv
      ers record export --schema patient 'city = "Oslo"' --order-by age > oslo.ndjson
    """
    resource, condition, known = await question(session, schema, dataset, expression, where)
    form = file_format(form, file, safe_cells=safe_cells, schema_id=with_schema_id)
    if file is not None and is_there(file):
        reason = f"{file} already exists"
        confirm(f"{reason}. Overwrite it?", yes=yes, why=reason, undone="nothing was written")
    stream = session.client.export(
        resource.url,
        form,
        where=condition,
        order_by=None if order_by is None else split_fields(order_by, known),
        fields=None if fields is None else split_fields(fields, known),
        safe_cells=safe_cells or None,
        with_schema_id=with_schema_id or None,
    )
    lines = LineCounter(form)
    with open_result(file) as out, bar("exporting", of_bytes=True) as move:
        done = 0
        async with stream as pieces:
            async for piece in pieces:
                out.write(piece)
                lines.add(piece)
                done += len(piece)
                move(done, None)
    where_to = "" if file is None else f" to {file}"
    warn(f"Wrote {format_count(lines.records, 'record')}{where_to}.")


@click.command(short_help="Change fields of a record.")
@click.argument("id")
@click.option(
    "--file", type=FILE, required=True, help="File with a JSON object; - for standard input."
)
@click.option(
    "--replace", is_flag=True, help="Replace the whole record instead of changing the given fields."
)
@if_version_option
@connected()
@takes_output
async def update(
    session: CommandSession,
    id: str,  # noqa: A002
    file: str,
    replace: bool,
    if_version: str | None,
    output: Output,
) -> None:
    """Change the fields of a record that a JSON object contains; null removes a field. The id
    stays.

    \b
    Examples:
      echo '{"age": 37}' | ers record update "$RECORD" --file -
      echo '{"age": 37}' | ers record update "$RECORD" --file - --if-version "$VERSION"
    """
    _check_id(id)
    objects = list(islice(objects_in(file), 2))
    if len(objects) != 1 or not isinstance(objects[0], dict):
        raise InvalidSetting(f"expected one JSON object in {file}")
    record, etag = await session.client.change_record(
        id, objects[0], replace=replace, etag=if_version
    )
    _write(output, record, etag)
    warn_of_rounding(record.rounded)


@click.command(short_help="Delete a record, or all that match a condition.")
@click.argument("id", required=False)
@click.option(
    "--schema", type=SCHEMA, metavar="NAME", help="Schema of the records that --matching selects."
)
@dataset_option
@click.option(
    "--matching", metavar="EXPRESSION", help="Delete all records that match this condition."
)
@click.option(
    "--erase", is_flag=True, help="Erase the ciphertext at once, and wait until it is gone."
)
@if_version_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def delete(
    session: CommandSession,
    id: str | None,  # noqa: A002
    schema: str | None,
    dataset: str | None,
    matching: str | None,
    erase: bool,
    if_version: str | None,
    yes: bool,
) -> None:
    """Delete the record with this id, or all records of a schema that match a condition. They are
    counted first, and deleted only if the number is still the same. With --erase, the command says
    how much of the index will be rewritten, and at the end whether the ciphertext is gone.

    \b
    Examples:
      ers record delete "$OLD" --yes
      ers record delete --schema patient --matching 'age > 120' --yes
      ers record delete "$OLDER" --erase --yes
    """
    if (id is None) == (schema is None) or (schema is None) != (matching is None):
        raise click.UsageError("name an id, or --schema and --matching")
    if id is None and if_version is not None:
        raise click.UsageError("--if-version is for a record that is named by its id")
    if id is not None:
        _check_id(id)
    if id is not None and erase:
        for cost in await session.client.erasure_cost(id):
            say(cost_line(cost.segments, cost.rows))
        confirm(f"Delete and erase the record {id}?", yes=yes, undone="nothing was deleted")
        say_erased(await session.client.erase_record(id, etag=if_version))
        return
    if id is not None:
        confirm(f"Delete the record {id}?", yes=yes, undone="nothing was deleted")
        await session.client.delete_record(id, etag=if_version)
        say("Deleted 1 record.")
        return
    resource, condition, _known = await question(session, schema or "", dataset, matching, None)
    count = (await session.client.search(resource.url, where=condition, limit=0)).count or 0
    if not count:
        say("No record matches; nothing was deleted.")
        return
    confirm(f"Delete {format_count(count, 'record')}?", yes=yes, undone="nothing was deleted")
    deleted = await session.client.delete_matching(resource.url, condition or {}, confirm=count)
    say(f"Deleted {format_count(deleted, 'record')}.")
    if erase:
        say_erased(await session.client.erase_schema(resource.url))


@click.group(cls=CommandGroup)
def record() -> None:
    """Manage records. The proxy encrypts and decrypts them; the API never sees their values."""


for command in (create, list_, search, get, decrypt, aggregate, export, update, delete):
    record.add_command(command)

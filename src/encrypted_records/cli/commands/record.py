"""``ers record``: store, find, read records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

import click

from encrypted_records.cli.files import objects_in, written
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.questions import first, measured, named, question
from encrypted_records.cli.records import batches, records_from
from encrypted_records.cli.session import Session, connected
from encrypted_records.cli.sources import KINDS, lines_of
from encrypted_records.cli.terminal import confirm, say, warn
from encrypted_records.cli.uploading import Order, finish, send_pieces
from encrypted_records.client import MAX_DIRECT, expressions
from encrypted_records.client.bars import bar
from encrypted_records.errors import InvalidRecords, InvalidSetting

_FILE = click.Path(allow_dash=True, dir_okay=False)
_schema = click.option(
    "--schema", metavar="NAME", required=True, help="Slug, name, id or acme/medical/patient."
)
_dataset = click.option("--dataset", metavar="NAME", help="Where to look for the schema.")
#: How many records are shown where nothing is said.
_SHOWN = 100


@click.group(short_help="Store, search, read records.")
def record() -> None:
    """Records: encrypted by the proxy, and opened by it. The API never sees their values."""


@record.command(short_help="Store the records of a file.")
@click.option("--schema", metavar="NAME", help="Schema of the records that name none.")
@_dataset
@click.option("--file", type=_FILE, required=True, help="JSON or NDJSON; - is standard input.")
@connected(organization=True)
@takes_output
async def create(
    session: Session, schema: str | None, dataset: str | None, file: str, output: Output
) -> int | None:
    """Store the records of a file: all of them, or none.

    A record is an object of field names and values, or one with data and maybe schema, as the HTTP
    API has it. Of up to 100 the ids are printed, in the order of the file; more become a batch job,
    whose end is waited for.

    \b
    Example:
      ers record create --organization acme --dataset medical --schema patient --file patients.json
    """
    return await _store(session, file, schema, dataset, output)


@record.command(short_help="The same, with the file as argument.")
@click.argument("file", type=_FILE)
@click.option("--schema", metavar="NAME", help="Schema of the records that name none.")
@_dataset
@connected(organization=True)
@takes_output
async def ingest(
    session: Session, file: str, schema: str | None, dataset: str | None, output: Output
) -> int | None:
    """Store the records of a file, as ers record create does.

    \b
    Example:
      ers record ingest patients.json --schema patient
    """
    return await _store(session, file, schema, dataset, output)


async def _store(
    session: Session, file: str, schema: str | None, dataset: str | None, output: Output
) -> int | None:
    default = None
    if schema is not None:
        default = (await session.names.schema(schema, dataset))["url"]
    records = records_from(objects_in(file), default, session.names)
    first_ones = await anext(records, None)
    if first_ones is None:
        raise InvalidRecords("there are no records", hint="nothing was stored")
    if len(first_ones) > MAX_DIRECT:
        pieces = _lines(first_ones, records)
        job = await send_pieces(session, pieces, KINDS["ndjson"], Order())
        return await finish(session, job, output)
    created = await session.client.ingest_records(first_ones)

    async def things() -> AsyncIterator[Mapping[str, Any]]:
        for one in created:
            yield {"id": one.id, "url": one.url}

    await output.many(things(), ("id", "url"))
    return None


async def _lines(
    first_ones: list[dict[str, Any]], more: AsyncIterator[list[dict[str, Any]]]
) -> AsyncIterator[bytes]:
    for piece in lines_of(iter(first_ones)):
        yield piece
    async for records in more:
        for piece in lines_of(iter(records)):
            yield piece


@record.command("list", short_help="List those of a schema, the oldest first.")
@_schema
@_dataset
@click.option("--limit", type=click.IntRange(1), help=f"At most so many; {_SHOWN} if left out.")
@click.option("--all", "all_", is_flag=True, help="All of them.")
@click.option("--sealed", is_flag=True, help="As the API has them: ciphertext.")
@connected(organization=True)
@takes_output
async def list_(
    session: Session,
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
    found = await session.names.schema(schema, dataset)
    records = session.client.records(found["url"], limit=most and most + 1, sealed=sealed)
    if sealed:
        await output.many(first(records, most), ("id", "version", "fields"))
    else:
        await _show(first(records, most), list(found["schema"]["properties"]), output)


def _most(limit: int | None, *, everything: bool) -> int | None:
    """How many records --limit and --all ask for; None is all. To tell whether there are more, one
    more is asked for."""
    if everything and limit is not None:
        raise click.UsageError("--all and --limit contradict each other")
    return None if everything else limit or _SHOWN


async def _show(
    records: AsyncIterator[Mapping[str, Any]], fields: list[str], output: Output
) -> None:
    """Write opened records; a table says how many there were."""
    shown = await output.many(
        records,
        ["id", *fields] if output.form == "table" else fields,
        lambda one: {"id": one["id"], **one["data"]},
    )
    if output.form == "table":
        warn(f"{shown} record{'' if shown == 1 else 's'}")


@record.command(short_help="Find the records that fit a condition.")
@click.argument("expression", required=False)
@_schema
@_dataset
@click.option("--where", metavar="JSON", help="The condition as JSON, as the HTTP API takes it.")
@click.option("--order-by", metavar="FIELDS", help="Such as city,-age: by city, then oldest first.")
@click.option("--fields", metavar="FIELDS", help="Only these, such as name,age.")
@click.option("--limit", type=click.IntRange(1), help=f"At most so many; {_SHOWN} if left out.")
@click.option("--all", "all_", is_flag=True, help="All of them.")
@click.option("--count", is_flag=True, help="Only say how many there are.")
@connected(organization=True)
@takes_output
async def search(
    session: Session,
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
    """Find the records that fit EXPRESSION, or all. docs/cli.md has the whole grammar.

    \b
    Examples:
      ers record search --schema patient 'age >= 18 and city in ("Rome", "Oslo")'
      ers record search --schema patient 'name starts with "A"' --fields name,age --output csv
      ers record search --schema patient 'not (height is null)' --count
      ers record search --schema patient --where '{"field": "age", "op": "lt", "value": 40}' --all
    """
    most = _most(limit, everything=all_)
    found, condition, known = await question(session, schema, dataset, expression, where)
    if count:
        page = await session.client.search(found["url"], where=condition, limit=0)
        say(str(page.count))
        return
    wanted = None if fields is None else named(fields, known)
    records = session.client.search_all(
        found["url"],
        where=condition,
        order_by=None if order_by is None else named(order_by, known),
        fields=wanted,
        limit=most and most + 1,
    )
    await _show((asdict(one) async for one in first(records, most)), wanted or known, output)


@record.command(short_help="Show one.")
@click.argument("id")
@click.option("--sealed", is_flag=True, help="As the API has it: ciphertext.")
@connected()
@takes_output
async def get(session: Session, id: str, sealed: bool, output: Output) -> None:  # noqa: A002
    """Show the record of an id.

    \b
    Example:
      ers record get "$RECORD" --sealed
    """
    found = await session.client.record(id, sealed=sealed)
    output.one(found["data"] if output.form in ("table", "csv") and not sealed else found)


@record.command(short_help="Open sealed records.")
@click.argument("file", type=_FILE)
@connected()
@takes_output
async def decrypt(session: Session, file: str, output: Output) -> None:
    """Open sealed records, as the API or record get --sealed gives them, in a JSON or NDJSON file
    (- is standard input).

    \b
    Example:
      ers record get "$RECORD" --sealed | ers record decrypt -
    """

    async def opened() -> AsyncIterator[Mapping[str, Any]]:
        async for sealed in batches(objects_in(file)):
            for one in await session.client.decrypt(sealed):
                yield one

    await output.many(opened(), ("id", "data"))


@record.command(short_help="Count, add up, average, group.")
@click.argument("expression", required=False)
@_schema
@_dataset
@click.option("--where", metavar="JSON", help="The condition as JSON, as the HTTP API takes it.")
@click.option(
    "--measure",
    "measures",
    multiple=True,
    metavar="MEASURE",
    help="count, min(F), max(F), sum(F), avg(F), percentile(F, 50, 90), histogram(F, 10),"
    " distinct(F); may be repeated. count if left out.",
)
@click.option("--group-by", metavar="FIELDS", help="A result for each value of these.")
@click.option("--order", help="Of groups: value, -value, count or -count.")
@click.option("--limit", type=click.IntRange(0), help="At most so many groups; 100 if left out.")
@connected(organization=True)
@takes_output
async def aggregate(
    session: Session,
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
    """Measure the records that fit EXPRESSION, or all, without opening them.

    \b
    Examples:
      ers record aggregate --schema patient 'age >= 18' --measure 'avg(age)' --measure count
      ers record aggregate --schema patient --group-by city --order=-count
    """
    texts = measures or ("count",)
    asked = [expressions.parse_measure(one) for one in texts]
    found, condition, known = await question(session, schema, dataset, expression, where)
    groups = None if group_by is None else named(group_by, known)
    answer = await session.client.aggregate(
        found["url"], asked, where=condition, group_by=groups, order=order, limit=limit
    )
    columns = list(texts) if groups is None else [*groups, *texts]
    rows = [answer] if groups is None else answer["groups"]

    async def things() -> AsyncIterator[Mapping[str, Any]]:
        for one in rows:
            yield one

    await output.many(things(), columns, lambda one: measured(one, texts))
    if groups is not None and answer["total"] > len(rows):
        warn(f"there are {answer['total']} groups: --limit shows more")


@record.command(short_help="Write all records that fit a condition to a file.")
@click.argument("expression", required=False)
@_schema
@_dataset
@click.option("--where", metavar="JSON", help="The condition as JSON, as the HTTP API takes it.")
@click.option("--order-by", metavar="FIELDS", help="Such as city,-age.")
@click.option("--fields", metavar="FIELDS", help="Only these, such as name,age.")
@click.option("--format", "form", type=click.Choice(["csv", "ndjson"]), help="ndjson if left out.")
@click.option("--file", type=click.Path(dir_okay=False), help="Standard output if left out.")
@connected(organization=True)
async def export(
    session: Session,
    expression: str | None,
    schema: str,
    dataset: str | None,
    where: str | None,
    order_by: str | None,
    fields: str | None,
    form: str | None,
    file: str | None,
) -> None:
    """Write all records that fit EXPRESSION, or all, of one moment. CSV can be uploaded again.

    An export that breaks off leaves no file; on standard output the exit code tells.

    \b
    Examples:
      ers record export --schema patient --format csv --file patients.csv
      ers record export --schema patient 'city = "Oslo"' --order-by age > oslo.ndjson
    """
    found, condition, known = await question(session, schema, dataset, expression, where)
    form = form or ("csv" if (file or "").lower().endswith(".csv") else "ndjson")
    asked = session.client.export(
        found["url"],
        form,
        where=condition,
        order_by=None if order_by is None else named(order_by, known),
        fields=None if fields is None else named(fields, known),
    )
    with written(file) as out, bar("exporting", of_bytes=True) as move:
        done = 0
        async with asked as pieces:
            async for piece in pieces:
                out.write(piece)
                done += len(piece)
                move(done, None)


@record.command(short_help="Change fields of one.")
@click.argument("id")
@click.option("--file", type=_FILE, required=True, help="A JSON object; - is standard input.")
@click.option("--replace", is_flag=True, help="The file holds all fields, not only the changed.")
@connected()
@takes_output
async def update(
    session: Session,
    id: str,  # noqa: A002
    file: str,
    replace: bool,
    output: Output,
) -> None:
    """Change the fields of a record that a JSON object names; null removes one. The id stays.

    \b
    Example:
      echo '{"age": 37}' | ers record update "$RECORD" --file -
    """
    found = list(islice(objects_in(file), 2))
    if len(found) != 1 or not isinstance(found[0], dict):
        raise InvalidSetting(f"one JSON object is expected in {file}")
    record = await session.client.change_record(id, found[0], replace=replace)
    output.one(record["data"] if output.form in ("table", "csv") else record)


@record.command(short_help="Delete one, or all that fit a condition.")
@click.argument("id", required=False)
@click.option("--schema", metavar="NAME", help="Where those are that --matching names.")
@_dataset
@click.option("--matching", metavar="EXPRESSION", help="Delete all records that fit.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def delete(
    session: Session,
    id: str | None,  # noqa: A002
    schema: str | None,
    dataset: str | None,
    matching: str | None,
    yes: bool,
) -> None:
    """Delete the record of an id, or all of a schema that fit a condition. They are counted first,
    and deleted only if there are as many then.

    \b
    Examples:
      ers record delete "$OLD" --yes
      ers record delete --schema patient --matching 'age > 120' --yes
    """
    if (id is None) == (schema is None) or (schema is None) != (matching is None):
        raise click.UsageError("name an id, or --schema and --matching")
    if id is not None:
        confirm(f"Delete the record {id}?", yes=yes)
        await session.client.delete_record(id)
        say("Deleted 1 record.")
        return
    found, condition, _known = await question(session, schema or "", dataset, matching, None)
    count = (await session.client.search(found["url"], where=condition, limit=0)).count or 0
    confirm(f"Delete {count} records?", yes=yes)
    deleted = await session.client.delete_matching(found["url"], condition or {}, confirm=count)
    say(f"Deleted {deleted} record{'' if deleted == 1 else 's'}.")

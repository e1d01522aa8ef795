"""``ers record``: store, find, read records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import asdict
from typing import Any

import click

from encrypted_records.cli import expressions
from encrypted_records.cli.files import read_objects
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.records import MAX_DIRECT, records_from
from encrypted_records.cli.session import Session, connected
from encrypted_records.cli.sources import source_of_items
from encrypted_records.cli.terminal import say, warn
from encrypted_records.cli.uploading import Order, finish, send
from encrypted_records.errors import InvalidSetting

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
    records = await records_from(read_objects(file), default, session.names)
    if len(records) > MAX_DIRECT:
        return await finish(session, await send(session, source_of_items(records), Order()), output)
    created = await session.client.ingest_records(records)

    async def things() -> AsyncIterator[Mapping[str, Any]]:
        for one in created:
            yield {"id": one.id, "url": one.url}

    await output.many(things(), ("id", "url"))
    return None


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
    if all_ and limit is not None:
        raise click.UsageError("--all and --limit contradict each other")
    asked = None if expression is None else expressions.parse(expression)
    condition = _both(asked, where)
    found = await session.names.schema(schema, dataset)
    known = list(found["schema"]["properties"])
    if asked is not None:
        _check(expressions.fields_of(asked), known)
    if count:
        page = await session.client.search(found["url"], where=condition, limit=0)
        say(str(page.count))
        return
    wanted = None if fields is None else _named(fields, known)
    most = None if all_ else limit or _SHOWN
    # One more than is shown tells whether there are more.
    records = session.client.search_all(
        found["url"],
        where=condition,
        order_by=None if order_by is None else _named(order_by, known),
        fields=wanted,
        limit=None if most is None else most + 1,
    )
    columns = ["id", *(wanted or known)] if output.form == "table" else wanted or known
    shown = await output.many(
        (asdict(one) async for one in _first(records, most)),
        columns,
        lambda one: {"id": one["id"], **one["data"]},
    )
    if output.form == "table":
        warn(f"{shown} record{'' if shown == 1 else 's'}")


async def _first(records: AsyncIterator[Any], most: int | None) -> AsyncIterator[Any]:
    count = 0
    async for one in records:
        if count == most:
            warn(f"there are more than {most}: --all shows all, --limit another number")
            return
        count += 1
        yield one


def _both(asked: dict[str, Any] | None, where: str | None) -> dict[str, Any] | None:
    """The ``where`` that an expression and JSON say together."""
    parts: list[Any] = [] if asked is None else [asked]
    if where is not None:
        from encrypted_records.model import strict_json  # noqa: PLC0415 - slow to import

        parts.append(strict_json.loads(where))
    return {"and": parts} if len(parts) > 1 else parts[0] if parts else None


def _named(text: str, known: list[str]) -> list[str]:
    """Field names, separated by commas; each may have a - before it where it is none's name."""
    if text in known:
        return [text]
    names = [part.strip() for part in text.split(",")]
    _check((name if name in known else name.removeprefix("-") for name in names), known)
    return names


def _check(names: Iterable[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise InvalidSetting(
                f"the schema has no field {name}", hint=f"its fields are {', '.join(known)}"
            )


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
    sealed = read_objects(file)

    async def opened() -> AsyncIterator[Mapping[str, Any]]:
        for start in range(0, len(sealed), 1000):
            for one in await session.client.decrypt(sealed[start : start + 1000]):
                yield one

    await output.many(opened(), ("id", "data"))

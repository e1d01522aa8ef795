"""``ers schema``: what records look like."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from encrypted_records.cli.files import read_definition, read_sample
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.session import Session, connected
from encrypted_records.cli.terminal import confirm, say, warn

_COLUMNS = ("slug", "name", "id", "dataset", "created")
_slug = click.option("--slug", help="Short name for addresses; made from the name if left out.")
_description = click.option("--description", help="What its records are.")
_FILE = click.Path(allow_dash=True, dir_okay=False)


@click.group(short_help="List, make, change or delete schemas; infer one from data.")
def schema() -> None:
    """Schemas: what the records of a table look like.

    A schema is named by its slug, name or id, or with dataset and organization:
    acme/medical/patient.
    """


@schema.command("list", short_help="List schemas.")
@click.option("--dataset", metavar="NAME", help="Only those of this dataset.")
@connected(organization=True)
@takes_output
async def list_(session: Session, dataset: str | None, output: Output) -> None:
    """List the schemas of a dataset, of an organization, or all that you reach.

    \b
    Example:
      ers schema list --dataset medical
    """
    if dataset is None:
        filters = await session.names.in_organization()
    else:
        filters = {"dataset": (await session.names.dataset(dataset))["id"]}
    await output.many(session.client.listing("schemas", **filters), _COLUMNS)


@schema.command(short_help="Show one.")
@click.argument("schema")
@click.option("--definition", is_flag=True, help="Only its JSON Schema, as it was given.")
@connected(organization=True)
@takes_output
async def get(session: Session, schema: str, definition: bool, output: Output) -> None:
    """Show a schema.

    \b
    Example:
      ers schema get acme/medical/patient --definition
    """
    found = await session.names.schema(schema)
    if definition:
        Output("json").one(found["schema"])
    else:
        output.one(found)


@schema.command(short_help="Make one.")
@click.option("--dataset", metavar="NAME", required=True, help="Slug, name or id of its dataset.")
@click.option("--name", required=True, help="Name for people.")
@_slug
@_description
@click.option("--file", type=_FILE, required=True, help="Its JSON Schema; - is standard input.")
@connected(organization=True)
@takes_output
async def create(
    session: Session,
    dataset: str,
    name: str,
    slug: str | None,
    description: str | None,
    file: str,
    output: Output,
) -> None:
    """Make a schema from a JSON Schema in a file. docs/http-api.md says what one may hold.

    \b
    Example:
      ers schema create --dataset medical --name Visit --slug visit --file visit.json
    """
    definition = read_definition(file)
    parent = (await session.names.dataset(dataset))["url"]
    output.one(
        await session.client.create(
            "schemas",
            name=name,
            dataset=parent,
            schema=definition,
            slug=slug,
            description=description,
        )
    )


@schema.command(short_help="Change name, slug, description or definition.")
@click.argument("schema")
@click.option("--name", help="New name.")
@_slug
@_description
@click.option("--file", type=_FILE, help="Its new JSON Schema; - is standard input.")
@connected(organization=True)
@takes_output
async def update(
    session: Session,
    schema: str,
    name: str | None,
    slug: str | None,
    description: str | None,
    file: str | None,
    output: Output,
) -> None:
    """Change a schema; what is left out stays.

    Once there are records, optional fields may be added and rules loosened; types, bounds and
    precision stay, since they are part of the keys.

    \b
    Example:
      ers schema update patient --description "One row per admission"
    """
    definition = None if file is None else read_definition(file)
    found = await session.names.schema(schema)
    output.one(
        await session.client.change(
            found["url"], name=name, slug=slug, description=description, schema=definition
        )
    )


@schema.command(short_help="Delete one.")
@click.argument("schema")
@click.option("--cascade", is_flag=True, help="Also all its records.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def delete(session: Session, schema: str, cascade: bool, yes: bool) -> None:
    """Delete a schema. One that has records is kept, unless --cascade says otherwise.

    \b
    Example:
      ers schema delete acme/medical/draft --yes
    """
    found = await session.names.schema(schema)
    path = await session.names.path_of_schema(found)
    confirm(f"Delete {path}{', with all its records' if cascade else ''}?", yes=yes)
    await session.client.delete(found["url"], cascade=cascade)
    say(f"Deleted {path}.")


@schema.command(short_help="Propose a definition for the data in a file.")
@click.argument("file", type=_FILE)
@connected()
async def infer(session: Session, file: str) -> None:
    """Propose a JSON Schema for a CSV, JSON or NDJSON file (- is standard input) from its first
    rows. It goes to standard output, what to look at to standard error. Nothing is stored.

    \b
    Example:
      ers schema infer people.csv > people.schema.json
    """
    body, media_type = await asyncio.to_thread(read_sample, file)
    found = await session.client.infer(body, media_type)
    Output("json").one(found["schema"])
    for field in found["fields"]:
        if field["note"]:
            warn(f"{field['name']}: {field['note']}")


@schema.command(short_help="Say what a schema will cost and reveal.")
@click.argument("schema", required=False)
@click.option("--file", type=_FILE, help="A JSON Schema that is not stored yet.")
@click.option("--records", type=click.IntRange(1), required=True, help="How many records.")
@click.option(
    "--length",
    "lengths",
    multiple=True,
    metavar="FIELD=BYTES",
    help="Typical length of a string field; 12 where left out. May be repeated.",
)
@connected(organization=True)
@takes_output
async def estimate(
    session: Session,
    schema: str | None,
    file: str | None,
    records: int,
    lengths: tuple[str, ...],
    output: Output,
) -> None:
    """Say how much space and time records of a schema will take, and what the API learns of them.

    \b
    Example:
      ers schema estimate patient --records 1000000 --length name=20
    """
    if (schema is None) == (file is None):
        raise click.UsageError("name either a schema or --file")
    definition: Any
    if file is not None:
        definition = read_definition(file)
    else:
        definition = (await session.names.schema(schema or ""))["schema"]
    found = await session.client.estimate(definition, records, dict(map(_length, lengths)))
    if output.form == "table":
        _show(found)
    else:
        output.one(found)


def _length(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    if not (name and number.isascii() and number.isdecimal()):
        raise click.BadParameter("expected FIELD=BYTES, such as name=20", param_hint="--length")
    return name, int(number)


def _show(found: Any) -> None:
    per_record = found["bytes_per_record"]
    say(f"{found['records']} records need {_size(found['bytes'])} in the API's database,")
    say(
        f"{per_record['total']} bytes each: {per_record['sealed']} sealed, {per_record['index']}"
        " in the index."
    )
    say(f"Sealing them takes one core of this machine about {found['seconds']:.0f} s.")
    say()
    for field in found["fields"]:
        say(f"{field['name']}: {field['sealed_bytes']} + {field['index_bytes']} bytes")
        say(f"  the API sees: {field['reveals']['api']}")
        say(f"  and never: {field['reveals']['api_never']}")


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("the loop returns")

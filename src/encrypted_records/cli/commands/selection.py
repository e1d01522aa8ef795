"""Options that select records: the schema, the condition, the fields, and the format of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import PurePath
from typing import Any

import click

from encrypted_records.cli.login.session import DATASET, SCHEMA, CommandSession
from encrypted_records.cli.settings import ProfileOption
from encrypted_records.cli.terminal import warn
from encrypted_records.client.proxy.connection import ShownSchema
from encrypted_records.client.sdk import condition_language
from encrypted_records.errors import InvalidSetting, Malformed

#: Ends of names of files that programs open as another format than CSV or NDJSON.
_OTHER_FORMATS = frozenset(
    {".xlsx", ".xls", ".xlsm", ".ods", ".tsv", ".parquet", ".arrow", ".feather"}
)
FILE = click.Path(allow_dash=True, dir_okay=False)
schema_option = click.option(
    "--schema",
    type=SCHEMA,
    cls=ProfileOption,
    metavar="NAME",
    required=True,
    help="Slug, name, id or acme/medical/patient.",
)
default_schema_option = click.option(
    "--schema",
    type=SCHEMA,
    cls=ProfileOption,
    metavar="NAME",
    help="Schema of records that do not name one.",
)
dataset_option = click.option(
    "--dataset", type=DATASET, metavar="NAME", help="Dataset of the schema."
)
#: Number of records shown by default.
SHOWN = 100
where_option = click.option(
    "--where", metavar="JSON", help="Condition as JSON, as in the HTTP API."
)
fields_option = click.option(
    "--fields", metavar="FIELDS", help="Only these fields, such as name,age."
)
limit_option = click.option(
    "--limit", type=click.IntRange(1), help=f"Maximum number of records (default: {SHOWN})."
)
all_option = click.option("--all", "all_", is_flag=True, help="All records, without a limit.")
#: Additions to the stored values in a CSV file.
safe_cells_option = click.option(
    "--safe-cells",
    is_flag=True,
    help="CSV only: escape cells that a spreadsheet would run as formulas.",
)
schema_id_option = click.option(
    "--with-schema-id", is_flag=True, help="CSV only: end the header with schema_id: and the id."
)


def file_format(form: str | None, file: str | None, *, safe_cells: bool, schema_id: bool) -> str:
    """The format of a file of records: as stated, or by the ending of its name.

    Raises:
        click.UsageError: an option is for another format, or the name is that of another one.
    """
    suffix = PurePath(file or "").suffix.lower()
    if form is None and suffix in _OTHER_FORMATS:
        raise click.UsageError(f"a file {suffix} cannot be written: choose -o csv or -o ndjson")
    form = form or ("csv" if suffix == ".csv" else "ndjson")
    for option, is_given in (("--safe-cells", safe_cells), ("--with-schema-id", schema_id)):
        if is_given and form != "csv":
            raise click.UsageError(f"{option} is for CSV: -o csv")
    return form


async def first(records: AsyncIterator[Any], most: int | None) -> AsyncIterator[Any]:
    """Yield up to ``most`` records; if there are more, say so on stderr."""
    count = 0
    async for record in records:
        if count == most:
            warn(f"there are more than {most}: --all shows all, --limit another number")
            return
        count += 1
        yield record


def _both(parsed: dict[str, Any] | None, where: str | None) -> dict[str, Any] | None:
    """The ``where`` of an expression and JSON together."""
    parts: list[Any] = [] if parsed is None else [parsed]
    if where is not None:
        from encrypted_records.model import strict_json  # noqa: PLC0415 - slow to import

        try:
            parts.append(strict_json.loads(where))
        except Malformed as error:
            raise Malformed(
                f"--where: {error.message}",
                flaws=error.flaws,
                hint="""leave --where out for a condition such as 'city = "Rome"'""",
            ) from None
    return {"and": parts} if len(parts) > 1 else parts[0] if parts else None


def split_fields(text: str, known: list[str]) -> list[str]:
    """Field names, separated by commas; a - may stand before each that no field begins with."""
    if text in known:
        return [text]
    names = [part.strip() for part in text.split(",")]
    _check((name if name in known else name.removeprefix("-") for name in names), known)
    return names


def split_groups(text: str, known: list[str]) -> list[str | dict[str, str]]:
    """Parse the comma-separated groups of an aggregation: fields, or periods of fields, such as
    ``month(seen)``.
    """
    if text in known:
        return [text]
    groups = [condition_language.parse_group(part.strip(), known) for part in text.split(",")]
    _check((group if isinstance(group, str) else group["field"] for group in groups), known)
    return groups


def _check(names: Iterable[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise InvalidSetting(
                f"the schema has no field {name}", hint=f"its fields are {', '.join(known)}"
            )


def parse_condition(expression: str | None, where: str | None) -> dict[str, Any] | None:
    """The condition that an expression and JSON say together."""
    return _both(None if expression is None else condition_language.parse(expression), where)


async def question(
    session: CommandSession,
    schema: str,
    dataset: str | None,
    expression: str | None,
    where: str | None,
) -> tuple[ShownSchema, dict[str, Any] | None, list[str]]:
    """The searched schema, the condition, and the schema's fields."""
    parsed = None if expression is None else condition_language.parse(expression)
    condition = _both(parsed, where)
    resource = await session.names.schema(schema, dataset)
    known = list(resource.definition["properties"])
    if parsed is not None:
        _check(condition_language.fields_of(parsed), known)
    return resource, condition, known

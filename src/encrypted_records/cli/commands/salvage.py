"""``ers salvage``: save all records of a schema that open, even where its log is broken."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import click

from encrypted_records.cli.input.files import open_result
from encrypted_records.cli.login.session import (
    SCHEMA,
    CommandSession,
    connected,
)
from encrypted_records.cli.terminal import DONE, REFUSED, warn
from encrypted_records.errors import ApiFailed


@click.command(
    short_help="Save every record that can still be decrypted when a schema's log is damaged."
)
@click.argument("schema", type=SCHEMA)
@click.option(
    "--file",
    type=click.Path(dir_okay=False),
    help="File to write (default: standard output).",
)
@click.option(
    "--output",
    "-o",
    "--format",
    "form",
    type=click.Choice(["csv", "ndjson"]),
    help="ndjson, with ids, or csv, which can be imported (default: by the file's name).",
)
@click.option(
    "--safe-cells",
    is_flag=True,
    help="CSV only: escape cells that a spreadsheet would run as formulas.",
)
@click.option(
    "--with-schema-id", is_flag=True, help="CSV only: end the header with schema_id: and the id."
)
@click.option(
    "--without-ended",
    is_flag=True,
    help="Leave out records that the API, without proof, reports as changed or deleted.",
)
@connected(organization=True)
async def salvage(
    session: CommandSession,
    schema: str,
    file: str | None,
    form: str | None,
    safe_cells: bool,
    with_schema_id: bool,
    without_ended: bool,
) -> int:
    """Save the newest version of every record that can be decrypted, even if the log of the schema
    is damaged or lost. Store them in a new schema to go on with them.

    Records that the log proves are as good as an export. For others, only this is certain: they
    were stored like that. Deleted records and old versions may be among them, and records may be
    missing. The command says what is not certain; the exit code is 4 if something could not be
    decrypted or is missing.

    \b
    Example:
      ers salvage patient --file patient.csv
    """
    form = form or ("csv" if (file or "").lower().endswith(".csv") else "ndjson")
    if safe_cells and form != "csv":
        raise click.UsageError("--safe-cells is for CSV: -o csv")
    if with_schema_id and form != "csv":
        raise click.UsageError("--with-schema-id is for CSV: -o csv")
    resource = await session.names.schema(schema)
    # Always as NDJSON: CSV has no room for the report.
    asked = session.client.salvage(resource["url"], ended=not without_ended)
    report: Mapping[str, Any] | None = None
    with open_result(file) as out:
        line_of = _writer(
            form, resource, safe=safe_cells, with_schema_id=with_schema_id, head=out.write
        )
        async with asked as pieces:
            async for line in lines_of(pieces):
                members = _parse(line)
                if "salvage" in members:
                    report = members["salvage"]
                else:
                    out.write(line_of(line, members))
        if report is None:
            raise ApiFailed(
                "the salvage did not finish", hint="the result is not complete; try again"
            )
    return _say(report)


async def lines_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Whole lines without their ends. Empty lines, which only keep the connection open, are left
    out."""
    rest: list[bytes] = []
    async for piece in pieces:
        first, *others = piece.split(b"\n")
        rest.append(first)
        for other in others:
            if line := b"".join(rest):
                yield line
            rest = [other]
    if any(rest):
        raise ApiFailed("the salvage was interrupted", hint="the result is not complete; try again")


def _parse(line: bytes) -> Mapping[str, Any]:
    from encrypted_records.model import strict_json  # noqa: PLC0415 - slow to import

    members = strict_json.loads(line)
    if not isinstance(members, dict):
        raise ApiFailed("a line of the salvage has an unexpected form")
    return members


def _writer(
    form: str,
    schema: Mapping[str, Any],
    *,
    safe: bool,
    with_schema_id: bool,
    head: Callable[[bytes], object],
) -> Callable[[bytes, Mapping[str, Any]], bytes]:
    """Write the head of a file of this form; returns the function that makes a record's line."""
    if form == "ndjson":
        return lambda line, _: line + b"\n"
    from encrypted_records.model import csv_text  # noqa: PLC0415 - slow to import

    columns = csv_text.CsvColumns.of(list(schema["schema"]["properties"]), (), safe=safe)
    head(columns.header(schema["id"] if with_schema_id else None))
    return lambda _, record: columns.record(record["data"])


def _say(report: Mapping[str, Any]) -> int:
    """Tell what became of everything; the exit code."""
    count = report["records"]
    warn(f"{count} record{'' if count == 1 else 's'}, {report['proven']} of them proven by the log")
    for name, told in _TOLD.items():
        if report[name]:
            warn(f"{told}: {report[name]}")
    fault = report["fault"]
    if fault is not None:
        warn(f"the log is valid up to version {report['version']}: {fault['detail']}")
        for sentence in report["unknown"]:
            warn(f"not certain: {sentence}")
    return REFUSED if any(report[name] for name in _LOST) else DONE


_TOLD = {
    "ended": "rows left out: their records were changed or deleted according to the log",
    "older": "rows left out: a newer version of the record can be decrypted",
    "left_out": "rows left out: the API reports them as changed or deleted",
    "beyond": "rows left out: the log does not contain them, or not yet",
    "incomplete": "records without some field, which they may have had",
    "unopened": "rows that cannot be decrypted",
    "without_key": "rows under a key that is not in this keyring (ers keyring restore)",
    "missing": "records of the log that the API did not return, or that cannot be decrypted",
}
_LOST = ("unopened", "without_key", "missing")

"""``ers record export``: write all records that fit a condition to a file."""

from __future__ import annotations

import click

from encrypted_records.cli.commands.conditions import question, split_fields
from encrypted_records.cli.commands.record.options import (
    dataset_option,
    fields_option,
    schema_option,
    where_option,
)
from encrypted_records.cli.input.files import LineCounter, is_there, open_result
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.terminal import confirm, format_count, warn
from encrypted_records.client.sdk.progress_bars import bar


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
    help="Format of the file (default: ndjson).",
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
    form = form or ("csv" if (file or "").lower().endswith(".csv") else "ndjson")
    if safe_cells and form != "csv":
        raise click.UsageError("--safe-cells is for CSV: -o csv")
    if with_schema_id and form != "csv":
        raise click.UsageError("--with-schema-id is for CSV: -o csv")
    if file is not None and is_there(file):
        there = f"{file} already exists"
        confirm(f"{there}. Overwrite it?", yes=yes, why=there, undone="nothing was written")
    asked = session.client.export(
        resource["url"],
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
        async with asked as pieces:
            async for piece in pieces:
                out.write(piece)
                lines.add(piece)
                done += len(piece)
                move(done, None)
    where_to = "" if file is None else f" to {file}"
    warn(f"Wrote {format_count(lines.records, 'record')}{where_to}.")

"""``ers import``: a table becomes an encrypted schema."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from encrypted_records.cli.commands.import_file import ReadingOptions, import_file, takes_reading
from encrypted_records.cli.commands.upload_job import warn_of_rounding
from encrypted_records.cli.input.proposed_rules import Asked, asked_for
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.profiles import ProfileOption
from encrypted_records.cli.terminal import DONE, REJECTED, format_count, warn
from encrypted_records.errors import InvalidSetting, NotFound

if TYPE_CHECKING:
    from encrypted_records.cli.input.importer import SourceTable

_URL = "ERS_IMPORT_URL"


@click.command(
    "import", short_help="Import a file or a PostgreSQL table: propose a schema, store the rows."
)
@click.argument("source", required=False)
@click.option("--table", metavar="NAME", help="PostgreSQL table, such as people or sales.orders.")
@click.option(
    "--key",
    multiple=True,
    metavar="COLUMN",
    help="Column to order the table by (default: its primary key).",
)
@click.option(
    "--dataset",
    cls=ProfileOption,
    metavar="NAME",
    help="Dataset of the new schema, created if missing (default: the database's name).",
)
@click.option("--name", help="Name of the new schema (default: the name of the file or table).")
@click.option(
    "--schema",
    metavar="NAME",
    help="Existing schema, for a further file like the one before.",
)
@click.option(
    "--page-rows",
    type=click.IntRange(1, 100_000),
    default=20_000,
    show_default=True,
    help="Rows per page of a table; each page is stored whole or not at all.",
)
@click.option("--skip-invalid", is_flag=True, help="Store valid rows and count the others.")
@click.option("--yes", is_flag=True, help="Do not ask; for files, accept only what is certain.")
@asked_for
@takes_reading
@connected(organization=True)
@takes_output
async def import_(
    session: CommandSession,
    source: str | None,
    table: str | None,
    key: tuple[str, ...],
    dataset: str | None,
    name: str | None,
    schema: str | None,
    page_rows: int,
    skip_invalid: bool,
    yes: bool,
    asked: Asked,
    reading: ReadingOptions,
    output: Output,
) -> int:
    """Make an encrypted schema of SOURCE: a file as people have it, of CSV in whatever form, JSON,
    or a workbook of Excel or LibreOffice; a file of Parquet, Arrow or Feather; or a table of
    PostgreSQL by its URL.

    Delimiter, charset, header, decimal marks and dates of CSV are detected and shown before
    anything is stored. A column that the file leaves open stays text unless an option settles it.
    Objects within objects of JSON become fields such as addr.city, and lists become texts. In a
    workbook, the largest visible sheet is read, or --sheet.

    Of the others, fields have the types that are declared there, and columns that must not be
    null are required.

    The reading of a file is kept for its schema. With --schema, the next file is read in
    the same way; where it differs in what may change values, nothing is stored, and the options
    that take it are named.

    Such a file is stored whole or not at all, the others page by page. After an interruption,
    even a kill, the same command on the same machine goes on, and stores no row twice. SOURCE is
    only read.

    Arguments show in the list of processes: set ERS_IMPORT_URL instead of SOURCE, or the password
    alone in PGPASSWORD or ~/.pgpass. It is neither stored nor shown.

    \b
    Examples:
      ers import kunden.csv --dataset shop
      ers import februar.csv --schema shop/kunden
      ers import people.parquet --dataset medical
      ers import "$SHOP" --table public.customers --dataset shop
    """
    from encrypted_records.cli.input.import_schema import make_schema  # noqa: PLC0415 - slow
    from encrypted_records.cli.input.importer import Import  # noqa: PLC0415 - slow

    if source and is_text_file(source):
        if table is not None or key:
            raise InvalidSetting("--table and --key are for PostgreSQL")
        return await import_file(
            *(session, source, dataset, name, schema, reading, asked, output),
            yes=yes,
            skip_invalid=skip_invalid,
        )
    if schema or reading.keep or not reading.uses_kept:
        raise InvalidSetting("--schema, --reading and --keep are for CSV, JSON and workbooks")
    if reading.as_json() or asked.tight or asked.enum:
        raise InvalidSetting(
            "columns of PostgreSQL, Parquet and Arrow have declared types",
            hint="--unique and --required can be added",
        )
    given = bool(source)
    origin = await _table(source or os.environ.get(_URL, ""), table, key, given=given)
    work = Import(session, origin, skip_invalid, page_rows)
    with work.lock():
        made = None
        if begun := work.find_begun():
            try:
                made = await session.client.resource(begun)
            except NotFound:
                work.forget()  # deleted since: it begins again
        if made is None:
            made = await make_schema(session, origin, dataset, name, asked)
            work.begin(made)
        done = await work.run(made, await origin.total())
        work.forget()
    path = await session.names.path_of_schema(made)
    rounded = {"rounded": done.rounded} if done.rounded else {}
    output.write_one({"schema": path, "url": done.schema, "stored": done.stored, **rounded})
    warn_of_rounding(done.rounded)
    if done.rejected:
        warn(f"{format_count(done.rejected, 'row')} did not fit and were left out")
        return REJECTED
    return DONE


def is_text_file(source: str) -> bool:
    """Whether a source is a file of rows, and not a table or a file of columns."""
    is_table = source.startswith(("postgresql://", "postgres://"))
    return not is_table and Path(source).suffix.lower() not in (".parquet", ".arrow", ".feather")


async def _table(
    source: str, name: str | None, key: tuple[str, ...], *, given: bool
) -> SourceTable:
    """
    Args:
        given: whether it was an argument, which others on the machine can read.

    Raises:
        InvalidSetting: it is no source, or lacks something.
        NotFound: there is no such table.
    """
    if not source:
        raise InvalidSetting(
            "no file or table to import", hint=f"give a URL or a file, or set {_URL}"
        )
    if not source.startswith(("postgresql://", "postgres://")):
        from encrypted_records.cli.input.columns import ColumnFile  # noqa: PLC0415 - slow to import

        if name is not None or key:
            raise InvalidSetting("--table and --key are for PostgreSQL")
        return ColumnFile(source)
    from encrypted_records.cli.input.postgresql import PostgresqlTable  # noqa: PLC0415 - slow to import

    if name is None:
        raise InvalidSetting("missing: --table", hint="add --table people")
    table = PostgresqlTable(source, name, key)
    if given and table.has_password:
        warn(f"the password is visible in the list of processes; set {_URL} or PGPASSWORD instead")
    await table.look()
    return table

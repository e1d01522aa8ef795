"""``ers import``: store a file or a table."""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from encrypted_records.cli.commands.import_file import ReadingOptions, import_file, takes_reading
from encrypted_records.cli.commands.job import (
    JobFlags,
    takes_job_options,
    upload_exactly,
    warn_of_rounding,
)
from encrypted_records.cli.input.files import open_input
from encrypted_records.cli.input.importer import (
    ColumnFile,
    Import,
    SourceTable,
    WantedRules,
    make_schema,
    takes_wanted_rules,
)
from encrypted_records.cli.input.upload_sources import COLUMNAR, is_exact, names_schema, source_of
from encrypted_records.cli.login.session import DATASET, SCHEMA, CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.settings import ProfileOption, choose_profile
from encrypted_records.cli.terminal import DONE, REJECTED, format_count, warn
from encrypted_records.errors import InvalidSetting, NotFound

if TYPE_CHECKING:
    from encrypted_records.client.proxy.uploads import LocalFile

_URL = "ERS_IMPORT_URL"
_DATABASES = ("postgresql://", "postgres://")


@click.command("import")
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
    type=DATASET,
    cls=ProfileOption,
    metavar="NAME",
    help="Dataset of the new schema, created if missing (default: the database's name).",
)
@click.option("--name", help="Name of the new schema (default: the name of the file or table).")
@click.option(
    "--schema",
    type=SCHEMA,
    metavar="NAME",
    help="Existing schema (default: a new one, except for --exact).",
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
@takes_wanted_rules
@takes_job_options
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
    rules: WantedRules,
    job: JobFlags,
    reading: ReadingOptions,
    output: Output,
) -> int:
    """Store all rows of SOURCE, encrypted: a file as people have it, of CSV in whatever form, JSON,
    or a workbook of Excel or LibreOffice; a file of Parquet, Arrow or Feather; or a table of
    PostgreSQL by its URL. - is standard input. Without --schema, a new schema is proposed.

    Delimiter, charset, header, decimal marks and dates of CSV are detected and shown before
    anything is stored. A column that the file leaves open stays text unless an option settles it.
    Objects within objects of JSON become fields such as addr.city, and lists become texts. In a
    workbook, the largest visible sheet is read, or --sheet. The reading of a file is kept for its
    schema: with --schema, the next file is read in the same way; where it differs in what may
    change values, nothing is stored, and the options that accept the file are named.

    Parquet, Arrow and tables of PostgreSQL declare the types of their columns; those that must not
    be null are required. Pipes, and files that ers record export or search wrote, are read exactly,
    as with --exact, and need --schema unless they name their schema.

    A file is stored whole or not at all, a table page by page. After an interruption, even a kill,
    the same command on the same machine continues, and stores no row twice; Ctrl-C after the upload
    leaves the job running. A file that was stored in the last thirty days is refused without
    --again. The exit code is 6 if rows were rejected. SOURCE is only read.

    Arguments are visible in the list of processes: set ERS_IMPORT_URL instead of SOURCE, or the
    password alone in PGPASSWORD or ~/.pgpass. It is neither stored nor shown.

    \b
    Examples:
      ers import kunden.csv --dataset shop
      ers import februar.csv --schema shop/kunden
      ers record search --schema patient --all -o csv | ers import - --schema medical/copy
      ers import people.parquet --dataset medical
      ers import "$SHOP" --table public.customers --dataset shop
    """
    if not (source or os.environ.get(_URL)):
        raise InvalidSetting(
            "no file or table to import", hint=f"give a URL or a file, or set {_URL}"
        )
    if source and not source.startswith(_DATABASES):
        if table is not None or key:
            raise InvalidSetting("--table and --key are for PostgreSQL")
        # Opening a pipe waits for the program that writes to it.
        file = await asyncio.to_thread(open_input, source)
        columns = schema is None and file.path.suffix.lower() in COLUMNAR and not job.exact
        if not columns and (job.exact or is_exact(file, names_schema=schema is not None)):
            if rules != WantedRules() or name is not None or reading != ReadingOptions():
                raise InvalidSetting(
                    "this file is read exactly: options that describe another form, or a new"
                    " schema, do not apply",
                    hint="leave them out, or save the pipe to a file first",
                )
            return await _exactly(session, file, schema, dataset, job, output, skip_invalid)
        if not columns:
            return await import_file(
                *(session, file, dataset, name, schema, reading, rules, job, output),
                yes=yes,
                skip_invalid=skip_invalid,
            )
    if schema or reading.keep or not reading.uses_kept:
        raise InvalidSetting(
            "--schema, --reading and --keep are not for tables, Parquet and Arrow, which declare"
            " their types"
        )
    if reading.as_json() or rules.tight or rules.enum:
        raise InvalidSetting(
            "columns of PostgreSQL, Parquet and Arrow have declared types",
            hint="--unique and --required can be added",
        )
    if job != JobFlags():
        raise InvalidSetting(
            "--on-conflict, --by, --again, --detach and --batch-size do not apply to a new schema"
            " of declared types",
            hint="for further rows of Parquet or Arrow, name the schema with --schema",
        )
    return await _import_table(
        session, source, table, key, dataset, name, rules, output, skip_invalid, page_rows
    )


async def _exactly(
    session: CommandSession,
    file: LocalFile,
    schema: str | None,
    dataset: str | None,
    job: JobFlags,
    output: Output,
    skip_invalid: bool,
) -> int:
    name = schema or choose_profile(click.get_current_context()).get("schema")
    if not name and not names_schema(file, job.kind):
        raise InvalidSetting(
            "missing: --schema",
            hint="name the schema of these records: ers import FILE --schema people",
        )
    found = await session.names.schema(name, dataset) if name else None
    return await upload_exactly(
        *(session, source_of(file, job.kind), job, found.id if found else None, output),
        skip_invalid=skip_invalid,
    )


async def _import_table(
    session: CommandSession,
    source: str | None,
    table: str | None,
    key: tuple[str, ...],
    dataset: str | None,
    name: str | None,
    rules: WantedRules,
    output: Output,
    skip_invalid: bool,
    page_rows: int,
) -> int:
    """Make a schema of a table, or of a file of columns, and store its rows page by page."""
    given = bool(source)
    origin = await _table(source or os.environ.get(_URL, ""), table, key, given=given)
    work = Import(session, origin, skip_invalid, page_rows)
    with work.lock():
        made = None
        if begun := work.find_begun():
            try:
                made = await session.names.schema(begun)
            except NotFound:
                work.forget()  # deleted since: it begins again
        if made is None:
            made = await make_schema(session, origin, dataset, name, rules)
            work.begin(made)
        done = await work.run(made, await origin.total())
        work.forget()
    path = await session.names.path_of(made)
    rounded = {"rounded": done.rounded} if done.rounded else {}
    output.write_object({"schema": path, "url": done.schema, "stored": done.stored, **rounded})
    warn_of_rounding(done.rounded)
    if done.rejected:
        warn(f"{format_count(done.rejected, 'row')} did not match the schema and were left out")
        return REJECTED
    return DONE


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
    if not source.startswith(_DATABASES):
        if name is not None or key:
            raise InvalidSetting("--table and --key are for PostgreSQL")
        return ColumnFile(source)
    from encrypted_records.cli.input.postgresql import PostgresqlTable  # noqa: PLC0415 - slow to import

    if name is None:
        raise InvalidSetting("missing: --table", hint="add --table people")
    if find_spec("psycopg") is None:
        raise InvalidSetting(
            "tables of PostgreSQL can only be read with psycopg, which is not installed",
            hint="pip install 'encrypted-records[postgresql]', or import a CSV export of the table",
        )
    table = PostgresqlTable(source, name, key)
    if given and table.has_password:
        warn(f"the password is visible in the list of processes; set {_URL} or PGPASSWORD instead")
    await table.look()
    return table

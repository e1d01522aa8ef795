"""A file as people have it becomes an encrypted schema; how it is read is shown before."""

from __future__ import annotations

import functools
import hashlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from encrypted_records import runtime
from encrypted_records.cli.commands.job import JobFlags, detached, finish, going_on, send
from encrypted_records.cli.input.importer import (
    ImportProgress,
    WantedRules,
    create_schema,
    remembered_imports,
)
from encrypted_records.cli.input.upload_sources import FileSource
from encrypted_records.cli.login.session import CommandSession
from encrypted_records.cli.output import Output
from encrypted_records.cli.terminal import confirm, format_count, pad, warn, width_of, with_minutes
from encrypted_records.client.proxy.connection import ShownSchema
from encrypted_records.client.proxy.jobs import JobReading
from encrypted_records.client.proxy.uploads import READ_MEDIA_TYPE, LocalFile, read_head
from encrypted_records.errors import (
    BadInput,
    InvalidRecords,
    InvalidSetting,
    NotFound,
    UploadedBefore,
)
from encrypted_records.model import strict_json
from encrypted_records.model.samples import FieldReading, FileReading, Preview

_DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
_DELIMITERS |= {mark: mark for mark in ",;\t|"}
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes"}
_NULL = "null"
#: Rows of a preview that are compared to name two with the same value: the most it can have.
_MOST_ROWS = 100
_LOCAL = "local date and time"
#: The value of --reading for no stored reading.
_NO_READING = "none"
#: The option for each member of a reading.
_OPTIONS = {
    "/delimiter": "--delimiter",
    "/encoding": "--encoding",
    "/header_row": "--header-row",
    "/sheet": "--sheet",
    "/columns": "--type, --decimal, --date-format or --null",
}


@dataclass(frozen=True)
class ReadingOptions:
    """The options of a command that say how a file is read."""

    delimiter: str | None = None
    encoding: str | None = None
    header_row: int | None = None
    below: int | None = None
    sheet: str | None = None
    decimal: tuple[str, ...] = ()
    date_format: tuple[str, ...] = ()
    null: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    boolean: tuple[str, ...] = ()
    rename: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    time_zone: str | None = None
    round: bool = False
    reading: str | None = None
    keep: bool = False

    @property
    def uses_kept(self) -> bool:
        """Whether the reading that is kept for the schema is used, where there is one."""
        return self.reading is None

    def as_json(self) -> bytes:
        """The options as JSON for the proxy; empty bytes if no option was given.

        Raises:
            InvalidSetting: an option is not of the form COLUMN=VALUE, the delimiter is unknown, or
                the file of ``--reading`` is not a reading in JSON.
        """
        choices: dict[str, Any] = {}
        if self.reading not in (None, _NO_READING):
            choices["reading"] = _read_json(self.reading)
        if self.round:
            choices["round"] = True
        if self.delimiter is not None:
            if self.delimiter not in _DELIMITERS:
                raise InvalidSetting("expected , ; tab or pipe for --delimiter")
            choices["delimiter"] = _DELIMITERS[self.delimiter]
        for name in ("encoding", "header_row", "below", "sheet", "time_zone"):
            if (value := getattr(self, name)) is not None:
                choices[name] = value
        columns: dict[str, dict[str, Any]] = {}
        for option, member in (("decimal", "decimal"), ("date_format", "format")):
            for text in getattr(self, option):
                column, value = _pair(text)
                of = choices if column is None else columns.setdefault(column, {})
                of[member] = value
        for text in self.null:
            column, value = _pair(text)
            of = choices if column is None else columns.setdefault(column, {})
            of.setdefault(_NULL, []).append(value)
        for option, member in (("type", "type"), ("rename", "name")):
            for text in getattr(self, option):
                column, value = _needed(text, option)
                columns.setdefault(column, {})[member] = value
        for text in self.boolean:
            column, value = _needed(text, "boolean")
            yes, mark, no = value.partition("/")
            if not mark:
                raise InvalidSetting("--boolean takes COLUMN=YES/NO")
            columns.setdefault(column, {}).update({"true": yes, "false": no})
        for column in self.leave_out:
            columns.setdefault(column, {})["leave_out"] = True
        if columns:
            choices["columns"] = columns
        return json.dumps(choices, ensure_ascii=False).encode() if choices else b""


def _read_json(path: str) -> Any:
    """
    Raises:
        InvalidSetting: the file cannot be read, or is not JSON.
    """
    try:
        return json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        raise InvalidSetting(
            f"{path} does not contain a reading in JSON",
            hint="ers schema get SCHEMA --reading prints the kept one",
        ) from None


def _pair(text: str) -> tuple[str | None, str]:
    """Split ``COLUMN=VALUE`` into both parts; a lone ``VALUE`` has no column."""
    column, mark, value = text.rpartition("=")
    return (column, value) if mark and column else (None, text)


def _needed(text: str, option: str) -> tuple[str, str]:
    column, value = _pair(text)
    if column is None:
        raise InvalidSetting(f"--{option.replace('_', '-')} takes COLUMN=VALUE")
    return column, value


def takes_reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of :class:`ReadingOptions`, which the command gets as ``reading``."""
    wrapped = takes_form(command)
    for option in (
        click.option(
            "--keep",
            is_flag=True,
            help="Keep this reading for the schema's next files, instead of the kept one.",
        ),
        click.option(
            "--reading",
            metavar="FILE",
            help=(
                "File with a reading in JSON, by which to read this file; none: detect the"
                " reading again."
            ),
        ),
    ):
        wrapped = option(wrapped)
    return wrapped


def takes_form(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of :func:`takes_reading` to a command, except those about kept readings."""

    @functools.wraps(command)
    def call(*arguments: Any, **values: Any) -> Any:
        names = ReadingOptions.__dataclass_fields__
        given = {name: values.pop(name) for name in names if name in values}
        return command(*arguments, reading=ReadingOptions(**given), **values)

    wrapped: Callable[..., Any] = call
    for option in (
        click.option(
            "--round",
            is_flag=True,
            help="Round numbers with more decimals than their field keeps, half to even.",
        ),
        click.option(
            "--time-zone",
            metavar="ZONE",
            help="Time zone of times without one, such as Europe/Berlin.",
        ),
        click.option(
            "--leave-out", multiple=True, metavar="COLUMN", help="Column that is not stored."
        ),
        click.option(
            "--rename",
            multiple=True,
            metavar="OLD=NEW",
            help="Column whose field gets another name.",
        ),
        click.option(
            "--boolean",
            multiple=True,
            metavar="COLUMN=YES/NO",
            help="Words of a column for true and false.",
        ),
        click.option(
            "--type",
            multiple=True,
            metavar="COLUMN=TYPE",
            help=(
                "Type of a column: text, number, date, time, date-time, local, duration or boolean."
            ),
        ),
        click.option(
            "--null", multiple=True, metavar="[COLUMN=]WORD", help='Word that means "no value".'
        ),
        click.option(
            "--date-format",
            multiple=True,
            metavar="[COLUMN=]FORMAT",
            help="Format of dates, such as dd/mm/yyyy; dd.mm.yy covers the years 1930 to 2029.",
        ),
        click.option(
            "--decimal",
            multiple=True,
            metavar="[COLUMN=]MARK",
            help="Decimal mark: a comma or a point.",
        ),
        click.option(
            "--sheet",
            metavar="NAME",
            help="Sheet of a workbook, or member of a JSON object, with the rows.",
        ),
        click.option(
            "--below", type=click.IntRange(0), help="Number of rows below the table; 0: none."
        ),
        click.option(
            "--header-row",
            type=click.IntRange(0),
            help="Row with the column names; 0: the file has none.",
        ),
        click.option("--encoding", metavar="NAME", help="Charset, such as cp1252."),
        click.option("--delimiter", metavar="MARK", help="Delimiter of the file: , ; tab or pipe."),
    ):
        wrapped = option(wrapped)
    return wrapped


async def import_file(
    session: CommandSession,
    file: LocalFile,
    dataset: str | None,
    name: str | None,
    schema: str | None,
    reading: ReadingOptions,
    rules: WantedRules,
    options: JobFlags,
    output: Output,
    *,
    yes: bool,
    skip_invalid: bool,
) -> int:
    """Show how a file is read, create a schema for it unless ``schema`` names one, and store its
    rows; returns the exit code.

    An interrupted import is remembered with all its options, and the same command continues it. The
    proxy recognises a stored file by its bytes.

    Raises:
        InvalidSetting: a guess was not confirmed, or an option names no column of the file.
        InvalidRecords: the file cannot be read, or some of its first rows are invalid and are not
            to be skipped.
        Conflict: a schema of that name exists already.
        UploadedBefore: the file was already stored in the schema.
    """
    if schema is not None and (name is not None or rules != WantedRules()):
        raise InvalidSetting("--name, --enum, --unique, --required and --tight are for new schemas")
    if options.kind is not None:
        raise InvalidSetting("--format is for files that are read with --exact")
    if schema is None and (options.again or options.detach):
        raise InvalidSetting(
            "--again and --detach are for files of an existing schema",
            hint="name the schema with --schema",
        )
    if schema is not None:
        head = await runtime.in_thread(read_head, file)
        found_schema = await _existing(session, file, schema, dataset)
        return await _import_again(
            *(session, file, head, found_schema, reading, options, output),
            yes=yes,
            skip_invalid=skip_invalid,
        )
    definition, found = await propose(session, file, reading, rules)
    _require_sure(found, reading, yes=yes)
    called = name or file.path.stem
    group = dataset or "Imported files"
    recipe = found.recipe
    remembered = remembered_imports()
    handling = [skip_invalid, options.on_conflict, options.by]
    digested = strict_json.encode([called, group, definition, handling, found.reading])
    mark = f"text {hashlib.sha256(digested).hexdigest()} {file.mark}"
    key = f"{session.address} {session.who.email} {mark}"
    made = await _begun(session, remembered.read().get(key))
    goes_on = made is not None
    if made is None:
        if not skip_invalid:
            await _require_valid(session, file, definition, found)
        rows = format_count(found.sampled, "row")
        count = rows if found.whole else "all rows"
        confirm(
            f"Create the schema {called} in {group} and store {count}?",
            yes=yes,
            why="the reading of the file needs a confirmation",
            undone="nothing was stored",
        )
        made = await create_schema(
            session,
            group,
            called,
            definition,
            hint="store the rows there with --schema {path}, or choose another name with --name",
        )
        remembered.put(key, ImportProgress(made.url))
    order = options.order(made.id, skip_invalid=skip_invalid, reading=recipe)
    try:
        job = await send(session, _source(file), order)
    except UploadedBefore as error:
        if not goes_on:  # it may be read in another way there
            remembered.put(key, None)
            raise UploadedBefore.by(
                error.job_id,
                error.message,
                hint=f"choose another name with --name, or see: ers job get {error.job_id}",
            ) from None
        warn(f"continuing: {with_minutes(error.message)}")
        job = error.job_id
    code = await finish(session, job, output)
    if await _ends_as_read(session, job, recipe):
        await session.client.keep_reading(made.id, found.reading)
        path = await session.names.path_of(made)
        warn(f"The reading is kept; the next file: ers import FILE --schema {shlex.quote(path)}")
    remembered.put(key, None)
    return code


async def _existing(
    session: CommandSession, file: LocalFile, schema: str, dataset: str | None
) -> ShownSchema:
    """The schema of ``--schema``.

    Raises:
        NotFound: there is none of that name; the hint has the command that creates it.
        InvalidSetting: several have that name.
    """
    try:
        return await session.names.schema(schema, dataset)
    except NotFound as error:
        parent, _, name = schema.rpartition("/")
        words = ["ers", "import", str(file.path), "--name", name]
        if within := parent or dataset:
            words += ["--dataset", within]
        hint = f"to create it with the import, leave out --schema: {shlex.join(words)}"
        listed = f"{error.hint}; " if error.hint.startswith("there are") else ""
        raise NotFound(error.message, hint=f"{listed}{hint}") from None


async def propose(
    session: CommandSession, file: LocalFile, reading: ReadingOptions, rules: WantedRules
) -> tuple[dict[str, Any], FileReading]:
    """A definition for a file as people have it, and how the file is read; both are shown on
    stderr.

    Raises:
        InvalidSetting: a rule names no field, or a field of the wrong kind.
        BadInput: the file cannot be read, or not with these options.
    """
    head = await runtime.in_thread(read_head, file)
    found = await _detect(session, head, file, reading, tight=rules.tight)
    _require_no_difference(file.path.name, found)
    definition = dict(found.schema)
    fields = {field.name: field for field in found.fields}
    open_ones = [name for name in rules.unique if name in fields and not fields[name].unique]
    if open_ones:
        seen = await session.client.preview(
            *(head, file.size, definition, found.reading), rows=_MOST_ROWS
        )
        for name in open_ones:
            _require_distinct(name, seen)
            fields[name] = msgspec.structs.replace(fields[name], unique=True)
    rules.apply(definition, fields)
    _show(file.path.name, found, definition)
    return definition, found


def _require_distinct(name: str, seen: Preview) -> None:
    """Rows without a value do not conflict with any other.

    Raises:
        InvalidSetting: a value of the field occurs more than once.
    """
    spread = next(spread for spread in seen.fields if spread.name == name)
    repeated = spread.present - spread.distinct
    if not repeated:
        return
    where = ""
    first: dict[str, int] = {}
    for row in seen.rows:
        cell = row.cells[seen.columns.index(name)]
        if cell is None or cell.endswith("…"):  # absent, or only the beginning of a value
            continue
        if cell in first:
            where = f", such as in rows {first[cell]} and {row.row}"
            break
        first[cell] = row.row
    raise InvalidSetting(
        f"a value of {name} occurs more than once{where}: {format_count(repeated, 'row')} of"
        f" {seen.checked:,} had the value of an earlier row, so it cannot be unique",
        hint=f"correct the rows, or leave out --unique {shlex.quote(name)}",
    )


async def _import_again(
    session: CommandSession,
    file: LocalFile,
    head: bytes,
    schema: ShownSchema,
    reading: ReadingOptions,
    options: JobFlags,
    output: Output,
    *,
    yes: bool,
    skip_invalid: bool,
) -> int:
    """Store the rows of a further file of a schema, by the reading that is kept for it."""
    found = await _detect(session, head, file, reading, schema=schema.id)
    _show(file.path.name, found, None)
    _require_no_difference(file.path.name, found)
    if not found.kept:
        _require_sure(found, reading, yes=yes)
        confirm(
            f"Store these rows in {await session.names.path_of(schema)}?",
            yes=yes,
            why="the reading of the file needs a confirmation",
            undone="nothing was stored",
        )
    recipe = found.recipe
    order = options.order(schema.id, skip_invalid=skip_invalid, reading=recipe)
    try:
        job = await send(session, _source(file), order)
    except UploadedBefore as error:
        job = await going_on(session, error)
    if options.detach:
        return detached(job)
    code = await finish(session, job, output)
    keeps = reading.keep or (reading.uses_kept and not found.kept)
    if await _ends_as_read(session, job, recipe) and keeps:
        await session.client.keep_reading(schema.id, found.reading)
        warn("The reading is kept for the next files.")
    return code


async def _ends_as_read(session: CommandSession, job: str, recipe: bytes) -> bool:
    """Tell what became of a job's cells; whether it has stored its rows, all or all that fit, and
    as this reading has it. A job that was under way before may have another one."""
    ended = await session.client.job_about(job)
    if ended.status != "completed" or ended.bad_rows >= ended.total:
        return False
    report = await session.client.job_reading(job)
    _tell_reading(report)
    if report.reading == json.loads(recipe):
        return True
    warn(
        f"job {job} was already storing this file, with another reading than this one, which"
        f" is not kept; check its records, and see: ers job get {job}"
    )
    return False


def _source(file: LocalFile) -> FileSource:
    return FileSource(file.path.name, READ_MEDIA_TYPE, file.pieces, file.size, file)


async def _detect(
    session: CommandSession,
    head: bytes,
    file: LocalFile,
    reading: ReadingOptions,
    *,
    tight: bool = False,
    schema: str | None = None,
) -> FileReading:
    """
    Raises:
        BadInput: the file cannot be read.
    """
    try:
        return await session.client.detect(
            *(head, file.size, reading.as_json()),
            tight=tight,
            schema=schema,
            kept=reading.uses_kept,
        )
    except BadInput as error:
        if error.reason != "reading":
            raise
        columns = [flaw.field for flaw in error.flaws if flaw.field and not flaw.pointer]
        hints = [error.hint] if error.hint else []
        if columns:  # they are not fields of the schema
            flags = " ".join(f"--leave-out {shlex.quote(column)}" for column in columns)
            hints = [f"{flags} stores none of them, --rename COLUMN=FIELD stores one in a field"]
        hints += [
            f"set it with {_OPTIONS[flaw.pointer]}"
            for flaw in error.flaws
            if flaw.pointer in _OPTIONS
        ]
        raise BadInput(error.message, code="reading", hint="; ".join(hints)) from None


def _require_no_difference(name: str, found: FileReading) -> None:
    """
    Raises:
        BadInput: the file differs from the one before in what may change its values.
    """
    differences = found.differences
    for difference in differences:
        if difference.taken:
            warn(f"  as in the previous file, but {difference.detail}")
    open_ones = [difference for difference in differences if not difference.taken]
    if not open_ones:
        return
    flags = list(
        dict.fromkeys(flag for difference in open_ones for flag in _flags(difference.say or {}))
    )
    hint = "--reading none detects the reading again; with --keep, also for later files"
    if flags and all(difference.say for difference in open_ones):
        hint = f"{' '.join(flags)} accepts this file; with --keep, also later files"
    details = "; ".join(difference.detail for difference in open_ones)
    raise BadInput(
        f"{name} differs from the previous file: {details}",
        code="reading",
        hint=f"{hint}; nothing was stored",
    )


async def _require_valid(
    session: CommandSession, file: LocalFile, definition: Mapping[str, Any], found: FileReading
) -> None:
    """
    Raises:
        InvalidRecords: some of the first rows are invalid.
    """
    head = await runtime.in_thread(read_head, file)
    seen = await session.client.preview(head, file.size, definition, found.reading)
    if not seen.bad_rows:
        return
    hint = "--skip-invalid stores the valid rows"
    if seen.unread:
        column = seen.unread[0]
        hint += (
            f"; or read the column in another way: --type {shlex.quote(f'{column}=text')},"
            f" or --date-format, --decimal or --null"
        )
    raise InvalidRecords(seen.refusal, flaws=tuple(seen.errors), hint=hint)


def _flags(say: Mapping[str, Any]) -> Iterator[str]:
    """The options that say what a member of a reading says."""
    for member in ("delimiter", "encoding", "header_row", "below", "sheet"):
        if member in say:
            value = {"\t": "tab", "|": "pipe"}.get(say[member], say[member])
            yield f"--{member.replace('_', '-')} {shlex.quote(str(value))}"
    for column, choices in say.get("columns", {}).items():
        if choices.get("leave_out"):
            yield f"--leave-out {shlex.quote(column)}"
        if "true" in choices:
            words = f"{column}={choices['true']}/{choices['false']}"
            yield f"--boolean {shlex.quote(words)}"
        for member, option in (
            ("decimal", "decimal"),
            ("format", "date-format"),
            ("name", "rename"),
        ):
            if member in choices:
                yield f"--{option} {shlex.quote(f'{column}={choices[member]}')}"
        for word in choices.get(_NULL, []):
            yield f"--null {shlex.quote(f'{column}={word}')}"


async def _begun(session: CommandSession, remembered: ImportProgress | None) -> ShownSchema | None:
    """The schema that this very import has begun to fill before it was interrupted."""
    if remembered is None:
        return None
    try:
        return await session.names.schema(remembered.schema)
    except NotFound:  # deleted since: it begins again
        return None


def _show(name: str, found: FileReading, definition: Mapping[str, Any] | None) -> None:
    """Say on stderr how a file is read, what of it will be stored, and which values the server will
    see; the latter of a new schema, by its definition."""
    recipe = found.reading
    charset = recipe["encoding"]
    kind = recipe["container"]
    if "encoding" in found.guessed:
        words = ", ".join(found.words)
        charset += f" (a guess{f': {words}' if words else ''})"
    row = recipe["header_row"]
    names = f"names in row {row}" if row else "no names"
    read_as = {
        "csv": f"CSV: {_MARKS[recipe['delimiter']]}, {charset}, {names}",
        "workbook": f"a workbook: sheet {recipe['sheet']}, {names}",
        "json": f"JSON: the list {recipe['sheet']}" if recipe["sheet"] else "JSON: an array",
        "ndjson": "JSON: an object a line",
    }[kind]
    warn(
        f"{name} is read as {read_as},"
        f" {'' if found.whole else 'first '}{format_count(found.sampled, 'row')}."
    )
    for note in found.notes:
        warn(f"  {note}")
    for left_out, where in ((found.above, "above"), (found.below, "below")):
        for text in left_out:
            warn(f"  left out {where} the table: {text}")
    if recipe["below"] is None:
        warn("  The file's end was not checked; --below N leaves out N rows there.")
    if found.short_rows:
        warn(f"  {format_count(found.short_rows, 'row')} lack their last cells")
    lines = [("FIELD", "TYPE", "FROM THE FILE", "STORED AS", "")]
    lines += [_line(field) for field in found.fields]
    widths = [min(40, max(width_of(line[at]) for line in lines)) for at in range(4)]
    for line in lines:
        shown = "  ".join(pad(cell, width) for cell, width in zip(line, widths, strict=False))
        warn(f"  {shown}  {line[4]}".rstrip())
    if definition is None:
        return
    listed = {
        name: field["enum"] for name, field in definition["properties"].items() if "enum" in field
    }
    if listed:
        for field, values in listed.items():
            warn(f"The server will see these values of {field}: {', '.join(values)}")
    else:
        warn("The server will see these names and types, and no value.")


def _line(read_column: FieldReading) -> tuple[str, str, str, str, str]:
    examples = read_column.examples
    notes = [read_column.note] if read_column.note else []
    if read_column.type == _LOCAL:
        notes.append("--time-zone turns it into instants")
    if read_column.ask:
        option = {"decimal": "--decimal", "date_format": "--date-format"}.get(
            read_column.ask, "--null"
        )
        notes.insert(0, f"ASK: {option} {read_column.name}=...")
    if read_column.absent:
        notes.append(f"{format_count(read_column.absent, 'row')} without a value")
    seen, kept = ([str(pair[at])[:30] for pair in examples] for at in (0, 1))
    return (
        read_column.name,
        read_column.type,
        " | ".join(seen),
        " | ".join(kept),
        "; ".join(notes),
    )


def _require_sure(found: FileReading, reading: ReadingOptions, *, yes: bool) -> None:
    """Refuse guesses with ``--yes``, because the user does not check them.

    Raises:
        InvalidSetting: a guess has to be stated as an option.
    """
    flags = {
        "encoding": f"--encoding {found.reading['encoding']}",
        "below": f"--below {found.reading['below']}",
        "sheet": f"--sheet {shlex.quote(found.reading['sheet'] or '')}",
    }
    open_ones = [flags[guess] for guess in found.guessed]
    if yes and open_ones:
        raise InvalidSetting(
            "--yes confirms no guesses about how the file is read",
            hint=f"if the guesses are right: {' '.join(open_ones)}",
        )


def _tell_reading(report: JobReading) -> None:
    """Say on stderr what became of cells that are not stored as they are written."""
    absent = {name: sum(words.values()) for name, words in report.absent.items()}
    for label, counts in (("Rewritten", report.rewritten), ("Empty", absent)):
        counted = [f"{name} {count:,}" for name, count in counts.items()]
        if counted:
            warn(f"{label}: {', '.join(counted)}.")
    for count, label in ((report.above, "above the table"), (report.below, "below the table")):
        if count:
            warn(f"Left out: {format_count(count, 'row')} {label}.")
    if report.short_rows:
        warn(f"Without their last cells: {format_count(report.short_rows, 'row')}.")
    if report.valueless_rows:
        warn(f"Left out: {format_count(report.valueless_rows, 'row')} without values.")

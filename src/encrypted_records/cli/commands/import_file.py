"""A file as people have it becomes an encrypted schema; how it is read is shown before."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from encrypted_records import runtime
from encrypted_records.cli.commands.upload_job import Order, finish, send
from encrypted_records.cli.input.import_schema import create_schema
from encrypted_records.cli.input.importer import Remembered, remembered_imports
from encrypted_records.cli.input.proposed_rules import Asked
from encrypted_records.cli.input.upload_sources import Source
from encrypted_records.cli.login.session import CommandSession
from encrypted_records.cli.output import Output
from encrypted_records.cli.terminal import confirm, format_count, warn
from encrypted_records.client.media import LocalFile
from encrypted_records.client.proxy.resources import Resource
from encrypted_records.errors import InvalidSetting, NotFound, UploadedBefore
from encrypted_records.model import json_text
from encrypted_records.model.media_types import Format

#: What is sent of a file to find out how it is read.
HEAD_BYTES = 8 << 20
_DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
_DELIMITERS |= {mark: mark for mark in ",;\t|"}
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes"}
_NULL = "null"


@dataclass(frozen=True)
class ReadingOptions:
    """What the options of a command say of how a file is read."""

    delimiter: str | None
    encoding: str | None
    header_row: int | None
    below: int | None
    decimal: tuple[str, ...]
    date_format: tuple[str, ...]
    null: tuple[str, ...]
    type: tuple[str, ...]
    boolean: tuple[str, ...]
    rename: tuple[str, ...]
    leave_out: tuple[str, ...]
    time_zone: str | None

    def as_json(self) -> bytes:
        """As the proxy takes it; nothing where nothing is said.

        Raises:
            InvalidSetting: a pair is not one of a column and a value.
        """
        said: dict[str, Any] = {}
        if self.delimiter is not None:
            if self.delimiter not in _DELIMITERS:
                raise InvalidSetting("--delimiter is , ; tab or pipe")
            said["delimiter"] = _DELIMITERS[self.delimiter]
        for name in ("encoding", "header_row", "below", "time_zone"):
            if (value := getattr(self, name)) is not None:
                said[name] = value
        columns: dict[str, dict[str, Any]] = {}
        for option, member in (("decimal", "decimal"), ("date_format", "format")):
            for one in getattr(self, option):
                column, value = _pair(one)
                of = said if column is None else columns.setdefault(column, {})
                of[member] = value
        for one in self.null:
            column, value = _pair(one)
            of = said if column is None else columns.setdefault(column, {})
            of.setdefault(_NULL, []).append(value)
        for option, member in (("type", "type"), ("rename", "name")):
            for one in getattr(self, option):
                column, value = _needed(one, option)
                columns.setdefault(column, {})[member] = value
        for one in self.boolean:
            column, value = _needed(one, "boolean")
            yes, mark, no = value.partition("/")
            if not mark:
                raise InvalidSetting("--boolean takes COLUMN=YES/NO")
            columns.setdefault(column, {}).update({"true": yes, "false": no})
        for column in self.leave_out:
            columns.setdefault(column, {})["leave_out"] = True
        if columns:
            said["columns"] = columns
        return json.dumps(said, ensure_ascii=False).encode() if said else b""


def _pair(text: str) -> tuple[str | None, str]:
    """Of ``COLUMN=VALUE`` both, of ``VALUE`` that alone."""
    column, mark, value = text.rpartition("=")
    return (column, value) if mark and column else (None, text)


def _needed(text: str, option: str) -> tuple[str, str]:
    column, value = _pair(text)
    if column is None:
        raise InvalidSetting(f"--{option.replace('_', '-')} takes COLUMN=VALUE")
    return column, value


def takes_reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of :class:`ReadingOptions`, which the command gets as ``reading``."""

    @functools.wraps(command)
    def call(*arguments: Any, **values: Any) -> Any:
        names = ReadingOptions.__dataclass_fields__
        options = ReadingOptions(**{name: values.pop(name) for name in names})
        return command(*arguments, reading=options, **values)

    wrapped: Callable[..., Any] = call
    for option in (
        click.option(
            "--time-zone", metavar="ZONE", help="Time zone of times without one: Europe/Berlin."
        ),
        click.option("--leave-out", multiple=True, metavar="COLUMN", help="Do not store it."),
        click.option("--rename", multiple=True, metavar="OLD=NEW", help="Another field name."),
        click.option(
            "--boolean", multiple=True, metavar="COLUMN=YES/NO", help="Words for true and false."
        ),
        click.option(
            "--type",
            multiple=True,
            metavar="COLUMN=TYPE",
            help="text, number, date, time, date-time, local or boolean.",
        ),
        click.option(
            "--null", multiple=True, metavar="[COLUMN=]WORD", help="A word that stands for nothing."
        ),
        click.option(
            "--date-format",
            multiple=True,
            metavar="[COLUMN=]FORMAT",
            help="Such as dd/mm/yyyy; also dd.mm.yy, of the years 1930 to 2029.",
        ),
        click.option(
            "--decimal", multiple=True, metavar="[COLUMN=]MARK", help="A comma or a point."
        ),
        click.option("--below", type=click.IntRange(0), help="Rows under the table; 0: none."),
        click.option(
            "--header-row", type=click.IntRange(0), help="The row with the names; 0: none has them."
        ),
        click.option("--encoding", metavar="NAME", help="The charset, such as cp1252."),
        click.option("--delimiter", metavar="MARK", help="Delimiter of the file: , ; tab or pipe."),
    ):
        wrapped = option(wrapped)
    return wrapped


async def import_file(
    session: CommandSession,
    path: str,
    dataset: str | None,
    name: str | None,
    reading: ReadingOptions,
    asked: Asked,
    output: Output,
    *,
    yes: bool,
    skip_invalid: bool,
) -> int:
    """Show how a file is read, make a schema for it, and store its rows; the exit code.

    An import that was interrupted is remembered, with all that was said of it, and goes on: by the
    file's bytes the proxy knows if it has been stored.

    Raises:
        InvalidSetting: a guess that nobody confirms, or what is said names no column.
        InvalidRecords: the file cannot be read.
        Conflict: there is such a schema.
    """
    file = await runtime.in_thread(LocalFile, Path(path))
    file.require_size("a file is read twice: to see how it is read, and to store it")
    head = await runtime.in_thread(_head, file)
    found = await session.client.detect(head, file.size, reading.as_json(), tight=asked.tight)
    definition = dict(found["schema"])
    asked.apply(definition, {one["name"]: one for one in found["fields"]})
    _show(file.path.name, found, definition)
    _require_sure(found, reading, yes=yes)
    called = name or Path(path).stem
    group = dataset or "Imported files"
    recipe = json.dumps(found["reading"], ensure_ascii=False).encode()
    remembered = remembered_imports()
    told = json_text.encode([called, group, definition, skip_invalid, found["reading"]])
    mark = f"text {hashlib.sha256(told).hexdigest()} {file.mark}"
    key = f"{session.address} {session.who.email} {mark}"
    schema = await _begun(session, remembered.read().get(key))
    goes_on = schema is not None
    if schema is None:
        rows = format_count(found["sampled"], "row")
        count = rows if found["whole"] else "all rows"
        confirm(
            f"Create the schema {called} in {group} and store {count}?",
            yes=yes,
            why="what was read has to be confirmed",
            undone="nothing was stored",
        )
        schema = await create_schema(
            session, group, called, definition, hint="choose another name with --name"
        )
        remembered.put(key, Remembered(schema["url"]))
    source = Source(file.path.name, Format.CSV.media_type, file.pieces, file.size, file)
    order = Order(schema["id"], skip_invalid=skip_invalid, reading=recipe)
    try:
        job = await send(session, source, order)
    except UploadedBefore as error:
        if not goes_on:  # it may be read in another way there
            remembered.put(key, None)
            raise UploadedBefore.by(
                error.job_id,
                error.message,
                hint=f"choose another name with --name, or see: ers job status {error.job_id}",
            ) from None
        warn(f"going on: {error.message}")
        job = error.job_id
    code = await finish(session, job, output)
    remembered.put(key, None)
    if found["whole"] and not code:
        _report(found["fields"])
    return code


async def _begun(session: CommandSession, remembered: Remembered | None) -> Resource | None:
    """The schema that this very import has begun to fill before it was interrupted."""
    if remembered is None:
        return None
    try:
        return await session.client.resource(remembered.schema)
    except NotFound:  # deleted since: it begins again
        return None


def _head(file: LocalFile) -> bytes:
    return file.read_at(0, min(HEAD_BYTES, file.size or 0))


def _show(name: str, found: Mapping[str, Any], definition: Mapping[str, Any]) -> None:
    """Say on stderr how a file is read, and what of it will be stored."""
    recipe = found["reading"]
    charset = recipe["encoding"]
    if "encoding" in found["guessed"]:
        words = ", ".join(found["words"])
        charset += f" (a guess{f': {words}' if words else ''})"
    row = recipe["header_row"]
    names = f"names in row {row}" if row else "no names"
    warn(
        f"{name} is read as CSV: {_MARKS[recipe['delimiter']]}, {charset}, {names},"
        f" {'' if found['whole'] else 'first '}{format_count(found['sampled'], 'row')}."
    )
    for what, where in (("above", "above the table"), ("below", "below the table")):
        for line in found[what]:
            warn(f"  left out {where}: {line}")
    if found["short_rows"]:
        warn(f"  {format_count(found['short_rows'], 'row')} lack their last cells")
    lines = [("FIELD", "TYPE", "FROM THE FILE", "STORED AS", "")]
    lines += [_line(one) for one in found["fields"]]
    widths = [min(40, max(len(line[at]) for line in lines)) for at in range(4)]
    for line in lines:
        shown = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False))
        warn(f"  {shown}  {line[4]}".rstrip())
    listed = {
        name: field["enum"] for name, field in definition["properties"].items() if "enum" in field
    }
    if listed:
        for field, values in listed.items():
            warn(f"The server will see these values of {field}: {', '.join(values)}")
    else:
        warn("The server will see these names and types, and no value.")


def _line(one: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    examples = one["examples"]
    notes = [one["note"]] if one["note"] else []
    if one["ask"]:
        told = {"decimal": "--decimal", "date_format": "--date-format"}.get(one["ask"], "--null")
        notes.insert(0, f"ASK: {told} {one['name']}=...")
    if one["absent"]:
        notes.append(f"{format_count(one['absent'], 'row')} without one")
    seen, kept = ([str(pair[at])[:30] for pair in examples] for at in (0, 1))
    return (one["name"], one["type"], ", ".join(seen), ", ".join(kept), "; ".join(notes))


def _require_sure(found: Mapping[str, Any], reading: ReadingOptions, *, yes: bool) -> None:
    """With ``--yes`` nobody looks at what is a guess.

    Raises:
        InvalidSetting: it is to be said then.
    """
    flags = {
        "encoding": f"--encoding {found['reading']['encoding']}",
        "below": f"--below {found['reading']['below']}",
    }
    open_ones = [flags[one] for one in found["guessed"]]
    if yes and open_ones:
        raise InvalidSetting(
            "what is a guess has to be said where nobody looks at it",
            hint=f"if it is right: {' '.join(open_ones)}",
        )


def _report(fields: Sequence[Mapping[str, Any]]) -> None:
    """What became of cells that are not stored as they are written."""
    for what, member in (("Rewritten", "rewritten"), ("Empty", "absent")):
        counted = [f"{one['name']} {one[member]}" for one in fields if one[member]]
        if counted:
            warn(f"{what}: {', '.join(counted)}.")

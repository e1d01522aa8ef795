"""The caller's statements about how a file is read, which override detection."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from encrypted_records.ingest.reading import values
from encrypted_records.ingest.reading.charset import refused
from encrypted_records.ingest.reading.columns import Decided, Evidence, decide
from encrypted_records.ingest.reading.detect import Detection, Wanted, detect
from encrypted_records.ingest.reading.recipe import (
    DATED,
    MAX_BYTES,
    MOMENTS,
    ONE_FORM,
    FileColumn,
    Recipe,
    Type,
    moment_type,
    read_recipe,
    reader_of,
)

_Word = Annotated[str, Meta(max_length=100)]


class SaidOfColumn(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``null`` are further words for nothing; ``leave_out`` drops the column."""

    type: Type | None = None
    format: _Word | None = None
    decimal: Literal[".", ","] | None = None
    true: _Word | None = None
    false: _Word | None = None
    null: list[_Word] = []
    name: _Word | None = None
    leave_out: bool = False


class ReadingChoices(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``columns`` are by the name of the field; ``decimal``, ``format`` and ``null`` hold for all
    columns of which nothing else is said. ``reading`` is that of a file before, by which this one
    is to be read."""

    encoding: _Word | None = None
    delimiter: Literal[",", ";", "\t", "|"] | None = None
    header_row: Annotated[int, Meta(ge=0, le=1000)] | None = None
    below: Annotated[int, Meta(ge=0, le=1000)] | None = None
    sheet: Annotated[str, Meta(max_length=1000)] | None = None
    decimal: Literal[".", ","] | None = None
    format: _Word | None = None
    null: list[_Word] = []
    time_zone: str | None = None
    round: bool = False
    reading: Recipe | None = None
    columns: dict[str, SaidOfColumn] = {}


#: Options that mean nothing for a file in a container.
_UNUSED = {
    "csv": ("sheet",),
    "json": ("encoding", "delimiter", "header_row", "below"),
    "ndjson": ("encoding", "delimiter", "header_row", "below", "sheet"),
    "workbook": ("encoding", "delimiter"),
}
NOTHING = ReadingChoices()
NOTHING_OF_COLUMN = SaidOfColumn()


def read_said(body: bytes) -> ReadingChoices:
    """
    Raises:
        InvalidRecords: ``reading``; it is not what can be said.
    """
    try:
        if len(body) > MAX_BYTES:
            raise msgspec.ValidationError(f"more than {MAX_BYTES >> 20} MiB")
        return msgspec.json.decode(body, type=ReadingChoices)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise refused(
            "the request's description of the reading cannot be read", str(error)[:200]
        ) from None


def notes_on_unused(said: ReadingChoices, container: str) -> list[str]:
    """The options that a file has no use for."""
    unused = [member for member in _UNUSED[container] if getattr(said, member) is not None]
    return [f"not used, because the file has none: {', '.join(unused)}"] if unused else []


def detect_as(
    sample: bytes, said: ReadingChoices, *, whole: bool, texts: Collection[str] = ()
) -> Detection:
    """Detect like :func:`detect`, with the caller's statements.

    Args:
        texts: names of columns that stay text unless ``said`` states otherwise.

    Raises:
        InvalidRecords: ``reading``; also if a cell cannot be read as stated.
        TooLarge: a quote does not close.
    """
    wanted = Wanted(said.encoding, said.delimiter, said.header_row, said.below, said.sheet)
    found = detect(sample, whole=whole, wanted=wanted)
    require_columns(found, said)
    recipe = msgspec.structs.replace(found.recipe, time_zone=said.time_zone, round=said.round)
    columns = [
        Decided(FileColumn(column.column.source, column.column.name))
        if column.column.name in texts
        else column
        for column in found.decided
    ]
    decided = [
        follow(column, said, column.column.name or "", list(cells))
        for column, cells in zip(columns, found.cells, strict=True)
    ]
    recipe = msgspec.structs.replace(recipe, columns=[column.column for column in decided])
    recipe = read_recipe(msgspec.json.encode(recipe))
    for choice, cells in zip(decided, found.cells, strict=True):
        _require_all(choice.column, recipe, list(cells))
    return replace(found, recipe=recipe, decided=decided)


def require_columns(found: Detection, said: ReadingChoices) -> None:
    """
    Raises:
        InvalidRecords: ``reading``; something is said of a column that the file does not have.
    """
    names = [column.name or "" for column in found.recipe.columns]
    for name in said.columns:
        if name not in names:
            raise refused(f"the file has no column {name}", f"it has: {', '.join(names[:20])}")


def follow(decided: Decided, said: ReadingChoices, name: str, cells: Sequence[str]) -> Decided:
    """A column as is said of it.

    Args:
        name: by which something is said of it.
        cells: its different cells that are not empty.
    """
    column = decided.column
    own = said.columns.get(name, NOTHING_OF_COLUMN)
    null = [*column.null, *own.null]
    if column.type != "text" or own.null:
        null += [word for word in said.null if word in cells]
    column = msgspec.structs.replace(column, null=list(dict.fromkeys(null)))
    ask = decided.ask
    filled = [cell for cell in cells if cell not in column.null and cell.strip()]
    decimal, format_ = own.decimal or said.decimal, own.format or said.format
    if own.type is not None or own.true or own.format or own.decimal or own.null:
        column, ask = _typed(column, own, decimal, format_, filled), None
    elif ask == "decimal" and decimal:
        column, ask = _number(column, decimal, filled), None
    elif ask == "date_format" and format_:
        column, ask = _dated(column, None, format_, filled), None
    if own.name is not None:
        column = msgspec.structs.replace(column, name=own.name)
    if own.leave_out:
        column, ask = msgspec.structs.replace(column, name=None), None
    return Decided(column, ask, decided.note if ask or column == decided.column else None)


def _typed(
    column: FileColumn,
    own: SaidOfColumn,
    decimal: str | None,
    format_: str | None,
    filled: Sequence[str],
) -> FileColumn:
    kind = own.type
    if kind == "text":
        return FileColumn(column.source, column.name, null=list(own.null))
    if kind == "boolean" or own.true or own.false:
        return FileColumn(
            *(column.source, column.name, "boolean"),
            true=own.true or "true",
            false=own.false or "false",
            null=column.null,
        )
    if kind == "number" or own.decimal:
        return _number(column, decimal, filled)
    if kind in DATED or own.format:
        return _dated(column, kind, format_, filled)
    if kind is not None and kind in ONE_FORM:
        return FileColumn(column.source, column.name, kind, null=column.null)
    if own.null and column.type == "text" and own.type is None:
        # What is left when those words are gone may be of a type.
        again = decide(
            column.source, column.name or "", dict.fromkeys(filled, 1), Evidence()
        ).column
        return msgspec.structs.replace(again, null=column.null)
    return column


def _number(column: FileColumn, decimal: str | None, filled: Sequence[str]) -> FileColumn:
    units = {values.unit_of(cell) for cell in filled} - {""}
    unit = units.pop() if len(units) == 1 else ""
    for mark in (decimal,) if decimal else values.DECIMALS:
        for thousands in ("", *values.THOUSANDS):
            if thousands == mark:
                continue
            read = values.number_reader(values.NumberForm(mark, thousands, unit))
            if all(read(cell) is not None for cell in filled):
                return FileColumn(
                    *(column.source, column.name, "number"),
                    decimal=mark,  # type: ignore[arg-type] # one of two
                    thousands=thousands,
                    unit=unit,
                    null=column.null,
                )
    mark = decimal or "."
    return FileColumn(
        *(column.source, column.name, "number"),
        decimal=mark,  # type: ignore[arg-type] # one of two
        unit=unit,
        null=column.null,
    )


def _dated(
    column: FileColumn, kind: str | None, format_: str | None, filled: Sequence[str]
) -> FileColumn:
    timed = kind in MOMENTS or (kind is None and any(":" in text for text in filled))
    wanted = (format_,) if format_ else values.DATE_FORMATS
    for offset in (True, False) if timed else (False,):
        for form in wanted:
            read = (
                values.instant_reader(form, None, offset=offset)
                if timed
                else values.date_reader(form)
            )
            if all(read(cell) is not None for cell in filled):
                name: Type = moment_type(offset=offset) if timed else "date"
                return FileColumn(
                    *(column.source, column.name, name),
                    format=form,
                    offset=offset,
                    null=column.null,
                )
    return FileColumn(
        *(column.source, column.name, moment_type(offset=False) if timed else "date"),
        format=wanted[0],
        null=column.null,
    )


def _require_all(column: FileColumn, recipe: Recipe, cells: Sequence[str]) -> None:
    read = None if column.name is None else reader_of(column, recipe)
    if read is None:
        return
    odd = [
        cell for cell in cells if cell not in column.null and cell.strip() and read(cell) is None
    ]
    if odd:
        raise refused(
            f"{column.name}: {odd[0][:40]!r} cannot be read as {column.type}"
            + (f" {column.format}" if column.format else ""),
            'name another form, or the words that mean "no value"',
            "columns",
        )

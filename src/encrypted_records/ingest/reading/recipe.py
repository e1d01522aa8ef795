"""The recipe for reading a file, as a value: shown, edited, kept, and reused."""

from __future__ import annotations

import codecs
import zoneinfo
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from encrypted_records.ingest.reading import values
from encrypted_records.ingest.reading.charset import CHARSETS, refused
from encrypted_records.model.definition import MAX_FIELD_NAME, MAX_FIELDS
from encrypted_records.model.field_types import TYPES
from encrypted_records.model.field_types.base import FieldType
from encrypted_records.model.field_types.calendar import TIME

_Text = Annotated[str, Meta(max_length=10_000)]
_Mark = Annotated[str, Meta(max_length=1)]
Type = Literal["text", "number", "date", "time", "date-time", "local", "boolean", "duration"]
#: Columns of days and times of day, whose times say their offset from UTC, or do not.
MOMENTS: tuple[Type, Type] = ("date-time", "local")
#: Columns whose days are in a format.
DATED: tuple[Type, ...] = ("date", *MOMENTS)
#: The type of field that a column becomes whose values have one form in all files.
TYPE_OF: Mapping[str, FieldType] = {
    kind.reading: kind for kind in TYPES if kind.reading is not None and kind.cell_form is not None
}
#: How a cell of such a column is read; files have times of a day in more forms than records.
ONE_FORM: Mapping[str, values.Reader] = {
    name: values.read_time if kind is TIME else kind.read_cell for name, kind in TYPE_OF.items()
}
#: A recipe has at most so many bytes.
MAX_BYTES = 1 << 20
#: A recipe is sent in base64, in a head of a request, which has at most 64 KiB.
MAX_SENT_BYTES = 45_000


class FileColumn(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """A column of the file. ``source`` is its name there, or its number as ``#1`` where the file
    has no names; ``name`` is that of its field, None of a column that is left out. ``null`` are the
    words for nothing."""

    source: _Text
    name: Annotated[str, Meta(min_length=1, max_length=MAX_FIELD_NAME)] | None
    type: Type = "text"
    format: Annotated[str, Meta(max_length=20)] | None = None
    decimal: Literal[".", ","] = "."
    thousands: _Mark = ""
    unit: Annotated[str, Meta(max_length=4)] = ""
    true: Annotated[str, Meta(max_length=40)] = ""
    false: Annotated[str, Meta(max_length=40)] = ""
    #: of times: whether each says its offset from UTC
    offset: bool = False
    null: Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(max_length=50)] = []


class Recipe(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``header_row`` is the number of the row with the names, 0 where there is none; ``above`` and
    ``below`` count the rows before it and after the last row of the table. ``below`` is None if the
    end of the file was not examined: rows there that look like notes are refused by number.
    """

    columns: Annotated[list[FileColumn], Meta(min_length=1, max_length=MAX_FIELDS)]
    version: Literal[1] = 1
    container: Literal["csv", "json", "ndjson", "workbook"] = "csv"
    encoding: str = "utf-8"
    delimiter: Annotated[str, Meta(min_length=1, max_length=1)] = ","
    quote: _Mark = '"'
    header_row: Annotated[int, Meta(ge=0, le=1000)] = 1
    above: Annotated[int, Meta(ge=0, le=1000)] = 0
    below: Annotated[int, Meta(ge=0, le=1000)] | None = 0
    empty_quotes: Literal["absent", "text"] = "absent"
    short_rows: bool = False
    #: of a workbook, the sheet; of a JSON object with records in it, the member that has them
    sheet: _Text | None = None
    time_zone: str | None = None
    #: whether decimals that a field does not keep are rounded, also where the schema refuses them
    round: bool = False

    @property
    def is_read_whole(self) -> bool:
        """Whether reading the file can begin at its first byte alone."""
        return self.container == "workbook" or self.sheet is not None


def read_recipe(body: bytes) -> Recipe:
    """
    Raises:
        InvalidRecords: ``reading``; it is not a recipe.
    """
    try:
        if len(body) > MAX_BYTES:
            raise msgspec.ValidationError(f"more than {MAX_BYTES >> 20} MiB")
        recipe = msgspec.json.decode(body, type=Recipe)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise refused("this is not a reading", str(error)[:200]) from None
    _check(recipe)
    return recipe


def require_short(recipe: Recipe) -> None:
    """
    Raises:
        InvalidRecords: ``reading``; it is too long to be sent with its file.
    """
    if len(msgspec.json.encode(recipe)) > MAX_SENT_BYTES:
        raise refused(
            f"the names of the {len(recipe.columns)} columns together are too long to be sent",
            "shorten them in the file, or remove columns from it",
        )


def _check(recipe: Recipe) -> None:
    if recipe.encoding not in CHARSETS:
        raise refused(f"encoding is not one of {', '.join(CHARSETS)}")
    codecs.lookup(recipe.encoding)
    marks = [recipe.delimiter, *filter(None, [recipe.quote])]
    if len(set(marks)) < len(marks) or set(marks) & set("\r\n") or not set(marks) <= _MARKS:
        raise refused("delimiter and quote are two marks of ASCII")
    if recipe.time_zone is not None and recipe.time_zone not in zoneinfo.available_timezones():
        raise refused("time_zone is not a time zone", "such as Europe/Berlin")
    names = [column.name for column in recipe.columns if column.name is not None]
    if not names or len(set(names)) < len(names):
        raise refused("columns have no names, or one name twice")
    sources = [column.source for column in recipe.columns]
    if recipe.header_row == 0 and sources != [f"#{at}" for at in range(1, len(sources) + 1)]:
        raise refused("columns of a file without names are #1, #2, ...")
    for column in recipe.columns:
        _check_column(column)


#: Bytes that are no part of a character of any charset.
_MARKS = frozenset(map(chr, range(9, 0x40))) | {"|"}


def _check_column(column: FileColumn) -> None:
    kind = column.type
    needed: str | None = None
    if kind == "number" and (
        column.decimal == column.thousands
        or (column.thousands and column.thousands not in values.THOUSANDS)
        or (column.unit and column.unit not in values.UNITS)
    ):
        needed = "decimal mark, thousands separator and unit that are known"
    if kind == "date" and column.format not in values.KNOWN_FORMATS:
        needed = f"a format: {', '.join(values.KNOWN_FORMATS)}"
    known = (*values.KNOWN_FORMATS, values.COMPACT_TIME)
    if kind in MOMENTS and column.format not in known:
        needed = f"the format of its days: {', '.join(known)}"
    if kind == "boolean" and (
        not column.true or not column.false or column.true.lower() == column.false.lower()
    ):
        needed = "two different words, true and false"
    if needed:
        raise refused(f"column {column.source!r} of type {kind} needs {needed}")


def moment_type(*, offset: bool) -> Type:
    """The type of a column of moments that say their offset from UTC, or do not."""
    return MOMENTS[0] if offset else MOMENTS[1]


def reader_of(column: FileColumn, recipe: Recipe) -> values.Reader | None:
    """The function that makes canonical text of the column's cells; None for text columns, which
    stay unchanged.
    """
    match column.type:
        case "number":
            return values.number_reader(
                values.NumberForm(column.decimal, column.thousands, column.unit)
            )
        case "date":
            return values.date_reader(column.format or "")
        case kind if kind in ONE_FORM:
            return ONE_FORM[kind]
        case kind if kind in MOMENTS:
            zone = None if column.offset else recipe.time_zone
            return values.instant_reader(column.format or "", zone, offset=column.offset)
        case "boolean":
            return values.boolean_reader(column.true, column.false)
    return None

"""The recipe for reading a file, a value that is shown, edited, kept and reused; the forms of
cells.

Numbers, dates, times and booleans as people write them are converted to canonical text. Each form
reads a whole cell, or does not read it. This module does not guess: the recipe states the form of
each column.
"""

from __future__ import annotations

import codecs
import re
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from encrypted_records.ingest.reading.text_table import CHARSETS, refused
from encrypted_records.model.definition import MAX_FIELD_NAME, MAX_FIELDS
from encrypted_records.model.field_types import MAX_DIGITS, TYPES
from encrypted_records.model.field_types.base import FieldType
from encrypted_records.model.field_types.calendar import TIME

#: Converts a cell to canonical text; None if it does not have the form.
Reader = Callable[[str], str | None]

#: Words for absent values, in lower case. They count only in columns with a type.
NULL_WORDS = frozenset(
    {"na", "n/a", "#n/a", "null", "(null)", "none", "nan", "nil", "k.a.", "n.b.", "n.d."}
    | {"-", "--", ".", "..", "*", "**", "?", "\\n"}
)
#: PostgreSQL's and MySQL's notation of absent values. It is never text.
ABSENT = "\\N"
#: Words for yes and no, in lower case.
# ruff: noqa: RUF001 - these letters are meant
BOOLEANS = (
    ("true", "false"),
    ("yes", "no"),
    ("y", "n"),
    ("t", "f"),
    ("on", "off"),
    ("ja", "nein"),
    ("j", "n"),
    ("wahr", "falsch"),
    ("oui", "non"),
    ("vrai", "faux"),
    ("sí", "no"),
    ("si", "no"),
    ("verdadero", "falso"),
    ("sim", "não"),
    ("verdadeiro", "falso"),
    ("sì", "no"),
    ("vero", "falso"),
    ("tak", "nie"),
    ("prawda", "fałsz"),
    ("ano", "ne"),
    ("да", "нет"),
    ("истина", "ложь"),
    ("evet", "hayır"),
    ("ja", "nej"),
    ("ja", "nee"),
    ("はい", "いいえ"),
    ("是", "否"),
)
UNITS = ("R$", "zł", "Kč", "CHF", "EUR", "USD", "GBP", "kr", "$", "£", "€", "¥", "%")
SPACES = " \u00a0\u202f"
DECIMALS = (".", ",")
THOUSANDS = (",", ".", " ", "\u00a0", "\u202f", "'", "\u2019")
MINUS = "\u2212"
_EXPONENT = re.compile(r"-?[0-9]+(\.[0-9]+)?[eE][-+]?[0-9]{1,3}")
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_OFFSET = re.compile(r"\s?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)$")
_CLOCK = re.compile(
    r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,6})0*)?)?(?:\s?([AaPp])[Mm])?"
)
_CENTURY = 30


@dataclass(frozen=True, slots=True)
class NumberForm:
    """``thousands`` and ``unit`` are empty if not used."""

    decimal: str
    thousands: str = ""
    unit: str = ""


@lru_cache(maxsize=256)
def number_reader(form: NumberForm) -> Reader:
    """A reader of numbers of one form: minus before, after or as parentheses, and a unit."""
    group = re.escape(form.thousands)
    whole = r"(?:0|[1-9][0-9]*)"
    if form.thousands:
        whole = rf"(?:{whole}|[1-9][0-9]{{0,2}}(?:{group}[0-9]{{3}})+)"
    plain = re.compile(rf"(-?)({whole})(?:{re.escape(form.decimal)}([0-9]+))?")

    def read(cell: str) -> str | None:
        found = plain.fullmatch(cell)
        if found is not None:
            negative = bool(found[1])
        else:
            text = cell.strip()
            if form.decimal == "." and _EXPONENT.fullmatch(text):
                return _of_exponent(text)
            text, negative = _unsigned(text, form.unit)
            found = plain.fullmatch(text)
            if found is None or found[1]:
                return None
        digits, decimals = found[2], found[3] or ""
        if form.thousands:
            digits = digits.replace(form.thousands, "")
        if len(digits) + len(decimals) > MAX_DIGITS and not _is_short(digits, decimals):
            return None
        number = f"{digits}.{decimals}" if decimals else digits
        return f"-{number}" if negative and number.strip("0.") else number

    return read


def _is_short(digits: str, decimals: str) -> bool:
    return len(digits.lstrip("0")) + len(decimals.rstrip("0")) <= MAX_DIGITS


def _of_exponent(text: str) -> str | None:
    number = Decimal(text)
    if not -MAX_DIGITS <= number.adjusted() < MAX_DIGITS:
        return "0" if not number else None
    plain = format(number.normalize(), "f")
    return plain if sum(digit.isdigit() for digit in plain.lstrip("-0.")) <= MAX_DIGITS else None


def _unsigned(text: str, unit: str) -> tuple[str, bool]:
    """The number without its sign and unit, and whether it is negative."""
    negative = False
    if text.startswith("(") and text.endswith(")"):
        text, negative = text[1:-1].strip(), True
    for _ in range(2):
        if not negative and text[:1] in ("-", MINUS):
            text, negative = text[1:], True
        elif not negative and text[-1:] in ("-", MINUS) and len(text) > 1:
            text, negative = text[:-1], True
        if unit and text.startswith(unit):
            text = text[len(unit) :].strip(SPACES)
        elif unit and text.endswith(unit):
            text = text[: -len(unit)].strip(SPACES)
    return text, negative


def unit_of(cell: str) -> str:
    """The unit of a cell, if it is known."""
    text = cell.strip().strip("()-" + MINUS).strip()
    return next((unit for unit in UNITS if text.startswith(unit) or text.endswith(unit)), "")


# --- dates ----------------------------------------------------------------------------------------

_PARTS = {"yyyy": r"(?P<y>[0-9]{4})", "yy": r"(?P<yy>[0-9]{2})", "mon": r"(?P<mon>[A-Za-z]{3})"}
_LOOSE = {"mm": r"(?P<m>[0-9]{1,2})", "dd": r"(?P<d>[0-9]{1,2})"}
_EXACT = {"mm": r"(?P<m>[0-9]{2})", "dd": r"(?P<d>[0-9]{2})"}
#: Forms of dates that are detected; the others are read only if they are named.
DATE_FORMATS = (
    *("yyyy-mm-dd", "yyyy/mm/dd", "yyyy.mm.dd"),
    *("dd.mm.yyyy", "dd/mm/yyyy", "mm/dd/yyyy", "dd-mm-yyyy", "mm-dd-yyyy", "mm.dd.yyyy"),
    *("dd-mon-yyyy", "dd mon yyyy", "ddmonyyyy"),
)
COMPACT = "yyyymmdd"
COMPACT_TIME = "yyyymmddhhmmss"
_TWO_DIGITS = ("dd.mm.yy", "dd/mm/yy", "mm/dd/yy", "dd-mm-yy", "mm-dd-yy", "yy-mm-dd", "dd-mon-yy")
KNOWN_FORMATS = (*DATE_FORMATS, COMPACT, *_TWO_DIGITS)
_TOKEN = re.compile(r"yyyy|yy|mon|mm|dd|.")


@lru_cache(maxsize=64)
def _date_pattern(format_: str) -> re.Pattern[str]:
    tight = format_ in (COMPACT, "ddmonyyyy") or format_.startswith("yyyy-")
    parts = _PARTS | (_EXACT if tight else _LOOSE)
    return re.compile(
        "".join(parts.get(token, re.escape(token)) for token in _TOKEN.findall(format_))
    )


@lru_cache(maxsize=64)
def date_reader(format_: str) -> Reader:
    pattern = _date_pattern(format_)
    is_named, is_short = "mon" in format_, "yyyy" not in format_

    def read(cell: str) -> str | None:
        found = pattern.fullmatch(cell.strip())
        if found is None:
            return None
        month = _MONTHS.get(found["mon"].lower(), 0) if is_named else int(found["m"])
        if is_short:
            short = int(found["yy"])
            year = short + (1900 if short >= _CENTURY else 2000)
        else:
            year = int(found["y"])
        try:
            return date(year, month, int(found["d"])).isoformat()
        except ValueError:
            return None

    return read


def read_time(cell: str) -> str | None:
    """``HH:MM[:SS]`` as a time of day."""
    found = _CLOCK.fullmatch(cell.strip())
    return None if found is None else _clock(found)


def _clock(found: re.Match[str]) -> str | None:
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    if found[5]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found[5] in "pP" else 0)
    elif len(found[1]) == 1 and found[3] is None:
        return None
    try:
        shown = time(hour, minute, second).isoformat()
    except ValueError:
        return None
    fraction = (found[4] or "").rstrip("0")
    return f"{shown}.{fraction}" if fraction else shown


@lru_cache(maxsize=64)
def instant_reader(format_: str, zone: str | None, *, offset: bool) -> Reader:
    """A reader of a date in a form, with a time of day.

    Args:
        offset: whether each value states its offset from UTC.
        zone: the time zone of values without an offset; None leaves them local.
    """
    if format_ == COMPACT_TIME:
        return _compact_reader(zone)
    day = date_reader(format_)

    def read(cell: str) -> str | None:
        text = cell.strip()
        said = _OFFSET.search(text)
        if (said is not None) != offset or (said is not None and ":" not in text[: said.start()]):
            return None
        if said is not None:
            text = text[: said.start()]
        for separator in ("T", " "):
            before, found, behind = text.rpartition(separator) if separator == "T" else _cut(text)
            if found:
                break
        else:
            return None
        shown, clock = day(before), _CLOCK.fullmatch(behind.strip())
        moment = None if clock is None else _clock(clock)
        if shown is None or moment is None:
            return None
        if said is not None:
            return f"{shown}T{moment}{_offset(said[1])}"
        return f"{shown}T{moment}" if zone is None else in_zone(f"{shown}T{moment}", zone)

    return read


def _cut(text: str) -> tuple[str, str, str]:
    """Split at the blank before the time; AM and PM follow another blank."""
    end = len(text)
    if text[-2:].lower() in ("am", "pm"):
        end = len(text[:-2].rstrip())
    at = text.rfind(" ", 0, end)
    return (text, "", "") if at < 0 else (text[:at], " ", text[at + 1 :])


def _offset(text: str) -> str:
    if text == "Z":
        return "Z"
    digits = text[1:].replace(":", "")
    return f"{text[0]}{digits[:2]}:{digits[2:] or '00'}"


def _compact_reader(zone: str | None) -> Reader:
    def read(cell: str) -> str | None:
        text = cell.strip()
        if len(text) != len(COMPACT_TIME) or not (text.isascii() and text.isdecimal()):
            return None
        try:
            moment = datetime.strptime(text, "%Y%m%d%H%M%S").isoformat()  # noqa: DTZ007 - local
        except ValueError:
            return None
        return moment if zone is None else in_zone(moment, zone)

    return read


def in_zone(local: str, zone: str) -> str | None:
    """A local time as an instant; None if the zone's clocks show it twice or never."""
    moment = datetime.fromisoformat(local)
    first = moment.replace(tzinfo=ZoneInfo(zone), fold=0)
    second = first.replace(fold=1)
    if first.utcoffset() != second.utcoffset():
        return None
    try:
        there = first.astimezone(UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    except OverflowError:  # before the year 1 or after the year 9999 in UTC
        return None
    if there != moment:
        return None
    offset = first.utcoffset() or timedelta()
    return moment.replace(tzinfo=timezone(offset)).isoformat()


def boolean_reader(yes: str, no: str) -> Reader:
    words = {yes.lower(): "true", no.lower(): "false"}
    return lambda cell: words.get(cell.strip().lower())


_Text = Annotated[str, Meta(max_length=10_000)]
_Mark = Annotated[str, Meta(max_length=1)]
Type = Literal["text", "number", "date", "time", "date-time", "local", "boolean", "duration"]
#: Column types of days with times, with and without an offset from UTC.
MOMENTS: tuple[Type, Type] = ("date-time", "local")
#: Column types with days in a format.
DATED: tuple[Type, ...] = ("date", *MOMENTS)
#: The field type of columns whose values have the same form in all files.
TYPE_OF: Mapping[str, FieldType] = {
    kind.reading: kind for kind in TYPES if kind.reading is not None and kind.cell_form is not None
}
#: Readers of such cells; files have more forms of times of day than records.
ONE_FORM: Mapping[str, Reader] = {
    name: read_time if kind is TIME else kind.read_cell for name, kind in TYPE_OF.items()
}
#: Maximum bytes of a recipe.
MAX_BYTES = 1 << 20
#: A recipe is sent in base64 in a request header; the headers have at most 64 KiB.
MAX_SENT_BYTES = 45_000


class FileColumn(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """A column of a file.

    Attributes:
        source: its name in the file, or its number as ``#1`` if the file has no names.
        name: its field's name; None for a column that is left out.
        format: format of dates, such as ``dd/mm/yyyy``.
        offset: for times: whether each states its offset from UTC.
        null: words for absent values.
    """

    source: _Text
    name: Annotated[str, Meta(min_length=1, max_length=MAX_FIELD_NAME)] | None
    type: Type = "text"
    format: Annotated[str, Meta(max_length=20)] | None = None
    decimal: Literal[".", ","] = "."
    thousands: _Mark = ""
    unit: Annotated[str, Meta(max_length=4)] = ""
    true: Annotated[str, Meta(max_length=40)] = ""
    false: Annotated[str, Meta(max_length=40)] = ""
    offset: bool = False
    null: Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(max_length=50)] = []


class Recipe(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A reading: how the bytes of a file become rows and values.

    Attributes:
        header_row: number of the row with the names, or 0.
        above: number of rows before the table.
        below: number of rows after the table; None if the end of the file was not examined: rows
            there that look like notes are refused by number.
        empty_quotes: meaning of quoted empty cells.
        short_rows: whether rows may lack their last cells.
        sheet: sheet of a workbook; member of a JSON object with the records.
        round: whether decimals that a field does not keep are rounded, even if the schema refuses
            them.
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
    sheet: _Text | None = None
    time_zone: str | None = None
    round: bool = False

    @property
    def is_read_whole(self) -> bool:
        """Whether reading must begin at the file's first byte."""
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


def with_names(recipe: Recipe, names: Mapping[str, str]) -> Recipe:
    """The recipe with other names for fields; a field of which the recipe has both stays as it
    is.
    """
    taken = {column.name for column in recipe.columns}
    columns: list[FileColumn] = []
    for column in recipe.columns:
        name = names.get(column.name or "")
        is_free = name is not None and name not in taken
        columns.append(msgspec.structs.replace(column, name=name) if is_free else column)
    return msgspec.structs.replace(recipe, columns=columns)


def require_short(recipe: Recipe) -> None:
    """
    Raises:
        InvalidRecords: ``reading``; the recipe is too long to be sent with its file.
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


#: Bytes that are not part of a character in any charset.
_MARKS = frozenset(map(chr, range(9, 0x40))) | {"|"}


def _check_column(column: FileColumn) -> None:
    kind = column.type
    needed: str | None = None
    if kind == "number" and (
        column.decimal == column.thousands
        or (column.thousands and column.thousands not in THOUSANDS)
        or (column.unit and column.unit not in UNITS)
    ):
        needed = "decimal mark, thousands separator and unit that are known"
    if kind == "date" and column.format not in KNOWN_FORMATS:
        needed = _one_of_formats(column, KNOWN_FORMATS)
    known = (*KNOWN_FORMATS, COMPACT_TIME)
    if kind in MOMENTS and column.format not in known:
        needed = _one_of_formats(column, known)
    if kind == "boolean" and (
        not column.true or not column.false or column.true.lower() == column.false.lower()
    ):
        needed = "two different words, true and false"
    if needed:
        raise refused(f"column {column.source!r} of type {kind} needs {needed}")


def _one_of_formats(column: FileColumn, known: Sequence[str]) -> str:
    instead = f", not {column.format!r}" if column.format else ""
    return f"one of these formats of dates{instead}: {', '.join(known)}"


def moment_type(*, offset: bool) -> Type:
    """The type of a column of moments, with or without an offset from UTC."""
    return MOMENTS[0] if offset else MOMENTS[1]


def reader_of(column: FileColumn, recipe: Recipe) -> Reader | None:
    """The function that makes canonical text of the column's cells; None for text columns, which
    stay unchanged.
    """
    match column.type:
        case "number":
            return number_reader(NumberForm(column.decimal, column.thousands, column.unit))
        case "date":
            return date_reader(column.format or "")
        case kind if kind in ONE_FORM:
            return ONE_FORM[kind]
        case kind if kind in MOMENTS:
            zone = None if column.offset else recipe.time_zone
            return instant_reader(column.format or "", zone, offset=column.offset)
        case "boolean":
            return boolean_reader(column.true, column.false)
    return None

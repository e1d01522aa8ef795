"""A file that is read -> the definition of a schema that takes it, and what to say of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from encrypted_records.ingest.reading.detect import Detection
from encrypted_records.ingest.reading.recipe import ONE_FORM, TYPE_OF, FileColumn, reader_of
from encrypted_records.model import field_types
from encrypted_records.model.field_types.calendar import DATE, INSTANT, LOCAL
from encrypted_records.model.field_types.plain import BOOLEAN

_EXAMPLES = 2
#: Texts of a field that are told of, where they are no more.
_FEW = 50
_SHOWN = 60


@dataclass(frozen=True)
class FieldReport:
    """The report of a field. ``examples`` are cells and their stored values; ``rewritten`` counts
    cells that are stored in another spelling; ``words`` are cells that mean an absent value.
    """

    name: str
    type: str
    note: str | None
    ask: str | None
    examples: list[tuple[str, str]]
    rewritten: int
    absent: int
    words: dict[str, int]
    values: list[str] | None
    unique: bool


def propose(found: Detection, *, tight: bool = False) -> tuple[dict[str, Any], list[FieldReport]]:
    """A definition, which holds no value of the file, and a report of each field."""
    properties: dict[str, dict[str, Any]] = {}
    reports: list[FieldReport] = []
    for choice, cells, empty in zip(found.decided, found.cells, found.empty, strict=True):
        column = choice.column
        if column.name is None:
            continue
        stored, report = _look(column, found, cells)
        field, name, note = _field(column, stored, found, tight=tight)
        notes = [text for text in (choice.note, note) if text]
        absent = empty + sum(report[1].values())
        texts = stored if column.type == "text" else None
        properties[column.name] = field
        reports.append(
            FieldReport(
                column.name,
                name,
                "; ".join(notes) or None,
                choice.ask,
                _examples(column, found, cells),
                report[0],
                absent,
                report[1],
                sorted(texts) if texts and len(texts) <= _FEW else None,
                not absent and len(stored) == sum(stored.values()),
            )
        )
    return field_types.propose_definition(properties, []), reports


def _look(
    column: FileColumn, found: Detection, cells: Counter[str]
) -> tuple[Counter[str], tuple[int, dict[str, int]]]:
    """The stored values, the number of cells that are spelled differently, and the cells that mean
    an absent value.
    """
    read = reader_of(column, found.recipe)
    stored: Counter[str] = Counter()
    words: dict[str, int] = {}
    rewritten = 0
    for cell, count in cells.items():
        if cell in column.null:
            words[cell] = count
            continue
        value = cell if read is None else read(cell)
        if value is None:
            continue
        stored[value] += count
        rewritten += count * (value != cell)
    return stored, (rewritten, words)


def _examples(column: FileColumn, found: Detection, cells: Counter[str]) -> list[tuple[str, str]]:
    read = reader_of(column, found.recipe)
    shown = []
    for cell in cells:
        value = None if cell in column.null else cell if read is None else read(cell)
        if value is not None:
            shown.append((cell[:_SHOWN], value[:_SHOWN]))
        if len(shown) == _EXAMPLES:
            break
    return shown


def _field(
    column: FileColumn, stored: Counter[str], found: Detection, *, tight: bool
) -> tuple[dict[str, Any], str, str | None]:
    """A field, its type in words, and what to look at."""
    match column.type:
        case "number":
            return _number(column, stored, tight=tight)
        case "date":
            return DATE.propose(), f"date, {column.format}", None
        case kind if kind in ONE_FORM:
            return TYPE_OF[kind].propose(), TYPE_OF[kind].said, None
        case "boolean":
            return BOOLEAN.propose(), "boolean", None
        case "date-time":
            return INSTANT.propose(), "date and time", None
        case "local":
            if found.recipe.time_zone is not None:
                return INSTANT.propose(), "date and time", None
            return LOCAL.propose(), LOCAL.said, "no time zone: local times"
    longest = max((len(text.encode("utf-8", "replace")) for text in stored), default=0)
    zeros = any(text[:1] == "0" and text[1:2].isdigit() for text in stored)
    return field_types.propose_text(longest), "text", "leading zeros are kept" if zeros else None


def _number(
    column: FileColumn, stored: Counter[str], *, tight: bool
) -> tuple[dict[str, Any], str, str | None]:
    numbers = [Decimal(text) for text in stored]
    digits = max((number.adjusted() + 1 for number in numbers), default=1)
    decimals = max((_decimals(number) for number in numbers), default=0)
    points = any("." in text for text in stored)
    field: dict[str, Any] | None = field_types.propose_whole_number()
    if points or field_types.is_amount(column.name or ""):
        field = field_types.propose_decimal(digits, decimals)
    assert field is not None  # columns of too many digits are text
    if tight and numbers:
        low, high = min(numbers), max(numbers)
        least = -field_types.headroom(-low) if low < 0 else 0
        most = field_types.headroom(high) if high > 0 else 0
        field["minimum"] = max(least, field["minimum"])
        field["maximum"] = min(most, field["maximum"])
    if "precision" not in field:
        return field, "whole number", None
    return field, f"number, {field['precision']} decimals", None


def _decimals(number: Decimal) -> int:
    exponent = number.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0

"""A sample of somebody's rows -> a schema definition for them to edit.

A proposal errs towards accepting: numbers get bounds well beyond what the sample shows, since
bounds are part of the keys and cannot be widened without sealing everything anew. What only
looks like a number (leading zeros, a plus sign, more digits than fit 64 bits) stays a string.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import zip_longest
from typing import Any

import msgspec

from encrypted_records.errors import Flaw, InvalidDefinition, InvalidRecords
from encrypted_records.model import strict_json
from encrypted_records.model.definition import MAX_PRECISION, as_decimal
from encrypted_records.model.definition_parser import escape_pointer, parse_definition

#: Rows that are looked at; what follows them is not.
MAX_SAMPLED = 10_000

_CSV_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class FieldNote:
    """What a proposal for a field rests on; ``note`` says what its owner should look at."""

    name: str
    present: int
    absent: int
    note: str | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """``definition`` is a JSON Schema that :func:`parse_definition` accepts."""

    definition: dict[str, Any]
    sampled: int
    fields: list[FieldNote]


@dataclass(slots=True)
class _Column:
    """What has been seen of one field."""

    numbers: int = 0
    texts: int = 0
    lowest: Decimal = Decimal(0)
    highest: Decimal = Decimal(0)
    decimals: int = 0
    digits: int = 0

    @property
    def present(self) -> int:
        return self.numbers + self.texts

    def add_number(self, value: Decimal) -> None:
        exponent = value.normalize().as_tuple().exponent
        assert isinstance(exponent, int)
        self.lowest = value if not self.numbers else min(self.lowest, value)
        self.highest = value if not self.numbers else max(self.highest, value)
        self.decimals = max(self.decimals, -exponent)
        self.digits = max(self.digits, value.adjusted() + 1)
        self.numbers += 1

    @property
    def fits(self) -> bool:
        """Whether the numbers, with headroom, fit a numeric field."""
        return self.digits + self.decimals <= _MAX_DIGITS and self.decimals <= MAX_PRECISION


def infer_csv(body: bytes) -> Proposal:
    """A proposal from CSV text with a header row; empty cells are absent values.

    Raises:
        InvalidRecords: no header, a name twice, or a row that has more cells than the header.
    """
    return _infer(_csv_rows(_text(body)))


def infer_json(body: bytes) -> Proposal:
    """A proposal from an array of records or of bare objects, or from one of them per line.

    Raises:
        Malformed: not JSON.
        InvalidRecords: not objects, or values that no field can hold.
    """
    return _infer(_json_rows(body))


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRecords(f"not UTF-8 at byte {error.start}") from None


def _csv_rows(text: str) -> Iterator[dict[str, Decimal | str | None]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, [])
        if header and header[-1].startswith("schema_id:"):
            header.pop()
        if not any(name.strip() for name in header):
            raise InvalidRecords("the sample has no header row", code="csv_header")
        twice = {name for name in header if header.count(name) > 1}
        if twice:
            raise InvalidRecords("a name stands twice in the header", code="csv_header")
        for number, cells in enumerate(reader, 1):
            if not cells:
                continue
            if len(cells) > len(header):
                raise InvalidRecords(
                    "a row has more cells than the header",
                    flaws=(Flaw("csv_row", "more cells than the header has names", row=number),),
                )
            yield {
                name: _cell(cell) if cell else None
                for name, cell in zip_longest(header, cells, fillvalue="")
            }
    except csv.Error:
        raise InvalidRecords(
            f"not CSV near line {reader.line_num}",
            hint="quote cells that hold quotes, commas or line breaks, and double quotes in them",
        ) from None


def _cell(cell: str) -> Decimal | str:
    return Decimal(cell) if _CSV_NUMBER.fullmatch(cell) else cell


def _json_rows(body: bytes) -> Iterator[dict[str, Decimal | str | None]]:
    found = _json_items(body)
    for number, item in enumerate(found, 1):
        record = item
        if isinstance(item, dict) and "data" in item and set(item) <= {"schema", "data"}:
            record = item["data"]
        if not isinstance(record, dict):
            raise InvalidRecords(
                "every row of the sample must be an object",
                flaws=(Flaw("type", "expected an object", row=number),),
            )
        yield {name: _value(value, name, number) for name, value in record.items()}


def _json_items(body: bytes) -> list[Any]:
    stripped = body.lstrip(b"\xef\xbb\xbf \t\r\n")
    if stripped.startswith(b"["):
        found = strict_json.loads(stripped)
        assert isinstance(found, list)
        return found
    return [strict_json.loads(line) for line in stripped.splitlines() if line.strip()]


def _value(value: Any, name: str, row: int) -> Decimal | str | None:
    if value is None or isinstance(value, str):
        return value
    number = as_decimal(value)
    if number is None:
        detail = "only strings and numbers can be stored"
        pointer = f"/{row - 1}/{escape_pointer(name)}"
        raise InvalidRecords(
            "a value of the sample fits no field",
            flaws=(Flaw("type", detail, pointer, row, name),),
            hint="leave the field out, or turn its values into strings or numbers",
        )
    return number


def _infer(rows: Iterable[Mapping[str, Decimal | str | None]]) -> Proposal:
    seen: dict[str, _Column] = {}
    sampled = 0
    for row in rows:
        if sampled == MAX_SAMPLED:
            break
        sampled += 1
        for name, value in row.items():
            column = seen.setdefault(name, _Column())
            if isinstance(value, Decimal):
                column.add_number(value)
            elif value is not None:
                column.texts += 1
    if not sampled:
        raise InvalidRecords("the sample holds no rows")
    notes: list[FieldNote] = []
    properties: dict[str, dict[str, Any]] = {}
    for name, column in seen.items():
        properties[name], note = _propose(column)
        notes.append(FieldNote(name, column.present, sampled - column.present, note))
    required = [name for name, column in seen.items() if column.present == sampled]
    definition: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        definition["required"] = required
    _check(definition)
    return Proposal(definition, sampled, notes)


def _propose(column: _Column) -> tuple[dict[str, Any], str | None]:
    if not column.present:
        return {"type": "string"}, "no row of the sample has a value; check the type"
    if not column.numbers:
        return {"type": "string"}, None
    if column.texts:
        return {"type": "string"}, "some values are numbers, others text; kept as text"
    if not column.fits:
        return {"type": "string"}, "too many digits for a number field; kept as text"
    bounds: dict[str, Any] = {
        "minimum": -_headroom(-column.lowest) if column.lowest < 0 else 0,
        "maximum": _headroom(column.highest) if column.highest > 0 else 0,
    }
    note = "the bounds are a guess; they cannot be changed once records are stored"
    if column.decimals <= 0:
        return {"type": "integer", **bounds}, note
    return {"type": "number", **bounds, "precision": column.decimals}, note


def _headroom(extreme: Decimal) -> int:
    """The first of 1, 2, 5, 10, 20, 50, ... that is at least twice ``extreme``."""
    wanted = max(2 * extreme, Decimal(1))
    power = int(Decimal(1).scaleb(max(wanted.adjusted(), 0)))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= wanted)


def _check(definition: dict[str, Any]) -> None:
    try:
        parse_definition(msgspec.json.encode(definition))
    except InvalidDefinition as error:
        raise InvalidRecords(
            "the sample's field names cannot all be fields of a schema", flaws=error.flaws
        ) from None

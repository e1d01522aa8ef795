"""Infer a schema definition from a sample of rows, for its owner to edit.

A proposal reveals nothing and forbids nothing: it lists no values, requires no field, and has the
bounds of the type. Lists of values, unique and required fields and tight bounds are optional. Text
that only looks like a number (leading zeros, a plus sign, more digits than fit 64 bits) stays a
string.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any

import msgspec

from encrypted_records.errors import Flaw, InvalidDefinition, InvalidRecords
from encrypted_records.ingest.blocks import CellBlock, RecordBlock, RecordStart, UnreadRow
from encrypted_records.ingest.layouts import other_file
from encrypted_records.ingest.parsing import (
    BLOCK_BYTES,
    CHARSET_HINT,
    CsvParser,
    Header,
    read_header,
)
from encrypted_records.ingest.reading.text_table import rows_of
from encrypted_records.model import field_types, record_formats, strict_json
from encrypted_records.model.definition import MAX_FIELD_NAME, MAX_FIELDS, FieldSpec
from encrypted_records.model.definition_parser import MAX_SETS, parse_definition
from encrypted_records.model.field_types import FORMATS, proposed_type
from encrypted_records.model.field_types.base import FieldType, ValueRefused, as_decimal
from encrypted_records.model.field_types.plain import BOOLEAN
from encrypted_records.model.record_formats import Format
from encrypted_records.model.samples import FieldNote, ProposedSchema
from encrypted_records.model.strict_json import escape_pointer
from encrypted_records.model.texts import comparable

#: Maximum number of rows of the sample that are read.
MAX_SAMPLED = 10_000
#: Maximum bytes of a header line: the maximum number of names, all quoted.
MAX_HEADER = (MAX_FIELDS + 1) * (4 * MAX_FIELD_NAME + len('"",'))

#: A row by name. A CSV cell is always text, or None if it is empty without quotes.
Row = Mapping[str, Decimal | str | bool | None]


def read_rows(sample: bytes, kind: Format) -> Iterator[Row]:
    """Read rows of CSV with a header row like an upload; or of a JSON array of records or of bare
    objects, or of one JSON object per line.

    Raises:
        Malformed: not JSON, or a quote in CSV is not closed.
        TooLarge: a row is longer than the limit.
        InvalidRecords: no header, too many names or a repeated name, a row that an upload would
            refuse; or not objects, or values that no field can store.
    """
    return _csv_rows(sample) if kind is Format.CSV else _json_rows(sample)


def _csv_rows(sample: bytes) -> Iterator[Row]:
    header = _header(sample)
    names = [name for name in header.fields if name is not None]
    for block in _blocks(sample, header):
        for record in block.records:
            if isinstance(record, UnreadRow):
                raise InvalidRecords(
                    "a row of the sample would be refused",
                    flaws=(record.error,),
                    hint="correct the row; or let ers import or /api/readings/detect/ detect the"
                    " file's form",
                )
            yield {name: record.data.get(name) for name in names}


def _header(sample: bytes) -> Header:
    # Checked before a reader makes millions of names of it.
    if sample.find(b"\n", 0, MAX_HEADER) < 0 and len(sample) > MAX_HEADER:
        raise too_wide()
    text = sample[:MAX_HEADER].decode("utf-8-sig", "replace")
    first = next(rows_of(text, ",", '"', final=True), None)
    if first is not None and len(first.cells) > MAX_FIELDS + 1:
        raise too_wide()
    try:
        header = read_header(sample, final=True)
    except InvalidRecords as error:
        if (other := other_file(sample)) is not None:
            raise other from None
        if error.hint != CHARSET_HINT:
            error.hint = "give each column its own name in the first row"
        raise
    assert header is not None  # the sample is final
    if len(header.names) > MAX_FIELDS:
        raise too_wide()
    return header


def _blocks(sample: bytes, header: Header) -> Iterator[RecordBlock | CellBlock]:
    parser = CsvParser(header, RecordStart(header.size, 1))
    for at in range(header.size, len(sample), BLOCK_BYTES):
        yield from parser.feed(sample[at : at + BLOCK_BYTES])
    yield from parser.finish()


def too_wide() -> InvalidRecords:
    return InvalidRecords(
        f"the sample has more than {MAX_FIELDS} columns",
        code="too_many_columns",
        hint=f"a schema has at most {MAX_FIELDS} fields; leave some columns out",
    )


def _json_rows(body: bytes) -> Iterator[Row]:
    for number, item in enumerate(_json_items(body), 1):
        if not isinstance(item, dict):
            raise InvalidRecords(
                "every row of the sample must be an object",
                flaws=(Flaw("type", "expected an object", row=number),),
            )
        # No field has an object as its value, so ``data`` with any other value is a field.
        whole = isinstance(item.get("data"), dict) and item.keys() <= record_formats.RECORD_MEMBERS
        record = item["data"] if whole else item
        yield {name: _value(value, name, number) for name, value in record.items()}


def _json_items(body: bytes) -> Iterator[Any]:
    stripped = body.lstrip(b"\xef\xbb\xbf \t\r\n")
    if stripped.startswith(b"["):
        items = strict_json.loads(stripped, halves=True)
        assert isinstance(items, list)
        yield from items
        return
    for line in io.BytesIO(stripped):
        if line.strip():
            yield strict_json.loads(line, halves=True)


def _value(value: Any, name: str, row: int) -> Decimal | str | bool | None:
    if isinstance(value, str) and not strict_json.is_encodable(value):
        raise _refused("unicode", f"a text {strict_json.HALF}", name, row)
    if value is None or isinstance(value, str | bool):
        return value
    number = as_decimal(value)
    if number is None:
        raise _refused("type", "only strings, numbers, true and false can be stored", name, row)
    return number


def _refused(code: str, detail: str, name: str, row: int) -> InvalidRecords:
    pointer = f"/{row - 1}/{escape_pointer(name)}"
    return InvalidRecords(
        "a value of the sample does not fit into any field",
        flaws=(Flaw(code, detail, pointer, row, name),),
        hint="leave the field out, or turn its values into strings or numbers",
    )


_CSV_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
#: If lists of values are requested, a field gets a list if it has at most this many values, each so
#: frequent that others are unlikely: a record with another value would be refused.
_CHOICES = range(2, 50 + 1)
_LEAST_OF_EACH, _LEAST_ON_AVERAGE = 5, 20
#: Minimum number of rows without a repeated value for a field to be called an identifier.
_LEAST_UNIQUE = 1000
_IDENTIFIER = re.compile(
    r"(?:^|[_\W])(?i:id|uuid|guid|e[-_]?mail|user_?name|login|iban|isbn|ssn|sku)$"
    r"|(?<=[a-z])(?:I[dD]|U[uU][iI][dD]|G[uU][iI][dD]|E?Mail|Login)$"
)
_UNIQUE = "no value occurs twice in the sample: a candidate for unique"


@dataclass(frozen=True, slots=True)
class Wishes:
    """Optional constraints of a proposal beyond names and types. Each constraint forbids values,
    and ``enum`` also reveals values to the API.

    Attributes:
        enum: lists of values, for fields with few distinct values.
        unique: fields that seem to identify their record.
        required: fields that have a value in every row of the sample.
        tight: bounds of at least twice the extremes of the sample, instead of those of the type.
    """

    enum: bool = False
    unique: bool = False
    required: bool = False
    tight: bool = False


NOTHING_MORE = Wishes()


def _fits(kind: FieldType, text: str) -> bool:
    try:
        FieldSpec(kind.name, kind.json_type, format=kind.format).accept(kind.of_cell(text))
    except ValueRefused:
        return False
    return True


@dataclass(slots=True)
class _Column:
    """Observations about one field."""

    numbers: int = 0
    texts: int = 0
    booleans: int = 0
    lowest: Decimal = Decimal(0)
    highest: Decimal = Decimal(0)
    decimals: int = 0
    digits: int = 0
    #: Whether a number has a decimal point, even before zeros.
    has_point: bool = False
    #: Values that a string field could have: their number; the count of each, while they are few;
    #: and bytes of the longest.
    written: int = 0
    seen: Counter[str] | None = field(default_factory=Counter)
    longest: int = 0
    #: Total bytes of the texts.
    length: int = 0
    #: All values in the form in which they are compared, as long as they are distinct.
    different: set[str | Decimal] | None = field(default_factory=set)
    #: Formats that all texts so far have.
    formats: set[FieldType] = field(default_factory=lambda: set(FORMATS.values()))

    #: Formats for which a text is clear evidence.
    evident: set[FieldType] = field(default_factory=set)

    @property
    def present(self) -> int:
        return self.numbers + self.texts + self.booleans

    @property
    def fits_number(self) -> bool:
        """Whether a number field has room for all observed digits and decimals."""
        return max(self.decimals, 0) <= field_types.MAX_DIGITS - max(self.digits, 1)

    def mixture(self, *, cells: bool) -> str | None:
        """The reason why no field accepts all values: booleans are neither texts nor numbers, and
        JSON numbers are not texts."""
        if 0 < self.booleans < self.present:
            return "true and false are mixed with other values"
        if not cells and self.numbers and self.texts:
            return "numbers are mixed with texts"
        return None

    def add_number(self, value: Decimal) -> None:
        written, exponent = value.as_tuple().exponent, value.normalize().as_tuple().exponent
        assert isinstance(written, int)
        self.has_point |= written < 0
        assert isinstance(exponent, int)
        self.lowest = value if not self.numbers else min(self.lowest, value)
        self.highest = value if not self.numbers else max(self.highest, value)
        self.decimals = max(self.decimals, -exponent)
        self.digits = max(self.digits, value.adjusted() + 1)
        self.numbers += 1
        self._add_different(value)

    def add_text(self, value: str) -> None:
        self.texts += 1
        self.formats = {form for form in self.formats if _fits(form, value)}
        self.evident |= {form for form in self.formats if form.is_evident(value)}
        self.length += len(value.encode())
        self._add_different(comparable(value))
        self.add_written(value)

    def _add_different(self, value: str | Decimal) -> None:
        if self.different is None:
            return
        before = len(self.different)
        self.different.add(value)
        if len(self.different) == before:
            self.different = None

    def add_written(self, value: str) -> None:
        size = len(value.encode())
        self.written += 1
        self.longest = max(self.longest, size)
        if self.seen is not None:
            self.seen[value] += 1
            if len(self.seen) > _CHOICES[-1]:
                self.seen = None

    @property
    def choices(self) -> list[str] | None:
        """The list of all values of the field; None if there may be others."""
        seen = self.seen
        if (
            not seen
            or len(seen) not in _CHOICES
            or min(seen.values()) < _LEAST_OF_EACH
            or self.written < _LEAST_ON_AVERAGE * len(seen)
        ):
            return None
        return sorted(seen)


def infer(sample: bytes, kind: Format, wishes: Wishes = NOTHING_MORE) -> ProposedSchema:
    """Propose a definition from CSV text with a header row, in which empty cells are absent values;
    or from an array of records or of bare objects, or from one JSON object per line.

    Raises:
        Malformed, InvalidRecords: as for :func:`read_rows`.
    """
    rows = read_rows(sample, kind)
    seen, sampled = _look(rows, cells=kind is Format.CSV)
    notes: list[FieldNote] = []
    properties: dict[str, dict[str, Any]] = {}
    unique: list[list[str]] = []
    for name, column in seen.items():
        properties[name], note = _propose(name, column, wishes)
        if _identifies(name, column, properties[name], sampled):
            unique.append([name])
            note = "; ".join(part for part in (note, _UNIQUE) if part)
        notes.append(_note(name, column, sampled, note))
    everywhere = [name for name, column in seen.items() if column.present == sampled]
    definition = field_types.propose_definition(properties, everywhere if wishes.required else [])
    if unique and wishes.unique:
        definition["unique"] = unique[:MAX_SETS]
    _check(definition)
    return ProposedSchema(definition, sampled, notes)


def _identifies(name: str, column: _Column, proposed: Mapping[str, Any], sampled: int) -> bool:
    """Whether a field seems to identify its record.

    Distinct values prove little in a few rows, and nothing for measurements, and a wrong unique
    constraint refuses records. So the field's name or form must also indicate an identifier.
    """
    if column.different is None or column.present != sampled or sampled < _LEAST_UNIQUE:
        return False
    kind = proposed_type(proposed)
    if kind.has_decimals:
        return False
    return kind.identifies or _IDENTIFIER.search(name) is not None


def _note(name: str, column: _Column, sampled: int, note: str | None) -> FieldNote:
    numeric = bool(column.numbers) and not column.texts
    return FieldNote(
        name,
        column.present,
        sampled - column.present,
        note,
        column.lowest if numeric else None,
        column.highest if numeric else None,
        -(-column.length // column.texts) if column.texts else None,
        sorted(column.seen) if column.seen and not numeric else None,
        column.different is not None and column.present == sampled,
    )


def _look(rows: Iterable[Row], *, cells: bool) -> tuple[dict[str, _Column], int]:
    """Observe each field of the rows; also returns the number of rows.

    Args:
        cells: whether text that reads like a number may be a number.
    """
    seen: dict[str, _Column] = {}
    sampled = 0
    for row in islice(rows, MAX_SAMPLED):
        sampled += 1
        if len(row) > MAX_FIELDS:
            raise too_wide()
        for name, value in row.items():
            column = seen.setdefault(name, _Column())
            if isinstance(value, bool):
                column.booleans += 1
                column.different = None
            elif isinstance(value, Decimal):
                column.add_number(value)
            elif value is not None and cells and _CSV_NUMBER.fullmatch(value):
                column.add_number(Decimal(value))
                column.add_written(value)
            elif value is not None:
                column.add_text(value)
                if not cells:
                    # In JSON a boolean is not a text.
                    column.formats.discard(BOOLEAN)
            if mixture := column.mixture(cells=cells):
                raise _mixed(mixture, name, sampled)
            if not cells and column.numbers and not column.fits_number:
                raise _no_field("a number has too many digits for a field", name, sampled)
        if len(seen) > MAX_FIELDS:
            raise too_wide()
    if not sampled:
        raise InvalidRecords("the sample has no rows", hint="give at least one row below the names")
    return seen, sampled


def _mixed(mixture: str, name: str, row: int) -> InvalidRecords:
    return _no_field(f"{mixture}, and no field accepts both", name, row)


def _no_field(detail: str, name: str, row: int) -> InvalidRecords:
    pointer = f"/{row - 1}/{escape_pointer(name)}"
    return InvalidRecords(
        "a value of the sample does not fit into any field",
        flaws=(Flaw("type", detail, pointer, row, name),),
        hint="leave the field out, or make all of its values texts",
    )


def _propose(name: str, column: _Column, wishes: Wishes) -> tuple[dict[str, Any], str | None]:
    if not column.present:
        return field_types.propose_text(0), "no row of the sample has a value; check the type"
    why = None
    if column.booleans:
        return _propose_format(BOOLEAN)
    if column.numbers:
        if column.texts:
            why = "some values are numbers, others text; kept as text"
        elif (number := _propose_number(name, column, wishes)) is None:
            why = "too many digits for a number field; kept as text"
        else:
            return number
    elif found := column.formats & column.evident:
        return _propose_format(*found)
    text, note = _propose_text(column, wishes)
    return text, "; ".join(part for part in (why, note) if part) or None


def _propose_text(column: _Column, wishes: Wishes) -> tuple[dict[str, Any], str | None]:
    if wishes.enum and column.choices is not None:
        note = (
            f"the API can read these {len(column.choices)} values in the definition, but not"
            " which record has which; a record with another value is refused"
        )
        return {"type": "string", "enum": column.choices}, note
    field = field_types.propose_text(column.longest)
    if "padTo" in field:
        return field, None
    note = (
        f"the stored length reveals roughly how long a value is (up to {column.longest}"
        " bytes here); padTo hides it, and makes every value as long as the longest"
    )
    return field, note


def _propose_format(kind: FieldType) -> tuple[dict[str, Any], str | None]:
    """No text fits two formats."""
    note = f"every value of the sample is a {kind.name}; a record with any other is refused"
    return kind.propose(), note


def _propose_number(
    name: str, column: _Column, wishes: Wishes
) -> tuple[dict[str, Any], str | None] | None:
    """None if no number field has room for the values."""
    decimals = max(column.decimals, 0)
    note = None
    if column.has_point or field_types.is_amount(name):
        field = field_types.propose_decimal(column.digits, decimals)
        if field is not None and "precision" in field:
            note = f"a value with more than {field['precision']} decimals is refused"
    elif column.digits <= field_types.MAX_DIGITS:
        field = field_types.propose_whole_number()
    else:
        return None
    if field is None:
        return None
    if wishes.tight:
        low, high = column.lowest, column.highest
        field["minimum"] = max(-field_types.headroom(-low) if low < 0 else 0, field["minimum"])
        field["maximum"] = min(field_types.headroom(high) if high > 0 else 0, field["maximum"])
        guess = "the bounds are a guess; they can be widened at any time"
        note = "; ".join(part for part in (guess, note) if part)
    return field, note


def _check(definition: dict[str, Any]) -> None:
    try:
        parse_definition(msgspec.json.encode(definition))
    except InvalidDefinition as error:
        raise InvalidRecords(
            "the sample's field names cannot all be fields of a schema",
            flaws=error.flaws,
            hint="rename the named fields",
        ) from None

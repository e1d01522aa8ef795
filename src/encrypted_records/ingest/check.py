"""The first pass over an upload: validate every record, and divide the rows into chunks.

Errors name row and field, never the value. A *chunk* is a run of rows that is encrypted and sent at
once, by any worker, in any order, and again after an interruption. Its rows, cells and bytes are
limited, and so are a worker's memory and a request's size, for every upload.

Most CSV files are accepted a column at a time, in a fifth of the time. Unusual files are checked by
row, which reports the errors of each row. Both ways must have the same result: tests compare them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, NamedTuple

from encrypted_records.crypto.values import seems_repeated
from encrypted_records.errors import BadInput, Flaw, NotFound
from encrypted_records.ingest.blocks import (
    CellBlock,
    Grid,
    RawRecord,
    RecordBlock,
    RecordStart,
    UnreadRow,
)
from encrypted_records.ingest.parsing import read_numbers
from encrypted_records.model import ids, strict_json
from encrypted_records.model.ciphertext_lengths import padded_width
from encrypted_records.model.definition import FieldSpec, SchemaDefinition, Value
from encrypted_records.model.field_types.base import MAX_STRING_BYTES, KeyKind, ValueRefused
from encrypted_records.model.strict_json import MAX_NUMBER_LENGTH, escape_pointer

#: Maximum number of errors listed per record. A field has at most one error.
MAX_ROW_ERRORS = 1000


def validate(
    definition: SchemaDefinition, raw: Mapping[str, Any], *, row: int, pointer: str
) -> tuple[dict[str, Value], list[Flaw]]:
    """Validate one record: its accepted values, without absent fields, and its first
    ``MAX_ROW_ERRORS`` errors.

    Args:
        raw: field name to value as parsed (numbers as int or Decimal).
        row: the record's number, from 1, for the errors.
        pointer: the position of its data in the request, for the errors.
    """
    data: dict[str, Value] = {}
    errors: list[Flaw] = []

    def refuse(name: str, code: str, detail: str) -> None:
        if len(errors) < MAX_ROW_ERRORS:
            errors.append(Flaw(code, detail, f"{pointer}/{escape_pointer(name)}", row, name))

    fields = definition.fields
    for name, sent in raw.items():
        spec = fields.get(name)
        if spec is None:
            refuse(name, "unknown_field", "the schema has no such field")
            continue
        try:
            value = spec.accept(sent)
        except ValueRefused as refused:
            refuse(name, refused.code, refused.detail)
            continue
        if value is not None:
            data[name] = value
    if not definition.required <= data.keys():
        for name in definition.fields:
            if name in definition.required and raw.get(name) is None:
                refuse(name, "required", "a required field is missing")
    return data, errors


#: Accepted values of a field by row; None if absent.
Values = Sequence[Value]


class RecordColumns:
    """Accepted records of one schema, by column."""

    def __init__(self, definition: SchemaDefinition) -> None:
        self.definition = definition
        #: the row number of each in the upload, from 1 on
        self.rows: list[int] = []
        self.values: dict[str, list[Value]] = {name: [] for name in definition.fields}
        #: the distinct texts of columns with repeated texts
        self._known: dict[str, dict[Value, Value]] = {}

    @property
    def count(self) -> int:
        return len(self.rows)

    def add(self, data: Mapping[str, Value], row: int) -> None:
        """Add one record; absent fields are left out."""
        self.rows.append(row)
        for name, values in self.values.items():
            values.append(data.get(name))

    def extend(self, values: Mapping[str, Values], count: int, row: int) -> None:
        """Add ``count`` records from row ``row`` on; columns of absent fields are left out."""
        self.rows += range(row, row + count)
        for name, column in self.values.items():
            column.extend(self._shared(name, values.get(name) or [None] * count))

    def _shared(self, name: str, column: Values) -> Iterable[Value]:
        """The values; if there are few distinct texts, equal texts are the same object, so that
        later work finds them in the processor's cache."""
        if self.definition.fields[name].kind is not KeyKind.TEXT or not seems_repeated(column):
            return column
        known = self._known.setdefault(name, {})
        return map(known.setdefault, column, column)

    def without(self, rows: Collection[int]) -> RecordColumns:
        """These records without some rows."""
        if not rows:
            return self
        left = RecordColumns(self.definition)
        kept = [row not in rows for row in self.rows]
        left.rows = list(compress(self.rows, kept))
        left.values = {name: list(compress(column, kept)) for name, column in self.values.items()}
        return left


def accept_columns(definition: SchemaDefinition, table: CellBlock) -> dict[str, Values] | None:
    """The table's values in stored form; None if a row may be refused."""
    grid, columns = table.columns, dict[str, Values]()
    if isinstance(grid, Grid) and grid.fits(definition):
        return {name: _read(definition.fields[name], grid, name) for name in grid}
    for name, cells in grid.items():
        spec = definition.fields.get(name)
        if spec is None:
            return None
        try:
            columns[name] = _accept(spec, cells)
        except ValueError:  # ValueRefused, or of int()
            return None
    for name in definition.required:
        if name not in columns or None in columns[name]:
            return None
    return columns


def count_rounded(definition: SchemaDefinition, table: CellBlock) -> dict[str, int]:
    """The number of rounded values of an accepted table by field, stored with fewer decimals than
    sent; fields without rounded values are left out.
    """
    counts = {}
    for name, cells in table.columns.items():
        spec = definition.fields[name]
        if not spec.field_type.has_decimals:
            continue
        kept = spec.numbers.precision
        more = [cell for cell in cells if cell is not None and len(cell.partition(".")[2]) > kept]
        if count := sum(spec.is_rounded(spec.field_type.of_cell(text)) for text in more):
            counts[name] = count
    return counts


def _read(spec: FieldSpec, grid: Grid, name: str) -> Values:
    """The values of a column whose cells all fit the field."""
    if spec.field_type.values_are_points:
        return grid.integers(name)
    if spec.kind is KeyKind.UUID:
        return [cell if cell is None else cell.lower() for cell in grid[name]]
    return grid[name]


def _accept(spec: FieldSpec, cells: Sequence[str | None]) -> Values:
    """
    Raises:
        ValueError: a cell may not fit the field.
    """
    present: Any = [cell for cell in cells if cell is not None] if None in cells else cells
    if spec.field_type.is_format:
        return _accept_each(spec, cells)
    if spec.kind is KeyKind.TEXT and spec.allowed is not None:
        if not spec.allowed.issuperset(present):
            raise ValueError
        return cells
    together = "".join(present)
    plain = together.isascii()
    if spec.only_lengths and plain and len(together) <= MAX_STRING_BYTES:
        if present and not spec.any_text:
            spec.string.check(min(present, key=len))
            spec.string.check(max(present, key=len))
        return cells
    if spec.only_bounds and plain and _integers(present, together):
        numbers = list(map(int, present))
        rules = spec.numbers
        if numbers and not rules.lowest <= min(numbers) <= max(numbers) <= rules.highest:
            raise ValueError
        given = iter(numbers)
        return numbers if present is cells else [c if c is None else next(given) for c in cells]
    return _accept_each(spec, cells)


def _accept_each(spec: FieldSpec, cells: Sequence[str | None]) -> Values:
    of_cell = spec.field_type.of_cell
    return [cell if cell is None else spec.accept(of_cell(cell)) for cell in cells]


def _integers(cells: Sequence[str], together: str) -> bool:
    """Whether all are digits, optionally after a minus, so that int() accepts them or raises."""
    return together.replace("-", "").isdigit() and max(map(len, cells)) <= MAX_NUMBER_LENGTH


#: Maximum number of errors listed per upload; further bad rows are still counted.
MAX_ERRORS = 10_000
#: Number of bad rows whose cells are kept to show users the problem, and characters kept per cell.
MAX_EXAMPLES = 50
MAX_EXAMPLE_CELL = 80


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """Upper bounds of a chunk. A record of empty cells is small as text; encrypted, each cell has
    its smallest length class and 20 bytes of overhead, and up to 80 more in the index. Together
    with the text, that stays below the API's 64 MiB for a part.

    ``padded`` is the sum of the smallest length classes of all cells, in bytes.
    """

    records: int = 1 << 16
    cells: int = 3 << 17
    text_bytes: int = 8 << 20
    padded: int = 16 << 20


STANDARD = ChunkLimits()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows ``first`` to ``last``; the parser finds them at or soon after ``start``."""

    start: RecordStart
    first: int
    last: int


@dataclass
class Findings:
    """The findings of the first pass so far. ``bad_rows`` is a number, and ``errors`` ends at
    :data:`MAX_ERRORS`.
    """

    rows: int = 0
    bad_rows: int = 0
    errors: list[Flaw] = field(default_factory=list)
    #: the first readable bad rows: number, and cells as text
    examples: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    #: by field, the number of values of good rows that are stored with fewer decimals than sent
    rounded: Counter[str] = field(default_factory=Counter)


class SchemaLookup:
    """The definitions that an upload's records must fit; each is looked up once.

    Args:
        lookup: returns the definition of a schema; raises NotFound if the user has no access to it.
        named: the request's schema, for records that do not name a schema.
        own_hosts: origins whose absolute URLs count as references.
    """

    def __init__(
        self,
        lookup: Callable[[bytes], SchemaDefinition],
        *,
        named: bytes | None,
        own_hosts: tuple[str, ...] = (),
    ) -> None:
        self._lookup = lookup
        self._named = named
        self._own_hosts = own_hosts
        self._known: dict[object, tuple[bytes, SchemaDefinition] | Flaw] = {}

    def of(self, name: object) -> tuple[bytes, SchemaDefinition] | Flaw:
        """The schema that a record names, or the error in that name; the error has no row yet."""
        if name is None and self._named is not None:
            name = self._named
        known = self._known.get(name) if isinstance(name, str | bytes) else None
        if known is None:
            known = self._look_up(name)
            if isinstance(name, str | bytes) and not isinstance(known, Flaw):
                self._known[name] = known
        return known

    def _look_up(self, name: object) -> tuple[bytes, SchemaDefinition] | Flaw:
        try:
            schema = (
                name
                if isinstance(name, bytes)
                else ids.from_reference(name, "schemas", pointer="", own_hosts=self._own_hosts)
            )
        except BadInput as error:
            return Flaw("invalid_reference", error.message, field="schema")
        if schema in self._known:
            return self._known[schema]
        try:
            definition = self._lookup(schema)
        except NotFound:
            return Flaw("unknown_reference", "names no schema that you can reach", field="schema")
        self._known[schema] = schema, definition
        return schema, definition


@dataclass(frozen=True, slots=True)
class Accepted:
    """A record that can be stored: its schema, and its values in stored form; ``rounded`` are the
    fields whose values were sent with more decimals."""

    schema: bytes
    definition: SchemaDefinition
    data: dict[str, Value]
    rounded: Sequence[str]


def text_of_cell(value: object) -> str:
    """A cell for display: as text, truncated if it is long. Half of a surrogate pair is shown as
    the replacement character, so that the text can be encoded."""
    try:
        text = value if isinstance(value, str) else strict_json.encode(value).decode()
    except UnicodeEncodeError:  # in an array or object, which no field accepts
        text = json.dumps(value, default=str)
    except RecursionError:
        text = "…"
    if len(text) > MAX_EXAMPLE_CELL:
        text = f"{text[: MAX_EXAMPLE_CELL - 1]}…"
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def accept(
    schemas: SchemaLookup, record: RawRecord | UnreadRow, *, text: bool
) -> Accepted | Sequence[Flaw]:
    """The record in stored form, or its errors.

    Args:
        text: whether numbers came as text, as in CSV.
    """
    if isinstance(record, UnreadRow):
        return (record.error,)
    named = schemas.of(record.schema)
    if isinstance(named, Flaw):
        return (Flaw(named.code, named.detail, row=record.row, field=named.field),)
    schema, definition = named
    raw = read_numbers(definition, record.data) if text else record.data
    data, errors = validate(definition, raw, row=record.row, pointer="")
    return errors or Accepted(schema, definition, data, definition.find_rounded(raw))


@dataclass(frozen=True, slots=True)
class AcceptedTable:
    """Valid records by column; columns of absent fields are left out."""

    schema: bytes
    definition: SchemaDefinition
    columns: Mapping[str, Values]
    count: int


def accept_table(schemas: SchemaLookup, block: RecordBlock | CellBlock) -> AcceptedTable | None:
    """A table's records in stored form. None for other blocks, and if a row may not fit:
    :func:`accept` of each row then reports the errors."""
    if not isinstance(block, CellBlock):
        return None
    named = schemas.of(block.schema)
    if isinstance(named, Flaw):
        return None
    schema, definition = named
    columns = accept_columns(definition, block)
    return None if columns is None else AcceptedTable(schema, definition, columns, block.count)


def fit_table(schemas: SchemaLookup, block: RecordBlock | CellBlock) -> AcceptedTable | None:
    """Accept a table like :func:`accept_table`, but without its columns, if its bytes show that all
    records are valid; otherwise None.
    """
    if not isinstance(block, CellBlock) or not isinstance(block.columns, Grid):
        return None
    named = schemas.of(block.schema)
    if isinstance(named, Flaw) or not block.columns.fits(named[1]):
        return None
    return AcceptedTable(*named, {}, block.count)


def gather(
    schemas: SchemaLookup, blocks: Iterable[RecordBlock | CellBlock], *, text: bool
) -> dict[bytes, RecordColumns]:
    """The valid records of these blocks, in order, by schema; invalid records are left out.

    Args:
        text: as for :func:`accept`.
    """
    gathered: dict[bytes, RecordColumns] = {}

    def columns_of(accepted: Accepted | AcceptedTable) -> RecordColumns:
        if accepted.schema not in gathered:
            gathered[accepted.schema] = RecordColumns(accepted.definition)
        return gathered[accepted.schema]

    for block in blocks:
        table = accept_table(schemas, block)
        if table is not None:
            columns_of(table).extend(table.columns, table.count, block.start.row)
            continue
        for record in block.records:
            row = accept(schemas, record, text=text)
            if isinstance(row, Accepted):
                columns_of(row).add(row.data, record.row)
    return gathered


class _Weight(NamedTuple):
    """The number of cells, and the sum of their smallest length classes in bytes, of one or more
    records."""

    cells: int
    padded: int

    def plus(self, record: _Weight, count: int) -> _Weight:
        return _Weight(self.cells + count * record.cells, self.padded + count * record.padded)

    def room_for(self, record: _Weight, limits: ChunkLimits) -> int:
        """The number of such records for which a chunk with this content has room."""
        return min(
            (limits.cells - self.cells) // record.cells,
            (limits.padded - self.padded) // record.padded,
        )


_NOTHING = _Weight(0, 0)


class Checker:
    """Accepts blocks in order and collects ``findings``.

    Args:
        limits: maximum content of a chunk.
    """

    def __init__(
        self, schemas: SchemaLookup, *, text: bool, limits: ChunkLimits = STANDARD
    ) -> None:
        self.findings = Findings()
        self._schemas = schemas
        self._text = text
        self._limits = limits
        self._begun: tuple[RecordStart, int] | None = None
        self._held = _NOTHING
        #: weight of a record, by schema
        self._weights: dict[bytes, _Weight] = {}

    def take(self, blocks: Iterable[RecordBlock | CellBlock]) -> None:
        for block in blocks:
            table = fit_table(self._schemas, block) or accept_table(self._schemas, block)
            if table is not None:
                assert isinstance(block, CellBlock)
                self._rows(block.start, self._weigh(table), table.count)
                self.findings.rounded.update(count_rounded(table.definition, block))
                continue
            for record in block.records:
                self._record(block.start, record)

    def finish(self) -> Findings:
        self._close()
        return self.findings

    def _record(self, start: RecordStart, record: RawRecord | UnreadRow) -> None:
        outcome = accept(self._schemas, record, text=self._text)
        weight = _NOTHING
        if isinstance(outcome, Accepted):
            weight = self._weigh(outcome)
            self.findings.rounded.update(outcome.rounded)
        else:
            self._note(outcome)
            if isinstance(record, RawRecord) and len(self.findings.examples) < MAX_EXAMPLES:
                cells_of = {name: text_of_cell(value) for name, value in record.data.items()}
                self.findings.examples.append((record.row, cells_of))
        self._begin(start, record.row, weight)
        self._held = self._held.plus(weight, 1)
        self.findings.rows = record.row

    def _weigh(self, accepted: Accepted | AcceptedTable) -> _Weight:
        weight = self._weights.get(accepted.schema)
        if weight is None:
            definition = accepted.definition
            weight = _Weight(len(definition.fields), padded_width(definition))
            self._weights[accepted.schema] = weight
        return weight

    def _rows(self, start: RecordStart, weight: _Weight, count: int) -> None:
        """Check ``count`` good rows of equal weight from ``start`` on, like :meth:`_record`."""
        row, end = start.row, start.row + count
        while row < end:
            _, first = self._begin(start, row, weight)
            limits = self._limits
            fit = min(limits.records - (row - first), self._held.room_for(weight, limits))
            some = min(end - row, max(1, fit))
            self._held = self._held.plus(weight, some)
            row += some
            self.findings.rows = row - 1

    def _begin(self, start: RecordStart, row: int, weight: _Weight) -> tuple[RecordStart, int]:
        """Ensure that the current chunk has room for the next row, or begin a new chunk."""
        if self._begun is not None:
            began, first = self._begun
            limits = self._limits
            if (
                row - first >= limits.records
                or (weight.cells and not self._held.room_for(weight, limits))
                or start.offset - began.offset >= limits.text_bytes
            ):
                self._close()
        if self._begun is None:
            self._begun = start, row
        return self._begun

    def _note(self, errors: Sequence[Flaw]) -> None:
        findings = self.findings
        findings.bad_rows += 1
        findings.errors += errors[: MAX_ERRORS - len(findings.errors)]

    def _close(self) -> None:
        if self._begun is not None:
            start, first = self._begun
            self.findings.chunks.append(Chunk(start, first, self.findings.rows))
        self._begun, self._held = None, _NOTHING

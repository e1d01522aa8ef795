"""The first pass over an upload: is every record valid, and in which chunks will it be sealed?

A *chunk* is a run of rows that is sealed and sent at once, by any worker, in any order, and again
after an interruption. Its rows, cells and bytes are limited, and so are a worker's memory and a
request's size, for every upload.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from encrypted_records.errors import BadInput, Flaw, NotFound
from encrypted_records.ingest.blocks import BadRow, CellBlock, RawRecord, RecordBlock, RecordStart
from encrypted_records.ingest.grid import Grid
from encrypted_records.ingest.parse_csv import read_numbers
from encrypted_records.ingest.tables import RecordColumns, Values, accept_columns, count_rounded
from encrypted_records.ingest.validate import validate
from encrypted_records.model import ids, strict_json
from encrypted_records.model.ciphertext_lengths import padded_width
from encrypted_records.model.definition import SchemaDefinition, Value

#: The list of errors of an upload ends here; bad rows are still counted.
MAX_ERRORS = 10_000
#: Of so many bad rows the cells are kept, so that people see what is wrong; and of each so much.
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
    """Rows ``first`` to ``last``; the parser finds them from ``start`` on, or a little later."""

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
    #: the first bad rows that could be read: number, and cells as text
    examples: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    #: by field, the values of good rows that are stored with fewer decimals than were sent
    rounded: Counter[str] = field(default_factory=Counter)


class SchemaLookup:
    """The definitions that an upload's records must fit; each is looked up once.

    Args:
        lookup: the definition of a schema; raises NotFound if the user can reach no such schema.
        named: the schema that the request names for records that name none.
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
    """A record that can be stored: its schema, and its values as they are stored; ``rounded`` are
    the fields whose values were sent with more decimals."""

    schema: bytes
    definition: SchemaDefinition
    data: dict[str, Value]
    rounded: Sequence[str]


def text_of_cell(value: object) -> str:
    """A cell as a person may look at it: as text, and cut where it is long. Half of a surrogate
    pair is shown as the replacement character, so that the text can be encoded."""
    try:
        text = value if isinstance(value, str) else strict_json.encode(value).decode()
    except UnicodeEncodeError:  # in an array or object, which no field takes
        text = json.dumps(value, default=str)
    except RecursionError:
        text = "…"
    if len(text) > MAX_EXAMPLE_CELL:
        text = f"{text[: MAX_EXAMPLE_CELL - 1]}…"
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def accept(
    schemas: SchemaLookup, record: RawRecord | BadRow, *, text: bool
) -> Accepted | Sequence[Flaw]:
    """The record as it will be stored, or what is wrong with it.

    Args:
        text: whether numbers came as text, as in CSV.
    """
    if isinstance(record, BadRow):
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
    """Records that can all be stored, by column; columns of absent fields are left out."""

    schema: bytes
    definition: SchemaDefinition
    columns: Mapping[str, Values]
    count: int


def accept_table(schemas: SchemaLookup, block: RecordBlock | CellBlock) -> AcceptedTable | None:
    """A table's records as they will be stored. None for other blocks, and if one of its rows may
    not fit: :func:`accept` of each row then reports the errors."""
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
    records can be stored; None if they do not show it.
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
    """The valid records of these blocks, by schema, in their order; others are left out.

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
    """Cells, and the sum of their least classes in bytes: of a record, or of several."""

    cells: int
    padded: int

    def plus(self, record: _Weight, count: int) -> _Weight:
        return _Weight(self.cells + count * record.cells, self.padded + count * record.padded)

    def room_for(self, record: _Weight, limits: ChunkLimits) -> int:
        """How many such records a chunk that holds this much has room for."""
        return min(
            (limits.cells - self.cells) // record.cells,
            (limits.padded - self.padded) // record.padded,
        )


_NOTHING = _Weight(0, 0)


class Checker:
    """Takes blocks in their order and collects ``findings``.

    Args:
        limits: what a chunk may hold.
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
        #: of a record, by schema
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

    def _record(self, start: RecordStart, record: RawRecord | BadRow) -> None:
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
        """Ensure that the current chunk has room for the next row, or begin one."""
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

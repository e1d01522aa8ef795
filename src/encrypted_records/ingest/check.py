"""The first pass over an upload: is every record sound, and in which pieces is it to be sealed?

A *chunk* is a run of rows that is sealed and sent at once, by any worker, in any order, and again
after whatever interrupts it. Its size is bounded in rows, in cells and in bytes, so that a worker's
memory and a request's size are, whatever an upload holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from encrypted_records.errors import BadInput, Flaw, NotFound
from encrypted_records.ingest.blocks import BadRow, Block, Place, RawRecord, Table
from encrypted_records.ingest.parse_csv import typed
from encrypted_records.ingest.tables import Columns, Values, accepted_columns
from encrypted_records.ingest.validate import validate
from encrypted_records.model import ids
from encrypted_records.model.definition import SchemaDefinition, Value

#: Flaws of an upload that are listed; more are counted.
MAX_FLAWS = 10_000
#: What a chunk may hold. A record of empty cells is small as text; sealed, each cell has up to 36
#: bytes, and up to 80 more in the index. With the text, that stays below the API's 64 MiB a part.
CHUNK_RECORDS = 1 << 16
CHUNK_CELLS = 3 << 17
CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows ``first`` to ``last``; the parser finds them from ``place`` on, or a little later."""

    place: Place
    first: int
    last: int


@dataclass
class Findings:
    """What the first pass has found so far. ``flawed`` counts rows, ``flaws`` is cut off."""

    rows: int = 0
    flawed: int = 0
    flaws_total: int = 0
    flaws: list[Flaw] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)


class Schemas:
    """The definitions that an upload's records are held against, each asked for once.

    Args:
        lookup: the definition of a schema; raises NotFound where the caller reaches none.
        named: the schema that the request names for records that do not.
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
        """The schema that a record names, or what is wrong with that; the flaw has no row yet."""
        if name is None and self._named is not None:
            name = self._named
        known = self._known.get(name) if isinstance(name, str | bytes) else None
        if known is None:
            known = self._found(name)
            if isinstance(name, str | bytes) and not isinstance(known, Flaw):
                self._known[name] = known
        return known

    def _found(self, name: object) -> tuple[bytes, SchemaDefinition] | Flaw:
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
            found = schema, self._lookup(schema)
        except NotFound:
            return Flaw("unknown_reference", "names no schema that you can reach", field="schema")
        self._known[schema] = found
        return found


@dataclass(frozen=True, slots=True)
class Accepted:
    """A record that can be stored: its schema, and its values as they are kept."""

    schema: bytes
    definition: SchemaDefinition
    data: dict[str, Value]


def accept(
    schemas: Schemas, record: RawRecord | BadRow, *, text: bool
) -> Accepted | Sequence[Flaw]:
    """The record as it will be stored, or what is wrong with it.

    Args:
        text: whether numbers came as text, as in CSV.
    """
    if isinstance(record, BadRow):
        return (record.flaw,)
    found = schemas.of(record.schema)
    if isinstance(found, Flaw):
        return (Flaw(found.code, found.detail, row=record.row, field=found.field),)
    schema, definition = found
    raw = typed(definition, record.data) if text else record.data
    data, flaws = validate(definition, raw, row=record.row, pointer="")
    return flaws or Accepted(schema, definition, data)


@dataclass(frozen=True, slots=True)
class AcceptedTable:
    """Records that can all be stored, by column; columns of absent fields are left out."""

    schema: bytes
    definition: SchemaDefinition
    columns: Mapping[str, Values]
    count: int


def accept_table(schemas: Schemas, block: Block | Table) -> AcceptedTable | None:
    """A table's records as they will be stored; None for other blocks, and where one of its rows
    may not fit, which :func:`accept` of each then says."""
    if not isinstance(block, Table):
        return None
    found = schemas.of(block.schema)
    if isinstance(found, Flaw):
        return None
    schema, definition = found
    columns = accepted_columns(definition, block)
    return None if columns is None else AcceptedTable(schema, definition, columns, block.count)


def gather(
    schemas: Schemas, blocks: Iterable[Block | Table], *, text: bool
) -> dict[bytes, Columns]:
    """The sound records of these blocks, by schema, in their order; others are left out.

    Args:
        text: as for :func:`accept`.
    """
    gathered: dict[bytes, Columns] = {}

    def of(found: Accepted | AcceptedTable) -> Columns:
        if found.schema not in gathered:
            gathered[found.schema] = Columns(found.definition)
        return gathered[found.schema]

    for block in blocks:
        table = accept_table(schemas, block)
        if table is not None:
            of(table).extend(table.columns, table.count)
            continue
        for record in block.records:
            row = accept(schemas, record, text=text)
            if isinstance(row, Accepted):
                of(row).add(row.data)
    return gathered


class Checker:
    """Takes blocks in their order; ``findings`` then says what was found."""

    def __init__(self, schemas: Schemas, *, text: bool) -> None:
        self.findings = Findings()
        self._schemas = schemas
        self._text = text
        self._begun: tuple[Place, int] | None = None
        self._cells = 0

    def take(self, blocks: Iterable[Block | Table]) -> None:
        for block in blocks:
            found = accept_table(self._schemas, block)
            if found is not None:
                self._rows(block.place, len(found.definition.fields), found.count)
                continue
            for record in block.records:
                self._record(block.place, record)

    def finish(self) -> Findings:
        self._close()
        return self.findings

    def _record(self, place: Place, record: RawRecord | BadRow) -> None:
        outcome = accept(self._schemas, record, text=self._text)
        cells = 0
        if isinstance(outcome, Accepted):
            cells = len(outcome.definition.fields)
        else:
            self._note(outcome)
        self._begin(place, record.row, cells)
        self._cells += cells
        self.findings.rows = record.row

    def _rows(self, place: Place, cells: int, count: int) -> None:
        """As :meth:`_record` of ``count`` good rows from ``place`` on, of so many cells each."""
        row, end = place.row, place.row + count
        while row < end:
            _, first = self._begin(place, row, cells)
            fit = min(CHUNK_RECORDS - (row - first), (CHUNK_CELLS - self._cells) // cells)
            some = min(end - row, max(1, fit))
            self._cells += some * cells
            row += some
            self.findings.rows = row - 1

    def _begin(self, place: Place, row: int, cells: int) -> tuple[Place, int]:
        """See to it that a chunk is begun that has room for the next row."""
        if self._begun is not None:
            began, first = self._begun
            if (
                row - first >= CHUNK_RECORDS
                or self._cells + cells > CHUNK_CELLS
                or place.offset - began.offset >= CHUNK_BYTES
            ):
                self._close()
        if self._begun is None:
            self._begun = place, row
        return self._begun

    def _note(self, flaws: Sequence[Flaw]) -> None:
        found = self.findings
        found.flawed += 1
        found.flaws_total += len(flaws)
        found.flaws += flaws[: MAX_FLAWS - len(found.flaws)]

    def _close(self) -> None:
        if self._begun is not None:
            place, first = self._begun
            self.findings.chunks.append(Chunk(place, first, self.findings.rows))
        self._begun, self._cells = None, 0

"""The output of the parsers of uploads: records in blocks, each with the start of its first record.

An upload may be larger than memory, so that a parser takes bytes as they come and gives blocks of
some hundred records. Parsing can begin again at the start of any block. So a worker finds
the records that it seals without reading those before them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from encrypted_records.errors import Flaw, TooLarge
from encrypted_records.ingest.grid import Grid

#: Largest record in an upload, in bytes as they are written there.
MAX_RECORD_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record object as it was sent. ``row`` counts from 1."""

    row: int
    schema: Any
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A record that cannot be read, between records that can."""

    row: int
    error: Flaw


@dataclass(frozen=True, slots=True)
class RecordStart:
    """The start of a record: its offset in the upload, in bytes, and its row number."""

    offset: int
    row: int


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Records that follow one another, from ``start`` on."""

    start: RecordStart
    records: list[RawRecord | BadRow]

    @property
    def count(self) -> int:
        return len(self.records)

    def part(self, first: int, last: int) -> RecordBlock:
        """The records of the block numbered ``first`` to ``last``; a parser that is to find them
        begins at the start of this block.
        """
        begin = max(0, first - self.start.row)
        end = max(0, last + 1 - self.start.row)
        row = self.start.row + begin
        return RecordBlock(RecordStart(self.start.offset, row), self.records[begin:end])


@dataclass(frozen=True, slots=True)
class CellBlock:
    """A block of ``count`` CSV rows by column: the text of each cell, None where it is absent.

    Every row is valid CSV of the header's width; its cells are not checked yet.
    """

    start: RecordStart
    schema: Any
    columns: Mapping[str, Sequence[str | None]]
    count: int

    @property
    def records(self) -> list[RawRecord | BadRow]:
        """The same row by row, as any other block has them."""
        names = tuple(self.columns)
        return [
            RawRecord(
                row,
                self.schema,
                {name: cell for name, cell in zip(names, cells, strict=True) if cell is not None},
            )
            for row, cells in enumerate(zip(*self.columns.values(), strict=True), self.start.row)
        ]

    def part(self, first: int, last: int) -> CellBlock:
        """The records ``first`` to ``last``, like :meth:`RecordBlock.part`."""
        if first <= self.start.row and self.start.row + self.count <= last + 1:
            return self
        begin = max(0, first - self.start.row)
        end = max(begin, min(self.count, last + 1 - self.start.row))
        start = RecordStart(self.start.offset, self.start.row + begin)
        columns: Mapping[str, Sequence[str | None]]
        if isinstance(self.columns, Grid) and begin < end:
            columns = self.columns.part(begin, end)
        else:
            columns = {name: cells[begin:end] for name, cells in self.columns.items()}
        return CellBlock(start, self.schema, columns, end - begin)


class Parser(Protocol):
    """Bytes in, blocks out. An error that hides where the next record begins is raised."""

    def feed(self, data: bytes) -> Sequence[RecordBlock | CellBlock]: ...

    def finish(self) -> Sequence[RecordBlock | CellBlock]:
        """The last blocks, when no more bytes come."""
        ...


def bad_row(row: int, code: str, detail: str) -> BadRow:
    return BadRow(row, Flaw(code, detail, row=row))


def record_too_large(row: int) -> TooLarge:
    return TooLarge(
        f"record {row} is larger than {MAX_RECORD_BYTES >> 20} MiB, or does not end",
        hint="look for a quote or bracket that is not closed",
    )

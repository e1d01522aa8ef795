"""What the parsers of uploads give: records in blocks, each with the place where it begins.

An upload may be larger than memory, so that a parser takes bytes as they come and gives blocks of
some hundred records. Parsing can begin again at the place of any block; that is how a worker finds
the records that it is to seal without reading what comes before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from encrypted_records.errors import Flaw, TooLarge

#: Largest record in an upload, in bytes as they are written there.
MAX_RECORD_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record object as it came. ``row`` counts from 1."""

    row: int
    schema: Any
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A record that cannot be read, while those around it can."""

    row: int
    flaw: Flaw


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record begins: its offset in the upload, in bytes, and its row."""

    offset: int
    row: int


@dataclass(frozen=True, slots=True)
class Block:
    """Records that follow one another, from ``place`` on."""

    place: Place
    records: list[RawRecord | BadRow]

    @property
    def count(self) -> int:
        return len(self.records)

    def part(self, first: int, last: int) -> Block:
        """Those of its records that are numbered ``first`` to ``last``; a parser that is to find
        them begins where this block does."""
        begin = max(0, first - self.place.row)
        end = max(0, last + 1 - self.place.row)
        row = self.place.row + begin
        return Block(Place(self.place.offset, row), self.records[begin:end])


@dataclass(frozen=True, slots=True)
class Table:
    """A block of ``count`` CSV rows by column: the text of each cell, None where it is absent.

    Every row is sound CSV of the header's width; of what is in its cells nothing is known.
    """

    place: Place
    schema: Any
    columns: dict[str, Sequence[str | None]]
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
            for row, cells in enumerate(zip(*self.columns.values(), strict=True), self.place.row)
        ]

    def part(self, first: int, last: int) -> Table:
        """As :meth:`Block.part`."""
        begin = max(0, first - self.place.row)
        end = max(begin, min(self.count, last + 1 - self.place.row))
        columns = {name: cells[begin:end] for name, cells in self.columns.items()}
        return Table(
            Place(self.place.offset, self.place.row + begin), self.schema, columns, end - begin
        )


class Parser(Protocol):
    """Bytes in, blocks out. A flaw that leaves unclear where the next record begins is raised."""

    def feed(self, data: bytes) -> Sequence[Block | Table]: ...

    def finish(self) -> Sequence[Block | Table]:
        """The last blocks, when no more bytes come."""
        ...


def bad_row(row: int, code: str, detail: str) -> BadRow:
    return BadRow(row, Flaw(code, detail, row=row))


def record_too_large(row: int) -> TooLarge:
    return TooLarge(
        f"record {row} is larger than {MAX_RECORD_BYTES >> 20} MiB, or does not end",
        hint="look for a quote or bracket that is not closed",
    )

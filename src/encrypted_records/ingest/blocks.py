"""What the parsers of uploads give: records in blocks, each with the place where it begins.

An upload may be larger than memory, so that a parser takes bytes as they come and gives blocks of
some hundred records. Parsing can begin again at the place of any block; that is how a worker finds
the records that it is to seal without reading what comes before them.
"""

from __future__ import annotations

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


class Parser(Protocol):
    """Bytes in, blocks out. A flaw that leaves unclear where the next record begins is raised."""

    def feed(self, data: bytes) -> list[Block]: ...

    def finish(self) -> list[Block]:
        """The last blocks, when no more bytes come."""
        ...


def bad_row(row: int, code: str, detail: str) -> BadRow:
    return BadRow(row, Flaw(code, detail, row=row))


def record_too_large(row: int) -> TooLarge:
    return TooLarge(
        f"record {row} is larger than {MAX_RECORD_BYTES >> 20} MiB, or does not end",
        hint="look for a quote or bracket that is not closed",
    )

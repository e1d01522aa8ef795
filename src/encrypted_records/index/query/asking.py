"""Work on several segments that says, step by step, what it lacks of which.

It is a generator, so that what fetches and what computes stay apart: what runs it brings what it
yields, and has it go on.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pyroaring import BitMap

from encrypted_records.index.columns.sums import ColumnSums
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment
from encrypted_records.index.segments.reading import Reading

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Need:
    """Of a segment, data ``pages`` to put in; fields whose ``directories`` are needed, or whose
    columns are, ``by_row``, or are where they are ``kept``; or ``sums`` of one field, whose
    directory is here, with the keys of ``rows``. Pages in ``passing`` are looked at once, and taken
    out again. What is ``light`` takes little memory. ``beside`` are data pages of other segments,
    to put in together with ``pages``."""

    segment: PagedSegment
    pages: frozenset[int] = frozenset()
    directories: tuple[str, ...] = ()
    by_row: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    sums: str | None = None
    rows: BitMap = field(default_factory=BitMap)
    passing: bool = False
    light: bool = False
    beside: tuple[tuple[PagedSegment, frozenset[int]], ...] = ()

    def pages_of(self, segment: PagedSegment) -> frozenset[int]:
        """The data pages to put into a segment."""
        if segment is self.segment:
            return self.pages
        return next(pages for other, pages in self.beside if other is segment)


Asking = Generator[Need, None, T]


def ask_for(segment: PagedSegment, reading: Reading[T], *, passing: bool = True) -> Asking[T]:
    """What reads one segment, as work on several.

    Args:
        passing: as for :class:`Need`.
    """
    try:
        while True:
            yield Need(segment, pages=frozenset(next(reading)), passing=passing)
    except StopIteration as end:
        found: T = end.value
        return found


def bring_directories(segment: OpenedSegment, fields: Sequence[str]) -> Asking[None]:
    """Have the directories of some fields."""
    if isinstance(segment, PagedSegment) and segment.missing_directories(fields):
        yield Need(segment, directories=tuple(fields))


def bring_by_row(segment: OpenedSegment, fields: Sequence[str]) -> Asking[None]:
    """Have columns by row, with their directories."""
    yield from bring_directories(segment, fields)
    if isinstance(segment, PagedSegment):
        own = [name for name in fields if segment.has_column(name)]
        lacking = tuple(name for name in own if name not in segment.columns)
        if lacking:
            yield Need(segment, by_row=lacking)


def bring_kept(segment: OpenedSegment, field: str) -> Asking[None]:
    """Have a column by row if it is kept, and its directory."""
    yield from bring_directories(segment, [field])
    if not isinstance(segment, PagedSegment) or field in segment.columns:
        return
    if segment.has_column(field):
        yield Need(segment, kept=(field,), light=True)


def bring_sums(segment: PagedSegment, field: str, rows: BitMap) -> Asking[ColumnSums]:
    """What a column of numbers adds up to, with the keys of some rows; its directory is here."""
    held = segment.sums.get(field)
    if held is None or not held.has(rows):
        yield Need(segment, sums=field, rows=rows)
    return segment.sums[field]

"""Work on several segments that says, step by step, what it lacks of which.

It is a generator, so that what fetches and what computes stay apart: what runs it brings what it
yields, and has it go on.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment
from encrypted_records.index.segments.reading import Reading

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Need:
    """Of a segment, data ``pages`` to put in, or fields whose ``directories`` are needed, or whose
    columns are, ``by_row``. Pages in ``passing`` are looked at once, and taken out again."""

    segment: PagedSegment
    pages: frozenset[int] = frozenset()
    directories: tuple[str, ...] = ()
    by_row: tuple[str, ...] = ()
    passing: bool = False


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

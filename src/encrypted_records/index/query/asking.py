"""Work on several segments that says, step by step, what it lacks of which, and how long it takes.

It is a generator, so that fetching and deciding stay apart: a driver fetches what it yields, and
resumes it. An error of a fetch is raised where it was yielded. Each step of needs is one
request at most, but for columns by row and sums, which take one for each window of their pages.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
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
    out again. A ``light`` need takes little memory, and waits for no turn at it."""

    segment: PagedSegment
    pages: frozenset[int] = frozenset()
    directories: tuple[str, ...] = ()
    by_row: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    sums: str | None = None
    rows: BitMap = field(default_factory=BitMap)
    passing: bool = False
    light: bool = False


@dataclass(frozen=True, slots=True)
class Together:
    """Data pages of several segments, to bring with one request. There is one need of each segment,
    and all are ``light``: they are in memory at once."""

    needs: tuple[Need, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """About how many entries of columns are worked on until the next step of this kind, and the
    stage under which that counts in statistics. The number says where it is done: what takes long
    must not keep others waiting."""

    stage: str
    entries: int


@dataclass(frozen=True, slots=True)
class Grown:
    """A column by row with its keys, which is kept or is worth it, takes more memory than before:
    what was made of its keys is kept with it."""

    segment: PagedSegment
    field: str


#: To put so many rows in order takes as long as to work on so many entries of each.
ENTRIES_A_ROW = 8

Step = Need | Together | Work | Grown
Asking = Generator[Step, None, T]


def ask_for(
    segment: PagedSegment, reading: Reading[T], *, passing: bool = True, light: bool = False
) -> Asking[T]:
    """What reads one segment, as work on several.

    Args:
        passing, light: as for :class:`Need`.
    """
    try:
        while True:
            yield Need(segment, pages=frozenset(next(reading)), passing=passing, light=light)
    except StopIteration as end:
        found: T = end.value
        return found


def bring_directories(segment: OpenedSegment, fields: Sequence[str]) -> Asking[None]:
    """Have the directories of some fields."""
    if isinstance(segment, PagedSegment) and segment.missing_directories(fields):
        yield Need(segment, directories=tuple(fields))


def bring_pages(
    segment: OpenedSegment, missing: Callable[[OpenedSegment], set[int]]
) -> Asking[None]:
    """Have all data pages that ``missing`` names, until there are none; the directories that tell
    it are here."""
    while numbers := missing(segment):
        assert isinstance(segment, PagedSegment)
        yield Need(segment, pages=frozenset(numbers))


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

"""Questions that say, step by step, what they lack, and how long their work takes.

Each is a generator, so that fetching and deciding stay apart: a driver fetches what it yields, and
resumes it with that. An error of a fetch is raised where it was yielded. Each step is one
request at most, but for columns by row and sums, which take one for each window of their pages, and
for rows and segments that are more than a request takes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyroaring import BitMap

from encrypted_records.index.columns.sums import ColumnSums
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment
from encrypted_records.index.segments.reading import Reading
from encrypted_records.model.records import RowRef, Segment

T = TypeVar("T")


class Stopped(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True, slots=True)
class Open:
    """Segments of a snapshot. They are sent back, opened and in this order: minis as a whole, and
    large ones without a page."""

    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows, at least one. Their records are sent back, in this order.

    ``alone`` if they would take the place of all rows that other questions use; ``ranked`` if which
    they are tells of an order by values (:meth:`RowFetcher.open_rows`).
    """

    refs: tuple[RowRef, ...]
    alone: bool = False
    ranked: bool = False


@dataclass(frozen=True, slots=True)
class Columns:
    """Whole columns with their keys, of several segments, to bring with one request. A segment may
    lack some of the fields."""

    segments: tuple[PagedSegment, ...]
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Need:
    """Parts of a segment: ``pages`` to put in; fields whose ``directories`` are needed, or whose
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
    """Pages of several segments, to bring with one request. There is one need of each segment,
    and all are ``light``: they are in memory at once."""

    needs: tuple[Need, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """About how many entries of columns are worked on until the next step of this kind, and the
    stage under which that counts in statistics, if it does. The number says where it is done: what
    takes long must not keep others waiting. ``long`` where it takes long whatever the number."""

    stage: str | None
    entries: int = 0
    long: bool = False


@dataclass(frozen=True, slots=True)
class Grown:
    """A column by row with its keys, which is kept or is worth it, takes more memory than before:
    what was made of its keys is kept with it."""

    segment: PagedSegment
    field: str


Step = Open | Rows | Columns | Need | Together | Work | Grown
#: The type of the value that is sent back follows from the step.
Asking = Generator[Step, Any, T]


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


def bring_together(
    segments: Iterable[OpenedSegment], missing: Callable[[OpenedSegment], set[int]]
) -> Asking[None]:
    """Have all pages of several segments that ``missing`` names, until there are none: directories
    first. They are in memory at once."""
    left = list(segments)
    while True:
        lacking = [(one, numbers) for one in left if (numbers := missing(one))]
        if not lacking:
            return
        left = [one for one, _ in lacking]
        needs: list[Need] = []
        for one, numbers in lacking:
            assert isinstance(one, PagedSegment)
            needs.append(Need(one, pages=frozenset(numbers), light=True))
        yield Together(tuple(needs))


def bring_columns(segments: Iterable[object], fields: Iterable[str]) -> Asking[None]:
    """Have whole columns with their keys, to sort or measure rows by them.

    Args:
        segments: of either form; minis have all of their columns.
    """
    large = tuple(segment for segment in segments if isinstance(segment, PagedSegment))
    if large:
        yield Columns(large, tuple(fields))


def open_columns(segment: Segment, fields: Iterable[str]) -> Asking[OpenedSegment]:
    """A segment with whole columns."""
    opened: list[OpenedSegment] = yield Open((segment,))
    yield from bring_columns(opened, fields)
    return opened[0]


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

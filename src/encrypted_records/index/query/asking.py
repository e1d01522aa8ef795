"""Queries as generators that yield the data they lack, step by step; their limits and fetches.

Generators keep fetching and deciding separate: a driver fetches what the query yields, and resumes
it with the result. An error of a fetch is raised at the yield. Each step is at most one request,
unless its pages, rows or segments exceed a request.

These steps fetch pages, directories, row-major columns and sums of one or several segments.
Row-major columns and sums are taken from the cache if kept, and else computed from their pages, a
window at a time.

:class:`Sizes` has the tuned numbers of queries, each with its unit and benchmark
(docs/decisions/questions.md, memory.md and search-cost.md have the figures). The numbers of a
reading are in :class:`~encrypted_records.index.segments.reading.ReadingLimits`, those of a scan in
:class:`~encrypted_records.index.query.sorted_scan.ScanLimits`; both are fields here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pyroaring import BitMap

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.columns.dictionary import ByRow, ColumnDictionary, ColumnSums
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.key_sets import Texts
from encrypted_records.index.query.sorted_scan import STANDARD as SCAN
from encrypted_records.index.query.sorted_scan import ScanLimits
from encrypted_records.index.segments.loaded import KeptSegment, LoadedSegment, OpenedSegment, load
from encrypted_records.index.segments.reading import STANDARD as READING
from encrypted_records.index.segments.reading import Reading, ReadingLimits, sum_column, turn_round
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.records import RowRef, Segment

T = TypeVar("T")


class Stopped(Exception):
    """The query was cancelled, because its answer is no longer needed."""


@dataclass(frozen=True, slots=True)
class Open:
    """Requests segments of a snapshot. They are sent back opened, in this order: whole minis, and
    large segments without pages."""

    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Requests the records of rows (not empty). They are sent back in this order.

    ``alone`` if they would evict all rows that other queries use; ``ranked`` if the choice of rows
    reveals an order by values (:meth:`RowFetcher.open_rows`).
    """

    refs: tuple[RowRef, ...]
    alone: bool = False
    ranked: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """Requests parts of a segment: ``pages``, and the ``directories`` of fields. Pages in
    ``passing`` are used once, and then removed. A ``light`` need takes little memory; any other,
    even an empty need, waits for the query's turn at memory."""

    segment: LoadedSegment
    pages: frozenset[int] = frozenset()
    directories: tuple[str, ...] = ()
    passing: bool = False
    light: bool = False


@dataclass(frozen=True, slots=True)
class Together:
    """Requests pages of several segments with a single request. Each segment has a need, and all
    are ``light``: they are in memory at once."""

    needs: tuple[Need, ...]


@dataclass(frozen=True, slots=True)
class KeptColumn:
    """Requests a kept row-major column. It is sent back, or None if it is not kept; nothing is
    fetched."""

    segment: LoadedSegment
    field: str


@dataclass(frozen=True, slots=True)
class KeptSums:
    """Requests the kept sums of a column; ``again`` if they were just requested before."""

    segment: LoadedSegment
    field: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Keep:
    """Keeps a row-major column or its sums for later queries. It may be kept already and have
    grown, because data derived from its keys is kept with it."""

    segment: LoadedSegment
    field: str
    made: ByRow | ColumnSums


@dataclass(frozen=True, slots=True)
class Work:
    """The approximate number of column entries that are processed before the next step of this
    kind, and their stage in statistics, if any. The number decides where the work runs, because
    long work must not block others. ``long`` if it takes long whatever the number.

    The previous work is sent back, so that it can continue."""

    stage: str | None
    entries: int = 0
    long: bool = False


Step = Open | Rows | Need | Together | KeptColumn | KeptSums | Keep | Work
#: The type of the value sent back depends on the step.
Asking = Generator[Step, Any, T]


@dataclass(frozen=True, slots=True)
class WorkSizes:
    """The duration of work, counted in column entries. Chosen by ``bench.search``."""

    #: entries up to which work is faster than starting a thread
    on_loop: int = 1 << 14
    #: entries up to which work gets a separate thread; larger work is queued
    in_thread: int = 1 << 20
    #: entries that take as long as sorting a row
    a_row: int = 8
    #: entries that take as long as testing a text
    a_text: int = 64
    #: entries that take as long as looking up a value
    a_value: int = 2048
    #: segments times values that are looked up in about ten milliseconds
    lookups: int = 500
    #: entries that are scanned for first rows in a third of a millisecond
    looked_through: int = 1 << 19


WORK = WorkSizes()


@dataclass(frozen=True, slots=True)
class Sizes:
    """Thresholds between the ways to answer a query (:mod:`.choices`)."""

    #: rows of all segments from which pages are counted before they are fetched (``bench.scale``)
    few_rows: int = 1 << 21
    #: rows of all segments from which a sorted search looks up whether rows match (``bench.scale``)
    few_to_sort: int = 1 << 18
    #: pages, and entries in them, of all segments together; with more, the pages of one segment
    #: are in memory at a time (``bench.large_segments``)
    many_pages: int = 1024
    many_entries: int = 1 << 22
    #: rows times fields up to which all measured columns are fetched in one request
    #: (``bench.large_segments``)
    few_values: int = 1 << 22
    #: entries that are converted to a set of rows in a millisecond (``bench.index_core``)
    few_entries: int = 1 << 16
    #: rows of a segment in the set for the first rows in storage order: as many as one chunk of a
    #: set has (``bench.search``)
    prefix_rows: int = 1 << 16
    #: share of a column's pages from which it is fetched row-major and kept
    #: (``bench.large_segments``)
    most_of_column: float = 0.25
    #: the same for a column of few values, which takes a byte or two per row (``bench.scale``)
    most_of_listed: float = 1 / 64
    #: maximum bytes of the row-major columns of a batch of segments (``bench.scale``)
    batch_bytes: int = 32 << 20
    #: rows of a segment from which work on it waits for its turn at memory
    #: (``bench.large_segments``)
    alone_rows: int = 1 << 18
    work: WorkSizes = WORK
    reading: ReadingLimits = READING
    scan: ScanLimits = SCAN


STANDARD = Sizes()


@dataclass
class Counted:
    """``certain`` and ``unsure`` are the rows of the index's answer, ``rows`` the opened rows;
    ``scanned`` are the fields whose distinct values were tested singly."""

    certain: int = 0
    unsure: int = 0
    rows: int = 0
    scanned: set[str] = field(default_factory=set)


@dataclass
class Workspace:
    """The workspace of one query: a snapshot, and the definition by which keys are compared.

    It owns the opened segments, each opened once, with all their loaded pages and columns. While
    the query runs, nothing else changes except ``counted``, which EXPLAIN shows, and whether the
    query was cancelled.
    """

    snapshot: Snapshot
    definition: SchemaDefinition
    #: the key of the tails in the index keys of this snapshot's segments
    tails: SchemaKey
    #: maximum records opened to decide texts that the index does not hold completely
    most_opened: int
    #: rows beyond which opened rows would evict those of all other queries
    most_kept: int
    #: rows beyond which rows in an order by values are not hidden as in any search
    most_hidden: int
    #: whether row-major columns of a number of rows and of fields stay for later queries
    keeps_columns: Callable[[int, int], bool]
    #: whether a segment's row-major column is kept
    keeps_column: Callable[[LoadedSegment, str], bool]
    sizes: Sizes = STANDARD
    #: whether all matching rows are counted, even if fewer would be enough
    is_explained: bool = False
    counted: Counted = field(default_factory=Counted)
    #: by uid
    opened: dict[bytes, OpenedSegment] = field(default_factory=dict)
    _is_awaited: bool = True

    def open(self, segments: Sequence[Segment]) -> Asking[list[OpenedSegment]]:
        """Open segments of the snapshot, in this order.

        Raises:
            DoesNotOpen: a mini or a header does not open.
        """
        wanted = tuple(segment for segment in segments if segment.uid not in self.opened)
        if wanted:
            found: list[KeptSegment] = yield Open(wanted)
            self.opened |= {kept.segment.uid: load(kept) for kept in found}
        return [self.opened[segment.uid] for segment in segments]

    def texts(self) -> Texts:
        """A collection of the long strings to open."""
        return Texts(self.most_opened)

    def stop(self) -> None:
        """Cancel the query, because its answer is no longer needed."""
        self._is_awaited = False

    def go_on(self) -> None:
        """Check for cancellation; long computations call this from time to time.

        Raises:
            Stopped: the query was cancelled.
        """
        if not self._is_awaited:
            raise Stopped


#: A column that is needed with its keys has no memory limit.
_ALL_KEYS = sys.maxsize


def ask_for(
    segment: LoadedSegment, reading: Reading[T], *, passing: bool = True, light: bool = False
) -> Asking[T]:
    """Run a reading of one segment as work on several segments.

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
    """Fetch the directories of some fields."""
    if isinstance(segment, LoadedSegment) and segment.missing_directories(fields):
        yield Need(segment, directories=tuple(fields))


def bring_all_directories(
    segments: Iterable[OpenedSegment], fields: Collection[str]
) -> Asking[None]:
    """Fetch the directories of several segments, with one request."""
    yield from bring_together(segments, lambda segment: segment.missing_directories(fields))


def bring_pages(
    segment: OpenedSegment, missing: Callable[[OpenedSegment], set[int]]
) -> Asking[None]:
    """Fetch all data pages that ``missing`` names, until none is missing. The directories that
    ``missing`` needs must be loaded.
    """
    while numbers := missing(segment):
        assert isinstance(segment, LoadedSegment)
        yield Need(segment, pages=frozenset(numbers))


def bring_together(
    segments: Iterable[OpenedSegment], missing: Callable[[OpenedSegment], set[int]]
) -> Asking[None]:
    """Fetch all pages of several segments that ``missing`` names, directories first, until none is
    missing. All of them are in memory at once.
    """
    left = list(segments)
    while True:
        lacking = [(segment, numbers) for segment in left if (numbers := missing(segment))]
        if not lacking:
            return
        left = [segment for segment, _ in lacking]
        needs: list[Need] = []
        for segment, numbers in lacking:
            assert isinstance(segment, LoadedSegment)
            needs.append(Need(segment, pages=frozenset(numbers), light=True))
        yield Together(tuple(needs))


def bring_kept(segment: OpenedSegment, field: str) -> Asking[None]:
    """Fetch the directory of a field, and take its row-major column if it is kept."""
    yield from bring_directories(segment, [field])
    if not isinstance(segment, LoadedSegment) or not segment.has_column(field):
        return
    if field not in segment.columns:
        column: ByRow | None = yield KeptColumn(segment, field)
        if column is not None:
            segment.columns[field] = column


def bring_by_row(
    segment: OpenedSegment, field: str, limits: ReadingLimits, *, keys: bool = False
) -> Asking[None]:
    """Fetch a whole row-major column, with its keys if they are not too many, and its directory.

    Args:
        keys: whether a column that is kept without its keys is made again.

    Raises:
        DoesNotOpen: the column does not open.
    """
    if not isinstance(segment, LoadedSegment) or not segment.has_column(field):
        return
    if field in segment.columns:
        return
    # After a turn at memory, another query may have made it meanwhile.
    yield Need(segment, directories=(field,))
    column: ByRow | None = yield KeptColumn(segment, field)
    if column is None or (keys and not isinstance(column, ColumnDictionary)):
        column = yield from _make(segment, turn_round(segment, field, limits))
        yield Keep(segment, field, column)
    segment.columns[field] = column


def bring_sums(
    segment: LoadedSegment, field: str, rows: BitMap, limits: ReadingLimits
) -> Asking[ColumnSums]:
    """The sums of a column of numbers, with the keys of some rows; its directory must be loaded.

    Raises:
        DoesNotOpen: the column does not open.
    """
    sums = segment.sums.get(field)
    if sums is None or not sums.has(rows):
        sums = yield KeptSums(segment, field)  # which takes no further memory
    if sums is None or not sums.has(rows):
        # Another query may make it while this query waits for its turn.
        yield Need(segment)
        sums = yield KeptSums(segment, field, again=True)
    if sums is None or not sums.has(rows):
        sums = yield from _make(segment, sum_column(segment, field, rows, limits))
        yield Keep(segment, field, sums)
    segment.sums[field] = sums
    return sums


def bring_columns(
    segments: Iterable[object], fields: Collection[str], sizes: Sizes
) -> Asking[None]:
    """Fetch whole columns with their keys, for sorting or measuring rows. A few missing values are
    fetched in one request; larger amounts column by column, a window of pages at a time.

    Args:
        segments: of either form; minis have all of their columns.

    Raises:
        DoesNotOpen: a column does not open.
    """
    lacking: list[tuple[LoadedSegment, list[str]]] = []
    for segment in segments:
        if not isinstance(segment, LoadedSegment):
            continue
        missing: list[str] = []
        for name in fields:
            if segment.has_keys(name):
                continue
            column: ByRow | None = yield KeptColumn(segment, name)
            if isinstance(column, ColumnDictionary):
                segment.columns[name] = column
            else:
                missing.append(name)
        if missing:
            lacking.append((segment, missing))
    if sum(segment.count * len(missing) for segment, missing in lacking) <= sizes.few_values:
        yield from _bring_few(lacking)
        return
    limits = replace(sizes.reading, by_row=_ALL_KEYS)
    for segment, missing in lacking:
        for name in missing:
            yield Need(segment, directories=(name,))
            made = yield from _make(segment, turn_round(segment, name, limits))
            segment.columns[name] = made
            yield Keep(segment, name, made)


def _bring_few(lacking: Sequence[tuple[LoadedSegment, Sequence[str]]]) -> Asking[None]:
    fields = {segment.segment.uid: missing for segment, missing in lacking}
    yield from bring_together(
        [segment for segment, _ in lacking],
        lambda segment: segment.missing_columns(fields[segment.segment.uid]),
    )
    entries = sum(segment.count * len(missing) for segment, missing in lacking)
    before: Work = yield Work("fetch_pages", entries)
    for segment, missing in lacking:
        for name in missing:
            yield Keep(segment, name, segment.dictionary(name))
    yield before


def open_columns(segment: Segment, fields: Collection[str], sizes: Sizes) -> Asking[OpenedSegment]:
    """A segment with whole columns, which are removed after the caller's use."""
    kept: list[KeptSegment] = yield Open((segment,))
    opened = load(kept[0])
    yield from bring_columns([opened], fields, sizes)
    return opened


def _make(segment: LoadedSegment, reading: Reading[T]) -> Asking[T]:
    """Compute a result from a whole column in the executor for work of this size."""
    before: Work = yield Work("fetch_pages", segment.covered)
    found = yield from ask_for(segment, reading)
    yield before
    return found

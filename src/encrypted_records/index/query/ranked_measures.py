"""Measures of numbers over all or nearly all rows of segments, without reading the column.

Measures need the ranks of some values, and the sums of all values, which are kept per segment. The
values of rows that are left out, because they are dead or do not match, are looked up and
subtracted.

A segment's directory has the first and last key and the entries of each page. Therefore only pages
that may contain a key are read: a page for each segment, and for the k-th value the few pages that
may contain it; all others are counted unread. No column is read. Of opened pages, only the keys
around a value and their counts are kept: for several values together at most
``ReadingLimits.entries``; for a single value, those of two pages of each segment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records import runtime
from encrypted_records.index.columns.column import EntryBlock, Keys
from encrypted_records.index.columns.dictionary import Codes, ColumnDictionary, Halves
from encrypted_records.index.query.asking import (
    Asking,
    Need,
    Together,
    ask_for,
    bring_directories,
    bring_sums,
)
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.measures import MeasureResults, list_ranks
from encrypted_records.index.query.row_groups import count_values, ungrouped_values
from encrypted_records.index.query.row_lookups import look_up_keys
from encrypted_records.index.query.tallies import RANKS_AND_SUMS, FieldTally, GroupValues
from encrypted_records.index.segments.loaded import LoadedSegment, scope
from encrypted_records.index.segments.reading import STANDARD, ReadingLimits, Window, read_pages


@dataclass(frozen=True, eq=False, slots=True)
class RankedRows:
    """A field of some rows of a segment, in stretches with ``counts`` values from ``firsts`` to
    ``lasts``. A stretch of several keys is a page of present rows of ``segment``. ``left_out`` are
    values that the stretches count but that are not among the rows."""

    firsts: Keys
    lasts: Keys
    counts: Codes
    left_out: Keys
    segment: LoadedSegment | None = None

    @property
    def is_exact(self) -> bool:
        """Whether each stretch is a single key."""
        return self.segment is None or np.array_equal(self.firsts, self.lasts)


@dataclass(eq=False, slots=True)
class _Around:
    """The ``number``-th value is between two keys. ``below`` counts the values of opened pages
    below these; ``runs`` has the keys of opened pages between these, and their counts."""

    number: int
    first: int
    last: int
    below: int
    runs: list[tuple[Keys, Codes]]


class Ranks:
    """Order statistics of the values of some rows."""

    def __init__(
        self, field: str, parts: Sequence[RankedRows], limits: ReadingLimits = STANDARD
    ) -> None:
        self._field = field
        self._limits = limits
        self._segments = [part.segment for part in parts]
        sizes = [len(part.firsts) for part in parts]
        self._owners = np.repeat(np.arange(len(parts)), sizes)
        self._places = np.concatenate([np.zeros(0, np.intp), *map(np.arange, sizes)])
        none: Keys = np.zeros(0, np.uint64)
        self._firsts = np.concatenate([none, *(part.firsts for part in parts)])
        self._lasts = np.concatenate([none, *(part.lasts for part in parts)])
        self._wide = self._firsts < self._lasts
        counts = [np.zeros(0, np.int64), *(part.counts for part in parts)]
        self._counts: Codes = np.concatenate(counts)
        self._left_out = np.sort(np.concatenate([none, *(part.left_out for part in parts)]))
        by_last = np.argsort(self._lasts, kind="stable")
        self._ends, self._upto = self._lasts[by_last], np.cumsum(self._counts[by_last])
        by_first = np.argsort(self._firsts, kind="stable")
        sorted_counts = self._counts[by_first]
        self._begins, self._before = (
            self._firsts[by_first],
            np.cumsum(sorted_counts) - sorted_counts,
        )

    @property
    def count(self) -> int:
        """The number of values."""
        return int(self._counts.sum()) - len(self._left_out)

    def upto(self, keys: Collection[int]) -> Asking[dict[int, int]]:
        """For each of these keys, the number of values not above it.

        Raises:
            DoesNotOpen: a page does not open.
        """
        points = np.array(sorted(keys), np.uint64)
        found = self._whole_upto(points) - self._left_out.searchsorted(points, "right")
        first = points.searchsorted(self._firsts)
        end = points.searchsorted(self._lasts)

        def take(at: int, block: EntryBlock) -> None:
            of_page = slice(int(first[at]), int(end[at]))
            found[of_page] += _bounds(block)[block.keys.searchsorted(points[of_page], "right")]

        yield from self._open(np.flatnonzero(end > first), take)
        return dict(zip(points.tolist(), found.tolist(), strict=True))

    def select(self, numbers: Collection[int]) -> Asking[dict[int, int]]:
        """The values with these ranks, counted from 1; and for each, the number of values not above
        it.

        Args:
            numbers: up to :attr:`count`.

        Raises:
            DoesNotOpen: a page does not open.
        """
        found: dict[int, int] = {}
        together: list[_Around] = []
        pending_entries = 0
        order = list(numbers)
        # Searching them in order would reveal the key order of pages.
        runtime.chance.shuffle(order)
        for number in order:
            around = yield from self._narrow(number)
            # Each search keeps its keys of a page that several searches need.
            entries = self._entries_to_open(around)
            if pending_entries and entries and pending_entries + entries > self._limits.entries:
                found |= yield from self._find(together)
                together, pending_entries = [], 0
            together.append(around)
            pending_entries += entries
        return found | (yield from self._find(together))

    def _narrow(self, number: int) -> Asking[_Around]:
        """The keys between which a value is, from directories; if very many values may be between
        them, also from pages."""
        # The bounds hold for each key separately: the numbers of values certainly, or possibly,
        # below.
        surely = self._upto - self._left_out.searchsorted(self._ends, "right")
        possibly = self._before - self._left_out.searchsorted(self._begins)
        last = int(self._ends[np.argmax(surely >= number)])
        first = int(self._begins[np.flatnonzero(possibly < number)[-1]])
        found = _Around(number, first, last, 0, [])
        while self._entries_to_open(found) > self._limits.entries:
            edges = np.concatenate((self._firsts[self._wide], self._lasts[self._wide]))
            inside = np.unique(edges[(edges >= found.first) & (edges < found.last)])
            if not len(inside):
                break
            middle = int(inside[len(inside) // 2])
            below = yield from self.upto([middle])
            if below[middle] >= number:
                found.last = middle
            else:
                found.first = middle + 1
        return found

    def _entries_to_open(self, around: _Around) -> int:
        """The number of entries of the pages that are opened to find a value."""
        return int(self._counts[self._pages_of([around])].sum())

    def _pages_of(self, searches: Sequence[_Around]) -> NDArray[np.intp]:
        chosen = np.zeros(len(self._firsts), np.bool_)
        for around in searches:
            first, last = np.array([around.first, around.last], np.uint64)
            chosen |= (self._firsts <= last) & (self._lasts >= first)
        return np.flatnonzero(chosen & self._wide)

    def _find(self, searches: Sequence[_Around]) -> Asking[dict[int, int]]:
        def take(at: int, block: EntryBlock) -> None:
            for around in searches:
                first, last = np.array([around.first, around.last], np.uint64)
                if self._firsts[at] > last or self._lasts[at] < first:
                    continue
                begin = int(block.keys.searchsorted(first))
                end = int(block.keys.searchsorted(last, "right"))
                bounds = _bounds(block)[begin : end + 1]
                # Copies, because views would keep the page in memory.
                around.runs.append((block.keys[begin:end].copy(), np.diff(bounds)))
                around.below += int(bounds[0])

        yield from self._open(self._pages_of(searches), take)
        return dict(map(self._choose, searches))

    def _choose(self, around: _Around) -> tuple[int, int]:
        """The value, and the number of values not above it."""
        first, last = np.array([around.first, around.last], np.uint64)
        alone = ~self._wide & (self._firsts >= first) & (self._firsts <= last)
        keys = np.concatenate([self._firsts[alone], *(keys for keys, _ in around.runs)])
        counts = np.concatenate([self._counts[alone], *(counts for _, counts in around.runs)])
        order = np.argsort(keys, kind="stable")
        keys, counts = keys[order], counts[order]
        below = around.below + self._whole_below(first)
        upto = below + np.cumsum(counts) - self._left_out.searchsorted(keys, "right")
        key = keys[np.argmax(upto >= around.number)]
        return int(key), int(upto[keys.searchsorted(key, "right") - 1])

    def _whole_upto(self, points: Keys) -> Codes:
        """The number of values of stretches that end at or below these keys."""
        sums = np.concatenate((np.zeros(1, np.int64), self._upto))
        return sums[self._ends.searchsorted(points, "right")]

    def _whole_below(self, key: np.uint64) -> int:
        """The number of values of stretches that end below a key."""
        at = int(self._ends.searchsorted(key))
        return int(self._upto[at - 1]) if at else 0

    def _open(
        self, chosen: NDArray[np.intp], take: Callable[[int, EntryBlock], None]
    ) -> Asking[None]:
        """Pass the pages of some stretches, with their numbers, to the caller's function."""
        by_segment: list[tuple[LoadedSegment, dict[int, int]]] = []
        for owner in np.unique(self._owners[chosen]).tolist():
            segment = self._segments[owner]
            assert segment is not None
            leading = segment.directories[self._field].leading
            of_segment = chosen[self._owners[chosen] == owner]
            places = (self._places[of_segment] + leading).tolist()
            by_segment.append((segment, dict(zip(places, of_segment.tolist(), strict=True))))
        # A few pages are fetched together, are worth keeping, and take little memory.
        with scope(*(segment for segment, _ in by_segment)):
            entries = int(self._counts[chosen].sum())
            few = len(chosen) <= self._limits.window and entries <= self._limits.entries
            if few and (needs := tuple(self._list_missing(by_segment))):
                yield Together(needs)
            for segment, stretches in by_segment:
                hand_over = partial(_hand_over, stretches, take)
                reading = read_pages(segment, self._field, stretches, hand_over, self._limits)
                yield from ask_for(segment, reading)

    def _list_missing(
        self, by_segment: Sequence[tuple[LoadedSegment, Collection[int]]]
    ) -> Iterator[Need]:
        for segment, places in by_segment:
            numbers = segment.directories[self._field].numbers[list(places)]
            missing = frozenset(numbers.tolist()) - segment.blocks.keys()
            if missing:
                yield Need(segment, pages=missing, light=True)


def _hand_over(
    stretches: dict[int, int], take: Callable[[int, EntryBlock], None], window: Window
) -> None:
    for page, block in window:
        take(stretches[page], block)


def _bounds(block: EntryBlock) -> Codes:
    """The number of entries before each of a page's keys, and after the last."""
    return np.append(block.starts, len(block.ordinals)).astype(np.int64)


#: Maximum share of a segment's rows that may be left out: looking up many takes as long as reading
#: all.
_MOST_LEFT_OUT = 1 / 16
_HIGHEST = 2**64 - 1


@dataclass(frozen=True, slots=True)
class RankedMeasures:
    """The measures of one field of numbers, without its column.

    ``by_row``: whether row-major columns stay in memory, so that rows are looked up in them;
    otherwise rows are looked up while a column is summed. ``left_out`` is the maximum number of
    rows of a segment that may be left out.
    """

    shown: MeasureResults
    field: str
    limits: ReadingLimits
    by_row: bool
    left_out: int

    def fits(self, part: Candidates) -> bool:
        """Whether measuring a part this way is faster than reading its column."""
        segment = part.segment
        if not isinstance(segment, LoadedSegment) or not segment.has_column(self.field):
            return False
        if isinstance(segment.columns.get(self.field), ColumnDictionary):
            return False
        left_out = segment.count - len(part)
        return left_out <= min(self.left_out, segment.count * _MOST_LEFT_OUT)

    def add(self, parts: Sequence[Candidates], tally: FieldTally) -> Asking[None]:
        """Accumulate all values of some parts. Each part fits, is small, or is older than the
        field. The sums of columns stay in their segments, for measures that are refined.

        Args:
            tally: needs at most :data:`RANKS_AND_SUMS`; if it needs ranks, it is empty before and
                gets no further values.

        Raises:
            DoesNotOpen: a page or a column that is needed does not open.
        """
        rows: list[RankedRows] = []
        halves = Halves()
        for part in parts:
            sorted_rows = yield from self._sort(part)
            rows.append(sorted_rows)
            if tally.adds:
                halves += yield from self._add_up(part, sorted_rows)
        ranks = Ranks(self.field, rows, self.limits)
        values = yield from self._condense(ranks, tally)
        tally.add(values, RANKS_AND_SUMS, halves)

    def _sort(self, part: Candidates) -> Asking[RankedRows]:
        segment = part.segment
        if isinstance(segment, LoadedSegment) and not segment.has_column(self.field):
            none: Keys = np.zeros(0, np.uint64)
            return RankedRows(none, none, np.zeros(0, np.int64), none)
        if not self.fits(part):
            values = count_values(part, self.field, part.dictionary(self.field))
            return RankedRows(values.keys, values.keys, values.counts, values.keys[:0])
        assert isinstance(segment, LoadedSegment)
        yield from bring_directories(segment, [self.field])
        firsts, lasts, counts = segment.directories[self.field].stretches()
        left_out: Keys = firsts[:0]
        if not part.is_whole:
            left_out = yield from self._look_up(segment, _others(part))
        return RankedRows(firsts, lasts, counts, left_out, segment)

    def _look_up(self, segment: LoadedSegment, rows: BitMap) -> Asking[Keys]:
        """Look up the keys of the rows that are left out."""
        if not self.by_row:
            sums = yield from bring_sums(segment, self.field, rows, self.limits)
            return sums.keys_of(rows)
        with scope(segment):
            return (yield from look_up_keys(segment, self.field, rows, self.limits))

    def _add_up(self, part: Candidates, rows: RankedRows) -> Asking[Halves]:
        left_out = Halves.of(rows.left_out)
        if rows.segment is None or rows.is_exact:
            return Halves.of(rows.firsts, rows.counts) - left_out
        # Looked-up rows need not be looked up again.
        looked_up = BitMap() if self.by_row or part.is_whole else _others(part)
        sums = yield from bring_sums(rows.segment, self.field, looked_up, self.limits)
        return sums.halves - left_out

    def _condense(self, ranks: Ranks, tally: FieldTally) -> Asking[GroupValues]:
        """A few values with the same measures as all: each key that matters stands for the values
        between the previous such key and itself."""
        count = ranks.count
        if not count:
            return ungrouped_values(np.zeros(0, np.uint64), np.zeros(0, np.int64))
        numbers = set().union(*(list_ranks(measure, count) for measure in tally.measures))
        upto = yield from ranks.select(numbers)
        if upto:
            ends = np.array([min(upto), max(upto)], np.uint64)
            edges = set().union(*(self.shown.edges(measure, ends) for measure in tally.measures))
            before = {edge - 1 for edge in edges if 0 < edge <= _HIGHEST}
            upto |= yield from ranks.upto(before - upto.keys())
        # The values above the last key that matters.
        upto[_HIGHEST] = count
        keys = sorted(upto)
        counts = np.diff([upto[key] for key in keys], prepend=0)
        kept = counts > 0
        return ungrouped_values(np.array(keys, np.uint64)[kept], counts[kept].astype(np.int64))


def _others(part: Candidates) -> BitMap:
    """The rows of the segment's groups that are not among some candidates, including dead rows that
    it does not index."""
    segment = part.segment
    assert isinstance(segment, LoadedSegment)
    return BitMap(range(segment.covered)) - part.matches.possible

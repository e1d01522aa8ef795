"""Measures of numbers over all rows of segments, or all but a few: without the column.

What measures need of the values is where some of them lie among all (:mod:`.ranks`), and what all
add up to, which is kept of each segment. The values of rows that are left out, since they are dead
or do not match, are looked up and taken off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from encrypted_records.index.columns.column import Keys
from encrypted_records.index.columns.dictionary import ColumnDictionary
from encrypted_records.index.columns.sums import Halves
from encrypted_records.index.query.asking import Asking
from encrypted_records.index.query.bringing import bring_directories, bring_sums
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.field_rows import count_values, of_one_group
from encrypted_records.index.query.measures import MeasureResults, list_ranks
from encrypted_records.index.query.ranks import RankedRows, Ranks
from encrypted_records.index.query.row_lookups import look_up_keys
from encrypted_records.index.query.tallies import RANKS_AND_SUMS, FieldTally, GroupValues
from encrypted_records.index.segments.loaded import LoadedSegment, scope
from encrypted_records.index.segments.reading import ReadingLimits

#: Of a segment's rows, the share that may be left out: to look many up takes as long as all.
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
        """Whether a part is measured so sooner than by its column."""
        segment = part.segment
        if not isinstance(segment, LoadedSegment) or not segment.has_column(self.field):
            return False
        if isinstance(segment.columns.get(self.field), ColumnDictionary):
            return False
        left_out = segment.count - len(part)
        return left_out <= min(self.left_out, segment.count * _MOST_LEFT_OUT)

    def add(self, parts: Sequence[Candidates], tally: FieldTally) -> Asking[None]:
        """Take in all values of some parts. Each fits, is small, or is older than the field. What
        columns add up to stays in their segments, for measures that are refined.

        Args:
            tally: it needs no more than :data:`RANKS_AND_SUMS`; if it needs ranks, it has had no
                values, and gets no more.

        Raises:
            DoesNotOpen: a page or a column that is needed does not open.
        """
        rows: list[RankedRows] = []
        halves = Halves()
        for part in parts:
            own = yield from self._sort(part)
            rows.append(own)
            if tally.adds:
                halves += yield from self._add_up(part, own)
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
        """The keys of rows that are left out."""
        if not self.by_row:
            sums = yield from bring_sums(segment, self.field, rows, self.limits)
            return sums.keys_of(rows)
        with scope(segment):
            return (yield from look_up_keys(segment, self.field, rows, self.limits))

    def _add_up(self, part: Candidates, rows: RankedRows) -> Asking[Halves]:
        left_out = Halves.of(rows.left_out)
        if rows.segment is None or rows.is_exact:
            return Halves.of(rows.firsts, rows.counts) - left_out
        # What was looked up need not be looked up again.
        looked_up = BitMap() if self.by_row or part.is_whole else _others(part)
        sums = yield from bring_sums(rows.segment, self.field, looked_up, self.limits)
        return sums.halves - left_out

    def _condense(self, ranks: Ranks, tally: FieldTally) -> Asking[GroupValues]:
        """Few values that give the same measures as all: of the keys that matter, each has those
        that lie between it and the one before."""
        count = ranks.count
        if not count:
            return of_one_group(np.zeros(0, np.uint64), np.zeros(0, np.int64))
        numbers = set().union(*(list_ranks(measure, count) for measure in tally.measures))
        upto = yield from ranks.select(numbers)
        if upto:
            ends = np.array([min(upto), max(upto)], np.uint64)
            edges = set().union(*(self.shown.edges(measure, ends) for measure in tally.measures))
            before = {edge - 1 for edge in edges if 0 < edge <= _HIGHEST}
            upto |= yield from ranks.upto(before - upto.keys())
        # Those behind the last key that matters.
        upto[_HIGHEST] = count
        keys = sorted(upto)
        counts = np.diff([upto[key] for key in keys], prepend=0)
        kept = counts > 0
        return of_one_group(np.array(keys, np.uint64)[kept], counts[kept].astype(np.int64))


def _others(part: Candidates) -> BitMap:
    """The rows of the segment's groups that are not among some candidates; dead ones that it does
    not index are."""
    segment = part.segment
    assert isinstance(segment, LoadedSegment)
    return BitMap(range(segment.covered)) - part.matches.possible

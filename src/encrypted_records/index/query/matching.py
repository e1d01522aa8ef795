"""Which rows of large segments match, with little of them in memory at a time.

Columns are tested, and comparisons of many pages are made, one segment after the other: by a column
by row that is kept or is worth it, or else a window of pages at a time. Only rows that pass stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyroaring import BitMap

from encrypted_records.index.log.snapshot import Places, Snapshot
from encrypted_records.index.ordinals import ordinals
from encrypted_records.index.query import reading_tests
from encrypted_records.index.query.asking import Asking, Grown, Need, Work, ask_for, bring_pages
from encrypted_records.index.query.column_scan import needs_whole, want_undecided
from encrypted_records.index.query.matches import Matches
from encrypted_records.index.query.plan import Plan
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment, scope
from encrypted_records.index.segments.reading import STANDARD, ReadingLimits, fits_by_row
from encrypted_records.model.predicates import Absent, ColumnTest, Leaf

#: Where a comparison takes a larger share of a column's pages, the column is brought as a whole, by
#: row, and kept.
MOST_OF_COLUMN = 0.25
#: To test a text, or to look a value up, takes as long as to work on so many entries.
_ENTRIES_A_TEXT, _ENTRIES_A_VALUE = 64, 2048


def _nothing() -> None:
    """Goes on."""


@dataclass(frozen=True, slots=True)
class Matching:
    """One plan, on segments one after the other.

    ``by_row`` is whether a column may be turned round for a comparison of many of its pages: of
    very many rows that takes longer than to read ranges, if it does not stay. ``go_on`` is called
    from time to time by what takes long; what it raises ends that.
    """

    plan: Plan
    limits: ReadingLimits = STANDARD
    by_row: bool = True
    go_on: Callable[[], None] = _nothing

    def find(self, segments: Sequence[OpenedSegment]) -> Asking[list[Matches]]:
        """The rows of each segment that match, dead ones among them as for :meth:`Plan.match`.

        Raises:
            DoesNotOpen: a page or a column does not open.
        """
        found: list[Matches] = []
        values = self.plan.values * _ENTRIES_A_VALUE
        yield Work("resolve", sum(one.segment.count + values for one in segments))
        for segment in segments:
            with scope(segment):
                found.append((yield from self._find(segment)))
        return found

    def test(self, segments: Sequence[OpenedSegment]) -> Asking[None]:
        """Find the rows that pass the plan's tests, which :meth:`Plan.match` then knows.

        Raises:
            DoesNotOpen: a page or a column does not open, or a key holds no text.
        """
        yield self._testing(segments)
        for segment in segments:
            with scope(segment):
                yield from self._test(segment)
                yield from bring_pages(segment, self.plan.missing_to_test)
                self.plan.settle(segment)
                yield from self._count_larger(segment)

    def count_tested(self, segments: Sequence[OpenedSegment]) -> Asking[list[int | None]]:
        """:meth:`Plan.count` of each segment, of a plan that tests columns.

        Raises:
            DoesNotOpen: as :meth:`test`.
        """
        counts: list[int | None] = []
        yield self._testing(segments)
        for segment in segments:
            with scope(segment):
                yield from self._test(segment)
                counts.append(self.plan.count(segment))
                yield from self._count_larger(segment)
        return counts

    def want_texts(
        self, unsure: Mapping[OpenedSegment, BitMap], snapshot: Snapshot
    ) -> Asking[None]:
        """Want the long strings that decide whether these rows pass the plan's tests.

        Raises:
            DoesNotOpen: as :meth:`test`.
            InvalidQuery: ``too_many_long``.
        """
        yield self._testing(unsure)
        for segment, rows in unsure.items():
            with scope(segment):
                yield from self._want(segment, rows, snapshot.places(segment.segment))
                yield from self._count_larger(segment)

    def _testing(self, segments: Iterable[OpenedSegment]) -> Work:
        # Together: of hundreds of small ones, each would be done at once.
        return Work("scan", sum(one.segment.count for one in segments) * _ENTRIES_A_TEXT)

    def _find(self, segment: OpenedSegment) -> Asking[Matches]:
        plan = self.plan
        if plan.excludes(segment):
            return plan.match(segment)
        if isinstance(segment, PagedSegment):
            yield Need(segment, directories=tuple(plan.columns))
        wide = reading_tests.list_wide(plan, segment, self.limits)
        for leaf in wide:
            assert isinstance(segment, PagedSegment)
            with scope(segment):
                yield from self._bring_compared(segment, leaf)
                reading = reading_tests.compare_column(plan, segment, leaf, self.limits)
                yield from ask_for(segment, reading)
        yield from bring_pages(segment, plan.missing)
        found = plan.match(segment)
        plan.forget(segment, wide)
        return found

    def _bring_compared(self, segment: PagedSegment, leaf: Leaf) -> Asking[None]:
        """Have the column by row, where that is the way to compare it."""
        field = leaf.field
        yield Need(segment, kept=(field,), light=True)
        if field in segment.columns or isinstance(leaf, Absent) or not self.by_row:
            return
        pages = len(self.plan.missing_to_compare(leaf, segment))
        if pages > len(segment.directories[field].ends) * MOST_OF_COLUMN:
            yield Need(segment, by_row=(field,))

    def _test(self, segment: OpenedSegment) -> Asking[None]:
        plan = self.plan
        yield from self._bring_tested(segment)
        by_field: dict[str, list[ColumnTest]] = {}
        for test in reading_tests.list_unread(plan, segment):
            by_field.setdefault(test.field, []).append(test)
        for tests in by_field.values():
            assert isinstance(segment, PagedSegment)
            reading = reading_tests.test_column(plan, segment, tests, self.go_on, self.limits)
            yield from ask_for(segment, reading)
        for test in plan.tests:
            if test.field in plan.to_scan(segment) and not plan.is_kept(segment, test):
                plan.scan(test, segment, self.go_on)

    def _bring_tested(self, segment: OpenedSegment) -> Asking[None]:
        """Have columns with their keys, as far as these can be expected to be kept."""
        if not isinstance(segment, PagedSegment):
            return
        names = sorted(self.plan.to_scan(segment))
        yield Need(segment, directories=tuple(names))
        for name in names:
            if needs_whole(segment, name):
                yield from self._bring_keys(segment, name)

    def _bring_keys(self, segment: PagedSegment, field: str) -> Asking[None]:
        yield Need(segment, kept=(field,), light=True)
        if field in segment.columns:
            return
        if len(segment.directories[field].ends) <= self.limits.few:
            yield Need(segment, pages=frozenset(segment.missing_columns([field])))
            segment.dictionary(field)
        elif (yield from ask_for(segment, fits_by_row(segment, field, self.limits))):
            yield Need(segment, by_row=(field,))

    def _count_larger(self, segment: OpenedSegment) -> Asking[None]:
        """Columns that are kept have grown as their texts were tested."""
        if isinstance(segment, PagedSegment):
            for name in sorted(self.plan.to_scan(segment) & segment.columns.keys()):
                if segment.has_keys(name):
                    yield Grown(segment, name)

    def _want(self, segment: OpenedSegment, rows: BitMap, places: Places) -> Asking[None]:
        plan = self.plan

        def position(row: int) -> int:
            return int(places.positions(ordinals(BitMap([row])))[0])

        yield from self._bring_tested(segment)
        for name in sorted(plan.to_scan(segment)):
            tests = [one for one in plan.text_tests if one.field == name]
            if isinstance(segment, PagedSegment) and needs_whole(segment, name):
                yield from ask_for(
                    segment,
                    reading_tests.want_undecided(plan, segment, tests, rows, position, self.limits),
                )
                continue
            yield from bring_pages(segment, partial(plan.missing_to_want, tests))
            for test in tests:
                scan = plan.scan(test, segment)
                want_undecided(segment, test.field, scan, rows, plan.known, position)

"""Which rows match, with little of large segments in memory at a time.

Where rows are few, all pages that a condition needs are brought at once. Else columns are tested,
and comparisons of many pages are made, one segment after the other: by a column by row that is kept
or is worth it, or else a window of pages at a time. Only rows that pass stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyroaring import BitMap

from encrypted_records.index.log.snapshot import Places, Snapshot
from encrypted_records.index.ordinals import ordinals
from encrypted_records.index.query import reading_tests
from encrypted_records.index.query.asking import (
    FEW_ENTRIES,
    SOME_ENTRIES,
    Asking,
    Grown,
    Need,
    Open,
    Work,
    ask_for,
    bring_pages,
    bring_together,
)
from encrypted_records.index.query.candidates import Candidates, within
from encrypted_records.index.query.column_scan import needs_whole, want_undecided
from encrypted_records.index.query.first_rows import match_first
from encrypted_records.index.query.matches import Matches
from encrypted_records.index.query.plan import Plan
from encrypted_records.index.query.reading_tests import count_entries
from encrypted_records.index.query.records import keep_matching, learn_texts
from encrypted_records.index.query.workspace import Workspace
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment, scope
from encrypted_records.index.segments.reading import ReadingLimits, fits_by_row
from encrypted_records.model.predicates import Absent, ColumnTest, Leaf
from encrypted_records.model.records import Segment

#: Where a comparison takes a larger share of a column's pages, the column is brought as a whole, by
#: row, and kept.
MOST_OF_COLUMN = 0.25
#: To test a text, or to look a value up, takes as long as to work on so many entries.
_ENTRIES_A_TEXT, _ENTRIES_A_VALUE = 64, 2048
#: So many are looked through for the first rows in a third of a millisecond.
FEW_TO_LOOK_THROUGH = 1 << 19
#: To look up values in so many segments takes some ten milliseconds.
LOOKUPS = 500


@dataclass(frozen=True, slots=True)
class SegmentMatches:
    """The live rows of one segment that match, as local ordinals."""

    segment: OpenedSegment
    matches: Matches

    @property
    def uid(self) -> bytes:
        return self.segment.segment.uid

    def within(self, snapshot: Snapshot, stored: int) -> SegmentMatches:
        """The part of it in the first ``stored`` rows of the schema."""
        return SegmentMatches(
            self.segment, within(self.matches, self.segment.segment, snapshot, stored=stored)
        )

    def without(self, rows: BitMap) -> SegmentMatches:
        left = Matches(self.matches.certain - rows, self.matches.possible - rows)
        return SegmentMatches(self.segment, left)


def match_rows(space: Workspace, plan: Plan) -> Asking[list[Candidates]]:
    """The rows that match. Records are opened where the index does not decide.

    Raises:
        InvalidQuery, DoesNotOpen: as :meth:`Matching.find`.
    """
    answers = yield from Matching(space, plan).find()
    parts: list[Candidates] = []
    for one in answers:
        part = Candidates.of(one.segment, one.matches, space.snapshot)
        parts.append((yield from keep_matching(space, plan.predicate, part)))
    return parts


@dataclass(frozen=True, slots=True)
class Matching:
    """One condition in one workspace."""

    space: Workspace
    plan: Plan

    @property
    def limits(self) -> ReadingLimits:
        return self.space.sizes.reading

    @property
    def by_row(self) -> bool:
        """Whether a column may be turned round for a comparison of many of its pages: of very many
        rows that takes longer than to read ranges, if it does not stay."""
        return self.space.keeps_columns(self.space.snapshot.count, len(self.plan.columns))

    def find(
        self,
        among: Sequence[Segment] | None = None,
        *,
        decide: bool = True,
        first: int | None = None,
    ) -> Asking[list[SegmentMatches]]:
        """The matches of live segments, from the index alone, and from long strings that are
        tested; none of segments without any.

        Args:
            among: some of the live ones; all if None.
            first: how many rows are enough: of each segment those that were stored first. All if
                None.
            decide: open records of long strings that the plan tests, one for each. Where an index
                of words leaves more rows open than may be opened, their texts are tested, too.

        Raises:
            InvalidQuery: ``too_many_long``.
            DoesNotOpen: a page or a column does not open, or a key holds no text.
        """
        space, plan = self.space, self.plan
        searched = tuple(space.snapshot.segments if among is None else among)
        many = plan.values * len(searched) > LOOKUPS
        # Pages for tests of texts are brought in segment by segment, and so are large columns.
        missing = plan.missing
        if plan.tests:
            missing = plan.missing_to_scan
        elif sum(segment.count for segment in searched) > space.sizes.few_rows:
            missing = plan.missing_to_find
        segments: list[OpenedSegment] = yield Open(searched)
        with scope(*segments):
            yield Work("fetch_pages", long=many)
            yield from bring_together(segments, missing)
            answers = yield from self._match_all(segments, many=many, first=first)
            certain = sum(len(one.matches.certain) for one in answers)
            unsure = sum(len(one.matches.possible) for one in answers) - certain
            by_words = decide and plan.words and not plan.by_text
            if not by_words or unsure <= space.most_opened:
                space.counted.certain += certain
                space.counted.unsure += unsure
                if plan.tests and decide:
                    return (yield from self._decide_tests(answers))
                return answers
        return (yield from replace(self, plan=plan.with_texts()).find(among))

    def _match_all(
        self, segments: Sequence[OpenedSegment], *, many: bool, first: int | None = None
    ) -> Asking[list[SegmentMatches]]:
        plan, space = self.plan, self.space
        if plan.tests:
            space.counted.scanned |= {test.field for test in plan.tests}
            yield from self.test(segments)
        yield Work("fetch_pages")
        if sum(segment.count for segment in segments) > space.sizes.few_rows:
            yield from bring_together(segments, plan.missing_to_find)
            yield Work("fetch_pages", long=True)
            if self._takes_much(segments):
                return (yield from self._match_in_turn(segments))
            yield Work("fetch_pages")
        yield from bring_together(segments, plan.missing)
        # A column of words may be long in a small segment, too, and takes long to open.
        if many or plan.tests or plan.words:
            yield Work("resolve", SOME_ENTRIES, long=many)
            return self._match_live(segments)
        entries = sum(map(plan.count_entries, segments))
        if entries <= FEW_ENTRIES:
            first = None
        here = first is not None and entries <= FEW_TO_LOOK_THROUGH
        yield Work("resolve", 0 if here else entries)
        return self._match_live(segments, first)

    def _takes_much(self, segments: Sequence[OpenedSegment]) -> bool:
        """Whether the pages that a plan needs would take much memory together."""
        sizes = self.space.sizes
        pages = entries = 0
        for segment in segments:
            pages += len(self.plan.missing(segment))
            entries += count_entries(self.plan, segment)
            if pages > sizes.many_pages or entries > sizes.many_entries:
                return True
        return False

    def _match_in_turn(self, segments: Sequence[OpenedSegment]) -> Asking[list[SegmentMatches]]:
        """The same, with the pages of one segment in memory at a time, and of a comparison that
        takes many, a window of them."""
        found = yield from self.match_each(segments)
        pairs = zip(segments, found, strict=True)
        live = (
            SegmentMatches(one, matches.without(self.space.snapshot.dead_rows(one.segment)))
            for one, matches in pairs
        )
        return [one for one in live if one.matches.possible]

    def _decide_tests(self, answers: list[SegmentMatches]) -> Asking[list[SegmentMatches]]:
        """The answers once the long strings that the tests could not decide are known."""
        plan = self.plan
        unsure = {
            one.segment: one.matches.possible - one.matches.certain
            for one in answers
            if len(one.matches.possible) > len(one.matches.certain)
        }
        if unsure:
            yield from self.want_texts(unsure)
        if not plan.known.wanted:
            return answers
        yield from learn_texts(self.space, plan.known)
        for segment in unsure:
            # More of its texts are known now.
            plan.forget(segment, plan.text_tests)
        decided = yield from self._match_all(list(unsure), many=True)
        return [one for one in answers if one.segment not in unsure] + decided

    def _match_live(
        self, segments: Sequence[OpenedSegment], first: int | None = None
    ) -> list[SegmentMatches]:
        answers: list[SegmentMatches] = []
        for segment in segments:
            dead = self.space.snapshot.dead_rows(segment.segment)
            live = None if first is None else self._match_first(segment, dead, first)
            if live is None:
                live = self.plan.match(segment).without(dead)
            if live.possible:
                answers.append(SegmentMatches(segment, live))
        return answers

    def _match_first(self, segment: OpenedSegment, dead: BitMap, enough: int) -> Matches | None:
        """The matches of a segment that were stored first, at least ``enough`` unless they are all;
        None where they cannot be told alone."""
        if not self.space.snapshot.places(segment.segment).is_in_order:
            return None
        found = match_first(self.plan, segment)
        if found is None:
            return None
        live = found.rows - dead
        return Matches.exactly(live) if found.is_all or len(live) >= enough else None

    def match_each(self, segments: Sequence[OpenedSegment]) -> Asking[list[Matches]]:
        """The rows of each segment that match, dead ones among them as for :meth:`Plan.match`, one
        segment after the other.

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

    def want_texts(self, unsure: Mapping[OpenedSegment, BitMap]) -> Asking[None]:
        """Want the long strings that decide whether these rows pass the plan's tests.

        Raises:
            DoesNotOpen: as :meth:`test`.
            InvalidQuery: ``too_many_long``.
        """
        yield self._testing(unsure)
        for segment, rows in unsure.items():
            with scope(segment):
                yield from self._want(segment, rows, self.space.snapshot.places(segment.segment))
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
            reading = reading_tests.test_column(plan, segment, tests, self.space.go_on, self.limits)
            yield from ask_for(segment, reading)
        for test in plan.tests:
            if test.field in plan.to_scan(segment) and not plan.is_kept(segment, test):
                plan.scan(test, segment, self.space.go_on)

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

"""Match rows with only a small part of large segments in memory at a time.

With few rows, all pages that a condition needs are fetched at once. Otherwise columns are tested,
and comparisons of many pages are made, one segment after the other: by a row-major column that is
kept or worth making, or a window of pages at a time. Only matching rows stay in memory.

The first matching rows of a segment are found without the set of all matching rows: ten rows in
storage order need no set of half a million. If a comparison reads many entries of a column, these
are scanned for the first row that can match, and sets are made only of the rows in a window that
begins there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from pyroaring import BitMap

from encrypted_records.index.log.snapshot import GroupPlaces, Snapshot
from encrypted_records.index.ordinals import Ordinals, bitmap
from encrypted_records.index.query.asking import (
    Asking,
    Keep,
    Need,
    Work,
    Workspace,
    ask_for,
    bring_by_row,
    bring_kept,
    bring_pages,
    bring_together,
)
from encrypted_records.index.query.candidates import (
    Candidates,
    Matches,
    keep_matching,
    learn_texts,
    within,
)
from encrypted_records.index.query.choices import (
    COMPARISON,
    OLDEST,
    TEST,
    OldestFigures,
    TestFigures,
    Way,
    choose,
    comparison_figures,
)
from encrypted_records.index.query.condition import Condition, combine, find_first
from encrypted_records.index.query.key_sets import needs_whole
from encrypted_records.index.query.leaves import (
    LeafOperator,
    RangeLeaf,
    TestLeaf,
    missing_to_want,
    read_tests,
    read_undecided,
)
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment, scope
from encrypted_records.index.segments.reading import ReadingLimits, fits_by_row
from encrypted_records.model.records import Segment

#: Number of entries that are processed together.
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class FirstRows:
    """All matching local ordinals before the end of a window. ``is_all`` if there are no others."""

    rows: BitMap
    is_all: bool


def match_first(condition: Condition, segment: OpenedSegment, window: int) -> FirstRows | None:
    """The matching rows in the first window of ``window`` rows that can contain a match, including
    dead rows as for :meth:`Condition.match`; None for a condition that key ranges alone do not
    decide.

    Raises:
        DoesNotOpen: a column that is needed does not open.
    """
    if condition.excludes(segment):
        return FirstRows(BitMap(), is_all=True)
    leaves = [leaf for leaf in condition.leaves if isinstance(leaf, RangeLeaf) and leaf.is_exact]
    if len(leaves) < len(condition.leaves):
        return None
    memo = condition.memo(segment)
    entries = {leaf.number: leaf.entries(segment, memo) for leaf in leaves}
    lowest = {
        number: None if pieces is None else [int(piece.min()) for piece in _join(pieces)]
        for number, pieces in entries.items()
    }
    end = segment.segment.count + segment.segment.purged
    begin = find_first(condition.root, lowest, end)

    def in_window(number: int) -> Matches:
        pieces, lows = entries[number], lowest[number]
        if pieces is None or lows is None:
            return Matches.exactly(rows)
        parts = zip(_join(pieces), lows, strict=True)
        near = (piece for piece, low in parts if low < begin + window)
        # Negative differences wrap around to high ordinals, so a single comparison checks both
        # ends.
        return Matches.exactly(
            bitmap(*(piece[piece - np.uint32(begin) < window] for piece in near))
        )

    rows = BitMap(range(begin, min(end, begin + window))) & segment.everything
    return FirstRows(
        combine(condition.root, rows, {number: in_window(number) for number in entries}).certain,
        begin + window >= end,
    )


def _join(pieces: Sequence[Ordinals]) -> Iterator[Ordinals]:
    """The same entries in fewer arrays: arrays of single pages are so small that the overhead of
    numpy's calls dominates, and an array of all entries would need memory from the system."""
    batch: list[Ordinals] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece)
        if size >= _AT_ONCE:
            yield np.concatenate(batch)
            batch, size = [], 0
    if batch:
        yield np.concatenate(batch)


@dataclass(frozen=True, slots=True)
class SegmentMatches:
    """The live matching rows of a segment, as local ordinals."""

    segment: OpenedSegment
    matches: Matches

    @property
    def uid(self) -> bytes:
        return self.segment.segment.uid

    def within(self, snapshot: Snapshot, stored: int) -> SegmentMatches:
        """The matches in the first ``stored`` rows of the schema."""
        return SegmentMatches(
            self.segment, within(self.matches, self.segment.segment, snapshot, stored=stored)
        )

    def without(self, rows: BitMap) -> SegmentMatches:
        left = Matches(self.matches.certain - rows, self.matches.possible - rows)
        return SegmentMatches(self.segment, left)


def match_rows(space: Workspace, condition: Condition) -> Asking[list[Candidates]]:
    """The matching rows. Records are opened if the index does not decide.

    Raises:
        InvalidQuery, DoesNotOpen: as :meth:`Matching.find`.
    """
    answers = yield from Matching(space, condition).find()
    parts: list[Candidates] = []
    for answer in answers:
        part = Candidates.of(answer.segment, answer.matches, space.snapshot)
        parts.append((yield from keep_matching(space, condition.predicate, part)))
    return parts


@dataclass(frozen=True, slots=True)
class Matching:
    """The evaluation of one condition in one workspace."""

    space: Workspace
    condition: Condition

    @property
    def limits(self) -> ReadingLimits:
        return self.space.sizes.reading

    @property
    def by_row(self) -> bool:
        """Whether a column may be made row-major for a comparison of many of its pages: with very
        many rows that takes longer than reading ranges, unless the column stays in memory."""
        return self.space.keeps_columns(self.space.snapshot.count, len(self.condition.columns))

    def find(
        self,
        among: Sequence[Segment] | None = None,
        *,
        decide: bool = True,
        first: int | None = None,
    ) -> Asking[list[SegmentMatches]]:
        """The matches of live segments, from the index alone and from tested long strings; segments
        without matches are left out.

        Args:
            among: some of the live segments; all if None.
            first: the number of rows that are enough, of each segment the rows stored first; all if
                None.
            decide: open a record for each long string that the condition tests. If a word index
                leaves more rows open than may be opened, their texts are tested, too.

        Raises:
            InvalidQuery: ``too_many_long``.
            DoesNotOpen: a page or a column does not open, or a key is not a text.
        """
        space, condition = self.space, self.condition
        searched = tuple(space.snapshot.segments if among is None else among)
        many = condition.values * len(searched) > space.sizes.work.lookups
        # Pages for tests of texts and large columns are fetched segment by segment.
        missing = condition.missing
        if condition.tests:
            missing = condition.missing_to_scan
        elif sum(segment.count for segment in searched) > space.sizes.few_rows:
            missing = condition.missing_to_find
        segments = yield from self.space.open(searched)
        with scope(*segments):
            yield Work("fetch_pages", long=many)
            yield from bring_together(segments, missing)
            answers = yield from self._match_all(segments, many=many, first=first)
            certain = sum(len(answer.matches.certain) for answer in answers)
            unsure = sum(len(answer.matches.possible) for answer in answers) - certain
            by_words = decide and condition.leaves_words_open
            if not by_words or unsure <= space.most_opened:
                space.counted.certain += certain
                space.counted.unsure += unsure
                if condition.tests and decide:
                    return (yield from self._decide_tests(answers))
                return answers
        return (yield from replace(self, condition=condition.with_texts()).find(among))

    def _match_all(
        self, segments: Sequence[OpenedSegment], *, many: bool, first: int | None = None
    ) -> Asking[list[SegmentMatches]]:
        condition, space, work = self.condition, self.space, self.space.sizes.work
        if condition.tests:
            space.counted.scanned |= {test.field for test in condition.tests}
            yield from self.test(segments)
        yield Work("fetch_pages")
        if sum(segment.count for segment in segments) > space.sizes.few_rows:
            yield from bring_together(segments, condition.missing_to_find)
            yield Work("fetch_pages", long=True)
            if self._takes_much(segments):
                return (yield from self._match_in_turn(segments))
            yield Work("fetch_pages")
        yield from bring_together(segments, condition.missing)
        # A word column may be long even in a small segment, and takes long to open.
        if many or condition.tests or condition.by_words:
            yield Work("resolve", work.on_loop + 1, long=many)
            return self._match_live(segments)
        entries = sum(map(condition.count_entries, segments))
        stays_on_loop = first is not None and work.on_loop < entries <= work.looked_through
        yield Work("resolve", 0 if stays_on_loop else entries)
        return self._match_live(segments, entries, first)

    def _takes_much(self, segments: Sequence[OpenedSegment]) -> bool:
        """Whether the pages that the condition needs would take much memory together."""
        sizes, condition = self.space.sizes, self.condition
        pages = entries = 0
        for segment in segments:
            if isinstance(segment, LoadedSegment) and not condition.excludes(segment):
                costs = [leaf.cost(segment) for leaf in condition.leaves]
                pages += sum(cost.pages for cost in costs)
                entries += sum(cost.entries for cost in costs)
            if pages > sizes.many_pages or entries > sizes.many_entries:
                return True
        return False

    def _match_in_turn(self, segments: Sequence[OpenedSegment]) -> Asking[list[SegmentMatches]]:
        """Match with the pages of one segment in memory at a time, and a window of pages for a
        comparison that reads many."""
        found = yield from self.match_each(segments)
        pairs = zip(segments, found, strict=True)
        live = (
            SegmentMatches(opened, matches.without(self.space.snapshot.dead_rows(opened.segment)))
            for opened, matches in pairs
        )
        return [segment for segment in live if segment.matches.possible]

    def _decide_tests(self, answers: list[SegmentMatches]) -> Asking[list[SegmentMatches]]:
        """The matches, after opening the long strings that the tests could not decide."""
        condition = self.condition
        unsure = {
            answer.segment: answer.matches.possible - answer.matches.certain
            for answer in answers
            if len(answer.matches.possible) > len(answer.matches.certain)
        }
        if unsure:
            yield from self.want_texts(unsure)
        if not condition.known.wanted:
            return answers
        yield from learn_texts(self.space, condition.known)
        for segment in unsure:
            for test in condition.text_tests:
                # More of the segment's texts are known now.
                condition.memo(segment).forget(test)
        decided = yield from self._match_all(list(unsure), many=True)
        return [answer for answer in answers if answer.segment not in unsure] + decided

    def _match_live(
        self, segments: Sequence[OpenedSegment], entries: int = 0, first: int | None = None
    ) -> list[SegmentMatches]:
        """
        Args:
            entries: the number of entries that comparisons read in all segments.
        """
        answers: list[SegmentMatches] = []
        for segment in segments:
            dead = self.space.snapshot.dead_rows(segment.segment)
            live = None if first is None else self._match_first(segment, dead, entries, first)
            if live is None:
                live = self.condition.match(segment).without(dead)
            if live.possible:
                answers.append(SegmentMatches(segment, live))
        return answers

    def _match_first(
        self, segment: OpenedSegment, dead: BitMap, entries: int, enough: int
    ) -> Matches | None:
        """The matches of a segment that were stored first, at least ``enough`` unless they are all;
        None if they cannot be found separately."""
        figures = OldestFigures(
            entries,
            self.space.sizes.work.on_loop,
            self.condition.is_exact,
            self.space.snapshot.places(segment.segment).is_in_order,
        )
        if choose(OLDEST, figures) is Way.SET:
            return None
        found = match_first(self.condition, segment, self.space.sizes.prefix_rows)
        if found is None:
            return None
        live = found.rows - dead
        return Matches.exactly(live) if found.is_all or len(live) >= enough else None

    def match_each(self, segments: Sequence[OpenedSegment]) -> Asking[list[Matches]]:
        """The matching rows of each segment, including dead rows as for :meth:`Condition.match`,
        one segment after the other.

        Raises:
            DoesNotOpen: a page or a column does not open.
        """
        found: list[Matches] = []
        values = self.condition.values * self.space.sizes.work.a_value
        yield Work("resolve", sum(segment.segment.count + values for segment in segments))
        for segment in segments:
            with scope(segment):
                found.append((yield from self._find(segment)))
        return found

    def test(self, segments: Sequence[OpenedSegment]) -> Asking[None]:
        """Find the rows that pass the condition's tests, which :meth:`Condition.match` then knows.

        Raises:
            DoesNotOpen: a page or a column does not open, or a key is not a text.
        """
        yield self._testing(segments)
        for segment in segments:
            with scope(segment):
                yield from self._test(segment)
                yield from bring_pages(segment, self.condition.missing_to_test)
                self.condition.settle(segment)
                yield from self._count_larger(segment)

    def count_tested(self, segments: Sequence[OpenedSegment]) -> Asking[list[int | None]]:
        """:meth:`Condition.count` of each segment, of a condition that tests columns.

        Raises:
            DoesNotOpen: as :meth:`test`.
        """
        counts: list[int | None] = []
        yield self._testing(segments)
        for segment in segments:
            with scope(segment):
                yield from self._test(segment)
                counts.append(self.condition.count(segment))
                yield from self._count_larger(segment)
        return counts

    def want_texts(self, unsure: Mapping[OpenedSegment, BitMap]) -> Asking[None]:
        """Request the long strings that decide whether these rows pass the condition's tests.

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
        # Small segments together: each of hundreds would otherwise run on the event loop.
        return Work(
            "scan",
            sum(segment.segment.count for segment in segments) * self.space.sizes.work.a_text,
        )

    def _find(self, segment: OpenedSegment) -> Asking[Matches]:
        condition = self.condition
        if condition.excludes(segment):
            return condition.match(segment)
        memo = condition.memo(segment)
        read: list[LeafOperator] = []
        if isinstance(segment, LoadedSegment):
            yield Need(segment, directories=tuple(condition.columns))
            for leaf in condition.leaves:
                if leaf.number not in memo.found and self._is_wide(segment, leaf):
                    memo.found[leaf.number] = yield from self._read(segment, leaf)
                    read.append(leaf)
        yield from bring_pages(segment, condition.missing)
        found = condition.match(segment)
        for leaf in read:
            memo.forget(leaf)
        return found

    def _is_wide(self, segment: LoadedSegment, leaf: LeafOperator) -> bool:
        if not leaf.in_windows:
            return False
        figures = comparison_figures(leaf, segment, self.space.sizes)
        return choose(COMPARISON, figures) is not Way.AT_ONCE

    def _read(self, segment: LoadedSegment, leaf: LeafOperator) -> Asking[Matches]:
        """The rows of a comparison that reads many pages."""
        field = leaf.field
        with scope(segment):
            yield from bring_kept(segment, field)
            figures = comparison_figures(
                leaf,
                segment,
                self.space.sizes,
                is_kept=field in segment.columns,
                keeps=self.by_row,
            )
            if choose(COMPARISON, figures) is Way.BY_ROW:
                yield from bring_by_row(segment, field, self.limits)
            return (yield from ask_for(segment, leaf.read(segment, self.limits)))

    def _test(self, segment: OpenedSegment) -> Asking[None]:
        condition, go_on = self.condition, self.space.go_on
        yield from self._bring_tested(segment)
        memo = condition.memo(segment)
        by_field: dict[str, list[TestLeaf]] = {}
        for test in condition.untested(segment):
            if needs_whole(segment, test.field):
                by_field.setdefault(test.field, []).append(test)
        for tests in by_field.values():
            assert isinstance(segment, LoadedSegment)
            reading = read_tests(segment, tests, go_on, self.limits)
            found = yield from ask_for(segment, reading)
            memo.found |= {test.number: rows for test, rows in zip(tests, found, strict=True)}
        for test in condition.untested(segment):
            test.scan(segment, memo, go_on)

    def _bring_tested(self, segment: OpenedSegment) -> Asking[None]:
        """Load columns with their keys, if these can probably be kept."""
        if not isinstance(segment, LoadedSegment):
            return
        names = sorted(self.condition.to_scan(segment))
        yield Need(segment, directories=tuple(names))
        for name in names:
            if needs_whole(segment, name):
                yield from self._bring_keys(segment, name)

    def _bring_keys(self, segment: LoadedSegment, field: str) -> Asking[None]:
        yield from bring_kept(segment, field)
        pages = len(segment.directories[field].ends)
        figures = TestFigures(field in segment.columns, pages, self.limits.few)
        way = choose(TEST, figures)
        if way is Way.SAMPLE:
            fits = yield from ask_for(segment, fits_by_row(segment, field, self.limits))
            way = choose(TEST, replace(figures, fits=fits))
        if way is Way.AT_ONCE:
            yield Need(segment, pages=frozenset(segment.missing_columns([field])))
            segment.dictionary(field)
        elif way is Way.BY_ROW:
            yield from bring_by_row(segment, field, self.limits)

    def _count_larger(self, segment: OpenedSegment) -> Asking[None]:
        """Update the size of kept columns, which grew when their texts were tested."""
        if isinstance(segment, LoadedSegment):
            for name in sorted(self.condition.to_scan(segment) & segment.columns.keys()):
                if segment.has_keys(name):
                    yield Keep(segment, name, segment.columns[name])

    def _want(self, segment: OpenedSegment, rows: BitMap, places: GroupPlaces) -> Asking[None]:
        condition = self.condition
        yield from self._bring_tested(segment)
        memo = condition.memo(segment)
        for name in sorted(condition.to_scan(segment)):
            tests = [text_test for text_test in condition.text_tests if text_test.field == name]
            if isinstance(segment, LoadedSegment) and needs_whole(segment, name):
                if tests:  # otherwise only values of a semi-join are looked up
                    reading = read_undecided(segment, tests, rows, places, self.limits)
                    yield from ask_for(segment, reading)
                continue
            yield from bring_pages(segment, partial(missing_to_want, tests, memo))
            for test in tests:
                test.want(segment, memo, rows, places)

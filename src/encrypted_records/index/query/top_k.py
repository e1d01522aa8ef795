"""The first rows of a sorted answer, from a few pages if these are sufficient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from encrypted_records.index.columns.dictionary import Dictionary
from encrypted_records.index.ordinals import bitmap, ordinals
from encrypted_records.index.query.asking import (
    Asking,
    Work,
    Workspace,
    bring_columns,
    bring_together,
)
from encrypted_records.index.query.candidates import Candidates, Matches, learn_texts
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.key_sets import Texts
from encrypted_records.index.query.matching import Matching, SegmentMatches
from encrypted_records.index.query.narrowing import Best, NarrowRequest, Threshold, narrow
from encrypted_records.index.query.segment_filters import (
    FilterPlan,
    SegmentFilter,
    UnreadSegment,
    in_batches,
    open_filters,
    ranked_fields,
)
from encrypted_records.index.query.sort import SortedRows, SortPosition, first
from encrypted_records.index.query.sorted_scan import ScanRequest, ScanResult, SortedScan, Start
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment, scope
from encrypted_records.model.queries import Query


def take_first(
    space: Workspace,
    query: Query,
    condition: Condition,
    answers: Sequence[SegmentMatches | UnreadSegment],
    texts: Texts,
    *,
    want: int,
    after: SortPosition | None = None,
    ranked: bool = False,
) -> Asking[SortedRows]:
    """The first ``want`` candidates after ``after``, in the order of the query.

    Args:
        ranked: as for :class:`Rows`, for long strings that are opened.

    Raises:
        InvalidQuery: ``too_many_long``.
        DoesNotOpen: a page or a column does not open.
    """
    with scope(*(answer.segment for answer in answers)):
        parts = yield from _scan_sorted(space, query, condition, answers, want=want, after=after)
        while True:
            yield Work("order", sum(map(len, parts)) * space.sizes.work.a_row)
            page = first(parts, query.order, texts, want=want, after=after)
            if page is not None:
                return page
            yield from learn_texts(space, texts, ranked=ranked)


def _scan_sorted(
    space: Workspace,
    query: Query,
    condition: Condition,
    answers: Sequence[SegmentMatches | UnreadSegment],
    *,
    want: int,
    after: SortPosition | None,
) -> Asking[list[Candidates]]:
    """All rows that can be among the first ``want`` after ``after``, with the sort fields. With few
    rows, the needed columns are loaded into their segments.
    """
    sought = _FirstRowsSearch(
        space,
        query,
        condition,
        FilterPlan.of(condition, query.order[0].field),
        want,
        after,
        Threshold(query.order, want),
    )
    unread = [answer for answer in answers if isinstance(answer, UnreadSegment)]
    parts = yield from sought.of_unread(unread)
    matches = [
        answer
        for answer in answers
        if isinstance(answer, SegmentMatches) and answer.matches.possible
    ]
    large = bool(unread) or sum(part.segment.count for part in matches) > space.sizes.few_rows
    return parts + (yield from sought.of_matches(matches, large=large))


@dataclass(frozen=True, slots=True)
class _FirstRowsSearch:
    """The first rows of segments: for each large segment only the few that can be among them, with
    the sort fields, so that no segment's columns stay in memory."""

    space: Workspace
    query: Query
    condition: Condition
    filters: FilterPlan
    want: int
    after: SortPosition | None
    threshold: Threshold

    def of_matches(
        self, answers: Sequence[SegmentMatches], *, large: bool
    ) -> Asking[list[Candidates]]:
        scans = {
            answer.uid: self._scan(
                answer.segment, answer.matches.possible.__and__, len(answer.matches.possible)
            )
            for answer in answers
        }
        segments = [answer.segment for answer in answers]
        if large:
            with scope(*segments):
                yield from self._fill(segments, scans)
                parts: list[Candidates] = []
                for answer in answers:
                    parts.append((yield from self._of_segment(answer, scans[answer.uid])))
                return parts
        yield from self._fill(segments, scans)
        outermost, *others = self.query.order
        yield from bring_columns(segments, [other.field for other in others], self.space.sizes)
        unscanned = [answer.segment for answer in answers if scans[answer.uid].result() is None]
        yield from bring_columns(unscanned, [outermost.field], self.space.sizes)
        return [
            _candidates(self.space, answer, outermost.field, scans[answer.uid])
            for answer in answers
        ]

    def of_unread(self, unread: Sequence[UnreadSegment]) -> Asking[list[Candidates]]:
        """The first rows of unread segments, by their best values: first a single segment, then
        twice as many each time. The first segments may have all wanted rows; segments that are
        ruled out meanwhile are skipped."""
        best = {segment.uid: self._best(segment.segment) for segment in unread}
        by_uid = {segment.uid: segment for segment in unread}
        left = [by_uid[uid] for uid in self.threshold.in_order(best)]
        parts: list[Candidates] = []
        rows, most = 0, 1
        while left:
            batch, left = left[:most], left[most:]
            rows += sum(segment.segment.covered for segment in batch)
            most *= 2
            stays = self.space.keeps_columns(rows, len(self.condition.columns))
            parts += yield from self._of_segments(batch, stays=stays)
            left = [segment for segment in left if not self.threshold.excludes(best[segment.uid])]
        return parts

    def _of_segments(
        self, unread: Sequence[UnreadSegment], *, stays: bool
    ) -> Asking[list[Candidates]]:
        """
        Args:
            stays: as for :meth:`FilterPlan.filter`.
        """
        yield Work("fetch_pages")
        filters: list[SegmentFilter] = []
        others: list[UnreadSegment] = []
        for segment in unread:
            found = self.filters.filter(self.space, segment, stays=stays)
            if found is None:
                others.append(segment)
            else:
                filters.append(found)
        parts: list[Candidates] = []
        for batch in in_batches(filters, self.space.sizes.batch_bytes):
            matched, left = yield from self._of_filters(batch)
            parts += matched
            others += left
        if others:
            later = {other.uid: other.later for other in others}
            among = [other.segment.segment for other in others]
            answers = yield from Matching(self.space, self.condition).find(among)
            found_in = [answer.without(later[answer.uid]) for answer in answers]
            possible = [segment for segment in found_in if segment.matches.possible]
            parts += yield from self.of_matches(possible, large=True)
        return parts

    def _of_filters(
        self, filters: Sequence[SegmentFilter]
    ) -> Asking[tuple[list[Candidates], list[UnreadSegment]]]:
        """The first rows, and the segments in which a scan does not find them quickly."""
        opened = yield from open_filters(self.space, filters)
        scans = {
            uid: self._scan(
                source.segment, opened[uid].of, opened[uid].estimate(source.segment.count)
            )
            for uid, source in ((opened.uid, opened) for opened in filters)
        }
        parts: list[Candidates] = []
        left: list[UnreadSegment] = []
        segments = [opened.segment for opened in filters]
        with scope(*segments):
            yield from self._fill(segments, scans)
            for filtered in filters:
                segment, result = filtered.segment, scans[filtered.uid].result()
                if result is None:
                    left.append(UnreadSegment(segment, filtered.later))
                    continue
                self.space.counted.certain += len(result.rows)
                rows = self.threshold.left(result.rows, result.dictionary, self._best(segment))
                if rows:
                    parts.append((yield from self._take(segment, rows, result)))
        return parts, left

    def _best(self, segment: LoadedSegment) -> Best:
        names = ranked_fields(self.query.order)
        directories = segment.directories
        return self.threshold.best(
            [directories[name] if segment.has_column(name) else None for name in names]
        )

    def _take(self, segment: LoadedSegment, rows: BitMap, result: ScanResult) -> Asking[Candidates]:
        """The rows among ``rows`` that can be among the first; the threshold learns them."""
        names = [term.field for term in self.query.order]
        if len(names) > 1:
            part = yield from self._narrow(segment, Matches.exactly(rows), result)
        else:
            known = {names[0]: result.dictionary}
            part = Candidates.of(segment, Matches.exactly(rows), self.space.snapshot, known)
        self._learn(part)
        return part

    def _learn(self, part: Candidates) -> None:
        """Add rows to the threshold that match and certainly come after the previous page."""
        fields = [part.dictionary(term.field) for term in self.query.order]
        rows = part.matches.certain
        if self.after is not None:
            # Some long strings with the prefix of the previous page's last string sort before it.
            if any(field.long for field in fields):
                return
            # In an order by a single field, so do some equal rows.
            if len(fields) == 1:
                rows = _unlike(rows, fields[0], self.after.keys[0])
        self.threshold.add(rows, fields)

    def _scan(
        self, segment: OpenedSegment, among: Callable[[BitMap], BitMap], count: int
    ) -> SortedScan:
        outermost, *others = self.query.order
        after = self.after
        request = ScanRequest(
            order=outermost,
            among=among,
            count=count,
            want=self.want,
            start=Start(after.keys[0], after.position) if after else None,
            key_range=self.condition.sort_range(outermost.field),
            alone=not others,
            places=self.space.snapshot.places(segment.segment),
        )
        return SortedScan(segment, request, self.space.sizes.scan)

    def _fill(
        self, segments: Sequence[OpenedSegment], scans: Mapping[bytes, SortedScan]
    ) -> Asking[None]:
        yield Work("fetch_pages")
        yield from bring_together(
            segments, lambda segment: scans[segment.segment.uid].missing_pages()
        )

    def _of_segment(self, answer: SegmentMatches, scan: SortedScan) -> Asking[Candidates]:
        segment, result = answer.segment, scan.result()
        outermost, *others = self.query.order
        if not isinstance(segment, LoadedSegment):
            return _candidates(self.space, answer, outermost.field, scan)
        if result is not None and not others:
            part = _candidates(self.space, answer, outermost.field, scan)
        else:
            part = yield from self._narrow(segment, answer.matches, result)
        self._learn(part)
        return part

    def _narrow(
        self, segment: LoadedSegment, matches: Matches, result: ScanResult | None
    ) -> Asking[Candidates]:
        request = NarrowRequest(
            order=self.query.order,
            among=matches.possible if result is None else matches.possible & result.rows,
            want=self.want,
            after=self.after,
            places=self.space.snapshot.places(segment.segment),
            dictionaries={self.query.order[0].field: result.dictionary} if result else {},
        )
        with scope(segment):
            found = yield from narrow(segment, request, self.space.sizes.reading)
        left = Matches(matches.certain & found.rows, found.rows)
        return Candidates.of(segment, left, self.space.snapshot, found.dictionaries)


def _unlike(rows: BitMap, field: Dictionary, key: int | bytes | None) -> BitMap:
    """The rows with another key of a field."""
    code = 0
    if key is not None:
        same = np.flatnonzero(field.keys == field.keys.dtype.type(key))
        code = 1 + int(same[0]) if len(same) else -1
    row_ordinals = ordinals(rows)
    return bitmap(row_ordinals[field.codes_of(row_ordinals) != code])


def _candidates(
    space: Workspace, answer: SegmentMatches, field: str, scan: SortedScan
) -> Candidates:
    result = scan.result()
    if result is None:
        return Candidates.of(answer.segment, answer.matches, space.snapshot)
    first = Matches(answer.matches.certain & result.rows, result.rows)
    return Candidates.of(answer.segment, first, space.snapshot, {field: result.dictionary})

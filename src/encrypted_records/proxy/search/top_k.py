"""Fetch what it takes to sort the first rows of an answer: a few pages where these suffice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from encrypted_records.index.columns.dictionary import Dictionary
from encrypted_records.index.ordinals import bitmap, ordinals
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.matches import Matches
from encrypted_records.index.query.narrowing import NarrowRequest, narrow
from encrypted_records.index.query.plan import Plan
from encrypted_records.index.query.sort import SortPosition
from encrypted_records.index.query.sorted_scan import Result, ScanRequest, SortedScan, Start
from encrypted_records.index.query.thresholds import Best, Threshold
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment, scope
from encrypted_records.model.queries import Query
from encrypted_records.proxy.search.context import QueryContext
from encrypted_records.proxy.search.match import SegmentMatches, fill_columns, resolve
from encrypted_records.proxy.search.segment_filters import (
    FilterPlan,
    SegmentFilter,
    UnreadSegment,
    in_batches,
    open_filters,
    ranked_fields,
)


async def scan_sorted(
    context: QueryContext,
    query: Query,
    plan: Plan,
    answers: Sequence[SegmentMatches | UnreadSegment],
    *,
    want: int,
    after: SortPosition | None,
) -> list[Candidates]:
    """All rows that can be among the first ``want`` after ``after``, with the fields to sort by. Of
    few rows, columns come into their segments that tell these.

    Raises:
        Moved, DoesNotOpen, NotFound: as :meth:`QueryContext.fill`.
    """
    first = _First(
        context,
        query,
        plan,
        FilterPlan.of(plan, query.order[0].field),
        want,
        after,
        Threshold(query.order, want),
    )
    unread = [one for one in answers if isinstance(one, UnreadSegment)]
    parts = await first.of_unread(unread)
    whole = [one for one in answers if isinstance(one, SegmentMatches) and one.matches.possible]
    large = bool(unread) or sum(one.segment.count for one in whole) > context.sizes.few_rows
    return parts + await first.of_matches(whole, large=large)


@dataclass(frozen=True, slots=True)
class _First:
    """The first rows of segments: of each large one the few that can be among them, with the fields
    to sort by, so that no segment's columns stay."""

    context: QueryContext
    query: Query
    plan: Plan
    filters: FilterPlan
    want: int
    after: SortPosition | None
    threshold: Threshold

    async def of_matches(
        self, answers: Sequence[SegmentMatches], *, large: bool
    ) -> list[Candidates]:
        scans = {
            one.uid: self._scan(
                one.segment, one.matches.possible.__and__, len(one.matches.possible)
            )
            for one in answers
        }
        context, segments = self.context, [one.segment for one in answers]
        if large:
            with scope(*segments):
                await self._fill(segments, scans)
                return [await self._of_segment(one, scans[one.uid]) for one in answers]
        await self._fill(segments, scans)
        outermost, *others = self.query.order
        await fill_columns(context, segments, [one.field for one in others])
        whole = [one.segment for one in answers if scans[one.uid].result() is None]
        await fill_columns(context, whole, [outermost.field])
        return [_candidates(context, one, outermost.field, scans[one.uid]) for one in answers]

    async def of_unread(self, unread: Sequence[UnreadSegment]) -> list[Candidates]:
        """Segments by their best values: first one, then twice as many each time. The first ones
        may have all rows that are wanted, and those that are ruled out meanwhile are left out."""
        best = {one.uid: self._best(one.segment) for one in unread}
        left = self.threshold.in_order(unread, lambda one: best[one.uid])
        parts: list[Candidates] = []
        rows, most = 0, 1
        while left:
            some, left = left[:most], left[most:]
            rows += sum(one.segment.covered for one in some)
            most *= 2
            stays = self.context.fetcher.keeps_columns(rows, len(self.plan.columns))
            parts += await self._of_some(some, stays=stays)
            left = [one for one in left if not self.threshold.excludes(best[one.uid])]
        return parts

    async def _of_some(self, unread: Sequence[UnreadSegment], *, stays: bool) -> list[Candidates]:
        """
        Args:
            stays: as for :meth:`FilterPlan.filter`.
        """
        filters: list[SegmentFilter] = []
        others: list[UnreadSegment] = []
        for one in unread:
            found = self.filters.filter(self.context, one, stays=stays)
            if found is None:
                others.append(one)
            else:
                filters.append(found)
        parts: list[Candidates] = []
        for some in in_batches(filters, self.context.sizes.held):
            own, left = await self._of_filters(some)
            parts += own
            others += left
        if others:
            later = {one.uid: one.later for one in others}
            among = [one.segment.segment for one in others]
            answers = await resolve(self.context, self.plan, among)
            found_in = [one.without(later[one.uid]) for one in answers]
            possible = [one for one in found_in if one.matches.possible]
            parts += await self.of_matches(possible, large=True)
        return parts

    async def _of_filters(
        self, filters: Sequence[SegmentFilter]
    ) -> tuple[list[Candidates], list[UnreadSegment]]:
        """The first rows, and the segments of which a scan does not find them soon."""
        opened = await open_filters(self.context, filters)
        scans = {
            uid: self._scan(one.segment, opened[uid].of, opened[uid].estimate(one.segment.count))
            for uid, one in ((one.uid, one) for one in filters)
        }
        parts: list[Candidates] = []
        left: list[UnreadSegment] = []
        segments = [one.segment for one in filters]
        with scope(*segments):
            await self._fill(segments, scans)
            for one in filters:
                segment, result = one.segment, scans[one.uid].result()
                if result is None:
                    left.append(UnreadSegment(segment, one.later))
                    continue
                self.context.stats.certain += len(result.rows)
                rows = self.threshold.left(result.rows, result.dictionary, self._best(segment))
                if rows:
                    parts.append(await self._take(segment, rows, result))
        return parts, left

    def _best(self, segment: PagedSegment) -> Best:
        names = ranked_fields(self.query.order)
        held = segment.directories
        return self.threshold.best(
            [held[name] if segment.has_column(name) else None for name in names]
        )

    async def _take(self, segment: PagedSegment, rows: BitMap, result: Result) -> Candidates:
        """Those of some rows that can be among the first."""
        names = [one.field for one in self.query.order]
        if len(names) > 1:
            part = await self._narrow(segment, Matches.exactly(rows), result)
        else:
            known = {names[0]: result.dictionary}
            part = Candidates.of(segment, Matches.exactly(rows), self.context.snapshot, known)
        self._learn(part)
        return part

    def _learn(self, part: Candidates) -> None:
        """Tell the threshold of rows that match and surely come after the page before."""
        fields = [part.dictionary(one.field) for one in self.query.order]
        rows = part.matches.certain
        if self.after is not None:
            # Of long strings that begin as one of the page before, some are before it.
            if any(one.long for one in fields):
                return
            # Of one field, so are some that are equal.
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
            key_range=self.plan.sort_range(outermost.field),
            alone=not others,
            places=self.context.snapshot.places(segment.segment),
        )
        return SortedScan(segment, request, self.context.sizes.scan)

    async def _fill(
        self, segments: Sequence[OpenedSegment], scans: Mapping[bytes, SortedScan]
    ) -> None:
        with self.context.stats.stage("fetch_pages"):
            await self.context.fill(
                segments, lambda segment: scans[segment.segment.uid].missing_pages()
            )

    async def _of_segment(self, answer: SegmentMatches, scan: SortedScan) -> Candidates:
        segment, result = answer.segment, scan.result()
        outermost, *others = self.query.order
        if not isinstance(segment, PagedSegment):
            return _candidates(self.context, answer, outermost.field, scan)
        if result is not None and not others:
            part = _candidates(self.context, answer, outermost.field, scan)
        else:
            part = await self._narrow(segment, answer.matches, result)
        self._learn(part)
        return part

    async def _narrow(
        self, segment: PagedSegment, matches: Matches, result: Result | None
    ) -> Candidates:
        request = NarrowRequest(
            order=self.query.order,
            among=matches.possible if result is None else matches.possible & result.rows,
            want=self.want,
            after=self.after,
            places=self.context.snapshot.places(segment.segment),
            dictionaries={self.query.order[0].field: result.dictionary} if result else {},
        )
        with scope(segment):
            found = await self.context.run(narrow(segment, request, self.context.sizes.reading))
        left = Matches(matches.certain & found.rows, found.rows)
        return Candidates.of(segment, left, self.context.snapshot, found.dictionaries)


def _unlike(rows: BitMap, field: Dictionary, key: int | bytes | None) -> BitMap:
    """The rows that have another key of a field."""
    code = 0
    if key is not None:
        same = np.flatnonzero(field.keys == field.keys.dtype.type(key))
        code = 1 + int(same[0]) if len(same) else -1
    every = ordinals(rows)
    return bitmap(every[field.codes_of(every) != code])


def _candidates(
    context: QueryContext, answer: SegmentMatches, field: str, scan: SortedScan
) -> Candidates:
    result = scan.result()
    if result is None:
        return Candidates.of(answer.segment, answer.matches, context.snapshot)
    first = Matches(answer.matches.certain & result.rows, result.rows)
    return Candidates.of(answer.segment, first, context.snapshot, {field: result.dictionary})

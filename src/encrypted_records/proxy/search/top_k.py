"""Fetch what it takes to sort the first rows of an answer: a few pages where these suffice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.matches import Matches
from encrypted_records.index.query.narrowing import NarrowRequest, narrow
from encrypted_records.index.query.plan import Plan
from encrypted_records.index.query.sort import SortPosition
from encrypted_records.index.query.sorted_scan import ScanRequest, SortedScan, Start
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment
from encrypted_records.model.queries import Query
from encrypted_records.proxy.process.offload import MANY_ROWS, Run, aside
from encrypted_records.proxy.search.context import QueryContext
from encrypted_records.proxy.search.match import SegmentMatches, fill_columns


async def scan_sorted(
    context: QueryContext,
    query: Query,
    plan: Plan,
    answers: Sequence[SegmentMatches],
    *,
    want: int,
    after: SortPosition | None,
) -> list[Candidates]:
    """All rows that can be among the first ``want`` after ``after``, with the fields to sort by.

    Raises:
        Moved, DoesNotOpen, NotFound: as :meth:`QueryContext.fill`.
    """
    answers = [one for one in answers if one.matches.possible]
    outermost, *others = query.order
    start = Start(after.keys[0], after.position) if after else None
    scans = {
        one.uid: SortedScan(
            one.segment,
            ScanRequest(
                order=outermost,
                among=one.matches.possible,
                want=want,
                start=start,
                key_range=plan.sort_range(outermost.field),
                alone=not others,
                places=context.snapshot.places(one.segment.segment),
            ),
        )
        for one in answers
    }

    def missing(segment: OpenedSegment) -> set[int]:
        return scans[segment.segment.uid].missing_pages()

    with context.stats.stage("fetch_pages"):
        await context.fill([one.segment for one in answers], missing)
    if sum(one.segment.count for one in answers) > context.sizes.few_rows:
        first = _First(context, query, want, after)
        return [await first.of_segment(one, scans[one.uid]) for one in answers]
    await fill_columns(context, [one.segment for one in answers], [one.field for one in others])
    whole = [one.segment for one in answers if scans[one.uid].result() is None]
    await fill_columns(context, whole, [outermost.field])
    return [_candidates(context, one, outermost.field, scans[one.uid]) for one in answers]


@dataclass(frozen=True, slots=True)
class _First:
    """The first rows of large segments: of each the few that can be among them, with the fields to
    sort by, so that no segment's columns stay."""

    context: QueryContext
    query: Query
    want: int
    after: SortPosition | None

    async def of_segment(self, answer: SegmentMatches, scan: SortedScan) -> Candidates:
        segment, result = answer.segment, scan.result()
        outermost, *others = self.query.order
        if not isinstance(segment, PagedSegment) or (result is not None and not others):
            return _candidates(self.context, answer, outermost.field, scan)
        request = NarrowRequest(
            order=self.query.order,
            among=answer.matches.possible if result is None else result.rows,
            want=self.want,
            after=self.after,
            places=self.context.snapshot.places(segment.segment),
            dictionaries={} if result is None else {outermost.field: result.dictionary},
        )
        run: Run = aside if len(request.among) > MANY_ROWS else asyncio.to_thread
        found = await self.context.answer(narrow(segment, request, self.context.sizes.reading), run)
        segment.columns.clear()
        left = Matches(answer.matches.certain & found.rows, found.rows)
        return Candidates.of(segment, left, self.context.snapshot, found.dictionaries)


def _candidates(
    context: QueryContext, answer: SegmentMatches, field: str, scan: SortedScan
) -> Candidates:
    result = scan.result()
    if result is None:
        return Candidates.of(answer.segment, answer.matches, context.snapshot)
    first = Matches(answer.matches.certain & result.rows, result.rows)
    return Candidates.of(answer.segment, first, context.snapshot, {field: result.dictionary})

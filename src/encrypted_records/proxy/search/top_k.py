"""Fetch what it takes to sort the first rows of an answer: a few pages where these suffice."""

from __future__ import annotations

from collections.abc import Sequence

from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.matches import Matches
from encrypted_records.index.query.plan import Plan
from encrypted_records.index.query.sort import SortPosition
from encrypted_records.index.query.sorted_scan import ScanRequest, SortedScan, Start
from encrypted_records.index.segments.paged import OpenedSegment
from encrypted_records.model.queries import Query
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
    await fill_columns(context, [one.segment for one in answers], [one.field for one in others])
    whole = [one.segment for one in answers if scans[one.uid].result() is None]
    await fill_columns(context, whole, [outermost.field])
    return [_candidates(context, one, outermost.field, scans[one.uid]) for one in answers]


def _candidates(
    context: QueryContext, answer: SegmentMatches, field: str, scan: SortedScan
) -> Candidates:
    result = scan.result()
    if result is None:
        return Candidates.of(answer.segment, answer.matches, context.snapshot)
    first = Matches(answer.matches.certain & result.rows, result.rows)
    return Candidates.of(answer.segment, first, context.snapshot, {field: result.dictionary})

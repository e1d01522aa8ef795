"""How many records match: from directories where they tell it, and without the set of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyroaring import BitMap

from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.matches import Matches
from encrypted_records.index.query.plan import Plan
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment, scope
from encrypted_records.model.predicates import (
    Absent,
    And,
    ColumnTest,
    Everything,
    Not,
    Or,
    Predicate,
    only_leaf,
)
from encrypted_records.model.records import RowRef, Segment
from encrypted_records.proxy.process.offload import aside
from encrypted_records.proxy.search.context import QueryContext
from encrypted_records.proxy.search.match import (
    BATCH,
    LOOKUPS,
    SegmentMatches,
    check_records,
    matching,
    open_rows,
    resolve,
)
from encrypted_records.proxy.search.row_fetcher import MOST_OPENED
from encrypted_records.proxy.search.segment_filters import comes_by_row, open_column


async def count_matches(context: QueryContext, plan: Plan) -> int | None:
    """How many records match, where directories give it: for one comparison or its negation, and of
    many records for several comparisons of which each segment leaves one open at most, but for a
    few segments. Of segments with dead rows, these are looked up. Else None.

    Raises:
        Moved, DoesNotOpen, NotFound: as :meth:`QueryContext.fill`.
    """
    snapshot = context.snapshot
    if isinstance(plan.predicate, And):
        return await _count_ranges(context, plan, plan.predicate.parts)
    if not _is_counted(plan):
        return None
    if isinstance(plan.predicate, Everything):
        context.stats.certain = snapshot.count
        return snapshot.count
    dying = {one.uid for one in snapshot.segments if _dead_in(snapshot, one)}
    many = bool(plan.tests) or plan.values * len(snapshot.segments) > LOOKUPS
    if plan.tests:
        if dying:
            return None
        with context.stats.stage("fetch_pages"):
            segments = await context.open()
            await context.fill(segments, plan.missing_to_scan, many=many)
        with matching(context, plan) as work:
            count = _sum_up(await context.run(work.count_tested(segments)))
    else:

        def missing(segment: OpenedSegment) -> set[int]:
            is_dying = segment.segment.uid in dying
            return plan.missing_to_find(segment) if is_dying else plan.missing_to_count(segment)

        with context.stats.stage("fetch_pages"):
            segments = await context.open()
        whole = [one for one in segments if one.segment.uid not in dying]
        left = [one for one in segments if one.segment.uid in dying]
        with scope(*segments):
            with context.stats.stage("fetch_pages"):
                await context.fill(segments, missing, many=many)
            count = await _count(plan, whole, many=many)
        if count is not None and left:
            count += await _count_living(context, plan, left)
    context.stats.certain = count or 0
    return count


async def _count_ranges(
    context: QueryContext, plan: Plan, parts: Sequence[Predicate]
) -> int | None:
    """How many records match all of some comparisons that keys decide; None where that is no
    shorter than to match them.

    Of a range of what grows with time, most segments have all of their rows or none: what is left
    to count of these is one comparison.
    """
    leaves = [one for one in parts if not isinstance(one, Everything | And | Or | Not)]
    exact = len(leaves) == len(parts) and all(map(plan.is_exact, leaves))
    every = sum(segment.count for segment in context.snapshot.segments)
    if not exact or every <= context.sizes.few_rows:
        return None
    with context.stats.stage("fetch_pages"):
        segments = await context.open()
        await context.fill(segments, plan.missing_to_find)
    count = 0
    of_one: dict[int, list[OpenedSegment]] = {}
    left: list[Segment] = []
    for segment in segments:
        if plan.excludes(segment):
            continue
        unsure = [leaf for leaf in leaves if not plan.holds_all(segment, leaf)]
        if not unsure:
            own = segment.segment
            count += own.count - _dead_in(context.snapshot, own)
        elif len(unsure) == 1:
            of_one.setdefault(leaves.index(unsure[0]), []).append(segment)
        else:
            left.append(segment.segment)
    for at, some in of_one.items():
        count += await _count_one(context, replace(plan, predicate=leaves[at]), some)
    answers = await resolve(context, plan, left) if left else []
    count += sum(len(one.matches.certain) for one in answers)
    context.stats.certain = count
    return count


async def _count_one(context: QueryContext, plan: Plan, segments: Sequence[OpenedSegment]) -> int:
    """How many records of some segments fulfil one comparison that keys decide. Directories are
    here."""
    dying = [one for one in segments if _dead_in(context.snapshot, one.segment)]
    whole = [one for one in segments if one not in dying]
    with scope(*whole):
        with context.stats.stage("fetch_pages"):
            await context.fill(whole, plan.missing_to_count)
        count = await _count(plan, whole, many=plan.values * len(whole) > LOOKUPS)
    assert count is not None
    return count + await _count_living(context, plan, dying)


def _is_counted(plan: Plan) -> bool:
    """Whether a plan is of the kind that needs no set of rows."""
    if isinstance(plan.predicate, Or):
        return False
    leaf, _ = only_leaf(plan.predicate)
    if leaf is None or isinstance(leaf, Absent | ColumnTest):
        return id(leaf) not in plan.words
    return plan.is_exact(leaf)


def _dead_in(snapshot: Snapshot, segment: Segment) -> int:
    """How many of the rows that a segment indexes are dead."""
    return len(snapshot.dead_rows(segment)) - segment.purged


async def _count(plan: Plan, segments: Sequence[OpenedSegment], *, many: bool) -> int | None:
    def counts_of() -> list[int | None]:
        return [plan.count(segment) for segment in segments]

    return _sum_up(await aside(counts_of) if many else counts_of())


def _sum_up(counts: Sequence[int | None]) -> int | None:
    known = [one for one in counts if one is not None]
    return sum(known) if len(known) == len(counts) else None


async def _count_living(
    context: QueryContext, plan: Plan, segments: Sequence[OpenedSegment]
) -> int:
    """The rows that match and live of segments of which some rows are dead. Directories are here.

    Where a large share of a column would be read for the set of all rows that match, the dead ones
    alone are looked up in it.
    """
    leaf, negated = only_leaf(plan.predicate)
    assert leaf is not None
    alone = replace(plan, predicate=leaf)
    count = 0
    left: list[Segment] = []
    for segment in segments:
        if plan.excludes(segment):
            continue
        if not (isinstance(segment, PagedSegment) and comes_by_row(context, alone, segment, leaf)):
            left.append(segment.segment)
            continue
        with scope(segment):
            with context.stats.stage("fetch_pages"):
                await context.fill([segment], plan.missing_to_count)
            every = plan.count(segment)
        assert every is not None
        dead = context.snapshot.dead_rows(segment.segment)
        matching = len((await open_column(context, alone, segment, leaf)).of(dead))
        # What a merge left out is dead and in no column.
        count += every - (
            _dead_in(context.snapshot, segment.segment) - matching if negated else matching
        )
    answers = await resolve(context, plan, left) if left else []
    return count + sum(len(one.matches.certain) for one in answers)


async def count_rows(
    context: QueryContext, where: Predicate, answers: Sequence[SegmentMatches]
) -> int:
    """How many rows of these answers match; those that the index leaves open are opened, batch by
    batch."""
    count = sum(len(one.matches.certain) for one in answers)
    unsure: list[RowRef] = []
    for answer in answers:
        undecided = Matches(BitMap(), answer.matches.possible - answer.matches.certain)
        part = Candidates.of(answer.segment, undecided, context.snapshot)
        unsure += [context.snapshot.ref(position) for position in part.positions.tolist()]
    alone = len(unsure) > MOST_OPENED
    for at in range(0, len(unsure), BATCH):
        records = await open_rows(context, unsure[at : at + BATCH], alone=alone)
        count += sum(await check_records(context, where, records))
    return count

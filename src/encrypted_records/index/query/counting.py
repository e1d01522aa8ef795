"""How many records match: from directories where they tell it, and without the set of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyroaring import BitMap

from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.asking import Asking, Open, Work, bring_together
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.matches import Matches
from encrypted_records.index.query.matching import (
    LOOKUPS,
    Matching,
    SegmentMatches,
    match_rows,
)
from encrypted_records.index.query.plan import Plan
from encrypted_records.index.query.records import BATCH, check_records, open_rows
from encrypted_records.index.query.segment_filters import comes_by_row, open_column
from encrypted_records.index.query.workspace import Workspace
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


def count_all(space: Workspace, plan: Plan) -> Asking[int]:
    """How many records match, by whatever tells it soonest.

    Raises:
        InvalidQuery, DoesNotOpen: as :func:`match_rows`.
    """
    count = yield from count_matches(space, plan)
    if count is not None:
        return count
    return sum(map(len, (yield from match_rows(space, plan))))


def count_matches(space: Workspace, plan: Plan) -> Asking[int | None]:
    """How many records match, where directories give it: for one comparison or its negation, and of
    many records for several comparisons of which each segment leaves one open at most, but for a
    few segments. Of segments with dead rows, these are looked up. Else None.

    Raises:
        DoesNotOpen: a page or a column does not open, or a key holds no text.
    """
    snapshot = space.snapshot
    if isinstance(plan.predicate, And):
        return (yield from _count_ranges(space, plan, plan.predicate.parts))
    if not _is_counted(plan):
        return None
    if isinstance(plan.predicate, Everything):
        space.counted.certain = snapshot.count
        return snapshot.count
    dying = {one.uid for one in snapshot.segments if _dead_in(snapshot, one)}
    many = plan.values * len(snapshot.segments) > LOOKUPS
    if plan.tests:
        if dying:
            return None
        segments: list[OpenedSegment] = yield Open(snapshot.segments)
        yield Work("fetch_pages", long=True)
        yield from bring_together(segments, plan.missing_to_scan)
        count = _sum_up((yield from Matching(space, plan).count_tested(segments)))
    else:

        def missing(segment: OpenedSegment) -> set[int]:
            is_dying = segment.segment.uid in dying
            return plan.missing_to_find(segment) if is_dying else plan.missing_to_count(segment)

        segments = yield Open(snapshot.segments)
        whole = [one for one in segments if one.segment.uid not in dying]
        left = [one for one in segments if one.segment.uid in dying]
        with scope(*segments):
            yield Work("fetch_pages", long=many)
            yield from bring_together(segments, missing)
            count = _sum_up(list(map(plan.count, whole)))
        if count is not None and left:
            count += yield from _count_living(space, plan, left)
    space.counted.certain = count or 0
    return count


def _count_ranges(space: Workspace, plan: Plan, parts: Sequence[Predicate]) -> Asking[int | None]:
    """How many records match all of some comparisons that keys decide; None where that is no
    shorter than to match them.

    Of a range of what grows with time, most segments have all of their rows or none: what is left
    to count of these is one comparison.
    """
    leaves = [one for one in parts if not isinstance(one, Everything | And | Or | Not)]
    exact = len(leaves) == len(parts) and all(map(plan.is_exact, leaves))
    every = sum(segment.count for segment in space.snapshot.segments)
    if not exact or every <= space.sizes.few_rows:
        return None
    segments: list[OpenedSegment] = yield Open(space.snapshot.segments)
    yield Work("fetch_pages")
    yield from bring_together(segments, plan.missing_to_find)
    count = 0
    of_one: dict[int, list[OpenedSegment]] = {}
    left: list[Segment] = []
    for segment in segments:
        if plan.excludes(segment):
            continue
        unsure = [leaf for leaf in leaves if not plan.holds_all(segment, leaf)]
        if not unsure:
            own = segment.segment
            count += own.count - _dead_in(space.snapshot, own)
        elif len(unsure) == 1:
            of_one.setdefault(leaves.index(unsure[0]), []).append(segment)
        else:
            left.append(segment.segment)
    for at, some in of_one.items():
        count += yield from _count_one(space, replace(plan, predicate=leaves[at]), some)
    answers = (yield from Matching(space, plan).find(left)) if left else []
    count += sum(len(one.matches.certain) for one in answers)
    space.counted.certain = count
    return count


def _count_one(space: Workspace, plan: Plan, segments: Sequence[OpenedSegment]) -> Asking[int]:
    """How many records of some segments fulfil one comparison that keys decide. Directories are
    here."""
    dying = [one for one in segments if _dead_in(space.snapshot, one.segment)]
    whole = [one for one in segments if one not in dying]
    with scope(*whole):
        yield Work("fetch_pages", long=plan.values * len(whole) > LOOKUPS)
        yield from bring_together(whole, plan.missing_to_count)
        count = _sum_up(list(map(plan.count, whole)))
    assert count is not None
    return count + (yield from _count_living(space, plan, dying))


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


def _sum_up(counts: Sequence[int | None]) -> int | None:
    known = [one for one in counts if one is not None]
    return sum(known) if len(known) == len(counts) else None


def _count_living(space: Workspace, plan: Plan, segments: Sequence[OpenedSegment]) -> Asking[int]:
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
        if not (isinstance(segment, PagedSegment) and comes_by_row(space, alone, segment, leaf)):
            left.append(segment.segment)
            continue
        with scope(segment):
            yield Work("fetch_pages")
            yield from bring_together([segment], plan.missing_to_count)
            every = plan.count(segment)
        assert every is not None
        dead = space.snapshot.dead_rows(segment.segment)
        matching = len((yield from open_column(space, alone, segment, leaf)).of(dead))
        # What a merge left out is dead and in no column.
        count += every - (
            _dead_in(space.snapshot, segment.segment) - matching if negated else matching
        )
    answers = (yield from Matching(space, plan).find(left)) if left else []
    return count + sum(len(one.matches.certain) for one in answers)


def count_rows(
    space: Workspace, where: Predicate, answers: Sequence[SegmentMatches]
) -> Asking[int]:
    """How many rows of these answers match; those that the index leaves open are opened, batch by
    batch."""
    count = sum(len(one.matches.certain) for one in answers)
    unsure: list[RowRef] = []
    for answer in answers:
        undecided = Matches(BitMap(), answer.matches.possible - answer.matches.certain)
        part = Candidates.of(answer.segment, undecided, space.snapshot)
        unsure += [space.snapshot.ref(position) for position in part.positions.tolist()]
    alone = len(unsure) > space.most_kept
    for at in range(0, len(unsure), BATCH):
        records = yield from open_rows(unsure[at : at + BATCH], alone=alone)
        count += sum((yield from check_records(space, where, records)))
    return count

"""How many records match: from directories where they tell it, and without the set of the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyroaring import BitMap

from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.asking import Asking, Work
from encrypted_records.index.query.bringing import bring_together
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.choices import COUNT, CountFigures, Way, choose
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.condition_tree import Every, only_leaf
from encrypted_records.index.query.leaves import AbsentLeaf, LeafOperator, RangeLeaf, TestLeaf
from encrypted_records.index.query.matches import Matches
from encrypted_records.index.query.matching import (
    Matching,
    SegmentMatches,
    match_rows,
)
from encrypted_records.index.query.records import BATCH, check_records, open_rows
from encrypted_records.index.query.segment_filters import comes_by_row, open_column
from encrypted_records.index.query.workspace import Workspace
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment, scope
from encrypted_records.model.predicates import Predicate
from encrypted_records.model.records import RowRef, Segment


def count_all(space: Workspace, condition: Condition) -> Asking[int]:
    """How many records match, by whatever tells it soonest.

    Raises:
        InvalidQuery, DoesNotOpen: as :func:`match_rows`.
    """
    count = yield from count_matches(space, condition)
    if count is not None:
        return count
    return sum(map(len, (yield from match_rows(space, condition))))


def count_matches(space: Workspace, condition: Condition) -> Asking[int | None]:
    """How many records match, where directories give it: for one comparison or its negation, and of
    many records for several comparisons of which each segment leaves one open at most, but for a
    few segments. Of segments with dead rows, these are looked up. Else None.

    Raises:
        DoesNotOpen: a page or a column does not open, or a key holds no text.
    """
    if condition.root == Every():
        count: int | None = space.snapshot.count
    elif condition.tests:
        count = yield from _count_tested(space, condition)
    else:
        comparisons = _list_comparisons(space, condition)
        if comparisons is None:
            return None
        count = yield from _count_compared(space, condition, *comparisons)
    space.counted.certain = count or 0
    return count


def _list_comparisons(
    space: Workspace, condition: Condition
) -> tuple[list[LeafOperator], bool] | None:
    """The comparisons that keys decide, and whether the only one is negated; None where directories
    do not tell their count, or sets of rows do it as soon."""
    leaf, negated = only_leaf(condition.root)
    if leaf is not None:
        can = leaf.is_exact or isinstance(leaf, AbsentLeaf)
        return ([leaf], negated) if can else None
    every = sum(segment.count for segment in space.snapshot.segments)
    if not isinstance(condition.root, Every) or every <= space.sizes.few_rows:
        return None
    parts = [part for part in condition.root.parts if isinstance(part, RangeLeaf) and part.is_exact]
    return (list(parts), False) if len(parts) == len(condition.root.parts) else None


def _count_tested(space: Workspace, condition: Condition) -> Asking[int | None]:
    """The count of one test, by its keys; no row of a segment may be dead."""
    snapshot = space.snapshot
    leaf, _ = only_leaf(condition.root)
    if not isinstance(leaf, TestLeaf) or any(
        _dead_in(snapshot, segment) for segment in snapshot.segments
    ):
        return None
    segments = yield from space.open(snapshot.segments)
    yield Work("fetch_pages", long=True)
    yield from bring_together(segments, condition.missing_to_scan)
    counts = yield from Matching(space, condition).count_tested(segments)
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _count_compared(
    space: Workspace, condition: Condition, leaves: Sequence[LeafOperator], negated: bool
) -> Asking[int]:
    """The records that match all of some comparisons, or not the only one. Most
    segments have all of their rows, or none, in a range of a field that grows with time."""
    snapshot, lookups = space.snapshot, space.sizes.work.lookups
    segments = yield from space.open(snapshot.segments)
    yield Work("fetch_pages", long=condition.values * len(segments) > lookups)
    yield from bring_together(segments, condition.missing_to_find)
    count = 0
    by_ends: dict[bytes, LeafOperator] = {}
    by_row: list[tuple[LoadedSegment, RangeLeaf]] = []
    left: list[Segment] = []
    for segment in segments:
        unsure = leaves
        if len(leaves) > 1 and not condition.excludes(segment):
            unsure = [leaf for leaf in leaves if not _holds_all(leaf, segment)]
        every = segment.segment.count - _dead_in(snapshot, segment.segment)
        match choose(COUNT, _figures(space, condition, segment, unsure)):
            case Way.NONE:
                pass
            case Way.ALL:
                count += 0 if negated else every
            case Way.ENDS:
                by_ends[segment.segment.uid] = unsure[0]
            case Way.ENDS_LESS_DEAD:
                by_ends[segment.segment.uid] = unsure[0]
                assert isinstance(segment, LoadedSegment)
                assert isinstance(unsure[0], RangeLeaf)
                by_row.append((segment, unsure[0]))
            case _:
                left.append(segment.segment)
    own = [segment for segment in segments if segment.segment.uid in by_ends]
    with scope(*own):
        yield Work("fetch_pages", long=condition.values * len(own) > lookups)
        yield from bring_together(own, lambda one: _missing_ends(by_ends, one))
        for segment in own:
            found = by_ends[segment.segment.uid].count(segment, condition.memo(segment))
            assert found is not None
            count += segment.count - found if negated else found
    for large, leaf in by_row:
        dead = snapshot.dead_rows(large.segment)
        matching = len((yield from open_column(space, large, leaf)).of(dead))
        # Rows that a merge left out are dead and in no column.
        count -= _dead_in(snapshot, large.segment) - matching if negated else matching
    answers = (yield from Matching(space, condition).find(left)) if left else []
    return count + sum(len(answer.matches.certain) for answer in answers)


def _figures(
    space: Workspace,
    condition: Condition,
    segment: OpenedSegment,
    unsure: Sequence[LeafOperator],
) -> CountFigures:
    return CountFigures(
        excluded=condition.excludes(segment),
        left=len(unsure),
        dead=_dead_in(space.snapshot, segment.segment) > 0,
        by_row=lambda: (
            isinstance(segment, LoadedSegment) and comes_by_row(space, segment, unsure[0])
        ),
    )


def _holds_all(leaf: LeafOperator, segment: OpenedSegment) -> bool:
    return isinstance(leaf, RangeLeaf) and leaf.holds_all(segment)


def _missing_ends(by_ends: Mapping[bytes, LeafOperator], segment: OpenedSegment) -> set[int]:
    leaf = by_ends[segment.segment.uid]
    return leaf.missing_to_count(segment) if isinstance(segment, LoadedSegment) else set()


def _dead_in(snapshot: Snapshot, segment: Segment) -> int:
    """How many of the rows that a segment indexes are dead."""
    return len(snapshot.dead_rows(segment)) - segment.purged


def count_rows(
    space: Workspace, where: Predicate, answers: Sequence[SegmentMatches]
) -> Asking[int]:
    """How many rows of these answers match; those that the index leaves open are opened, batch by
    batch."""
    count = sum(len(answer.matches.certain) for answer in answers)
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

"""Count matching records: from directories if possible, and without a set of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyroaring import BitMap

from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.asking import Asking, Work, Workspace, bring_together
from encrypted_records.index.query.candidates import (
    BATCH,
    Candidates,
    Matches,
    check_records,
    open_rows,
)
from encrypted_records.index.query.choices import COUNT, CountFigures, Way, choose
from encrypted_records.index.query.condition import Condition, Every, Node, fold, only_leaf
from encrypted_records.index.query.leaves import AbsentLeaf, LeafOperator, RangeLeaf, TestLeaf
from encrypted_records.index.query.matching import Matching, SegmentMatches, match_rows
from encrypted_records.index.query.segment_filters import comes_by_row, open_column
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment, scope
from encrypted_records.model.predicates import Predicate
from encrypted_records.model.records import RowRef, Segment


def count_all(space: Workspace, condition: Condition) -> Asking[int]:
    """The number of matching records: from directories if these determine it, otherwise from the
    sets of matching rows.

    Raises:
        InvalidQuery, DoesNotOpen: as :func:`match_rows`.
    """
    count = yield from count_matches(space, condition)
    if count is not None:
        return count
    return sum(map(len, (yield from match_rows(space, condition))))


def count_matches(space: Workspace, condition: Condition) -> Asking[int | None]:
    """The number of matching records if directories determine it, otherwise None. They do for a
    comparison or its negation; with many records also for several joined comparisons, if at most
    one is undecided in each segment, except in a few segments. Dead rows of segments are looked up.

    Raises:
        DoesNotOpen: a page or a column does not open, or a key is not a text.
    """
    if condition.root == Every():
        count: int | None = space.snapshot.count
    elif condition.tests:
        count = yield from _count_tested(space, condition)
    elif _is_folded(space, condition):
        count = yield from _count_compared(space, condition)
    else:
        return None
    space.counted.certain = count or 0
    return count


def _is_folded(space: Workspace, condition: Condition) -> bool:
    """Whether directories give the count, or leave little open: keys decide each comparison, and
    there is a single comparison, or sets of rows would take longer."""
    if not all(leaf.is_exact or isinstance(leaf, AbsentLeaf) for leaf in condition.leaves):
        return False
    every = sum(segment.count for segment in space.snapshot.segments)
    return only_leaf(condition.root)[0] is not None or every > space.sizes.few_rows


def _count_tested(space: Workspace, condition: Condition) -> Asking[int | None]:
    """The count of a test, by its keys; no row of a segment may be dead."""
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


def _count_compared(space: Workspace, condition: Condition) -> Asking[int]:
    """The number of records that match comparisons decided by keys. Most segments have all or none
    of their rows in a range of a field that grows with time."""
    snapshot, lookups = space.snapshot, space.sizes.work.lookups
    segments = yield from space.open(snapshot.segments)
    yield Work("fetch_pages", long=condition.values * len(segments) > lookups)
    yield from bring_together(segments, condition.missing_to_find)
    count = 0
    by_ends: dict[bytes, LeafOperator] = {}
    negated: set[bytes] = set()
    by_row: list[tuple[LoadedSegment, RangeLeaf]] = []
    left: list[Segment] = []
    for segment in segments:
        uid = segment.segment.uid
        decided = False if condition.excludes(segment) else fold(condition.root, segment)
        leaf, is_negated = (None, False) if isinstance(decided, bool) else only_leaf(decided)
        if is_negated:
            negated.add(uid)
        match choose(COUNT, _figures(space, segment, decided, leaf)):
            case Way.NONE:
                pass
            case Way.ALL:
                count += segment.segment.count - _dead_in(snapshot, segment.segment)
            case Way.ENDS:
                assert leaf is not None
                by_ends[uid] = leaf
            case Way.ENDS_LESS_DEAD:
                assert isinstance(segment, LoadedSegment)
                assert isinstance(leaf, RangeLeaf)
                by_ends[uid] = leaf
                by_row.append((segment, leaf))
            case _:
                left.append(segment.segment)
    own = [segment for segment in segments if segment.segment.uid in by_ends]
    with scope(*own):
        yield Work("fetch_pages", long=condition.values * len(own) > lookups)
        yield from bring_together(own, lambda segment: _missing_ends(by_ends, segment))
        for segment in own:
            uid = segment.segment.uid
            found = by_ends[uid].count(segment, condition.memo(segment))
            assert found is not None
            count += segment.count - found if uid in negated else found
    for large, compared in by_row:
        dead = snapshot.dead_rows(large.segment)
        matching = len((yield from open_column(space, large, compared)).of(dead))
        # Rows that a merge left out are dead, but not in any column.
        is_negated = large.segment.uid in negated
        count -= _dead_in(snapshot, large.segment) - matching if is_negated else matching
    answers = (yield from Matching(space, condition).find(left)) if left else []
    return count + sum(len(answer.matches.certain) for answer in answers)


def _figures(
    space: Workspace, segment: OpenedSegment, decided: Node | bool, leaf: LeafOperator | None
) -> CountFigures:
    """
    Args:
        leaf: the comparison that is left open, if there is only one.
    """
    dead = _dead_in(space.snapshot, segment.segment) > 0
    return CountFigures(
        decided=decided if isinstance(decided, bool) else None,
        is_alone=leaf is not None,
        dead=dead,
        by_row=(
            dead
            and leaf is not None
            and isinstance(segment, LoadedSegment)
            and comes_by_row(space, segment, leaf)
        ),
    )


def _missing_ends(by_ends: Mapping[bytes, LeafOperator], segment: OpenedSegment) -> set[int]:
    leaf = by_ends[segment.segment.uid]
    return leaf.missing_to_count(segment) if isinstance(segment, LoadedSegment) else set()


def _dead_in(snapshot: Snapshot, segment: Segment) -> int:
    """The dead rows among the indexed rows of a segment."""
    return len(snapshot.dead_rows(segment)) - segment.purged


def count_rows(
    space: Workspace, where: Predicate, answers: Sequence[SegmentMatches]
) -> Asking[int]:
    """The number of matching rows in these answers; rows that the index leaves undecided are
    opened, batch by batch.
    """
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

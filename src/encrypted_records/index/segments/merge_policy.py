"""Policies of merges and compactions: the inputs, the time and the maximum size. Pure.

A merge rewrites the index only (:mod:`.merge`). Tiers bound the number of segments that a search
reads; segments that list dead rows are rewritten, so that deleted records do not stay.

A compaction re-encrypts small groups as a larger group, without their index (docs/SPEC.md, section
7.7.2): every direct ingest adds a group, which each proxy keeps in memory and each query visits. A
compaction waits for enough groups of a size to make a much larger group, so that a row is
re-encrypted at most once per size.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from encrypted_records.index.log.snapshot import Laid, Snapshot
from encrypted_records.index.segments.builder import MAX_PLAIN_RECORDS
from encrypted_records.model.ciphertext_lengths import BESIDE_CLASS
from encrypted_records.model.records import MAX_MINI_RECORDS, Group, Segment

#: A merge of more rows than the first number takes up to a minute, and is *large*. A merge of more
#: than the second takes minutes, and is *huge*. Ordinary merges wait for neither.
ORDINARY_ROWS, LARGE_ROWS = 1 << 16, 1 << 20
ANY_ROWS = range(1 << 32)

#: Maximum pages (2 GiB) and local ordinals that a huge merge reads. They bound its memory for any
#: definition and any number of dead rows.
MOST_PAGES, MOST_ORDINALS = 1 << 17, 1 << 25


@dataclass(frozen=True, slots=True)
class Tier:
    """A size tier of segments: up to half of ``capacity`` rows, and more than half of the tier
    below.

    Up to ``few`` segments of a tier may be live; with one more, the oldest that fit into one
    segment are merged. A merged segment has at most ``pages`` pages and ``ordinals`` ordinals,
    including those of dead rows that were left out earlier. A segment with more than half of either
    is not merged, like segments of the last tier: otherwise it would be merged with small segments
    again and again.
    """

    capacity: int
    few: int
    pages: int = 1 << 32
    ordinals: int = 1 << 32

    def takes(self, segment: Segment) -> bool:
        """Whether the segment may be merged with others."""
        return 2 * segment.pages <= self.pages and 2 * _covered(segment) <= self.ordinals


def _huge(capacity: int) -> Tier:
    # Four segments of more than half of the tier below fill half of this tier, so each row is
    # rewritten in it once.
    return Tier(capacity, 3, MOST_PAGES, MOST_ORDINALS)


#: The first tier is for the small segments of direct ingests, which are merged at once.
TIERS = (
    Tier(MAX_MINI_RECORDS, 64),
    Tier(ORDINARY_ROWS, 15),
    Tier(LARGE_ROWS, 15),
    _huge(1 << 22),
    _huge(1 << 24),
)
#: Segments of jobs' chunks have these numbers of rows and are not packed: they take ten times the
#: bytes of a packed segment. Only a few may be live; with one more, they are merged into a segment
#: of limited rows.
LOOSE = range((1 << 15) + 1, MAX_PLAIN_RECORDS + 1)
FEW_LOOSE, LOOSE_CAPACITY = 3, LARGE_ROWS

#: The share of a segment's rows that may be dead before it is merged alone, and the time that a
#: single row may be dead, in milliseconds.
MOST_DEAD = 0.05
LONGEST_DEAD = 30 * 24 * 3600 * 1000


def worth_merging(
    snapshot: Snapshot,
    tiers: Sequence[Tier] = TIERS,
    *,
    now: int,
    taken: Collection[bytes] = (),
    most_dead: float = MOST_DEAD,
    rows: range = ANY_ROWS,
) -> tuple[Segment, ...]:
    """The segments to merge next; empty if no merge is needed.

    A segment that fills more than half of its tier counts in the next tier, which bounds how often
    a row is rewritten. Such segments of the last tier are not merged. Large segments that are not
    packed are merged before their tier has many. Dead rows are dropped when one segment has many,
    or some that died long ago: deleted records must not stay.

    Args:
        now: milliseconds since 1970.
        taken: uids of segments that are left alone, since they are being merged.
        most_dead: the share of a segment's rows that may be dead before it is merged alone.
        rows: the allowed numbers of rows of the merged segments together.
    """
    if not snapshot.dying and not _may_have_many(snapshot.counts, tiers):
        return ()
    segments = _by_age(snapshot, snapshot.segments, taken)
    below = -1
    for tier in tiers:
        half = tier.capacity // 2
        in_tier = [
            segment for segment in segments if below < segment.count <= half and tier.takes(segment)
        ]
        below = half
        if len(in_tier) <= tier.few:
            continue
        chosen = _oldest(in_tier, tier)
        if len(chosen) > 1 and rows_of(chosen) in rows:
            return chosen
    loose = [segment for segment in segments if segment.count in LOOSE]
    if len(loose) > FEW_LOOSE:
        chosen = _oldest(loose, Tier(LOOSE_CAPACITY, FEW_LOOSE))
        if rows_of(chosen) in rows:
            return chosen
    dying = _by_age(snapshot, snapshot.dying, taken)
    decayed = [segment for segment in dying if _is_decayed(snapshot, segment, now, most_dead)]
    return _rewritten(decayed, tiers, rows)


def _may_have_many(counts: Sequence[int], tiers: Sequence[Tier]) -> bool:
    """Whether there may be more segments of a tier, or of :data:`LOOSE` size, than allowed.

    It is called several times after each commit, is mostly false, and does not sort.

    Args:
        counts: the numbers of rows of the segments, in ascending order.
    """
    first = 0
    for tier in tiers:
        end = bisect_right(counts, tier.capacity // 2)
        if end - first > tier.few:
            return True
        first = end
    return bisect_left(counts, LOOSE.stop) - bisect_left(counts, LOOSE.start) > FEW_LOOSE


def listing_dead(
    snapshot: Snapshot,
    tiers: Sequence[Tier] = TIERS,
    *,
    taken: Collection[bytes] = (),
    rows: range = ANY_ROWS,
) -> tuple[Segment, ...]:
    """Like :func:`worth_merging`, but merges all segments that list dead rows."""
    return _rewritten(_by_age(snapshot, snapshot.dying, taken), tiers, rows)


def rows_of(segments: Sequence[Segment]) -> int:
    return sum(segment.count for segment in segments)


def _rewritten(
    segments: Sequence[Segment], tiers: Sequence[Tier], rows: range
) -> tuple[Segment, ...]:
    """The oldest of these segments, each of which is worth rewriting alone."""
    alone = [segment for segment in segments if segment.count in rows]
    return _oldest(alone, replace(tiers[-1], capacity=min(tiers[-1].capacity, rows[-1])))


def _by_age(
    snapshot: Snapshot, segments: Sequence[Segment], taken: Collection[bytes]
) -> list[Segment]:
    """The segments not in ``taken``, in storage order: groups that were stored in sequence are then
    adjacent in a merged segment, so that a compaction can combine them.
    """
    free = [segment for segment in segments if segment.uid not in taken]
    return sorted(free, key=lambda segment: snapshot.places(segment).lowest)


def _oldest(segments: Sequence[Segment], tier: Tier) -> tuple[Segment, ...]:
    """The first segments, as many as ``tier`` lets one merge have."""
    chosen: list[Segment] = []
    rows = pages = ordinals = 0
    for segment in segments:
        rows += segment.count
        pages += segment.pages
        ordinals += _covered(segment)
        if chosen and (rows > tier.capacity or pages > tier.pages or ordinals > tier.ordinals):
            break
        chosen.append(segment)
    return tuple(chosen)


def _covered(segment: Segment) -> int:
    """The number of local ordinals of its groups."""
    return segment.count + segment.purged


def _is_decayed(snapshot: Snapshot, segment: Segment, now: int, most_dead: float) -> bool:
    dead = len(snapshot.dead_rows(segment)) - segment.purged
    if dead > most_dead * segment.count:
        return True
    since = snapshot.dying_since(segment)
    return since is not None and now - since > LONGEST_DEAD


#: Minimum number of adjacent groups that are combined.
FEW_GROUPS = 64


@dataclass(frozen=True, slots=True)
class CrowdSizes:
    """Size classes of small groups, and the limits of a combined group.

    ``small``: upper bounds of the classes, in rows; ``rows``, ``bytes`` and ``groups`` are the
    maxima that are combined into one group.
    """

    few: int = FEW_GROUPS
    small: tuple[int, ...] = (64, 4096)
    rows: int = 1 << 16
    bytes: int = 12 << 20
    groups: int = 512


STANDARD_CROWDS = CrowdSizes()


@dataclass(frozen=True, slots=True)
class Crowd:
    """Groups of one segment that are adjacent in it and in storage order.

    The numbers of their rows among all rows go from ``first`` to below ``end``.
    """

    segment: bytes
    groups: tuple[bytes, ...]
    first: int
    end: int


class Crowds:
    """Finds groups to combine. It is called after each commit. A segment without a crowd is
    examined again only after its groups have changed.
    """

    def __init__(self, sizes: CrowdSizes = STANDARD_CROWDS) -> None:
        self._sizes = sizes
        #: segments without a crowd, by uid, and the groups that they had then
        self._without: dict[bytes, Laid] = {}

    def find(self, snapshot: Snapshot, taken: Collection[bytes] = ()) -> Crowd | None:
        """The next groups to combine; None if there are no such groups.

        Args:
            taken: uids of segments that are left alone, since they are being merged.
        """
        for segment in snapshot.segments:
            # A compaction leaves the segment with fewer groups than it was made of.
            if len(segment.groups) < self._sizes.few or segment.uid in taken:
                continue
            laid = snapshot.groups_of(segment)
            if len(laid) < self._sizes.few:
                continue
            if self._without.get(segment.uid) is laid:
                continue
            crowd = self._find(snapshot, segment, laid)
            if crowd is not None:
                return crowd
            self._note(snapshot, segment, laid)
        return None

    def leave(self, snapshot: Snapshot, crowd: Crowd) -> None:
        """Record that this combination is not possible; its segment is examined again when its
        groups have changed.
        """
        for segment in snapshot.segments:
            if segment.uid == crowd.segment:
                self._note(snapshot, segment, snapshot.groups_of(segment))

    def _note(self, snapshot: Snapshot, segment: Segment, laid: Laid) -> None:
        if len(self._without) > 2 * len(snapshot.segments) + 1024:
            self._without.clear()  # mostly entries of replaced segments
        self._without[segment.uid] = laid

    def _find(self, snapshot: Snapshot, segment: Segment, laid: Laid) -> Crowd | None:
        for below in self._sizes.small:
            for run in _runs(snapshot, laid, below, self._sizes.bytes):
                if len(run) < self._sizes.few:
                    continue
                chosen = self._cut(run)
                if len(chosen) > 1:
                    first = snapshot.starts[snapshot.groups[chosen[0].uid].sequence]
                    end = first + sum(group.count for group in chosen)
                    return Crowd(segment.uid, tuple(group.uid for group in chosen), first, end)
        return None

    def _cut(self, run: list[Group]) -> list[Group]:
        """The first groups of the run, as many as may be combined into one."""
        chosen: list[Group] = []
        rows = size = 0
        for group in run[: self._sizes.groups]:
            rows, size = rows + group.count, size + least_bytes(group)
            if rows > self._sizes.rows or size > self._sizes.bytes:
                break
            chosen.append(group)
        return chosen


def _runs(snapshot: Snapshot, laid: Laid, below: int, most_bytes: int) -> Iterator[list[Group]]:
    """Maximal runs of groups with fewer than ``below`` rows that are adjacent in the segment and in
    storage order."""
    run: list[Group] = []
    before = -1
    for uid, _ in laid:
        state = snapshot.groups[uid]
        small = state.group.count < below and least_bytes(state.group) <= most_bytes // 4
        if run and not (small and state.sequence == before + 1):
            yield run
            run = []
        if small:
            run.append(state.group)
        before = state.sequence
    if run:
        yield run


def least_bytes(group: Group) -> int:
    """The minimum size of a group's rows in bytes; long texts need more."""
    return group.count * sum(BESIDE_CLASS + class_.length for class_ in group.classes)

"""The merge policy: which segments are merged, when, and up to which size.

A merge rewrites the index only (:mod:`.merge`). Tiers bound how many segments a search looks into;
segments that list dead rows are rewritten, so that deleted records do not stay.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.segments.builder import MAX_PLAIN_RECORDS
from encrypted_records.model.records import MAX_MINI_RECORDS, Segment

#: A merge of more rows than the first number takes up to a minute, and is *large*. A merge of more
#: than the second takes minutes, and is *huge*. Others do not wait for either.
ORDINARY_ROWS, LARGE_ROWS = 1 << 16, 1 << 20
ANY_ROWS = range(1 << 32)

#: The most that a huge merge reads, so that its memory is bounded whatever the definition is, and
#: however many dead rows have their places in it: pages (2 GiB), and local ordinals.
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
        """Whether it may be merged with others."""
        return 2 * segment.pages <= self.pages and 2 * _covered(segment) <= self.ordinals


def _huge(capacity: int) -> Tier:
    # Four of more than half of the tier below fill half of it: so each row is rewritten in it once.
    return Tier(capacity, 3, MOST_PAGES, MOST_ORDINALS)


#: The first is for the small segments that direct ingests leave, and is merged at once.
TIERS = (
    Tier(MAX_MINI_RECORDS, 64),
    Tier(ORDINARY_ROWS, 15),
    Tier(LARGE_ROWS, 15),
    _huge(1 << 22),
    _huge(1 << 24),
)
#: Segments of so many rows, as chunks of jobs leave them, are not packed: they take ten times the
#: bytes that the rows of a packed one do. So few of them may be live; one more, and they are merged
#: into one of at most so many rows.
LOOSE = range((1 << 15) + 1, MAX_PLAIN_RECORDS + 1)
FEW_LOOSE, LOOSE_CAPACITY = 3, LARGE_ROWS

#: The part of a segment's rows that may be dead before it is merged by itself, and for how long
#: a single one may be, in milliseconds.
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
    """The segments to merge next; none where all is well.

    A segment that fills more than half of its tier counts as one of the next, so that no row is
    rewritten more often than it takes to fill half a segment. Such segments of the last tier are
    not merged. Those that are large and not packed are, before their tier has many. Dead rows are
    dropped when one segment has many, or some that died long ago: deleted records must not stay.

    Args:
        now: milliseconds since 1970.
        taken: uids of segments that are left alone, since they are being merged.
        most_dead: the part of a segment's rows that may be dead before it is merged by itself.
        rows: how many the merged segments may have together.
    """
    if not snapshot.dying and not _may_have_many(snapshot.counts, tiers):
        return ()
    segments = _by_age(snapshot, snapshot.segments, taken)
    below = -1
    for tier in tiers:
        half = tier.capacity // 2
        own = [
            segment for segment in segments if below < segment.count <= half and tier.takes(segment)
        ]
        below = half
        if len(own) <= tier.few:
            continue
        chosen = _oldest(own, tier)
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

    It is called several times after each commit, mostly with a negative result, and does not sort.

    Args:
        counts: how many rows each segment has, in ascending order.
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
    """The segments to merge next so that none lists rows that died; as :func:`worth_merging`."""
    return _rewritten(_by_age(snapshot, snapshot.dying, taken), tiers, rows)


def rows_of(segments: Sequence[Segment]) -> int:
    return sum(segment.count for segment in segments)


def _rewritten(
    segments: Sequence[Segment], tiers: Sequence[Tier], rows: range
) -> tuple[Segment, ...]:
    """The oldest of those, for which it is worth to be rewritten alone."""
    own = [segment for segment in segments if segment.count in rows]
    return _oldest(own, replace(tiers[-1], capacity=min(tiers[-1].capacity, rows[-1])))


def _by_age(
    snapshot: Snapshot, segments: Sequence[Segment], taken: Collection[bytes]
) -> list[Segment]:
    """The segments not in ``taken``, in the order of storing: then groups that were stored one
    after the other are adjacent in a merged segment, so that a compaction can combine them.
    """
    free = [segment for segment in segments if segment.uid not in taken]
    return sorted(free, key=lambda segment: snapshot.places(segment).lowest)


def _oldest(segments: Sequence[Segment], tier: Tier) -> tuple[Segment, ...]:
    """The first of them, and as many of the next as ``tier`` lets one merge have."""
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
    """How many local ordinals its groups have."""
    return segment.count + segment.purged


def _is_decayed(snapshot: Snapshot, segment: Segment, now: int, most_dead: float) -> bool:
    dead = len(snapshot.dead_rows(segment)) - segment.purged
    if dead > most_dead * segment.count:
        return True
    since = snapshot.dying_since(segment)
    return since is not None and now - since > LONGEST_DEAD

"""Compaction policy: which small groups to combine, without their index (docs/SPEC.md, section
7.7.2). Pure.

Every direct ingest adds a group, which each proxy keeps in memory and each query goes through.
Groups are re-encrypted only when enough groups of their size exist to make a much larger one: no
row is re-encrypted more often than there are sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from encrypted_records.index.log.snapshot import Laid, Snapshot
from encrypted_records.model.ciphertext_lengths import BESIDE_CLASS
from encrypted_records.model.records import Group, Segment

#: Groups that follow one another are left alone unless they are as many.
FEW_GROUPS = 64


@dataclass(frozen=True, slots=True)
class CrowdSizes:
    """Size classes of small groups, and the limits of a combined group.

    ``small``: groups with fewer rows than one of these belong to one class; ``rows``, ``bytes`` and
    ``groups`` are the maxima that are combined into one group.
    """

    few: int = FEW_GROUPS
    small: tuple[int, ...] = (64, 4096)
    rows: int = 1 << 16
    bytes: int = 12 << 20
    groups: int = 512


STANDARD = CrowdSizes()


@dataclass(frozen=True, slots=True)
class Crowd:
    """Groups of one segment that follow one another, in the order of storing too.

    ``first`` is the number of their first row among all rows, ``end`` that of the one behind them.
    """

    segment: bytes
    groups: tuple[bytes, ...]
    first: int
    end: int


class Crowds:
    """Finds groups to combine. It is called after each commit, and examines a segment in which it
    found none only when the segment's groups have changed.
    """

    def __init__(self, sizes: CrowdSizes = STANDARD) -> None:
        self._sizes = sizes
        #: segments without any, by uid, and the groups that they had then
        self._without: dict[bytes, Laid] = {}

    def find(self, snapshot: Snapshot, taken: Collection[bytes] = ()) -> Crowd | None:
        """The next groups to make one of; None where there are none.

        Args:
            taken: uids of segments that are left alone, since they are being merged.
        """
        for segment in snapshot.segments:
            # A compaction leaves it with fewer groups than it was made of.
            if len(segment.groups) < self._sizes.few or segment.uid in taken:
                continue
            own = snapshot.groups_of(segment)
            if len(own) < self._sizes.few:
                continue
            if self._without.get(segment.uid) is own:
                continue
            crowd = self._find(snapshot, segment, own)
            if crowd is not None:
                return crowd
            self._note(snapshot, segment, own)
        return None

    def leave(self, snapshot: Snapshot, crowd: Crowd) -> None:
        """Record that this combination is not possible; its segment is examined again when its
        groups have changed.
        """
        for segment in snapshot.segments:
            if segment.uid == crowd.segment:
                self._note(snapshot, segment, snapshot.groups_of(segment))

    def _note(self, snapshot: Snapshot, segment: Segment, own: Laid) -> None:
        if len(self._without) > 2 * len(snapshot.segments) + 1024:
            self._without.clear()  # of segments that are gone, as a rule
        self._without[segment.uid] = own

    def _find(self, snapshot: Snapshot, segment: Segment, own: Laid) -> Crowd | None:
        for below in self._sizes.small:
            for run in _runs(snapshot, own, below, self._sizes.bytes):
                if len(run) < self._sizes.few:
                    continue
                chosen = self._cut(run)
                if len(chosen) > 1:
                    first = snapshot.starts[snapshot.groups[chosen[0].uid].sequence]
                    end = first + sum(group.count for group in chosen)
                    return Crowd(segment.uid, tuple(group.uid for group in chosen), first, end)
        return None

    def _cut(self, run: list[Group]) -> list[Group]:
        """The first groups of the run, as many as one group may contain."""
        chosen: list[Group] = []
        rows = size = 0
        for group in run[: self._sizes.groups]:
            rows, size = rows + group.count, size + least_bytes(group)
            if rows > self._sizes.rows or size > self._sizes.bytes:
                break
            chosen.append(group)
        return chosen


def _runs(snapshot: Snapshot, own: Laid, below: int, most_bytes: int) -> Iterator[list[Group]]:
    """Runs of groups with fewer than ``below`` rows that follow one another in the segment and in
    the order of storing, each as long as it can be."""
    run: list[Group] = []
    before = -1
    for uid, _ in own:
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

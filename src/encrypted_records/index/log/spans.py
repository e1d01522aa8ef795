"""Rows by their numbers, in the groups where they lie by now. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pyroaring import BitMap

from encrypted_records.index.log.snapshot import Snapshot


def count_live(snapshot: Snapshot, first: int, end: int) -> int:
    """The number of live rows with numbers from ``first`` to below ``end``."""
    count = 0
    for sequence, begin, until in spans(snapshot, first, end):
        dead = snapshot.dead.get(snapshot.in_order[sequence].uid, BitMap())
        count += until - begin - dead.range_cardinality(begin, until)
    return count


def spans(snapshot: Snapshot, first: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The groups of these rows: of each its place in the order of the log, and the ordinals from
    which and below which its rows are meant."""
    while first < end:
        ref = snapshot.ref(first)
        state = snapshot.groups[ref.group]
        until = min(state.group.count, ref.ordinal + end - first)
        yield state.sequence, ref.ordinal, until
        first += until - ref.ordinal

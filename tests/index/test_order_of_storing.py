"""The segments of a snapshot by age, and the places of their rows in the order of storing."""

from __future__ import annotations

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from encrypted_records.index.log.snapshot import GroupState, Snapshot
from encrypted_records.model.ciphertext_lengths import NUMBER_CLASS
from encrypted_records.model.records import Group, RowRef, Segment


@st.composite
def views(draw: st.DrawFn) -> Snapshot:
    """Groups in any order of storing, shared out among segments."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    owners = [draw(st.integers(0, 4)) for _ in sizes]
    groups = {
        at.to_bytes(16): GroupState(
            Group(at.to_bytes(16), 1, size, [1], [NUMBER_CLASS], bytes(32), bytes(32)), at
        )
        for at, size in enumerate(sizes)
    }
    segments = []
    for owner in draw(st.permutations(sorted(set(owners)))):
        own = draw(st.permutations([at for at, one in enumerate(owners) if one == owner]))
        count = sum(sizes[at] for at in own)
        ends = [0, *accumulate(sizes[at] for at in own)]
        bases = [(at.to_bytes(16), base) for at, base in zip(own, ends, strict=False)]
        segments.append(Segment(owner.to_bytes(16), "mini", 1, count, 0, bases, 1, b"h", bytes(32)))
    in_order = [state.group for state in groups.values()]
    return Snapshot(1, tuple(segments), groups, {}, {}, in_order, [0, *accumulate(sizes)])


def places(snapshot: Snapshot, segments: list[Segment]) -> list[int]:
    """The numbers of all rows."""
    return [
        snapshot.number(RowRef(uid, ordinal))
        for segment in segments
        for uid, _ in segment.groups
        for ordinal in range(snapshot.groups[uid].group.count)
    ]


@given(views(), st.integers(0, 99), st.integers(1, 60))
def test_parts_follow_one_another_and_grow(snapshot: Snapshot, after: int, rows: int) -> None:
    parts = list(snapshot.by_age(after=after, rows=rows))
    reached = [at for part in parts for at in places(snapshot, part)]
    assert set(range(after, snapshot.stored)) <= set(reached)
    assert all(max(places(snapshot, [one])) >= after for part in parts for one in part)
    before = 0
    for part, following in pairwise(parts):
        assert max(places(snapshot, part)) < min(places(snapshot, following))
        held = sum(one.count for one in part)
        assert held >= max(rows, before)
        before += held


@given(views(), st.data(), st.integers(-1, 99), st.sampled_from([0, 1 << 14]))
def test_rows_come_by_place_however_many_they_are(
    snapshot: Snapshot, data: st.DataObject, after: int, few: int
) -> None:
    segment = snapshot.segments[0]
    lies = {
        base + ordinal: snapshot.number(RowRef(uid, ordinal))
        for uid, base in segment.groups
        for ordinal in range(snapshot.groups[uid].group.count)
    }
    rows = data.draw(st.sets(st.sampled_from(sorted(lies))))
    expected = sorted((lies[row], row) for row in rows if lies[row] > after)
    own = snapshot.places(segment)
    found = list(own.in_order(BitMap(rows), after=after, few=few))
    assert found == expected
    assert [snapshot.ref(place) for place, _ in found if snapshot.has(place)] == [
        RowRef(uid, row - base)
        for _, row in expected
        for uid, base in segment.groups
        if base <= row < base + snapshot.groups[uid].group.count
    ]
    assert own.later(max(0, after)) == BitMap(row for row, place in lies.items() if place >= after)

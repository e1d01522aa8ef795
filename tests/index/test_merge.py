"""Which segments are worth merging, and that merging loses nothing on the way."""

from __future__ import annotations

import dataclasses
from itertools import accumulate, pairwise
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.log.snapshot import GroupState, Snapshot
from encrypted_records.index.segments.builder import MAX_PLAIN_RECORDS
from encrypted_records.index.segments.merge import merge
from encrypted_records.index.segments.merge_policy import (
    FEW_LOOSE,
    LARGE_ROWS,
    LONGEST_DEAD,
    MOST_ORDINALS,
    MOST_PAGES,
    ORDINARY_ROWS,
    TIERS,
    Tier,
    listing_dead,
    worth_merging,
)
from encrypted_records.model.ciphertext_lengths import NUMBER_CLASS
from encrypted_records.model.ids import new_id
from encrypted_records.model.records import Group, Segment
from tests.index.world import World

TEXT = '{"type": "object", "properties": {"a": {"type": "string"}}}'


def snapshot(*counts: int, form: str = "mini") -> Snapshot:
    uids = [number.to_bytes(16, "big") for number in range(len(counts))]
    segments = tuple(
        Segment(uid, form, 1, count, 0, [(uid, 0)], 1, b"h", bytes(32))  # type: ignore[arg-type]
        for uid, count in zip(uids, counts, strict=True)
    )
    groups = {
        uid: GroupState(Group(uid, 1, count, [1], [NUMBER_CLASS], bytes(32), bytes(32)), at)
        for at, (uid, count) in enumerate(zip(uids, counts, strict=True))
    }
    return Snapshot(1, segments, groups, {}, starts=[0, *accumulate(counts)])


NOW = 10**12
SMALL, MIDDLE, LARGE = 4096, 1 << 16, 1 << 20


def chosen(snapshot: Snapshot, few: int) -> list[int]:
    """With up to ``few`` segments that may be live in each of the tiers."""
    tiers = [Tier(capacity, few) for capacity in (SMALL, MIDDLE, LARGE)]
    return [
        int.from_bytes(segment.uid, "big") for segment in worth_merging(snapshot, tiers, now=NOW)
    ]


def test_few_small_segments_are_left_alone() -> None:
    assert chosen(snapshot(1, 1, 1), 3) == []
    assert chosen(snapshot(1, 1, 1, 1), 3) == [0, 1, 2, 3]
    assert chosen(snapshot(), 0) == []


def test_a_segment_more_than_half_full_counts_as_one_of_the_next_tier() -> None:
    full = SMALL // 2 + 1
    assert chosen(snapshot(1, full, 1, full), 1) == [0, 2]
    assert chosen(snapshot(full - 1, full - 1, full), 1) == [0, 1]
    assert chosen(snapshot(1, full, full), 1) == [1, 2]
    assert chosen(snapshot(MIDDLE // 2, MIDDLE // 2, 1), 1) == [0, 1]
    assert chosen(snapshot(MIDDLE // 2 + 1, MIDDLE // 2, 1), 1) == []


def test_segments_more_than_half_full_of_the_last_tier_are_left_alone() -> None:
    assert chosen(snapshot(LARGE // 2, LARGE // 2), 1) == [0, 1]
    assert chosen(snapshot(*[LARGE // 2 + 1] * 40), 1) == []


@given(st.lists(st.integers(1, 200), min_size=1, max_size=300))
def test_merging_bounds_how_many_segments_there_are_however_records_come(sizes: list[int]) -> None:
    tiers = (Tier(8, 4), Tier(32, 2), Tier(128, 3))
    counts: list[int] = []
    for size in sizes:
        counts.append(size)
        while inputs := worth_merging(snapshot(*counts), tiers, now=NOW):
            merged = {int.from_bytes(segment.uid, "big") for segment in inputs}
            assert len(merged) > 1
            total = sum(counts[one] for one in merged)
            assert total <= tiers[-1].capacity
            counts = [count for at, count in enumerate(counts) if at not in merged] + [total]
        left_alone = sum(count > tiers[-1].capacity // 2 for count in counts)
        assert len(counts) - left_alone <= sum(tier.few for tier in tiers)
        assert left_alone <= sum(sizes) / (tiers[-1].capacity / 2)


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=120),
    st.lists(st.integers(1, 130), min_size=2, max_size=2, unique=True).map(sorted),
    st.lists(
        st.tuples(st.sampled_from(["store", "begin", "end"]), st.integers(0, 2)), max_size=400
    ),
)
def test_three_lanes_never_take_the_same_segment_and_leave_as_few(
    sizes: list[int], edges: list[int], steps: list[tuple[str, int]]
) -> None:
    """One of merges of up to so many rows and two of larger ones, however they interleave."""
    tiers = (Tier(8, 4), Tier(32, 2), Tier(128, 3))
    most, most_large = edges
    lanes = (range(most + 1), range(most + 1, most_large + 1), range(most_large + 1, 1 << 32))
    waiting = list(sizes)
    live: list[list[int]] = []  # lists, since two of the same size are two
    taken: list[list[list[int]]] = [[] for _ in lanes]

    def begin(lane: int) -> None:
        if taken[lane]:
            return
        uids = {at.to_bytes(16, "big") for at, one in enumerate(live) if is_taken(one)}
        counts = snapshot(*(one[0] for one in live))
        inputs = worth_merging(counts, tiers, now=NOW, taken=uids, rows=lanes[lane])
        chosen = [live[int.from_bytes(source.uid, "big")] for source in inputs]
        assert not any(is_taken(one) for one in chosen)
        assert not chosen or sum(one[0] for one in chosen) in lanes[lane]
        taken[lane] = chosen

    def is_taken(one: list[int]) -> bool:
        return any(one is other for lane in taken for other in lane)

    def end(lane: int) -> None:
        if taken[lane]:
            merged = [sum(one[0] for one in taken[lane])]
            live[:] = [one for one in live if not any(one is other for other in taken[lane])]
            live.append(merged)
            taken[lane] = []

    for step, lane in steps:
        if step == "store" and waiting:
            live.append([waiting.pop()])
        elif step == "begin":
            begin(lane)
        elif step == "end":
            end(lane)
    live += [[size] for size in waiting]
    for lane in range(len(lanes)):
        end(lane)
    while True:
        for lane in range(len(lanes)):
            begin(lane)
        if not any(taken):
            break
        for lane in range(len(lanes)):
            end(lane)
    assert sum(one[0] for one in live) == sum(sizes)
    left_alone = sum(one[0] > 64 for one in live)
    assert len(live) - left_alone <= sum(tier.few for tier in tiers)


def test_every_merge_of_a_tier_is_in_one_lane() -> None:
    """So no lane leaves what is due to another one, which leaves it to the first."""
    edges = (0, ORDINARY_ROWS, LARGE_ROWS, 1 << 32)
    halves = [0, *(tier.capacity // 2 for tier in TIERS)]
    for below, tier in zip(halves, TIERS, strict=False):
        least, most = 2 * (below + 1), tier.capacity
        assert any(least > low and most <= high for low, high in pairwise(edges))


def test_a_hundred_million_records_are_in_few_segments_and_each_row_is_merged_seldom() -> None:
    """As jobs leave them, of a million records each: chunks, and the rest."""
    jobs, chunk, rows = 100, 39_321, 1_000_000
    live: dict[int, int] = {}
    rewritten = largest = number = 0
    for _ in range(jobs):
        for size in [chunk] * (rows // chunk) + [rows % chunk]:
            live[number] = size
            number += 1
        while True:
            numbers = sorted(live)
            inputs = worth_merging(snapshot(*(live[at] for at in numbers)), now=NOW)
            if not inputs:
                break
            taken = [numbers[int.from_bytes(source.uid, "big")] for source in inputs]
            merged = sum(live.pop(at) for at in taken)
            rewritten += merged
            largest = max(largest, merged)
            # Where the oldest of them was: that is its place in the order of storing.
            live[taken[0]] = merged
    assert sum(live.values()) == jobs * rows
    assert largest <= TIERS[-1].capacity
    assert len([one for one in live.values() if one > LARGE_ROWS // 2]) == 7
    # docs/scale.md says so.
    assert len(live) == 20
    assert 2.9 < rewritten / (jobs * rows) < 3


def test_the_tiers_bound_how_many_segments_there_are() -> None:
    beside = sum(tier.few for tier in TIERS)
    # docs/operations.md says so.
    assert beside + 10_000_000 // (TIERS[-1].capacity // 2) == 101
    assert beside + 100_000_000 // (TIERS[-1].capacity // 2) == 111


def with_size(found: Snapshot, at: int, *, pages: int = 0, purged: int = 0) -> Snapshot:
    """One of the segments has so many pages, or so many rows that a merge left out."""
    every = list(found.segments)
    every[at] = msgspec.structs.replace(every[at], pages=pages, purged=purged)
    return dataclasses.replace(found, segments=tuple(every))


def test_a_huge_merge_reads_no_more_pages_and_ordinals_than_its_memory_is_for() -> None:
    tier = Tier(LARGE, 3, pages=100, ordinals=LARGE)

    def picked(*sizes: tuple[int, int]) -> list[int]:
        """Of segments of 1,000 rows with so many pages, and so many rows left out before."""
        found = snapshot(*[1000] * len(sizes))
        for at, (pages, purged) in enumerate(sizes):
            found = with_size(found, at, pages=pages, purged=purged)
        inputs = worth_merging(found, [tier], now=NOW)
        assert sum(source.pages for source in inputs) <= 100
        return [int.from_bytes(source.uid, "big") for source in inputs]

    assert picked(*[(25, 0)] * 4) == [0, 1, 2, 3]
    assert picked(*[(40, 0)] * 4) == [0, 1]
    assert picked(*[(1, LARGE // 3)] * 4) == [0, 1]
    # With more than half of either, one is as full as one of the last tier.
    assert picked((51, 0), *[(50, 0)] * 3) == []
    assert picked((51, 0), *[(50, 0)] * 4) == [1, 2]
    assert picked((1, LARGE // 2), *[(1, 0)] * 4) == [1, 2, 3, 4]


def test_only_huge_merges_are_held_to_that() -> None:
    """A schema of many fields would have too many small segments otherwise."""
    for tier in TIERS:
        limits = (MOST_PAGES, MOST_ORDINALS) if tier.capacity > LARGE_ROWS else (1 << 32, 1 << 32)
        assert (tier.pages, tier.ordinals) == limits
    many = snapshot(*[TIERS[2].capacity // 4] * 16)
    for at in range(16):
        many = with_size(many, at, pages=MOST_PAGES)
    assert len(worth_merging(many, now=NOW)) == 4


def test_a_huge_segment_with_dead_rows_is_rewritten_alone_where_others_do_not_fit() -> None:
    def picked(pages: int, *, lane: range) -> list[int]:
        found = snapshot(*[9_000_000, 3_000_000, 1_000_000])
        for at in range(3):
            found = with_size(found, at, pages=pages)
        dead = {segment.groups[0][0]: BitMap(range(600_000)) for segment in found.segments}
        dying = dataclasses.replace(found, dead=dead)
        inputs = worth_merging(dying, now=NOW, rows=lane)
        assert inputs == listing_dead(dying, rows=lane)
        return [int.from_bytes(source.uid, "big") for source in inputs]

    huge, large = range(LARGE_ROWS + 1, 1 << 32), range(ORDINARY_ROWS + 1, LARGE_ROWS + 1)
    assert picked(1000, lane=huge) == [0, 1]
    assert picked(MOST_PAGES // 2 + 1, lane=huge) == [0]
    assert picked(2 * MOST_PAGES, lane=huge) == [0]
    assert picked(1000, lane=large) == [2]


def test_the_oldest_are_merged_as_far_as_they_fit_into_one() -> None:
    assert chosen(snapshot(2000, 2000, 96, 1, 1), 1) == [0, 1, 2]
    assert chosen(snapshot(2000, 2000, 97, 1, 1), 1) == [0, 1]
    assert chosen(snapshot(30_000, 30_000, 5000, 5000, 5000), 1) == [0, 1, 2]


def test_large_segments_that_are_not_packed_are_merged_before_their_tier_has_many() -> None:
    chunk = MAX_PLAIN_RECORDS - 1
    assert chosen(snapshot(*[chunk] * FEW_LOOSE), 15) == []
    assert chosen(snapshot(200_000, *[chunk] * (FEW_LOOSE + 1)), 15) == [1, 2, 3, 4]
    assert chosen(snapshot(*[MAX_PLAIN_RECORDS + 1] * (FEW_LOOSE + 1)), 15) == []
    # One that is packed comes of it, and none that is longer than others may be.
    many = chosen(snapshot(*[chunk] * 15), 15)
    assert MAX_PLAIN_RECORDS < len(many) * chunk <= LARGE
    assert (len(many) + 1) * chunk > LARGE or len(many) == 15


def test_smaller_tiers_go_first() -> None:
    assert chosen(snapshot(30_000, 30_000, 7, 8), 1) == [2, 3]


def test_merging_all_that_is_worth_it_comes_to_an_end() -> None:
    """And leaves no more segments than the tiers may have."""
    counts = [2048, 2048, 2048, 1, 100, 100, 4096, 30_000, 60_000, 500_000] * 8
    rows = sum(counts)
    for _ in range(len(counts)):
        picked = chosen(snapshot(*counts), 4)
        if not picked:
            break
        assert len(picked) >= 2
        merged = sum(counts[at] for at in picked)
        assert merged <= LARGE
        counts = [count for at, count in enumerate(counts) if at not in picked] + [merged]
    assert sum(counts) == rows
    assert len(counts) <= 3 * 4 + rows // (LARGE // 2)


@given(st.lists(st.sampled_from([1, 40, 600, 5000, 33_000, 40_000, 70_000, 600_000])), st.data())
def test_what_is_seen_at_a_glance_to_need_no_merge_needs_none(
    counts: list[int], data: st.DataObject
) -> None:
    found = snapshot(*counts)
    few = data.draw(st.integers(0, 3))
    tiers = [Tier(capacity, few) for capacity in (SMALL, MIDDLE, LARGE)]
    taken = (
        data.draw(st.sets(st.sampled_from([segment.uid for segment in found.segments])))
        if counts
        else ()
    )
    with patch(f"{worth_merging.__module__}._may_have_many", lambda *_: True):
        thorough = worth_merging(found, tiers, now=NOW, taken=taken)
    assert worth_merging(found, tiers, now=NOW, taken=taken) == thorough


def test_segments_with_many_dead_rows_are_merged_by_themselves() -> None:
    """Rows that a merge left out are dead in the log for good, and count no more."""

    def decayed(dead: int, purged: int) -> list[int]:
        found = snapshot(1000, 100_000)
        one = msgspec.structs.replace(found.segments[1], count=100_000 - purged, purged=purged)
        rows = {one.groups[0][0]: BitMap(range(dead))}
        segments = (found.segments[0], one)
        return chosen(dataclasses.replace(found, segments=segments, dead=rows), 9)

    assert decayed(5000, 0) == []
    assert decayed(5001, 0) == [1]
    assert decayed(9000, 9000) == []
    assert decayed(9000 + 4551, 9000) == [1]


def test_rows_that_died_long_ago_are_merged_away_however_few() -> None:
    long_ago, lately = NOW - LONGEST_DEAD - 1, NOW - LONGEST_DEAD
    group = bytes(16)

    def decayed(purged: int, *deaths: tuple[int, int]) -> list[int]:
        dead = {group: BitMap(range(sum(rows for _, rows in deaths)))}
        found = snapshot(1000 - purged)
        one = (msgspec.structs.replace(found.segments[0], purged=purged),)
        told = dataclasses.replace(found, segments=one, dead=dead, deaths={group: deaths})
        return chosen(told, 9)

    assert decayed(0, (lately, 2)) == []
    assert decayed(0, (long_ago, 1), (lately, 1)) == [0]
    # The merge came between the two, or in the middle of the second.
    assert decayed(1, (long_ago, 1), (lately, 1)) == []
    assert decayed(2, (long_ago, 1), (long_ago, 2)) == [0]


def test_the_log_tells_when_rows_died(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(TEXT)
    world.ingest([{"a": letter} for letter in "abcd"])
    for moment, rows in ((5000, [(0, 0)]), (7000, [(0, 1), (0, 3)])):
        made = moment.to_bytes(6, "big") + new_id()[6:]
        monkeypatch.setattr("encrypted_records.index.log.order.new_id", lambda made=made: made)
        world.kill(rows)
    monkeypatch.undo()
    (segment,) = world.ledger.snapshot().segments
    assert world.ledger.snapshot().dying_since(segment) == 5000
    world.merge()
    (segment,) = world.ledger.snapshot().segments
    assert world.ledger.snapshot().dying_since(segment) is None


def test_merging_keeps_every_row_under_its_group_and_ordinal() -> None:
    world = World(TEXT)
    for letters in ("abc", "de", "f"):
        world.ingest([{"a": letter} for letter in letters])
    world.kill([(0, 1), (1, 0)])
    world.merge()
    world.merge()
    for where, expected in [
        ({"field": "a", "op": "ge", "value": ""}, {(0, 0), (0, 2), (1, 1), (2, 0)}),
        ({"field": "a", "op": "eq", "value": "e"}, {(1, 1)}),
        ({"field": "a", "op": "in", "value": ["b", "d"]}, set()),
    ]:
        assert world.ask(where) == (expected, expected)
    assert world.open((2, 0)).data == {"a": "f"}


def test_merging_full_minis_again_and_again_conserves_counts() -> None:
    world = World(TEXT)
    for _ in range(12):
        world.ingest([{"a": "x"}] * 3)
        world.kill([(len(world.group_uids()) - 1, 1)])
        world.merge()
    (segment,) = world.ledger.snapshot().segments
    assert (segment.count, segment.purged) == (24, 12)
    assert world.ledger.snapshot().count == 24
    assert len(world.ask({"field": "a", "op": "eq", "value": "x"})[0]) == 24


def test_a_merge_stops_at_an_input_that_does_not_open() -> None:
    world = World(TEXT)
    world.ingest([{"a": "x"}])
    world.ingest([{"a": "y"}])
    uid = world.ledger.snapshot().segments[1].uid
    page = world.pages[uid, 0]
    world.pages[uid, 0] = type(page)(uid, 0, page.data[:-1] + bytes((page.data[-1] ^ 1,)))
    with pytest.raises(DoesNotOpen):
        merge(world.key, world.definition, world.opened(), world.ledger.snapshot())

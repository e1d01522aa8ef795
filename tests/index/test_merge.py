"""Which segments are worth merging, and that merging loses nothing on the way."""

from __future__ import annotations

import pytest

from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.ledger import View
from encrypted_records.index.merge import merge, worth_merging
from encrypted_records.model.records import MAX_MINI_RECORDS, Segment
from tests.index.world import World

TEXT = '{"type": "object", "properties": {"a": {"type": "string"}}}'


def view(*counts: int, form: str = "mini") -> View:
    segments = tuple(
        Segment(number.to_bytes(16, "big"), form, 1, count, 0, [(bytes(16), 0)], 1, b"h")  # type: ignore[arg-type]
        for number, count in enumerate(counts)
    )
    return View(1, segments, {}, {})


def chosen(view: View, least: int) -> list[int]:
    return [int.from_bytes(segment.uid, "big") for segment in worth_merging(view, least)]


def test_few_small_segments_are_left_alone() -> None:
    assert chosen(view(1, 1, 1), 4) == []
    assert chosen(view(1, 1, 1, 1), 4) == [0, 1, 2, 3]
    assert chosen(view(), 1) == []


def test_segments_more_than_half_full_are_left_alone() -> None:
    full = MAX_MINI_RECORDS // 2 + 1
    assert chosen(view(1, full, 1, full), 2) == [0, 2]
    assert chosen(view(full - 1, full - 1, full), 2) == [0, 1]


def test_the_oldest_are_merged_as_far_as_they_fit_into_one_mini() -> None:
    assert chosen(view(2000, 2000, 96, 1, 1), 2) == [0, 1, 2]
    assert chosen(view(2000, 2000, 97, 1, 1), 2) == [0, 1]


def test_merging_all_that_is_worth_it_comes_to_an_end() -> None:
    """Two small ones always fit, so every merge leaves one segment less."""
    counts = [2048, 2048, 2048, 1, 100, 100, 4096] * 3
    for _ in range(len(counts)):
        picked = chosen(view(*counts), 4)
        if not picked:
            break
        assert len(picked) >= 2
        merged = sum(counts[at] for at in picked)
        assert merged <= MAX_MINI_RECORDS
        counts = [count for at, count in enumerate(counts) if at not in picked] + [merged]
    assert sum(count <= MAX_MINI_RECORDS // 2 for count in counts) < 4


def test_paged_segments_are_left_alone() -> None:
    assert chosen(view(1, 1, 1, form="paged"), 2) == []


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
    (segment,) = world.ledger.view().segments
    assert (segment.count, segment.purged) == (24, 12)
    assert world.ledger.view().count == 24
    assert len(world.ask({"field": "a", "op": "eq", "value": "x"})[0]) == 24


def test_a_merge_stops_at_an_input_that_does_not_open() -> None:
    world = World(TEXT)
    world.ingest([{"a": "x"}])
    world.ingest([{"a": "y"}])
    uid = world.ledger.view().segments[1].uid
    page = world.pages[uid, 0]
    world.pages[uid, 0] = type(page)(uid, 0, page.data[:-1] + bytes((page.data[-1] ^ 1,)))
    with pytest.raises(DoesNotOpen):
        merge(world.key, world.definition, world.opened(), world.ledger.view())

"""Many percentiles of one field keep no more of its pages than a few do, and are the oracle's."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest

from encrypted_records.index.query.asking import Asking, Need, Together
from encrypted_records.index.query.ranked_measures import RankedRows, Ranks
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.reading import STANDARD, ReadingLimits
from tests.index.reading import answer, needs_of
from tests.index.world import World

TEXT = """{"type": "object", "properties": {
    "n": {"type": "integer", "minimum": 0, "maximum": 9223372036854775807}}}"""
SEGMENTS, ROWS, PAGE = 3, 20_000, 1000
#: Of what the pages of a value have, room for some at once.
FEW = replace(STANDARD, entries=10 * PAGE)
#: Spread over all values, and next to each other.
SPREAD = [ROWS * SEGMENTS * share // 100 for share in range(1, 101)]
CLOSE = [ROWS * SEGMENTS // 2 + 6 * at for at in range(100)]

T = TypeVar("T")


@pytest.fixture(scope="module")
def made() -> tuple[World, list[int]]:
    """Segments of the same values as far as chance goes, so that pages of all of them overlap."""
    world = World(TEXT, limits=SegmentLimits(mini=8, plain=1 << 16, entries=PAGE))
    values = np.random.default_rng(7).integers(0, 10**12, (SEGMENTS, ROWS)).tolist()
    for some in values:
        world.ingest([{"n": value} for value in some])
    return world, sorted(value for some in values for value in some)


def ranks_of(world: World, limits: ReadingLimits) -> Ranks:
    """Of all rows; nothing but directories is here."""
    parts = []
    for one in world.ledger.snapshot().segments:
        segment = world.open_segment(one)
        assert isinstance(segment, LoadedSegment)
        for number in segment.missing_directories(["n"]):
            segment.put(number, world.sealed(segment, number))
        firsts, lasts, counts = segment.directories["n"].stretches()
        parts.append(RankedRows(firsts, lasts, counts, firsts[:0], segment))
    return Ranks("n", parts, limits)


def watched(asking: Asking[T], needs: list[tuple[Need, ...]]) -> Asking[T]:
    """The same, and what it asks for at a time."""
    try:
        while True:
            step = next(asking)
            if isinstance(step, Need | Together):
                needs.append(needs_of(step))
            yield step
    except StopIteration as end:
        found: T = end.value
        return found


def places_of(segment: LoadedSegment, pages: frozenset[int]) -> list[int]:
    """Where pages are in the order of keys."""
    directory = segment.directories["n"]
    places = [directory.index_of(number) for number in pages]
    return sorted(place for place in places if place is not None)


def entries_of(needs: Sequence[Need]) -> list[int]:
    """How many entries each of their pages has."""
    return [
        int(need.segment.directories["n"].page_entries[place])
        for need in needs
        for place in places_of(need.segment, need.pages)
    ]


@pytest.mark.parametrize("numbers", [SPREAD, CLOSE], ids=["spread", "close"])
def test_a_hundred_percentiles_keep_no_more_of_pages_than_there_is_room_for(
    made: tuple[World, list[int]], numbers: list[int]
) -> None:
    world, values = made
    ranks = ranks_of(world, FEW)
    tracemalloc.start()
    try:
        found = answer(ranks.select(numbers), world.sealed)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == {values[number - 1]: number for number in numbers}
    # A page in memory takes twelve bytes an entry, what is kept of it sixteen, and numpy makes
    # some arrays of that.
    assert most < 100 * FEW.entries, most


@pytest.mark.parametrize("limits", [STANDARD, FEW, replace(FEW, entries=1), replace(FEW, window=2)])
def test_pages_that_come_together_have_no_more_entries_than_there_is_room_for(
    made: tuple[World, list[int]], limits: ReadingLimits
) -> None:
    world, values = made
    needs: list[tuple[Need, ...]] = []
    ranks = ranks_of(world, limits)
    expected = {values[number - 1]: number for number in SPREAD}
    assert answer(watched(ranks.select(SPREAD), needs), world.sealed) == expected
    assert answer(watched(ranks.upto(expected), needs), world.sealed) == expected
    assert needs
    for together in needs:
        every = entries_of(together)
        assert len(every) <= limits.window
        assert sum(every) <= limits.entries or len(every) == 1


def test_requests_do_not_come_in_the_order_of_keys(made: tuple[World, list[int]]) -> None:
    world, _ = made
    needs: list[tuple[Need, ...]] = []
    answer(watched(ranks_of(world, FEW).select(SPREAD), needs), world.sealed)
    first = needs[0][0].segment
    least = [
        places_of(first, need.pages)[0] for some in needs for need in some if need.segment is first
    ]
    assert len(least) > 10
    assert least not in (sorted(least), sorted(least, reverse=True))

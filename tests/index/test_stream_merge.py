"""A merge as a stream makes, byte for byte, what a merge in memory makes, and refuses the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records import runtime
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import block_streams, words
from encrypted_records.index.columns.column import EntryBlock
from encrypted_records.index.segments import merge as in_memory
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.index.segments.cuts import ContentsInMemory
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.merge import SegmentMerger
from encrypted_records.index.segments.mini import Built
from encrypted_records.model.field_types.base import KeyKind
from tests.index.world import World
from tests.support.paged_segments import roles_of


class ContentsElsewhere:
    """As a file gives them: nothing is freed, and everything may be read again."""

    def __init__(self) -> None:
        self._held = ContentsInMemory()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, content: bytes) -> None:
        self._held.add(content)

    def read(self, number: int) -> bytes:
        return self._held.read(number)


@pytest.fixture(autouse=True)
def same_draws() -> Iterator[None]:
    """Numbers of pages and salts that do not differ between two builds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "encrypted_records.index.segments.builder._permutation",
            lambda total: np.random.default_rng(total).permutation(total),
        )
        patch.setattr(runtime.machine, "random_bytes", bytes)
        yield


def merged_as_stream(world: World, limits: SegmentLimits, most_words: int | None = None) -> Built:
    snapshot = world.ledger.snapshot()
    inputs = [world.open_segment(segment) for segment in snapshot.segments]
    groups = [snapshot.groups_of(segment) for segment in snapshot.segments]
    dead = [snapshot.dead_rows(segment) for segment in snapshot.segments]
    merger = SegmentMerger(
        *(world.key, world.definition, inputs, groups, dead),
        *(ContentsElsewhere(), limits, world.compared, most_words),
    )
    for name in merger.fields:
        for source in inputs:
            if isinstance(source, LoadedSegment):
                for number in source.missing_directories([name]):
                    source.put(number, world.pages[source.segment.uid, number].data)
        merger.take(name, lambda uid, number: world.pages[uid, number].data)
        assert not any(source.blocks for source in inputs if isinstance(source, LoadedSegment))
    sealed = merger.seal()
    return Built(sealed.segment, sealed.header, tuple(sealed.pages))


def merged_in_memory(world: World, limits: SegmentLimits, most_words: int | None = None) -> Built:
    snapshot = world.ledger.snapshot()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words.limit, "__defaults__", (most_words,))
        return in_memory.merge(world.key, world.definition, world.opened(), snapshot, limits)


def same(world: World, limits: SegmentLimits, most_words: int | None = None) -> Built:
    expected = merged_in_memory(world, limits, most_words)
    assert merged_as_stream(world, limits, most_words) == expected
    return expected


LONG = "the same beginning of many long strings, up to where keys end: "
VALUES = ["", "a", "a\0", "b", "zz", LONG, *(LONG + end for end in "abc"), None]
NOTES = ["one two", "one", "", "a b c d e f g h i j k l m n", "three two one", None]
FORMS = [
    SegmentLimits(),
    SegmentLimits(mini=0, entries=3),
    SegmentLimits(mini=0, plain=0, entries=2),
    SegmentLimits(mini=0, plain=0),
]


def definition(lowest: int, precision: int, *, fields: int) -> str:
    properties: dict[str, Any] = {
        "name": {"type": "string"},
        "size": {"type": "number", "minimum": lowest, "maximum": 99, "precision": precision},
        "on": {"type": "integer", "minimum": 0, "maximum": 1},
        "note": {"type": "string", "x-index": ["words"]},
    }
    return json.dumps({"type": "object", "properties": dict(list(properties.items())[:fields])})


@st.composite
def histories(draw: st.DrawFn) -> World:
    """Segments of all forms, some with dead rows, under definitions of which each is wider than
    the one before, merged or not."""
    lowest, precision, fields = 0, 0, draw(st.integers(2, 4))
    world = World(definition(lowest, precision, fields=fields))
    rows = 0
    for number in range(draw(st.integers(1, 5))):
        world.limits = draw(st.sampled_from(FORMS))
        count = draw(st.integers(1, 12))
        record = st.fixed_dictionaries(
            {
                "name": st.sampled_from(VALUES),
                "size": st.sampled_from([None, 0, 1, 1, 99]),
                "on": st.sampled_from([None, 0, 1]),
                "note": st.sampled_from(NOTES),
            }
        )
        records = draw(st.lists(record, min_size=count, max_size=count))
        names = world.definition.fields
        world.ingest([{name: record[name] for name in names} for record in records])
        rows += count
        dead = draw(st.sets(st.integers(0, count - 1), max_size=count))
        if dead:
            world.kill([(number, at) for at in dead])
        if number and draw(st.booleans()):
            world.merge()
        if draw(st.booleans()):
            lowest, precision = lowest - draw(st.integers(0, 5)), min(3, precision + 1)
            fields = min(4, fields + draw(st.integers(0, 1)))
            world.change(definition(lowest, precision, fields=fields))
    return world


@given(histories(), st.sampled_from(FORMS[1:]), st.sampled_from([0, 3, 9, None]))
def test_a_stream_merges_to_the_same_bytes_as_memory(
    world: World, limits: SegmentLimits, most_words: int | None
) -> None:
    made = same(world, limits, most_words)
    assert made.segment.form == ("paged" if made.segment.count else "mini")


def test_segments_with_pages_of_standard_size_merge_to_the_same_bytes() -> None:
    """Runs of one value over several pages, windows of several pages, and unique values."""
    world = World(definition(0, 0, fields=3), limits=SegmentLimits(mini=0, plain=0, entries=700))
    rng = np.random.default_rng(7)
    for count in (5000, 1, 3000, 2500):
        names = rng.integers(0, 2**40, count).tolist()
        sizes = rng.integers(0, 100, count).tolist()
        world.ingest(
            {"name": f"{name:x}" if name % 9 else None, "size": size, "on": int(size > 3)}
            for name, size in zip(names, sizes, strict=True)
        )
    world.kill([(0, at) for at in range(0, 5000, 7)])
    made = same(world, SegmentLimits(mini=0, plain=0, entries=900))
    assert made.segment.purged == len(range(0, 5000, 7))
    assert made.segment.pages > 30


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4))), min_size=1, max_size=5))
def test_streams_merge_in_the_order_of_keys_and_then_of_inputs(
    shapes: list[list[tuple[int, int]]],
) -> None:
    """However entries of a key are spread over blocks."""
    streams, expected, base = [], [], 0
    for shape in shapes:
        blocks = []
        for key, rows in sorted(shape):
            ordinals = np.arange(base, base + rows, dtype=np.uint32)
            base += rows
            keys = np.array([key], np.uint64)
            blocks.append(EntryBlock(ordinals, keys, np.zeros(1, np.uint32)))
            expected += [(key, row) for row in ordinals.tolist()]
        streams.append(iter(blocks))
    merged = block_streams.gather(block_streams.merge(streams), KeyKind.POINT)
    assert list(zip(merged.keys.tolist(), merged.ordinals.tolist(), strict=True)) == sorted(
        expected
    )


def paged_world() -> World:
    world = World(definition(0, 0, fields=2), limits=SegmentLimits(mini=0, plain=0, entries=2))
    for _ in range(2):
        world.ingest([{"name": "a", "size": size} for size in (1, 1, 1, 2, 3)])
    return world


@pytest.mark.parametrize("change", ["flip", "swap"])
def test_a_page_that_was_altered_stops_a_stream(change: str) -> None:
    world = paged_world()
    segment = world.opened()[1]
    assert isinstance(segment, LoadedSegment)
    uid, used = segment.segment.uid, list(roles_of(segment))
    assert len(used) == 2 * (1 + 3)
    for number in used:
        page = world.pages[uid, number]
        data = page.data[:-1] + bytes((page.data[-1] ^ 1,))
        if change == "swap":
            data = world.pages[uid, used[used.index(number) - 1]].data
        world.pages[uid, number] = type(page)(uid, number, data)
        with pytest.raises(DoesNotOpen):
            merged_as_stream(world, FORMS[2])
        world.pages[uid, number] = page


def test_a_column_that_lists_other_rows_than_its_segment_stops_a_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a writer could seal it who has the key."""
    world = paged_world()
    real = LoadedSegment.open_block

    def shifted(self: LoadedSegment, number: int, sealed: bytes) -> EntryBlock:
        block = real(self, number, sealed)
        return EntryBlock(np.sort(block.ordinals // 2), block.keys, block.starts)

    monkeypatch.setattr(LoadedSegment, "open_block", shifted)
    with pytest.raises(DoesNotOpen):
        merged_as_stream(world, FORMS[2])

"""A mini, as who built it knows it, is what everybody else finds who opens it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.index.columns.column import Column
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.index.segments.merge import merge
from encrypted_records.index.segments.mini import Built, KnownMini, MiniSegment
from encrypted_records.ingest.seal import seal
from encrypted_records.model.definition import columns_of
from tests.index.world import World

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "note": {"type": "string", "x-index": ["words"]},
        "code": {"type": "string", "format": "uuid"},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "born": {"type": "string", "format": "date"},
        "size": {"type": "number", "minimum": -9, "maximum": 99, "precision": 2},
        "on": {"type": "integer", "minimum": 0, "maximum": 1},
    },
}
LONG = "the same beginning of many long strings, up to where keys end: "
VALUES: dict[str, list[Any]] = {
    "name": ["", "a", "a\0", LONG, LONG + "a", LONG + "b", None],
    "note": ["one two", "", "a b c d e f g h", None],
    "code": ["123e4567-e89b-42d3-a456-426614174000", "00000000-0000-4000-8000-000000000000", None],
    "kind": ["a", "b", None],
    "born": ["1970-01-01", "2026-11-26", None],
    "size": [-9, 0, 98, None],
    "on": [0, 1, None],
}
RECORD = st.fixed_dictionaries({name: st.sampled_from(some) for name, some in VALUES.items()})
SOME = st.lists(RECORD, min_size=1, max_size=9)


def stored(world: World, records: list[dict[str, Any]]) -> Built:
    sealed = seal(world.ledger, world.definition, world.plain(records), limits=world.limits)
    world.apply(sealed.upload)
    return sealed.built


def opened(world: World, built: Built) -> MiniSegment:
    found = world.open_segment(built.segment)
    assert type(found) is MiniSegment
    return found


def same(one: Column, other: Column) -> bool:
    pairs = ((one.ordinals, other.ordinals), (one.keys, other.keys))
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


def assert_same(world: World, built: Built) -> None:
    known, found = KnownMini(world.definition, built), opened(world, built)
    assert (known.view, known.count) == (found.view, found.count)
    assert np.array_equal(known.rows, found.rows)
    assert known.everything == found.everything
    for spec in columns_of(world.definition):
        assert known.has_column(spec.name)
        assert found.has_column(spec.name)
        assert same(known.column(spec.name), found.column(spec.name)), spec.name


@given(st.lists(SOME, min_size=1, max_size=4), st.sets(st.integers(0, 8)), st.booleans())
def test_what_was_built_has_the_columns_that_opening_it_gives(
    batches: list[list[dict[str, Any]]], dead: set[int], twice: bool
) -> None:
    world = World(json.dumps(DEFINITION))
    every = [stored(world, records) for records in batches]
    for built in every:
        assert_same(world, built)
    world.kill((0, at) for at in dead if at < len(batches[0]))

    def merged(minis: list[Any]) -> Built:
        return merge(world.key, world.definition, minis, world.ledger.snapshot(), world.limits)

    new = merged([KnownMini(world.definition, one) for one in every])
    others = merged([opened(world, one) for one in every])
    assert new.columns is not None
    assert others.columns is not None
    assert new.columns.keys() == others.columns.keys()
    for name, column in new.columns.items():
        assert same(column, others.columns[name]), name
    world.apply(
        world.ledger.draft(
            world.definition,
            segments=[new.segment],
            replaced=[one.segment.uid for one in every],
            pages=new.pages,
            headers=[new.header],
        )
    )
    assert_same(world, new)
    if twice:
        late = stored(world, batches[0])
        minis = [KnownMini(world.definition, one) for one in (new, late)]
        again, found = merged(minis), merged([opened(world, one) for one in (new, late)])
        assert again.columns is not None
        assert found.columns is not None
        assert all(same(one, found.columns[name]) for name, one in again.columns.items())


def test_a_segment_in_pages_is_not_known_as_a_whole() -> None:
    world = World(json.dumps(DEFINITION), limits=SegmentLimits(mini=0))
    assert stored(world, [{"name": "a"}]).columns is None


def test_it_counts_no_less_than_its_columns_take() -> None:
    world = World(json.dumps(DEFINITION))
    built = stored(world, [{"name": LONG + "a"} for _ in range(500)])
    assert built.columns is not None
    held = sum(column.ordinals.nbytes + column.keys.nbytes for column in built.columns.values())
    assert held < KnownMini(world.definition, built).size < 2 * held

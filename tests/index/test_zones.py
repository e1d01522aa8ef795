"""The least and greatest key in a header: they rule segments out, and never a match."""

from __future__ import annotations

from typing import Any

import pytest

from encrypted_records.errors import Unsupported
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.model.queries import parse_query
from tests.index.test_paged_tampering import Forger, new_world, read_all
from tests.index.world import World

TEXT = (
    '{"type": "object", "properties": {"name": {"type": "string"},'
    ' "n": {"type": "number", "minimum": -100, "maximum": 100, "precision": 1},'
    ' "none": {"type": "string"}}}'
)
LONG = "m" * 60


@pytest.fixture(scope="module")
def world() -> World:
    """Two paged segments: names a.. and m.., the second with long ones; numbers below 0 and above;
    nothing in the last field."""
    world = World(TEXT, limits=SegmentLimits(mini=0, entries=5))
    world.ingest({"name": f"a{at:02}", "n": -at - 1} for at in range(20))
    world.ingest({"name": LONG if at == 7 else f"m{at:02}", "n": at} for at in range(20))
    return world


#: A condition, and the pages that it needs of each segment at first: none, or some.
CASES: list[tuple[Any, tuple[bool, bool]]] = [
    ({"field": "name", "op": "eq", "value": "a03"}, (True, False)),
    ({"field": "name", "op": "eq", "value": "a19"}, (True, False)),
    ({"field": "name", "op": "gt", "value": "a19"}, (False, True)),
    ({"field": "name", "op": "ge", "value": "a19"}, (True, True)),
    ({"field": "name", "op": "lt", "value": "a00"}, (False, False)),
    ({"field": "name", "op": "prefix", "value": "m"}, (False, True)),
    ({"field": "name", "op": "prefix", "value": "b"}, (False, False)),
    ({"field": "name", "op": "eq", "value": LONG}, (False, True)),
    # Where it lies beside the long one, the key of the schema says.
    ({"field": "name", "op": "le", "value": LONG + "x"}, (True, True)),
    ({"field": "n", "op": "ge", "value": 0}, (False, True)),
    ({"field": "n", "op": "between", "value": [-1, 0]}, (True, True)),
    ({"field": "n", "op": "lt", "value": -1}, (True, False)),
    ({"field": "n", "op": "in", "value": [50, 60]}, (False, False)),
    ({"field": "none", "op": "ge", "value": ""}, (False, False)),
    ({"field": "none", "op": "is_null"}, (True, True)),
    ({"not": {"field": "n", "op": "ge", "value": 0}}, (True, True)),
    (
        {
            "and": [
                {"field": "name", "op": "prefix", "value": "a"},
                {"field": "n", "op": "ge", "value": 0},
            ]
        },
        (False, False),
    ),
    (
        {
            "or": [
                {"field": "name", "op": "prefix", "value": "b"},
                {"field": "n", "op": "ge", "value": 0},
            ]
        },
        (False, True),
    ),
]


@pytest.mark.parametrize(("where", "asked"), CASES, ids=str)
def test_a_segment_is_left_out_where_its_keys_lie_outside_of_what_is_asked(
    world: World, where: Any, asked: tuple[bool, bool]
) -> None:
    condition = Condition.of(
        parse_query({"where": where}, world.definition).where, world.ledger.tails, world.definition
    )
    segments = [world.open_segment(segment) for segment in world.ledger.snapshot().segments]
    assert tuple(bool(condition.missing(segment)) for segment in segments) == asked
    for segment, needed in zip(segments, asked, strict=True):
        if not needed:
            assert not condition.match(segment).possible
            assert condition.count(segment) in (0, None)
    certain, possible = world.ask(where)
    naive = World(TEXT)
    naive.ingest({"name": f"a{at:02}", "n": -at - 1} for at in range(20))
    naive.ingest({"name": LONG if at == 7 else f"m{at:02}", "n": at} for at in range(20))
    assert (certain, possible) == naive.ask(where)


@pytest.mark.parametrize("packed", [False, True])
def test_a_column_of_a_kind_that_is_not_known_is_unsupported(packed: bool) -> None:
    forger = Forger(new_world(packed=packed))
    with pytest.raises(Unsupported, match="kind"):
        read_all(forger.world, forger.segment, forger.sealed, forger.header(kinds=[1, 2, 1]))


def test_headers_of_one_shape_are_of_one_length_whatever_their_keys(world: World) -> None:
    one, other = (world.headers[segment.uid] for segment in world.ledger.snapshot().segments)
    assert len(one.data) == len(other.data)
    (first, second) = (world.open_segment(segment) for segment in world.ledger.snapshot().segments)
    assert isinstance(first, LoadedSegment)
    assert isinstance(second, LoadedSegment)
    assert first.directories.header.zones != second.directories.header.zones

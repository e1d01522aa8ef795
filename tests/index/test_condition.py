"""A question's key ranges are worked out once, however many segments it is put to."""

from __future__ import annotations

from unittest import mock

from encrypted_records.index.query import condition as conditions
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.key_sets import compute_ranges
from encrypted_records.model.queries import parse_query
from tests.index.world import World

TEXT = """{"type": "object", "properties": {
    "n": {"type": "integer", "minimum": 0, "maximum": 1000000},
    "name": {"type": "string"}
}}"""


def test_a_thousand_values_are_worked_out_once_for_two_hundred_segments() -> None:
    world = World(TEXT)
    for n in range(200):
        world.ingest([{"n": n, "name": f"name {n}" + "x" * 60}])
    where = {
        "or": [
            {"field": "n", "op": "in", "value": [*range(0, 2000, 2)]},
            {"not": {"field": "name", "op": "in", "value": [f"name {n}" for n in range(1000)]}},
        ]
    }
    asked = parse_query({"where": where}, world.definition).where
    with mock.patch.object(conditions, "compute_ranges", wraps=compute_ranges) as worked_out:
        condition = Condition.of(asked, world.ledger.tails, world.definition)
        segments = world.opened()
        for segment in segments:
            assert not condition.missing(segment)
            assert len(condition.match(segment).certain) == 1
            condition.missing_to_count(segment)
            condition.count(segment)
            condition.sort_range("n")
    assert len(segments) == 200
    assert worked_out.call_count == 2

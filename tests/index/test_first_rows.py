"""The first rows that match are the beginning of the whole answer, and none is left out of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.matching import match_first
from encrypted_records.model.predicates import leaves_of
from encrypted_records.model.queries import parse_query
from tests.index.strategies import Case, cases
from tests.index.test_answers_equal_the_oracle import world_of
from tests.index.world import World


def check(world: World, asked: Any, window: int) -> int:
    """In how many segments the first rows are told."""
    where = parse_query({"where": asked}, world.compared).where
    condition = Condition.of(where, world.ledger.tails, world.compared)
    told = 0
    for segment in map(world.open_segment, world.ledger.snapshot().segments):
        world.fetch(segment, lambda: condition.missing(segment))  # noqa: B023
        first, whole = match_first(condition, segment, window), condition.match(segment)
        if first is None:
            continue
        told += 1
        assert whole.certain == whole.possible
        left = whole.certain - first.rows
        assert first.rows <= whole.certain
        assert not left or not first.rows or min(left) > max(first.rows)
        assert not left or not first.is_all
        if list(leaves_of(where)) == [where]:
            assert bool(first.rows) == bool(whole.certain)
    return told


@given(cases(), st.integers(1, 24), st.data())
def test_the_first_rows_are_the_beginning_of_all_that_match(
    case: Case, window: int, data: st.DataObject
) -> None:
    world = world_of(case)
    for asked in case.asked:
        check(world, asked, window)
    every = [(s, o) for s, group in enumerate(case.groups) for o in range(len(group))]
    world.kill(data.draw(st.lists(st.sampled_from(every), unique=True)))
    world.merge()
    for asked in case.asked:
        check(world, asked, window)


def test_comparisons_and_what_joins_them_are_told_from_a_window() -> None:
    definition = """{"type": "object", "additionalProperties": false, "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
        "m": {"type": "integer", "minimum": 0, "maximum": 99}}}"""
    world = World(definition)
    world.ingest([{"n": n % 7, "m": n} for n in range(60)])
    few = {"field": "n", "op": "eq", "value": 3}
    late = {"field": "m", "op": "between", "value": [40, 55]}
    for asked in (few, late, {"and": [few, late]}, {"or": [few, late]}, {"not": late}):
        for window in (1, 5, 16, 100):
            assert check(world, asked, window) == 1

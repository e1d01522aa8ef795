"""Percentiles and histograms of more values than are kept are exact all the same."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import InvalidQuery
from encrypted_records.index.query.aggregate import AggregateLimits
from encrypted_records.index.query.tallies import Cells, DistinctLimits
from tests.index.reading import IN_WINDOWS, NARROW
from tests.index.test_aggregate import Aggregation
from tests.index.world import World

POINTS = st.integers(0, 2**64 - 1) | st.integers(0, 40) | st.integers(2**64 - 40, 2**64 - 1)
#: Room for 120 different values, of 32 bytes each.
FEW = AggregateLimits(kept=DistinctLimits(120 * 32, 120 * 32))


def parted(cells: Cells, keys: list[int]) -> list[tuple[int, int]]:
    firsts = cells.firsts(np.array(keys, np.uint64))
    return list(zip(firsts.tolist(), cells.lasts(firsts).tolist(), strict=True))


@given(st.lists(POINTS, min_size=1), st.data())
def test_cells_part_all_keys_and_wider_ones_hold_finer_ones(
    keys: list[int], data: st.DataObject
) -> None:
    keys.sort()
    cells = Cells()
    assert parted(cells, keys) == [(key, key) for key in keys]
    array = np.array(keys, np.uint64)
    most = data.draw(st.integers(1, len(keys)))
    wider = cells.wider(np.zeros(len(keys), np.int64), array, most)
    if wider is None:
        return
    whole = parted(wider, keys)
    assert len(set(whole)) <= most
    assert all(first <= key <= last for key, (first, last) in zip(keys, whole, strict=True))
    chosen = data.draw(st.sets(st.sampled_from([first for first, _ in whole])))
    cuts = data.draw(st.sets(POINTS))
    finer = Cells.within(wider, chosen, cuts, widest=0)
    for (first, last), key, (before, after) in zip(parted(finer, keys), keys, whole, strict=True):
        assert first <= key <= last
        assert first == last or before not in chosen
        assert before <= first <= last <= after or before not in chosen
        assert not any(first < cut <= last for cut in cuts)


NUMBERS = """{"type": "object", "formats": "enforced", "properties": {
    "n": {"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807},
    "d": {"type": "string", "format": "date-time"},
    "g": {"type": "string"}}}"""
MEASURES = [
    {"op": "percentile", "field": "n", "p": [0, 5, 50, Decimal("99.9"), 100]},
    {"op": "histogram", "field": "n", "bins": 4},
    {"op": "histogram", "field": "n", "bounds": [-(2**70), -5, 0, 3, 10**6, 2**62]},
    {"op": "percentile", "field": "d", "p": 50},
    {"op": "histogram", "field": "d", "by": "month"},
    {"op": "sum", "field": "n"},
    {"op": "max", "field": "n"},
]


def world_of_numbers(seed: int) -> World:
    """Numbers far apart and close together, some of them often, and instants."""
    chance = np.random.default_rng(seed)
    world = World(NUMBERS)
    for rows in (chance.integers(1, 60), 500):
        scale = chance.choice([1, 3, 10**3, 10**9, 2**62], rows)
        values = (chance.uniform(-1, 1, rows) * scale).astype(np.int64).tolist()
        days = chance.integers(1, 29, rows).tolist()
        seconds = chance.integers(0, 60, rows).tolist()
        world.ingest(
            [
                {
                    "n": None if at % 9 == 8 else value,
                    "d": f"2026-0{1 + at % 2}-{day:02}T00:00:{second:02}Z",
                    "g": str(at % 2),
                }
                for at, (value, day, second) in enumerate(zip(values, days, seconds, strict=True))
            ]
        )
    return world


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("groups", [[], ["g"]])
@pytest.mark.parametrize("where", [None, {"field": "g", "op": "eq", "value": "1"}])
def test_more_values_than_are_kept_give_the_same_answer(
    seed: int, groups: list[str], where: Any
) -> None:
    world = world_of_numbers(seed)
    world.kill([(0, 0), (1, 3), (1, 4)])
    body = {"measures": MEASURES, "where": where, "group_by": groups}
    expected = Aggregation(world, body).answer()
    for merged in (False, True):
        if merged:
            world.merge()
        for reading in (IN_WINDOWS, NARROW):
            assert Aggregation(world, body, FEW, reading).answer() == expected


def test_a_list_of_more_values_than_are_kept_is_refused() -> None:
    world = world_of_numbers(1)
    body = {"measures": [{"op": "distinct", "field": "n"}]}
    with pytest.raises(InvalidQuery) as caught:
        Aggregation(world, body, FEW).answer()
    assert caught.value.reason == "too_many_values"
    where = {"field": "n", "op": "between", "value": [-2, 2]}
    assert Aggregation(world, body | {"where": where}, FEW).answer().total == 1


def test_more_groups_than_cells_that_are_kept_are_refused() -> None:
    world = World(NUMBERS)
    world.ingest([{"g": str(at), "n": at} for at in range(121)])
    measures = [{"op": "percentile", "field": "n", "p": 50}]
    body = {"group_by": ["g"], "measures": measures, "limit": 121}
    with pytest.raises(InvalidQuery) as caught:
        Aggregation(world, body, FEW).answer()
    assert caught.value.reason == "too_many_values"

"""Counts and the first rows of an order that no set of all rows is made for are the oracle's."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import Any

import pytest

from encrypted_records.index.query import aggregate, segment_filters
from encrypted_records.index.query.aggregate import measure
from encrypted_records.index.query.sorted_scan import ScanLimits
from encrypted_records.index.segments.builder import STANDARD as MINIS
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.index.segments.reading import ReadingLimits
from encrypted_records.model.aggregations import parse_aggregation
from tests import oracle
from tests.index.executor import Executor
from tests.index.reading import MANY_ROWS, Kept
from tests.index.world import World

FIELDS: dict[str, Any] = {
    "name": {"type": "string"},
    "state": {"type": "string"},
    "amount": {"type": "number", "minimum": 0, "maximum": 1000, "precision": 1},
    "number": {"type": "integer", "minimum": 0, "maximum": 100_000},
}
#: Rows of a segment, in pages of some forty.
MANY = 420
LONG = "a long string that goes on beyond what an index key holds of it: "
WITH_KEYS = ReadingLimits(window=2, few=1)
WITHOUT = ReadingLimits(window=2, by_row=0, few=1)
#: Scans always pay.
EAGER = ScanLimits(step=32, spare=-(2**60), share=1.0)
#: As of very many rows.
LARGE = replace(MANY_ROWS, reading=WITHOUT, scan=EAGER)


def person(number: int) -> dict[str, Any]:
    chance = random.Random(number)
    found: dict[str, Any] = {"number": number, "name": f"n{chance.randrange(500):03}"}
    if number % 400 == 7:
        found["name"] = LONG + found["name"]
    if number % 11:
        found["state"] = f"s{chance.randrange(4)}"
    if number % 13:
        found["amount"] = Decimal(chance.randrange(0, 1000, 5))
    return found


@cache
def made() -> tuple[World, dict[int, dict[str, Any]]]:
    """Three large segments and small ones; of two of the large ones some records have died. With
    what lives, by position."""
    world = World(json.dumps({"type": "object", "properties": FIELDS}), limits=MINIS)
    world.ingest([person(0)])
    world.limits = SegmentLimits(mini=0, entries=40)
    for first in range(1, 3 * MANY, MANY):
        world.ingest([person(number) for number in range(first, first + MANY)])
    records = dict(enumerate(map(person, range(3 * MANY + 1))))
    old = [at for at in records if at <= 2 * MANY]
    for order_by in (["-amount", "number"], ["state", "-number"], ["-number"]):
        order = oracle.in_order(order_by, [records[at] for at in old], FIELDS)[:3]
        dead = [old[at] for at in order]
        world.kill([world.row_at(at) for at in dead])
        for at in dead:
            del records[at]
        old = [at for at in old if at not in dead]
    order = oracle.in_order(["amount", "-number"], [records[at] for at in old], FIELDS)[:2]
    world.limits = MINIS
    changed = [records.pop(old[at]) | {"state": "s9", "amount": Decimal("0.5")} for at in order]
    world.kill([world.row_at(old[at]) for at in order])
    world.ingest(changed)
    records |= dict(enumerate(changed, 3 * MANY + 1))
    return world, records


def comparisons() -> Iterator[dict[str, Any]]:
    for field, op, value in (
        ("amount", "ge", 250),
        ("amount", "between", [Decimal("100.04"), Decimal("800.06")]),
        ("amount", "in", [0, 5, Decimal("5.04"), 500]),
        ("state", "eq", "s2"),
        ("state", "in", ["s0", "s9", "nowhere"]),
        ("state", "ge", "s1"),
        ("number", "between", [500, 3 * MANY - 500]),
        ("number", "lt", 6000),
        ("number", "ge", 2 * MANY + 9),
        ("name", "eq", "n007"),
        ("name", "ge", LONG + "n2"),
        ("name", "lt", "n3"),
        ("amount", "is_null", True),
        ("state", "is_null", False),
    ):
        yield {"field": field, "op": op, "value": value}


def conditions() -> Iterator[Any]:
    every = list(comparisons())
    yield None
    yield from every
    yield from ({"not": one} for one in every)
    amount, between, _, state, states, above, range_of, *_ = every
    yield {"and": [state, range_of]}
    yield {"and": [amount, between]}
    yield {"and": [range_of, between, states]}
    yield {"and": [range_of, {"field": "number", "op": "ge", "value": 2 * MANY - 1}]}
    yield {"and": [{"field": "number", "op": "ge", "value": 0}, state]}
    yield {"and": [{"field": "number", "op": "lt", "value": 0}, state]}
    yield {"and": [{"or": [state, between]}, {"not": states}, range_of]}
    yield {"and": [above, {"field": "amount", "op": "is_null", "value": False}]}


ORDERS = (["number"], ["-number"], ["amount", "-number"], ["-amount", "state", "name"], ["state"])


@dataclass
class Asked:
    executor: Executor
    records: dict[int, dict[str, Any]]

    def expected(self, where: Any, order_by: list[str]) -> list[int]:
        own = [at for at, one in self.records.items() if oracle.holds(where, one, FIELDS)]
        order = oracle.in_order(order_by, [self.records[at] for at in own], FIELDS)
        return [own[at] for at in order]

    def check_count(self, where: Any) -> None:
        true = self.expected(where, [])
        executor = self.executor
        measures = [{"op": "count"}, {"op": "count"}]
        body = {"where": where, "measures": measures}
        aggregation = parse_aggregation(body, executor.space.definition)
        condition = executor.condition(aggregation.where)
        (told,) = executor.run(measure(executor.space, condition, aggregation)).groups
        assert told.results == (len(true), len(true)), where
        for limit in (0, 3):
            found = executor.pages({"where": where, "count": True, "limit": limit}, most=1)
            assert found == (len(true), [true[:limit]]), (where, limit)

    def check_order(self, where: Any, order_by: list[str], **more: Any) -> None:
        expected = self.expected(where, order_by)
        body = {"where": where, "order_by": order_by, "limit": 25, **more}
        _, pages = self.executor.pages(body, most=2)
        found = [at for page in pages for at in page]
        assert found == expected[:50], (where, order_by)


@pytest.mark.parametrize(
    ("limits", "stays"),
    [(WITH_KEYS, True), (WITHOUT, True), (WITHOUT, False)],
    ids=["keys", "no keys", "columns that do not stay"],
)
def test_they_are_the_oracles_with_dead_rows_and_without(
    limits: ReadingLimits, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    own_open = segment_filters.open_column

    def open_column(*arguments: Any) -> Any:
        opened.append(arguments)
        return (yield from own_open(*arguments))

    for module in (segment_filters, aggregate):
        monkeypatch.setattr(module, "open_column", open_column)
    sizes = replace(LARGE, reading=limits)
    world, records = made()
    asked = Asked(Executor(world, sizes, Kept(stay=stays), by_row=stays), records)
    for where in conditions():
        asked.check_count(where)
    assert opened
    opened.clear()
    for number, where in enumerate(conditions()):
        asked.check_order(where, ORDERS[number % len(ORDERS)])
        asked.check_order(where, ORDERS[(number + 2) % len(ORDERS)], count=number % 2 == 0)
    assert opened


def pages(world: World, body: dict[str, Any]) -> int:
    """Pages of large segments that a question takes where nothing is kept."""
    kept = Kept(stay=False)
    executor = Executor(world, LARGE, kept, by_row=False)
    if "measures" in body:
        aggregation = parse_aggregation(body, executor.space.definition)
        condition = executor.condition(aggregation.where)
        executor.run(measure(executor.space, condition, aggregation))
    else:
        executor.pages(body, most=1)
    return kept.brought


def test_they_take_the_pages_in_which_ranges_begin_and_end() -> None:
    world, _ = made()
    newest = {"field": "number", "op": "ge", "value": 2 * MANY + 9}
    both = {"field": "number", "op": "between", "value": [MANY + 9, 2 * MANY + 300]}
    count, mean = [{"op": "count"}], [{"op": "avg", "field": "number"}]
    # The directory, and what the column has beside it.
    assert pages(world, {"where": newest, "measures": mean}) > 4
    assert pages(world, {"where": newest, "measures": count}) == 2
    assert pages(world, {"where": newest, "count": True, "limit": 0}) == 2
    # One range that is asked in two comparisons is one range.
    alone = pages(world, {"where": both, "measures": count})
    halves = [("ge", MANY + 9), ("lt", 2 * MANY + 301)]
    parts = [{"field": "number", "op": op, "value": bound} for op, bound in halves]
    assert pages(world, {"where": {"and": parts}, "measures": count}) == alone
    # All rows of one segment are in the first range, and two have none: of the second range, where
    # it begins. The directories of both fields, and the page.
    inner = {"field": "number", "op": "between", "value": [2 * MANY + 1, 3 * MANY]}
    either = {"and": [inner, {"field": "amount", "op": "ge", "value": 250}]}
    assert pages(world, {"where": either, "measures": count}) == 3
    # The directories of two segments; the second of these can have none of the first rows.
    assert pages(world, {"where": both, "order_by": ["number"], "limit": 5}) == 3


def test_sums_of_a_column_are_made_once_where_columns_by_row_do_not_stay() -> None:
    """Of the two segments with dead rows, these are looked up while the others are added up."""
    world, records = made()
    kept = Kept(stay=False)
    values = [one["amount"] for one in records.values() if "amount" in one]
    body = {"measures": [{"op": "sum", "field": "amount"}]}
    brought: list[int] = []
    for _ in range(2):
        executor = Executor(world, LARGE, kept, by_row=False)
        aggregation = parse_aggregation(body, executor.space.definition)
        condition = executor.condition(aggregation.where)
        (told,) = executor.run(measure(executor.space, condition, aggregation)).groups
        assert told.results == (sum(values),)
        brought.append(kept.brought)
    assert len(kept.sums) == 3
    # The directories, and nothing that they lead to.
    assert brought[1] - brought[0] == 3


def test_segments_that_come_later_are_left_alone_where_the_first_have_enough() -> None:
    world = World(json.dumps({"type": "object", "properties": FIELDS}), limits=MINIS)
    for first in (0, 4, 8):
        world.ingest([{"number": first + row, "state": "even"} for row in range(4)])
    where = {"field": "state", "op": "eq", "value": "even"}

    def found(first_rows: int, **more: Any) -> int:
        executor = Executor(world)
        executor.pages({"where": where, **more}, most=1, first_rows=first_rows)
        return executor.space.counted.certain

    assert found(1, limit=4) == 8  # one row more shows that there is a next page
    assert found(4, limit=3) == 4
    assert found(4, limit=3, count=True) == 12
    assert found(4, limit=3, order_by=["name"]) == 12

"""A sorted answer of many segments is the oracle's, page by page, and few segments are looked into.

Pages of five entries, so that values go on from page to page and from segment to segment.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

import pytest

from encrypted_records.index.query import segment_filters
from encrypted_records.index.query.asking import Sizes
from encrypted_records.index.query.matching import Matching
from encrypted_records.index.query.sorted_scan import ScanLimits
from encrypted_records.index.segments.builder import STANDARD as MINIS
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.index.segments.reading import ReadingLimits
from tests import oracle
from tests.index.executor import Executor
from tests.index.reading import Kept
from tests.index.world import World

FIELDS: dict[str, Any] = {
    "kind": {"type": "string"},
    "rank": {"type": "integer", "minimum": 0, "maximum": 9},
    "tag": {"type": "string"},
    "number": {"type": "integer", "minimum": 0, "maximum": 10_000},
    "name": {"type": "string"},
}
SEGMENTS, ROWS = 8, 80
SMALL = SegmentLimits(mini=0, entries=5)
LONG = "a long string that goes on beyond what an index key holds of it: "
#: Scans always pay, and so do columns by row.
EAGER = ScanLimits(step=4, spare=-(2**60), share=1.0)
STANDARD = Sizes(
    few_rows=0, few_to_sort=0, many_pages=0, few_values=0, few_entries=1, batch_bytes=1, scan=EAGER
)
#: One of many values is brought without them, and scans end early.
NARROW = replace(
    STANDARD, reading=ReadingLimits(window=2, by_row=0, few=1), scan=ScanLimits(step=4, spare=8)
)
#: Conditions are answered by sets of rows.
BY_SETS = replace(STANDARD, few_entries=1 << 16)


def record(number: int) -> dict[str, Any]:
    chance = random.Random(number)
    found: dict[str, Any] = {"number": number}
    if chance.random() < 0.9:
        found["kind"] = "rare" if number % 15 == 4 else f"k{chance.randrange(3)}"
    if chance.random() < 0.9:
        # Many are equal, in every segment; the first segments lack the last values.
        found["rank"] = min(chance.randrange(4), 1 + number // ROWS)
    if chance.random() < 0.9:
        long = LONG if chance.random() < 0.1 else ""
        found["tag"] = f"{long}t{chance.randrange(12):02}"
    if number % 3 == 0:
        found["name"] = f"n{number}"
    return found


@cache
def world() -> World:
    """Segments of pages, of which some records have died, and two small ones."""
    made = World(json.dumps({"type": "object", "properties": FIELDS}), limits=MINIS)
    made.ingest([record(0)])
    made.limits = SMALL
    for first in range(1, SEGMENTS * ROWS, ROWS):
        made.ingest([record(number) for number in range(first, first + ROWS)])
    asked = Asked(made)
    for order_by in (["rank", "number"], ["-rank", "number"], ["kind", "tag"], ["-number"]):
        made.kill(made.row_at(place) for place in asked.in_order(None, order_by)[:4])
        asked = Asked(made)
    changed = asked.in_order(None, ["-rank", "tag"])[:2]
    made.limits = MINIS
    made.ingest([asked.records[place] | {"rank": 0} for place in changed])
    made.kill(made.row_at(place) for place in changed)
    return made


class Asked(Executor):
    """Questions about that world, all of which is taken for large."""

    def __post_init__(self) -> None:
        super().__post_init__()
        #: what lives, by position
        self.records = self.live()

    def in_order(self, where: Any, order_by: list[str]) -> list[int]:
        own = [
            at
            for at, one in self.records.items()
            if where is None or oracle.holds(where, one, FIELDS)
        ]
        order = oracle.in_order(order_by, [self.records[at] for at in own], FIELDS)
        return [own[at] for at in order]


def conditions() -> Iterator[Any]:
    kind = {"field": "kind", "op": "eq", "value": "k1"}
    ranks = {"field": "rank", "op": "between", "value": [1, 2]}
    numbers = {"field": "number", "op": "between", "value": [3 * ROWS, 6 * ROWS]}
    yield from (kind, ranks, numbers, {"not": kind})
    yield {"field": "kind", "op": "in", "value": ["k0", "k2", "nothing"]}
    yield {"field": "tag", "op": "is_null", "value": True}
    yield {"and": [kind, ranks]}
    yield {"and": [{"or": [kind, numbers]}, {"not": {"field": "rank", "op": "eq", "value": 0}}]}


def orders(chance: random.Random) -> Iterator[list[str]]:
    while True:
        fields = chance.sample(["rank", "kind", "tag", "number"], chance.choice([1, 2, 2, 3]))
        yield [f"-{name}" if chance.random() < 0.5 else name for name in fields]


def asking(sizes: Sizes, *, stays: bool = True) -> Asked:
    return Asked(world(), sizes, Kept(stay=stays), by_row=stays)


@pytest.mark.parametrize(
    "asked",
    [(STANDARD, True), (NARROW, True), (NARROW, False), (BY_SETS, True)],
    ids=["keys", "no keys", "columns that do not stay", "sets"],
)
def test_all_pages_are_the_oracles(asked: tuple[Sizes, bool]) -> None:
    sizes, stays = asked
    executor = asking(sizes, stays=stays)
    chance = random.Random(26)
    every = orders(chance)
    for where in conditions():
        for _ in range(2):
            order_by = next(every)
            expected = executor.in_order(where, order_by)
            limit = chance.choice([1, 4, 11, 40])
            offset = chance.choice([0, 0, 3, 50])
            body = {"where": where, "order_by": order_by, "limit": limit, "offset": offset}
            _, pages = executor.pages(body, most=5)
            found = list(chain.from_iterable(pages))
            assert found == expected[offset : offset + len(found)], (where, order_by, limit, offset)
            assert len(found) == min(5 * limit, max(0, len(expected) - offset)), (where, order_by)


@pytest.mark.parametrize("sizes", [STANDARD, BY_SETS])
@pytest.mark.parametrize("field", ["name", "tag", "rank"])
def test_a_second_page_of_rows_that_all_lack_the_field_follows_the_last_that_has_it(
    sizes: Sizes, field: str
) -> None:
    executor = asking(sizes)
    where = {"field": "number", "op": "between", "value": [3 * ROWS, 6 * ROWS]}
    expected = executor.in_order(where, [f"-{field}"])
    present = sum(field in executor.records[at] for at in expected)
    body = {"where": where, "order_by": [f"-{field}"], "limit": present}
    _, (first, second, *_) = executor.pages(body)
    assert first == expected[:present]
    assert second == expected[present : 2 * present]
    assert not any(field in executor.records[at] for at in second)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, str]]:
    """Segments and fields whose columns by row look up which rows match."""
    found: list[tuple[bytes, str]] = []
    own_open = segment_filters.open_column

    def open_column(space: Any, segment: Any, leaf: Any) -> Any:
        found.append((segment.segment.uid, leaf.field))
        return (yield from own_open(space, segment, leaf))

    monkeypatch.setattr(segment_filters, "open_column", open_column)
    return found


@pytest.mark.parametrize("order_by", [["rank", "-number"], ["-rank", "-number"]])
def test_one_segment_has_all_rows_of_a_page_where_the_second_field_grows(
    order_by: list[str], opened: list[tuple[bytes, str]]
) -> None:
    executor = asking(STANDARD)
    where = {"field": "kind", "op": "in", "value": ["k0", "k1"]}
    body = {"where": where, "order_by": order_by, "limit": 1}
    expected = executor.in_order(where, order_by)
    assert executor.pages(body, most=1)[1] == [expected[:1]]
    assert len(opened) == 1
    opened.clear()
    assert executor.pages(body, most=2)[1] == [expected[:1], expected[1:2]]
    assert 2 <= len(opened) <= 4


@pytest.mark.parametrize("order_by", ["number", "-number"])
def test_one_segment_rules_others_out_of_an_order_by_one_field(
    order_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[int] = []

    class Noting(Matching):
        def find(self, among: Any = None, **options: Any) -> Any:
            rounds.append(len(among))
            return (yield from super().find(among, **options))

    monkeypatch.setattr("encrypted_records.index.query.top_k.Matching", Noting)
    executor = asking(BY_SETS)
    where = {"field": "kind", "op": "eq", "value": "k1"}
    body = {"where": where, "order_by": [order_by], "limit": 3}
    expected = executor.in_order(where, [order_by])
    assert executor.pages(body, most=2)[1] == [expected[:3], expected[3:6]]
    assert rounds == [1, 1]


@pytest.mark.parametrize("stays", [True, False])
def test_a_column_of_few_values_is_brought_by_row_as_long_as_there_is_room(
    stays: bool, opened: list[tuple[bytes, str]]
) -> None:
    executor = asking(STANDARD, stays=stays)
    # Matches are on two pages or fewer of sixteen.
    where = {"field": "kind", "op": "eq", "value": "rare"}
    body = {"where": where, "order_by": ["rank", "-number"], "limit": 3}
    expected = executor.in_order(where, ["rank", "-number"])
    assert executor.pages(body, most=1)[1] == [expected[:3]]
    assert ("kind" in {field for _, field in opened}) == stays

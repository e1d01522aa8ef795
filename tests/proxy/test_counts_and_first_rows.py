"""Counts and the first rows of an order that no set of all rows is made for are the oracle's."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.index.query.sorted_scan import ScanLimits
from encrypted_records.index.segments.reading import ReadingLimits
from encrypted_records.proxy.overrides import Overrides
from encrypted_records.proxy.search import counts, fetcher, segment_filters
from encrypted_records.proxy.search.upstream import Sizes
from tests import oracle
from tests.support.proxies import running_proxy
from tests.support.second_proxy import second_proxy, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

# Nothing here is the database's affair.
pytestmark = pytest.mark.parametrize("service", ["sqlite"], indirect=True)

FIELDS: dict[str, Any] = {
    "name": {"type": "string"},
    "state": {"type": "string"},
    "amount": {"type": "number", "minimum": 0, "maximum": 1000, "precision": 1},
    "number": {"type": "integer", "minimum": 0, "maximum": 100_000},
}
#: More than a mini holds.
MANY = 4200
LONG = "a long string that goes on beyond what an index key holds of it: "
WITH_KEYS = ReadingLimits(window=2, few=1)
WITHOUT = ReadingLimits(window=2, by_row=0, few=1)
#: Scans always pay.
EAGER = ScanLimits(step=32, spare=-(2**60), share=1.0)


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


@pytest.fixture
def store(service: Service, tmp_path: Path) -> Store:
    """Three large segments and small ones; of two of the large ones some records have died."""
    store = new_store(service, {"type": "object", "properties": FIELDS})
    store.ingest([person(0)])

    async def fill() -> None:
        async with second_proxy(store, with_keyrings(service, tmp_path / "filling")) as proxy:
            for first in range(1, 3 * MANY, MANY):
                await proxy.ingest([person(number) for number in range(first, first + MANY)])

    asyncio.run(fill())
    old = {"field": "number", "op": "le", "value": 2 * MANY}
    for order_by in (["-amount", "number"], ["state", "-number"], ["-number"]):
        for one in store.search(old, limit=3, order_by=order_by)["results"]:
            assert store.proxy("DELETE", one["url"]).status == 204
    for one in store.search(old, limit=2, order_by=["amount", "-number"])["results"]:
        changed = store.proxy("PATCH", one["url"], {"data": {"state": "s9", "amount": 0.5}})
        assert changed.status == 200
    return store


def comparisons() -> Iterator[dict[str, Any]]:
    for field, op, value in (
        ("amount", "ge", 250),
        ("amount", "between", [100.04, 800.06]),
        ("amount", "in", [0, 5, 5.04, 500]),
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


class Asked:
    """One proxy, and what it must answer."""

    def __init__(self, store: Store, records: list[dict[str, Any]]) -> None:
        self.store = store
        self.records = records

    def _ask(self, path: str, body: dict[str, Any]) -> Any:
        reply = self.store.proxy("POST", path, {"schema": self.store.schema, **body})
        assert reply.status == 200, reply.body
        return reply.json()

    def check_count(self, where: Any) -> None:
        true = sum(oracle.holds(where, one, FIELDS) for one in self.records)
        measures = [{"op": "count"}, {"op": "count"}]
        told = self._ask("/api/records/aggregate/", {"where": where, "measures": measures})
        assert [one["value"] for one in told["measures"]] == [true, true], where
        for limit in (0, 3):
            body = {"where": where, "count": True, "limit": limit}
            found = self._ask("/api/records/search/", body)
            assert found["count"] == true, (where, limit)
            first = [one for one in self.records if oracle.holds(where, one, FIELDS)][:limit]
            assert [one["data"] for one in found["results"]] == first

    def check_order(self, where: Any, order_by: list[str], **more: Any) -> None:
        own = [one for one in self.records if oracle.holds(where, one, FIELDS)]
        expected = [own[at] for at in oracle.in_order(order_by, own, FIELDS)]
        body = {"where": where, "order_by": order_by, "limit": 25, **more}
        for at in (0, 25):
            found = self._ask("/api/records/search/", body)
            shown = [one["data"] for one in found["results"]]
            assert shown == expected[at : at + 25], (where, order_by, at)
            if found["next_cursor"] is None:
                break
            body["cursor"] = found["next_cursor"]

    def pages(self, body: dict[str, Any]) -> int:
        """Pages of large segments that a question takes of a proxy that holds nothing."""
        told = self._ask("/api/records/explain/", body)
        pages: int = told["pages"] - told["segments"]["mini"]
        return pages


@pytest.mark.parametrize(
    ("limits", "stays"),
    [(WITH_KEYS, True), (WITHOUT, True), (WITHOUT, False)],
    ids=["keys", "no keys", "columns that do not stay"],
)
def test_they_are_the_oracles_with_dead_rows_and_without(
    store: Store,
    tmp_path: Path,
    limits: ReadingLimits,
    stays: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not stays:
        monkeypatch.setattr(fetcher, "ROW_BYTES", 1 << 30)
    opened: list[Any] = []
    own_open = segment_filters.open_column

    async def open_column(*arguments: Any) -> Any:
        opened.append(arguments)
        return await own_open(*arguments)

    for module in (segment_filters, counts):
        monkeypatch.setattr(module, "open_column", open_column)
    records = [one["data"] for one in store.everything()]
    sizes = Sizes(
        few_rows=0,
        few_to_sort=0,
        many_pages=0,
        few_values=0,
        few_entries=1,
        held=1,
        reading=limits,
        scan=EAGER,
    )
    overrides = Overrides(question_sizes=sizes)
    own = with_keyrings(store.service, tmp_path / "own")
    with running_proxy(store.service.base_url, own, overrides=overrides) as proxy:
        asked = Asked(replace(store, service=replace(store.service, proxy_url=proxy.url)), records)
        for where in conditions():
            asked.check_count(where)
        assert opened
        opened.clear()
        for number, where in enumerate(conditions()):
            asked.check_order(where, ORDERS[number % len(ORDERS)])
            asked.check_order(where, ORDERS[(number + 2) % len(ORDERS)], count=number % 2 == 0)
        assert opened


def test_they_take_the_pages_in_which_ranges_begin_and_end(store: Store, tmp_path: Path) -> None:
    newest = {"field": "number", "op": "ge", "value": 2 * MANY + 9}
    both = {"field": "number", "op": "between", "value": [MANY + 9, 2 * MANY + 3000]}
    count, mean = [{"op": "count"}], [{"op": "avg", "field": "number"}]
    sizes = Sizes(
        few_rows=0, few_to_sort=0, many_pages=0, few_entries=1, reading=WITHOUT, scan=EAGER
    )
    own = with_keyrings(store.service, tmp_path / "own")
    overrides = Overrides(question_sizes=sizes)
    with running_proxy(store.service.base_url, own, overrides=overrides) as proxy:
        other = replace(store, service=replace(store.service, proxy_url=proxy.url))
        asked = Asked(other, [])
        # The directory, and what the column has beside it.
        assert asked.pages({"where": newest, "measures": mean}) > 4
        assert asked.pages({"where": newest, "measures": count}) == 2
        assert asked.pages({"where": newest, "count": True, "limit": 0}) == 2
        # One range that is asked in two comparisons is one range.
        alone = asked.pages({"where": both, "measures": count})
        halves = [("ge", MANY + 9), ("lt", 2 * MANY + 3001)]
        parts = [{"field": "number", "op": op, "value": bound} for op, bound in halves]
        assert asked.pages({"where": {"and": parts}, "measures": count}) == alone
        # All rows of one segment are in the first range, and two have none: of the second range,
        # where it begins. The directories of both fields, and the page.
        inner = {"field": "number", "op": "between", "value": [MANY + 1, 2 * MANY]}
        either = {"and": [inner, {"field": "amount", "op": "ge", "value": 250}]}
        assert asked.pages({"where": either, "measures": count}) <= 8
        # The directories of two segments; the second of these can have none of the first rows.
        assert asked.pages({"where": both, "order_by": ["number"], "limit": 5}) == 3

"""Counts, and the first rows of an order, take no more pages than tell them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.index.query.sizes import Sizes
from encrypted_records.index.query.sorted_scan import ScanLimits
from encrypted_records.index.segments.reading import ReadingLimits
from encrypted_records.proxy.overrides import Overrides
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


def pages(store: Store, body: dict[str, Any]) -> int:
    """Pages of large segments that a question takes of a proxy that holds nothing."""
    reply = store.proxy("POST", "/api/records/explain/", {"schema": store.schema, **body})
    assert reply.status == 200, reply.body
    told = reply.json()
    found: int = told["pages"] - told["segments"]["mini"]
    return found


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
        # The directory, and what the column has beside it.
        assert pages(other, {"where": newest, "measures": mean}) > 4
        assert pages(other, {"where": newest, "measures": count}) == 2
        assert pages(other, {"where": newest, "count": True, "limit": 0}) == 2
        # One range that is asked in two comparisons is one range.
        alone = pages(other, {"where": both, "measures": count})
        halves = [("ge", MANY + 9), ("lt", 2 * MANY + 3001)]
        parts = [{"field": "number", "op": op, "value": bound} for op, bound in halves]
        assert pages(other, {"where": {"and": parts}, "measures": count}) == alone
        # All rows of one segment are in the first range, and two have none: of the second range,
        # where it begins. The directories of both fields, and the page.
        inner = {"field": "number", "op": "between", "value": [MANY + 1, 2 * MANY]}
        either = {"and": [inner, {"field": "amount", "op": "ge", "value": 250}]}
        assert pages(other, {"where": either, "measures": count}) <= 8
        # The directories of two segments; the second of these can have none of the first rows.
        assert pages(other, {"where": both, "order_by": ["number"], "limit": 5}) == 3

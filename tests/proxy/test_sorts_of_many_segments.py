"""A sorted answer of many segments is the oracle's, page by page, and few segments are looked into.

Pages of five entries, so that values go on from page to page and from segment to segment.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.index.query.sorted_scan import ScanLimits
from encrypted_records.index.segments.builder import Limits
from encrypted_records.index.segments.reading import ReadingLimits
from encrypted_records.proxy.overrides import Overrides
from encrypted_records.proxy.search import fetcher, match, segment_filters
from encrypted_records.proxy.search.upstream import Sizes
from tests import oracle
from tests.support.proxies import running_proxy
from tests.support.second_proxy import second_proxy, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

# Nothing here is the database's affair.
pytestmark = pytest.mark.parametrize("service", ["sqlite"], indirect=True)

FIELDS: dict[str, Any] = {
    "kind": {"type": "string"},
    "rank": {"type": "integer", "minimum": 0, "maximum": 9},
    "tag": {"type": "string"},
    "number": {"type": "integer", "minimum": 0, "maximum": 10_000},
    "name": {"type": "string"},
}
SEGMENTS, ROWS = 8, 80
SMALL = Limits(mini=0, entries=5)
LONG = "a long string that goes on beyond what an index key holds of it: "
#: Scans always pay, and so do columns by row.
EAGER = ScanLimits(step=4, spare=-(2**60), share=1.0)
STANDARD = Sizes(
    few_rows=0, few_to_sort=0, many_pages=0, few_values=0, few_entries=1, held=1, scan=EAGER
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


@pytest.fixture
def store(service: Service, tmp_path: Path) -> Store:
    """Segments of pages, of which some records have died, and a small one."""
    store = new_store(service, {"type": "object", "properties": FIELDS})
    store.ingest([record(0)])

    async def fill() -> None:
        async with second_proxy(store, with_keyrings(service, tmp_path / "filling")) as proxy:
            for first in range(1, SEGMENTS * ROWS, ROWS):
                records = [record(number) for number in range(first, first + ROWS)]
                await proxy.ingest(records, SMALL)

    asyncio.run(fill())
    for order_by in (["rank", "-number"], ["-rank", "number"], ["kind", "tag"], ["-number"]):
        for one in store.search(None, limit=4, order_by=order_by)["results"]:
            assert store.proxy("DELETE", one["url"]).status == 204
    for one in store.search(None, limit=2, order_by=["-rank", "tag"])["results"]:
        assert store.proxy("PATCH", one["url"], {"data": {"rank": 0}}).status == 200
    # What the background would do, and may have done: changed records are in segments of their own
    # until then.
    while not store.proxy("POST", f"{store.schema}merge/").json()["done"]:
        pass
    return store


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


@pytest.fixture
def asked(
    store: Store, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    """The store, asked through a proxy that takes all of this for large."""
    sizes, stays = request.param
    if not stays:
        monkeypatch.setattr(fetcher, "ROW_BYTES", 1 << 40)
    own = with_keyrings(store.service, tmp_path / "own")
    overrides = Overrides(question_sizes=sizes)
    with running_proxy(store.service.base_url, own, overrides=overrides) as proxy:
        yield replace(store, service=replace(store.service, proxy_url=proxy.url))


class BySnapshot:
    """What was done for a question under the newest state that it was put to: behind the merges of
    the proxy that stored the records, it may be put again."""

    def __init__(self) -> None:
        self._noted: list[tuple[Any, Any]] = []

    def note(self, snapshot: Any, what: Any) -> None:
        self._noted.append((snapshot, what))

    def take(self) -> list[Any]:
        """Of the last question."""
        noted, self._noted = self._noted, []
        return [what for snapshot, what in noted if snapshot is noted[-1][0]]


def in_order(records: list[dict[str, Any]], where: Any, order_by: list[str]) -> list[Any]:
    own = [one for one in records if oracle.holds(where, one, FIELDS)]
    return [own[at] for at in oracle.in_order(order_by, own, FIELDS)]


@pytest.mark.parametrize(
    "asked",
    [(STANDARD, True), (NARROW, True), (NARROW, False), (BY_SETS, True)],
    ids=["keys", "no keys", "columns that do not stay", "sets"],
    indirect=True,
)
def test_all_pages_are_the_oracles(asked: Store) -> None:
    records = [one["data"] for one in asked.everything()]
    chance = random.Random(26)
    every = orders(chance)
    for where in conditions():
        for _ in range(4):
            order_by = next(every)
            expected = in_order(records, where, order_by)
            limit = chance.choice([1, 4, 11, 40])
            offset = chance.choice([0, 0, 3, 50])
            body = {"where": where, "order_by": order_by, "limit": limit, "offset": offset}
            found: list[Any] = []
            for _ in range(5):
                answer = asked.proxy(
                    "POST", "/api/records/search/", {"schema": asked.schema, **body}
                ).json()
                found += [one["data"] for one in answer["results"]]
                if answer["next_cursor"] is None:
                    break
                body = {"where": where, "order_by": order_by, "limit": limit}
                body["cursor"] = answer["next_cursor"]
            assert found == expected[offset : offset + len(found)], (where, order_by, limit, offset)
            assert len(found) == min(5 * limit, max(0, len(expected) - offset)), (where, order_by)


@pytest.mark.parametrize("asked", [(STANDARD, True), (BY_SETS, True)], indirect=True)
@pytest.mark.parametrize("field", ["name", "tag", "rank"])
def test_a_second_page_of_rows_that_all_lack_the_field_follows_the_last_that_has_it(
    asked: Store, field: str
) -> None:
    where = {"field": "number", "op": "between", "value": [3 * ROWS, 6 * ROWS]}
    records = [one["data"] for one in asked.everything()]
    expected = in_order(records, where, [f"-{field}"])
    present = sum(field in one for one in expected)
    first = asked.search(where, order_by=[f"-{field}"], limit=present)
    second = asked.search(
        where, order_by=[f"-{field}"], limit=len(records), cursor=first["next_cursor"]
    )
    assert [one["data"] for one in first["results"]] == expected[:present]
    assert [one["data"] for one in second["results"]] == expected[present:]


@pytest.mark.parametrize("asked", [(STANDARD, True)], indirect=True)
@pytest.mark.parametrize("order_by", [["rank", "-number"], ["-rank", "-number"]])
def test_one_segment_has_all_rows_of_a_page_where_the_second_field_grows(
    asked: Store, order_by: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = BySnapshot()
    own_open = segment_filters.open_column

    async def open_column(context: Any, plan: Any, segment: Any, leaf: Any) -> Any:
        seen.note(context.snapshot, segment.segment.uid)
        return await own_open(context, plan, segment, leaf)

    monkeypatch.setattr(segment_filters, "open_column", open_column)
    records = [one["data"] for one in asked.everything()]
    where = {"field": "kind", "op": "in", "value": ["k0", "k1"]}
    expected = in_order(records, where, order_by)
    body: dict[str, Any] = {"where": where, "order_by": order_by, "limit": 3}
    first = asked.proxy("POST", "/api/records/search/", {"schema": asked.schema, **body}).json()
    assert [one["data"] for one in first["results"]] == expected[:3]
    assert len(seen.take()) == 1

    body["cursor"] = first["next_cursor"]
    second = asked.proxy("POST", "/api/records/search/", {"schema": asked.schema, **body}).json()
    assert [one["data"] for one in second["results"]] == expected[3:6]
    assert 1 <= len(seen.take()) <= 3


@pytest.mark.parametrize("asked", [(BY_SETS, True)], indirect=True)
@pytest.mark.parametrize("order_by", ["number", "-number"])
def test_one_segment_rules_others_out_of_an_order_by_one_field(
    asked: Store, order_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = BySnapshot()

    async def resolve(context: Any, plan: Any, among: Any, **options: Any) -> Any:
        rounds.note(context.snapshot, len(among))
        return await match.resolve(context, plan, among, **options)

    monkeypatch.setattr("encrypted_records.proxy.search.top_k.resolve", resolve)
    records = [one["data"] for one in asked.everything()]
    where = {"field": "kind", "op": "eq", "value": "k1"}
    expected = in_order(records, where, [order_by])
    body: dict[str, Any] = {"where": where, "order_by": [order_by], "limit": 3}
    for page in (expected[:3], expected[3:6]):
        found = asked.proxy("POST", "/api/records/search/", {"schema": asked.schema, **body}).json()
        assert [one["data"] for one in found["results"]] == page
        assert rounds.take() == [1]
        body["cursor"] = found["next_cursor"]


@pytest.mark.parametrize("asked", [(STANDARD, True), (STANDARD, False)], indirect=True)
def test_a_column_of_few_values_is_brought_by_row_as_long_as_there_is_room(
    asked: Store, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    own_open = segment_filters.open_column

    async def open_column(context: Any, plan: Any, segment: Any, leaf: Any) -> Any:
        opened.append(leaf.field)
        return await own_open(context, plan, segment, leaf)

    monkeypatch.setattr(segment_filters, "open_column", open_column)
    records = [one["data"] for one in asked.everything()]
    _, stays = request.node.callspec.params["asked"]
    # Of two pages or fewer among sixteen.
    where = {"field": "kind", "op": "eq", "value": "rare"}
    body = {"where": where, "order_by": ["rank", "-number"], "limit": 3}
    found = asked.proxy("POST", "/api/records/search/", {"schema": asked.schema, **body}).json()
    assert [one["data"] for one in found["results"]] == in_order(
        records, where, ["rank", "-number"]
    )[:3]
    assert ("kind" in opened) == stays

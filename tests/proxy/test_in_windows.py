"""A proxy that reads columns a page or two at a time answers as one does that reads them whole."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.index.query.sizes import Sizes
from encrypted_records.index.query.workspace import Workspace
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.reading import ReadingLimits
from encrypted_records.proxy.overrides import Overrides
from encrypted_records.proxy.search.fetcher import Fetcher
from tests.support.proxies import running_proxy
from tests.support.second_proxy import second_proxy, with_keyrings
from tests.support.service import Answer, Service
from tests.support.store import Store, new_store

# Nothing here is the database's affair.
pytestmark = pytest.mark.parametrize("service", ["sqlite"], indirect=True)

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "city": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 10_000},
    },
}
#: More than a mini holds.
MANY = 4200
BEGINNING = "a long string that goes on beyond what an index key holds of it: "
WITHOUT = ReadingLimits(window=2, by_row=0, few=1)


def person(number: int) -> dict[str, Any]:
    chance = random.Random(number)
    name = f"n{chance.randrange(10**6):06}"
    if number % 500 == 7:
        name = BEGINNING + name
    found: dict[str, Any] = {"name": name, "age": chance.randrange(10_000)}
    return found | ({"city": f"c{number % 7}"} if number % 11 else {})


@pytest.fixture
def store(service: Service, tmp_path: Path) -> Store:
    """Two large segments and a small one; some records of each have died."""
    store = new_store(service, DEFINITION)
    store.ingest([{"name": "first"}])

    async def fill() -> None:
        async with second_proxy(store, with_keyrings(service, tmp_path / "filling")) as proxy:
            await proxy.ingest([person(number) for number in range(MANY)])
            await proxy.ingest([person(number) for number in range(MANY, 2 * MANY)])

    asyncio.run(fill())
    for one in store.search(limit=3)["results"] + store.search(order_by=["-age"])["results"][:3]:
        assert store.proxy("DELETE", one["url"]).status == 204
    return store


def asked() -> Iterator[tuple[str, dict[str, Any]]]:
    young = {"field": "age", "op": "lt", "value": 6000}
    named = {"field": "name", "op": "ge", "value": "n3"}
    holds = {"field": "name", "op": "contains", "value": "77"}
    measures: list[dict[str, Any]] = [{"op": "count"}, {"op": "count", "field": "city"}]
    measures += [{"op": op, "field": "age"} for op in ("min", "sum", "stddev")]
    measures += [{"op": "max", "field": "name"}]
    measures += [{"op": "percentile", "field": "age", "p": [10, 50, 99]}]
    measures += [{"op": "histogram", "field": "age", "bins": 7}]
    measures += [{"op": "distinct", "field": "name", "limit": 5, "order": "-count"}]
    for where in (None, {"and": [young, named]}, {"or": [holds, {"not": young}]}):
        for order_by in (["-age", "name"], ["city", "-name"]):
            yield "search", {"where": where, "order_by": order_by, "limit": 20}
        yield "search", {"where": where, "limit": 5, "count": True}
        for group_by in ([], ["city", "age"]):
            body = {"where": where, "measures": measures, "group_by": group_by, "limit": 20}
            yield "aggregate", body


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[LoadedSegment]:
    """The large segments that questions of proxies in this process open."""
    found: list[LoadedSegment] = []
    own_open = Workspace.open

    def noting(space: Workspace, *arguments: Any) -> Any:
        segments = yield from own_open(space, *arguments)
        found.extend(segment for segment in segments if isinstance(segment, LoadedSegment))
        return segments

    monkeypatch.setattr(Workspace, "open", noting)
    return found


def answers(store: Store, opened: list[LoadedSegment]) -> list[Any]:
    """What is found; of each question nothing may stay in the segments that it opened."""
    found: list[Any] = []
    for path, members in asked():
        opened.clear()
        body = {"schema": store.schema, **members}
        reply = store.proxy("POST", f"/api/records/{path}/", body)
        assert reply.status == 200, reply.body
        for one in opened:
            assert not one.blocks and not one.columns and not one.sums, (path, members)
        found.append(reply.json())
        if path == "search" and (cursor := found[-1]["next_cursor"]):
            later = store.proxy("POST", f"/api/records/{path}/", body | {"cursor": cursor})
            found.append(later.json())
    return [shown(one) for one in found]


def shown(answer: dict[str, Any]) -> Any:
    """Without what tells of one proxy's caches."""
    if "results" in answer:
        return answer.get("count"), [result["data"] for result in answer["results"]]
    return {name: answer[name] for name in answer if name in ("measures", "groups", "total")}


def test_answers_are_the_same_however_little_is_read_at_once(
    store: Store, tmp_path: Path, opened: list[LoadedSegment]
) -> None:
    """All sizes and forms are asked without a service:
    ``tests/index/test_questions_equal_the_oracle.py``."""
    expected = answers(store, opened)
    assert any(expected)
    own = with_keyrings(store.service, tmp_path / "own")
    sizes = Sizes(few_rows=0, many_pages=0, few_values=0, reading=WITHOUT)
    overrides = Overrides(question_sizes=sizes)
    with running_proxy(store.service.base_url, own, overrides=overrides) as proxy:
        other = replace(store, service=replace(store.service, proxy_url=proxy.url))
        assert answers(other, opened) == expected
        assert opened
        # Once more, from what was kept.
        assert answers(other, opened) == expected


def test_sums_of_a_column_are_read_once_where_columns_by_row_do_not_stay(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean = {"measures": [{"op": "avg", "field": "age"}]}
    expected = measured(store, mean).json()
    monkeypatch.setattr(Fetcher, "keeps_columns", lambda *_: False)
    own = with_keyrings(store.service, tmp_path / "own")
    sizes = Sizes(few_rows=0, many_pages=0, few_values=0, reading=WITHOUT)
    overrides = Overrides(question_sizes=sizes)
    with running_proxy(store.service.base_url, own, overrides=overrides) as proxy:
        other = replace(store, service=replace(store.service, proxy_url=proxy.url))
        for _ in range(2):
            assert measured(other, mean).json()["measures"] == expected["measures"]
        # The two large segments have dead rows, which were looked up while ages were added up.
        use = proxy.services.segments.uses["sums"]
        assert (use.count, use.misses, use.hits) == (2, 2, 2)


def test_pages_that_pass_may_be_more_than_those_that_stay(store: Store, tmp_path: Path) -> None:
    where = {"field": "name", "op": "contains", "value": "77"}
    count = {"where": where, "measures": [{"op": "count"}]}
    expected = measured(store, count).json()["measures"]
    for pages, status in ((25, 200), (3, 413)):
        own = with_keyrings(store.service, tmp_path / str(pages))
        sizes = Sizes(few_rows=0, many_pages=0, few_values=0, reading=WITHOUT)
        overrides = Overrides(question_sizes=sizes, question_pages=pages)
        with running_proxy(store.service.base_url, own, overrides=overrides) as proxy:
            other = replace(store, service=replace(store.service, proxy_url=proxy.url))
            reply = measured(other, count)
            assert reply.status == status, reply.json()
            if status == 200:
                assert reply.json()["measures"] == expected
            else:
                assert reply.json()["code"] == "question_too_large"


def measured(store: Store, body: dict[str, Any]) -> Answer:
    return store.proxy("POST", "/api/records/aggregate/", {"schema": store.schema, **body})

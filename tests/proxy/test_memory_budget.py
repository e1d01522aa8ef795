"""A proxy with little memory answers as one with much, keeps to its budget while it does, and
reads again from its disk what it had to drop."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.index.query.asking import Sizes
from encrypted_records.proxy.settings import Overrides
from tests.support.front import Asked, running_front
from tests.support.proxies import Proxy, running_proxy
from tests.support.second_proxy import store_groups, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, exact, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "city": {"type": "string"},
        "note": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "code": {"type": "integer", "minimum": 0, "maximum": 10**12},
    },
}
#: Of each segment, which has more than a mini holds.
ROWS, SEGMENTS = 4200, 5
#: MiB. The columns of these segments take five times as much.
LITTLE = 1
AT_ONCE = 4
#: One column of one segment at a time, as of many more records.
ONE_BY_ONE = Overrides(question_sizes=Sizes(few_values=0))


def person(number: int) -> dict[str, Any]:
    return {
        "name": f"{number * 7919 % 1_000_003:07}-{number}",
        "city": f"c{number % 7}",
        "note": ("a long text that many share, " * 2 + f"{number % 900}") if number % 3 else None,
        "age": number % 90,
        "code": number * 104_729 % 10**12,
    }


def questions() -> Iterator[tuple[str, dict[str, Any]]]:
    """Of every kind: where to, and the body without the schema."""
    search, aggregate = "/api/records/search/", "/api/records/aggregate/"
    wheres: list[Any] = [
        None,
        {"field": "name", "op": "eq", "value": person(4321)["name"]},
        {"field": "name", "op": "prefix", "value": "05"},
        {"field": "name", "op": "contains", "value": "77-1"},
        {"field": "city", "op": "in", "value": ["c2", "c5"]},
        {"field": "note", "op": "is_null"},
        {"field": "note", "op": "contains", "value": "share, 89"},
        {"not": {"field": "age", "op": "between", "value": [3, 80]}},
        {
            "and": [
                {"field": "code", "op": "ge", "value": 10**8},
                {"field": "age", "op": "lt", "value": 40},
            ]
        },
    ]
    for where in wheres:
        yield search, {"where": where, "limit": 5, "count": True}
        yield search, {"where": where, "limit": 5, "order_by": ["-age", "name"]}
        yield search, {"where": where, "limit": 5, "order_by": ["code"]}
        measures = [
            {"op": "count"},
            {"op": "sum", "field": "age"},
            {"op": "distinct", "field": "name"},
            {"op": "percentile", "field": "code", "p": [50]},
            {"op": "avg", "field": "code"},
        ]
        yield aggregate, {"where": where, "measures": measures}
        yield aggregate, {"where": where, "measures": measures[:2], "group_by": ["city"]}


@pytest.fixture
def store(service: Service, tmp_path: Path) -> Store:
    store = new_store(service, DEFINITION)
    store.ingest([{"name": "first"}])

    groups = ([person(ROWS * at + row) for row in range(ROWS)] for at in range(SEGMENTS))
    store_groups(store, tmp_path / "filling", *groups)
    return store


def answers(store: Store, proxy: Proxy) -> list[tuple[int, Any]]:
    """To all questions, some at once; after each the proxy holds no more than it may."""
    own = replace(store, service=replace(store.service, proxy_url=proxy.url))
    pool = proxy.services.segments.pool

    def ask(question: tuple[str, dict[str, Any]]) -> tuple[int, Any]:
        path, body = question
        answer = own.proxy("POST", path, {"schema": store.schema, **body})
        assert pool.held <= pool.budget
        found = exact(answer)
        for member in ("took_ms", "next_cursor", "stats"):
            found.pop(member, None)
        return answer.status, found

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(ask, questions()))


def test_a_proxy_with_little_memory_answers_alike_from_its_disk(
    store: Store, tmp_path: Path
) -> None:
    with_keyrings(store.service, tmp_path / "much")
    shutil.copytree(tmp_path / "much", tmp_path / "little")
    base_url = store.service.base_url
    with running_proxy(base_url, tmp_path / "much") as proxy:
        expected = answers(store, proxy)
        assert proxy.services.segments.pool.held > 5 * LITTLE << 20
    assert {status for status, _ in expected} == {200}
    with (
        running_front(base_url) as front,
        running_proxy(
            front.url, tmp_path / "little", memory_cache=LITTLE, overrides=ONE_BY_ONE
        ) as proxy,
    ):
        for again in range(2):
            assert answers(store, proxy) == expected
            uses = proxy.services.segments.uses
            assert all(use.count for use in uses.values())
            before = uses["directories"].misses
            if not again:
                front.forget()
        # Directories went, and came from disk: of the large segments nothing is fetched twice.
        assert proxy.services.segments.uses["directories"].misses >= before > SEGMENTS * 5
        assert not [asked for asked in front.asked if _many_pages(asked)]


def _many_pages(asked: Asked) -> bool:
    """Whether a request is for pages of large segments: the mini of the first record is one."""
    return "/pages/" in asked.path and len(asked.body) > 64


def test_a_cold_question_counts_in_the_same_budget(store: Store, tmp_path: Path) -> None:
    with_keyrings(store.service, tmp_path / "own")
    with running_proxy(store.service.base_url, tmp_path / "own", memory_cache=LITTLE) as proxy:
        own = replace(store, service=replace(store.service, proxy_url=proxy.url))
        body = {"schema": store.schema, "where": {"field": "age", "op": "lt", "value": 60}}
        pool = proxy.services.segments.pool
        counted = []
        for _ in range(2):
            answer = own.proxy("POST", "/api/records/explain/", body | {"order_by": ["name"]})
            assert answer.status == 200, answer.body
            counted.append(answer.json()["pages"])
            assert 0 < pool.held <= pool.budget
        assert counted[0] == counted[1]

"""Questions on large segments take turns at memory: fairly, and never beyond what there is."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.index.query.asking import Sizes
from encrypted_records.index.segments.reading import ReadingLimits, working_bytes
from encrypted_records.proxy.search import fetcher
from encrypted_records.proxy.search.fetcher import Fetcher
from encrypted_records.proxy.settings import Overrides
from tests.support.eventually import eventually
from tests.support.proxies import running_proxy
from tests.support.second_proxy import store_groups, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "city": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 10_000},
    },
}
#: More than a mini holds.
MANY, SEGMENTS = 4200, 3
READING = ReadingLimits(window=4, by_row=0, few=1)
SIZES = Sizes(few_rows=0, many_pages=0, few_values=0, alone_rows=MANY - 1, reading=READING)


def questions() -> list[tuple[str, dict[str, Any]]]:
    holds = {"field": "name", "op": "contains", "value": "77"}
    young = {"field": "age", "op": "lt", "value": 6000}
    both = {"and": [young, {"field": "name", "op": "ge", "value": "n3"}]}
    count = [{"op": "count"}, {"op": "avg", "field": "age"}]
    return [
        ("aggregate", {"where": both, "measures": count}),
        ("aggregate", {"where": holds, "measures": count}),
        ("aggregate", {"where": young, "measures": count, "group_by": ["city"]}),
        ("search", {"where": young, "order_by": ["city", "-name"], "limit": 9}),
        ("search", {"where": holds, "count": True, "limit": 3}),
        ("search", {"where": {"not": holds}, "count": True, "limit": 0}),
    ]


@pytest.fixture
def store(service: Service, tmp_path: Path) -> Store:
    """Large segments, and a small one."""
    store = new_store(service, DEFINITION)
    store.ingest([{"name": "first"}])

    def person(n: int) -> dict[str, Any]:
        return {"name": f"n{n * 7919 % 10**6:06}", "city": f"c{n % 7}", "age": n % 9973}

    groups = ([person(at * MANY + n) for n in range(MANY)] for at in range(SEGMENTS))
    store_groups(store, tmp_path / "filling", *groups)
    return store


def test_questions_at_once_hold_the_memory_of_one_segment_at_a_time(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [ask(store, question) for question in questions()]
    taken: Counter[str] = Counter()
    inside: set[Any] = set()
    turn = Fetcher.turn

    @asynccontextmanager
    async def watched(own: Fetcher, upstream: Any, segment: Any) -> AsyncIterator[None]:
        async with turn(own, upstream, segment):
            large = segment.segment.form == "paged"
            if large:
                assert not inside, "two segments at once"
                inside.add(segment)
                taken[segment.segment.uid.hex()] += 1
                assert own._turns.held == min(working_bytes(segment, READING), own._turns.room)
            with contextlib.ExitStack() as left:
                left.callback(inside.discard, segment)
                yield

    monkeypatch.setattr(Fetcher, "turn", watched)
    overrides = Overrides(question_sizes=SIZES, question_memory=1 << 10)
    own = with_keyrings(store.service, tmp_path / "own")
    with running_proxy(store.service.base_url, own, overrides=overrides) as proxy:
        other = replace(store, service=replace(store.service, proxy_url=proxy.url))
        with ThreadPoolExecutor(len(questions())) as threads:
            for _ in range(2):
                assert list(threads.map(lambda one: ask(other, one), questions())) == expected
        assert proxy.services.fetcher._turns.held == 0
    assert len(taken) == SEGMENTS
    # Each question once in each segment at least, twice.
    assert min(taken.values()) >= 2 * len(questions())


@pytest.mark.parametrize("dead", [False, True], ids=["all rows", "all but a dead one"])
@pytest.mark.parametrize("stays", [False, True], ids=["sums", "columns by row"])
def test_what_is_kept_waits_for_nobody_who_has_all_turns(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead: bool, stays: bool
) -> None:
    if dead:
        (found,) = store.search({"field": "age", "op": "eq", "value": 9970}, limit=1)["results"]
        assert store.proxy("DELETE", found["url"]).status == 204
    if not stays:
        monkeypatch.setattr(fetcher, "ROW_BYTES", 1 << 40)
    has_all, has_been_told = threading.Event(), threading.Event()
    hold = threading.Event()
    turn = Fetcher.turn

    @asynccontextmanager
    async def held(own: Fetcher, upstream: Any, segment: Any) -> AsyncIterator[None]:
        async with turn(own, upstream, segment):
            if hold.is_set() and own._turns.held == own._turns.room:
                has_all.set()
                await asyncio.to_thread(has_been_told.wait)
            yield

    monkeypatch.setattr(Fetcher, "turn", held)
    measures = [{"op": "avg", "field": "age"}, {"op": "percentile", "field": "age", "p": [1, 50]}]
    kept = ("aggregate", {"measures": measures})
    reads = ("aggregate", {"where": questions()[1][1]["where"], "measures": measures})
    expected = [ask(store, kept), ask(store, reads)]
    sizes = replace(SIZES, reading=replace(READING, window=64, by_row=1 << 20))
    overrides = Overrides(question_sizes=sizes, question_memory=1 << 10)
    own = with_keyrings(store.service, tmp_path / "own")
    with running_proxy(store.service.base_url, own, overrides=overrides) as proxy:
        other = replace(store, service=replace(store.service, proxy_url=proxy.url))
        turns = proxy.services.fetcher._turns
        assert ask(other, kept) == expected[0]
        hold.set()
        with ThreadPoolExecutor(2) as threads:
            try:
                reading = threads.submit(ask, other, reads)
                assert has_all.wait(60)
                again = threads.submit(ask, other, kept)
                eventually(
                    lambda: again.done() or turns.waiting, "the other has its turn, or waits"
                )
                waiting = turns.waiting
            finally:
                has_been_told.set()
            assert [again.result(), reading.result()] == expected
    assert not waiting


def ask(store: Store, question: tuple[str, dict[str, Any]]) -> Any:
    path, members = question
    body = {"schema": store.schema, **members}
    reply = store.proxy("POST", f"/api/records/{path}/", body)
    assert reply.status == 200, reply.body
    found = reply.json()
    if path == "search":
        return found.get("count"), [result["data"] for result in found["results"]]
    return {name: found[name] for name in found if name in ("measures", "groups", "total")}

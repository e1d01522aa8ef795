"""Questions on large segments take turns at memory: fairly, and never beyond what there is."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.index.query.sizes import Sizes
from encrypted_records.index.segments.reading import ReadingLimits, working_bytes
from encrypted_records.memory.turns import MemoryTurns
from encrypted_records.proxy.overrides import Overrides
from encrypted_records.proxy.search import fetcher
from encrypted_records.proxy.search.fetcher import Fetcher
from tests.support.eventually import eventually
from tests.support.proxies import running_proxy
from tests.support.second_proxy import second_proxy, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

BUDGET = 100


@dataclass
class Crowd:
    """Who asks for turns, and in which order they got them."""

    turns: MemoryTurns = field(default_factory=lambda: MemoryTurns(BUDGET))
    got: list[tuple[str, int]] = field(default_factory=list)
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    leave: dict[int, asyncio.Event] = field(default_factory=dict)

    async def ask(self, name: str, size: int) -> int:
        number = len(self.tasks)
        self.leave[number] = asyncio.Event()

        async def wait() -> None:
            async with self.turns.take(size, name.encode()):
                self.got.append((name, number))
                await self.leave[number].wait()

        self.tasks[number] = asyncio.create_task(wait())
        await settled()
        return number

    async def go(self, number: int) -> None:
        self.leave[number].set()
        await settled()

    async def give_up(self, number: int) -> None:
        self.tasks[number].cancel()
        await settled()

    async def everybody_goes(self) -> None:
        for event in self.leave.values():
            event.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(story: Callable[[Crowd], Any]) -> Crowd:
    async def tell() -> Crowd:
        crowd = Crowd()
        await story(crowd)
        await crowd.everybody_goes()
        assert crowd.turns.held == crowd.turns.waiting == 0
        return crowd

    return asyncio.run(tell())


def test_users_take_turns_and_each_ones_questions_stay_in_order() -> None:
    async def story(crowd: Crowd) -> None:
        first = await crowd.ask("holder", BUDGET)
        for name in ("much", "much", "much", "little", "much", "little"):
            await crowd.ask(name, BUDGET)
        await crowd.go(first)
        for number in (1, 4, 2, 6, 3, 5):
            assert crowd.got[-1][1] == number
            await crowd.go(number)

    names = [name for name, _ in run(story).got]
    assert names == ["holder", "much", "little", "much", "little", "much", "much"]


def test_what_takes_more_than_there_is_has_all_of_it_and_is_not_passed() -> None:
    async def story(crowd: Crowd) -> None:
        small = await crowd.ask("a", 10)
        await crowd.ask("b", 50 * BUDGET)
        await crowd.ask("c", 10)
        assert [name for name, _ in crowd.got] == ["a"]
        await crowd.go(small)
        assert [name for name, _ in crowd.got] == ["a", "b"]
        assert crowd.turns.held == BUDGET

    assert [name for name, _ in run(story).got] == ["a", "b", "c"]


def test_who_gives_up_lets_those_behind_in() -> None:
    async def story(crowd: Crowd) -> None:
        await crowd.ask("a", 60)
        large = await crowd.ask("b", 90)
        await crowd.ask("c", 30)
        assert [name for name, _ in crowd.got] == ["a"]
        await crowd.give_up(large)
        assert [name for name, _ in crowd.got] == ["a", "c"]

    run(story)


def test_a_turn_that_came_too_late_is_given_back() -> None:
    async def story(crowd: Crowd) -> None:
        first = await crowd.ask("a", BUDGET)
        second = await crowd.ask("b", BUDGET)
        # In one step of the loop: the turn is given, and nobody is there any more.
        crowd.leave[first].set()
        await asyncio.sleep(0)
        crowd.tasks[second].cancel()
        await settled()
        await crowd.ask("c", BUDGET)

    assert [name for name, _ in run(story).got][-1] == "c"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ask", "go", "give_up"]), st.sampled_from("abc"), st.integers(0, 150)
        ),
        max_size=40,
    )
)
def test_no_more_is_held_than_there_is_whatever_happens(steps: list[tuple[str, str, int]]) -> None:
    async def story(crowd: Crowd) -> None:
        for step, name, number in steps:
            if step == "ask":
                await crowd.ask(name, number)
            elif crowd.tasks:
                own = number % len(crowd.tasks)
                await (crowd.go(own) if step == "go" else crowd.give_up(own))
            assert 0 <= crowd.turns.held <= BUDGET

    crowd = run(story)
    answered = {number for _, number in crowd.got}
    assert all(number in answered or task.cancelled() for number, task in crowd.tasks.items())


# --- of a proxy ---------------------------------------------------------------------------------

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

    async def fill() -> None:
        async with second_proxy(store, with_keyrings(service, tmp_path / "filling")) as proxy:
            for at in range(SEGMENTS):
                some = range(at * MANY, (at + 1) * MANY)
                await proxy.ingest(
                    [
                        {"name": f"n{n * 7919 % 10**6:06}", "city": f"c{n % 7}", "age": n % 9973}
                        for n in some
                    ]
                )

    asyncio.run(fill())
    return store


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
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
                assert own._turns.held == min(working_bytes(segment, READING), own._turns.budget)
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


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
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
            if hold.is_set() and own._turns.held == own._turns.budget:
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

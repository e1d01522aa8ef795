"""Exports take turns, and rest while somebody sends short requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from encrypted_records import runtime
from encrypted_records.proxy import process
from encrypted_records.proxy.http.guard import RunningRequests
from encrypted_records.proxy.process import PARTS_AT_ONCE, Turns
from tests.support.proxies import running_proxy
from tests.support.second_proxy import with_keyrings
from tests.support.service import Service
from tests.support.store import new_store


class Parts:
    """Parts that are made when the test lets them be."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.under_way = 0
        self.most = 0
        self.go_on = asyncio.Event()

    async def __aiter__(self) -> AsyncGenerator[int, None]:
        for number in range(self.count):
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            await self.go_on.wait()
            self.under_way -= 1
            yield number


async def read(of: Turns, user: bytes, parts: Parts) -> list[int]:
    return [part async for part in of.each(user, aiter(parts))]


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("users", "most"), [([b"a"] * 4, 1), ([b"a", b"b", b"c", b"d"], PARTS_AT_ONCE)]
)
def test_one_part_of_each_user_and_few_of_all_are_under_way(users: list[bytes], most: int) -> None:
    async def run() -> None:
        of, parts = Turns(lambda _seconds: False), Parts(3)
        readers = [asyncio.create_task(read(of, user, parts)) for user in users]
        await settle()
        assert parts.under_way == most
        parts.go_on.set()
        assert await asyncio.gather(*readers) == [[0, 1, 2]] * len(users)
        assert parts.most == most

    asyncio.run(run())


def test_no_turn_is_held_while_a_part_is_read() -> None:
    async def run() -> None:
        of, slow, other = Turns(lambda _seconds: False), Parts(2), Parts(2)
        slow.go_on.set()
        other.go_on.set()
        reading = of.each(b"a", aiter(slow))
        assert await anext(reading) == 0
        # The reader of the first takes its time.
        assert await read(of, b"a", other) == [0, 1]
        assert await anext(reading) == 1

    asyncio.run(run())


def test_a_reader_that_goes_away_gives_the_turn_back() -> None:
    async def run() -> None:
        of, stuck, other = Turns(lambda _seconds: False), Parts(1), Parts(2)
        gone = asyncio.create_task(read(of, b"a", stuck))
        await settle()
        gone.cancel()
        other.go_on.set()
        assert await read(of, b"a", other) == [0, 1]

    asyncio.run(run())


@pytest.mark.parametrize("busy", [True, False])
def test_a_user_rests_between_two_parts_as_long_as_the_first_took_where_others_ask(
    monkeypatch: pytest.MonkeyPatch, *, busy: bool
) -> None:
    now, rests, looks = 100.0, [], []

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    def is_busy(seconds: float) -> bool:
        looks.append(seconds)
        return busy

    async def run() -> None:
        nonlocal now
        of = Turns(is_busy)
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
        monkeypatch.setattr(runtime, "sleep", rest)
        async with of.take(b"a"):
            now += 0.5
        assert not rests  # a part is sent at once
        now += 0.125  # while it is sent
        async with of.take(b"b"):
            assert not rests
        async with of.take(b"a"):
            assert rests == ([0.375] if busy else [])
        async with of.take(b"a"):
            assert len(rests) == busy

    asyncio.run(run())
    assert looks == [0.5]


def test_a_crowd_knows_whether_a_request_was_under_way_lately() -> None:
    now = 100.0
    crowd = RunningRequests(clock=lambda: now)
    assert not crowd.was_busy(5.0)
    crowd.enter(b"a")
    assert crowd.was_busy(0.0)
    crowd.leave(b"a")
    now += 3.0
    assert crowd.was_busy(5.0)
    assert not crowd.was_busy(2.0)


@pytest.mark.parametrize("path", ["export", "columns"])
def test_long_answers_take_turns_and_are_no_short_requests_themselves(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    store = new_store(service, {"type": "object", "properties": {"name": {"type": "string"}}})
    store.ingest([{"name": "one"}])
    taken: list[bytes] = []
    busy: list[bool] = []
    take, was_busy = Turns.take, RunningRequests.was_busy

    def note(self: Turns, user: bytes) -> AbstractAsyncContextManager[None]:
        taken.append(user)
        return take(self, user)

    def look(self: RunningRequests, seconds: float) -> bool:
        busy.append(was_busy(self, seconds))
        return busy[-1]

    monkeypatch.setattr(process, "SHORT_SECONDS", -1.0)
    monkeypatch.setattr(Turns, "take", note)
    monkeypatch.setattr(RunningRequests, "was_busy", look)
    with running_proxy(service.base_url, with_keyrings(service, tmp_path)) as proxy:
        behind = replace(store, service=replace(service, proxy_url=proxy.url))
        answer = behind.proxy("POST", f"/api/records/{path}/", {"schema": store.schema})
    assert answer.status == 200
    assert b"one" in answer.body
    # For the first rows, for the end of an Arrow stream, and to find that no more follows.
    assert len(taken) == {"export": 2, "columns": 3}[path]
    assert len(set(taken)) == 1
    assert busy == [False] * len(taken)

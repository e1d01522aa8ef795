"""Waiting for a schema's log: one question a second, whoever asks it, however many wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from encrypted_records import runtime
from encrypted_records.errors import ApiUnreachable, NotFound
from encrypted_records.proxy.feed import WatchedSchema


class Clock:
    """Virtual time: it goes on only where all wait for it."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(runtime, "monotonic", clock.monotonic)
    monkeypatch.setattr(runtime, "sleep", clock.sleep)
    return clock


class Log:
    """A log that moves on after some questions; who asked, and when."""

    def __init__(self, clock: Clock, moves_after: int = 1000) -> None:
        self._clock = clock
        self._moves_after = moves_after
        self.asked: list[tuple[str, float]] = []
        self.refused: dict[str, Exception] = {}

    def by(self, name: str) -> Callable[[], Awaitable[int]]:
        async def ask() -> int:
            self.asked.append((name, self._clock.now))
            if name in self.refused:
                raise self.refused[name]
            return 8 if len(self.asked) > self._moves_after else 7

        return ask


async def wait_all(
    watch: WatchedSchema, log: Log, names: list[str], until: float
) -> list[BaseException | None]:
    waiting = (watch.wait(7, until, log.by(name)) for name in names)
    return await asyncio.gather(*waiting, return_exceptions=True)


def test_however_many_wait_one_of_them_asks_each_second(clock: Clock) -> None:
    watch, log = WatchedSchema(), Log(clock, moves_after=12)
    names = [f"w{number}" for number in range(5)]
    asyncio.run(wait_all(watch, log, names, until=200.0))
    times = [at for _, at in log.asked]
    assert len(times) == 13
    assert all(after - before >= 1.0 for before, after in pairwise(times))
    assert watch.newest == 8
    assert watch.waiting == 0


def test_those_who_wait_take_turns(clock: Clock) -> None:
    watch, log = WatchedSchema(), Log(clock, moves_after=20)
    asyncio.run(wait_all(watch, log, ["a", "b", "c", "d"], until=200.0))
    assert set(Counter(name for name, _ in log.asked[:20]).values()) == {5}


def test_who_is_refused_ends_alone_and_the_others_go_on(clock: Clock) -> None:
    watch, log = WatchedSchema(), Log(clock, moves_after=9)
    log.refused["b"] = NotFound("gone")
    ends = asyncio.run(wait_all(watch, log, ["a", "b", "c"], until=200.0))
    assert [type(end) for end in ends] == [type(None), NotFound, type(None)]
    assert [name for name, _ in log.asked].count("b") == 1


def test_an_api_that_is_away_for_a_while_ends_no_wait(clock: Clock) -> None:
    watch, log = WatchedSchema(), Log(clock, moves_after=4)
    answer = log.by("a")

    async def ask() -> int:
        version = await answer()
        if len(log.asked) < 3:
            raise ApiUnreachable("away")
        return version

    asyncio.run(watch.wait(7, 200.0, ask))
    assert watch.newest == 8


def test_an_api_that_is_away_at_the_end_is_named(clock: Clock) -> None:
    watch, log = WatchedSchema(), Log(clock)
    log.refused["a"] = ApiUnreachable("away")
    with pytest.raises(ApiUnreachable):
        asyncio.run(watch.wait(7, 105.0, log.by("a")))


def test_a_wait_without_changes_ends_at_its_time(clock: Clock) -> None:
    watch, log = WatchedSchema(), Log(clock)
    asyncio.run(watch.wait(7, 103.5, log.by("a")))
    assert clock.now == 103.5
    assert len(log.asked) == 4


def test_somebody_who_goes_away_in_their_turn_leaves_it_to_the_next(clock: Clock) -> None:
    watch, log = WatchedSchema(), Log(clock, moves_after=3)

    async def run() -> None:
        first = asyncio.ensure_future(watch.wait(7, 200.0, log.by("a")))
        second = asyncio.ensure_future(watch.wait(7, 200.0, log.by("b")))
        await asyncio.sleep(0)
        first.cancel()
        await second

    asyncio.run(run())
    assert {name for name, _ in log.asked} == {"b"}

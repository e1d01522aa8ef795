"""Work that is done once for all who wait: whose it is, and what becomes of those who wait."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from encrypted_records.proxy.process import Gathering, WaitingLine

asker: ContextVar[str] = ContextVar("asker", default="nobody")


class Kitchen:
    """Serves all who wait at once, when it is told to; notes who was served on whose behalf."""

    def __init__(self) -> None:
        self.gathering: Gathering[str, str, str] = Gathering(self.serve)
        self.served: list[tuple[list[str], str]] = []
        self.go = asyncio.Event()

    async def serve(self, line: WaitingLine[str, str]) -> None:
        together = line.take()
        self.served.append(([one.item for one in together], asker.get()))
        await self.go.wait()
        for one in together:
            if one.item == "bad":
                raise ValueError(one.item)
            one.settle(one.item.upper())

    async def ask(self, item: str) -> str:
        asker.set(item)
        return await self.gathering.ask("key", item)

    async def ask_all(self, *items: str) -> list[asyncio.Task[str]]:
        """Each of a task, and so of a context, of its own; all wait when this returns."""
        tasks = [asyncio.create_task(self.ask(item)) for item in items]
        await everybody_waits()
        return tasks


async def everybody_waits() -> None:
    """All that can go on has gone on: in turns of the event loop, which no load changes."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_those_who_wait_are_served_together_and_on_behalf_of_the_last_of_them() -> None:
    async def run() -> None:
        kitchen = Kitchen()
        tasks = [*await kitchen.ask_all("a"), *await kitchen.ask_all("b", "c")]
        kitchen.go.set()

        assert await asyncio.gather(*tasks) == ["A", "B", "C"]
        assert kitchen.served == [(["a"], "a"), (["b", "c"], "c")]
        # Much later, under the same key, nothing of the first one is left.
        assert await asyncio.gather(*await kitchen.ask_all("d")) == ["D"]
        assert kitchen.served[-1] == (["d"], "d")

    asyncio.run(run())


def test_what_is_raised_refuses_those_who_were_taken_and_the_next_are_served() -> None:
    async def run() -> None:
        kitchen = Kitchen()
        first = await kitchen.ask_all("bad")
        next_ones = await kitchen.ask_all("b", "c")
        kitchen.go.set()

        with pytest.raises(ValueError, match="bad"):
            await first[0]
        assert await asyncio.gather(*next_ones) == ["B", "C"]

    asyncio.run(run())


def test_who_goes_away_is_not_served_and_keeps_nobody_from_it() -> None:
    async def run() -> None:
        kitchen = Kitchen()
        (first,) = await kitchen.ask_all("a")
        gone, last = await kitchen.ask_all("b", "c")
        first.cancel()
        gone.cancel()
        await everybody_waits()
        kitchen.go.set()

        assert await last == "C"
        assert [items for items, _ in kitchen.served] == [["a"], ["c"]]

    asyncio.run(run())

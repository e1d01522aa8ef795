"""So many have a place at once, and each of the others waits behind those who came before it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from encrypted_records.proxy.process.places import Places

MOST = 3


class Scene:
    """Those who take places, and wait in them until they are told to leave."""

    def __init__(self) -> None:
        self.places = Places(MOST)
        self.inside: list[int] = []
        self.entered: list[int] = []
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self._leave: dict[int, asyncio.Event] = {}

    async def come(self, name: int, since: float) -> None:
        self._leave[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._stay(name, since))
        await settle()

    async def _stay(self, name: int, since: float) -> None:
        async with self.places.take(since):
            self.inside.append(name)
            self.entered.append(name)
            try:
                await self._leave[name].wait()
            finally:
                self.inside.remove(name)

    async def leave(self, name: int) -> None:
        self._leave[name].set()
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def play(scene: Callable[[Scene], Awaitable[None]]) -> None:
    async def whole() -> None:
        await scene(Scene())

    asyncio.run(whole())


def test_who_came_first_goes_first_whenever_it_asked() -> None:
    async def scene(one: Scene) -> None:
        for name in range(MOST):
            await one.come(name, since=0.0)
        await one.come(10, since=5.0)
        await one.come(11, since=6.0)
        await one.come(12, since=2.0)  # it waited for something else before
        await one.come(13, since=5.0)
        for name in (0, 1, 2, 12):
            await one.leave(name)
        assert one.entered == [0, 1, 2, 12, 10, 13, 11]
        for name in (10, 11, 13):
            await one.leave(name)
        assert not one.inside

    play(scene)


def test_who_goes_away_gives_its_place_to_the_next_one_at_every_moment() -> None:
    async def scene(one: Scene) -> None:
        chance = random.Random(3)
        for name in range(200):
            await one.come(name, since=chance.random())
            assert len(one.inside) <= MOST
            if one.inside and chance.random() < 0.5:
                leaving = chance.choice(one.inside)
                one._leave[leaving].set()
                # It leaves, and whoever is next goes away before or after it is told so.
                for _ in range(chance.randrange(3)):
                    await asyncio.sleep(0)
            if chance.random() < 0.5:
                one.tasks[chance.randrange(name + 1)].cancel()
            await settle()
            waiting = [name for name, task in one.tasks.items() if not task.done()]
            assert len(one.inside) == min(MOST, len(waiting))
        for task in one.tasks.values():
            task.cancel()
        await settle()
        for name in range(1000, 1000 + MOST):
            await one.come(name, since=9.0)
        assert len(one.inside) == MOST
        for task in one.tasks.values():
            task.cancel()
        await settle()

    play(scene)


def test_one_who_goes_away_with_the_place_it_just_got_takes_it_from_nobody() -> None:
    async def scene(one: Scene) -> None:
        for name in range(MOST):
            await one.come(name, since=0.0)
        await one.come(10, since=1.0)
        await one.come(11, since=2.0)
        one.tasks[0].cancel()
        await asyncio.sleep(0)  # the first one has left, and the next one does not know it yet
        assert 10 not in one.inside
        one.tasks[10].cancel()
        await settle()
        assert one.inside == [1, 2, 11]
        for name in (1, 2, 11):
            await one.leave(name)

    play(scene)

"""The pieces of one run put together: world, API, network, proxies, and what people ask.

A scenario is a coroutine over a :class:`Scene`. What people may be answered is said here, once:
an answer of 5xx says nothing of what was done, every other error changed nothing, and 500 is a bug.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from encrypted_records.index.segments.merge_policy import CrowdSizes, Tier
from tests.simulation.api import Account, ApiServer, Template
from tests.simulation.expected import Fault
from tests.simulation.network import Network
from tests.simulation.proxy import Answer, Gone, Proxy
from tests.simulation.world import BEGINS, MONOTONIC, World

#: Small enough that merges, and groups made of many, happen all the time.
OFTEN: dict[str, Any] = {
    "tiers": (Tier(16, 3), Tier(64, 2)),
    "crowds": CrowdSizes(few=3, small=(64,), rows=64, groups=64),
}
#: Answers after which somebody may try again: others were first.
OVERTAKEN = {
    *("log_conflict", "log_moved", "record_changed", "stale_definition", "roster_moved"),
    *("key_mismatch", "writer_conflict", "overloaded"),
}
#: Seconds after which nothing is on its way any more.
QUIET_SECONDS = 40.0
#: Steps in which days pass: a proxy that sees its clock this often believes that it ran meanwhile.
STRIDE_SECONDS = 1100.0


@dataclass(frozen=True)
class Said:
    """What an answer, or its absence, says of what was asked. ``answer`` is None where none came.

    Attributes:
        done: it was done.
        refused: it was not done, nor will be.
    """

    answer: Answer | None
    done: bool
    refused: bool

    @property
    def code(self) -> str:
        """Of an error, else empty."""
        return "" if self.answer is None else self.answer.code

    def json(self) -> Any:
        assert self.answer is not None
        return self.answer.json()


class Scene:
    """
    Attributes:
        counts: how often what was answered: by method and status or code.
    """

    def __init__(self, world: World, template: Template, people: Sequence[str]) -> None:
        self.world = world
        self.chance = world.chance
        self.api = ApiServer(world, template.database)
        self.network = Network(world, self.api)
        self.accounts = [template.accounts[name] for name in people]
        self.proxies: list[Proxy] = []
        self.counts: Counter[str] = Counter()

    # --- what happens ------------------------------------------------------------------------

    def proxy(self, name: str, **options: Any) -> Proxy:
        """A machine with a proxy, which does not run yet."""
        made = Proxy(self.network, name, overrides=OFTEN | options.pop("overrides", {}), **options)
        self.proxies.append(made)
        return made

    def some(self, among: Sequence[Proxy] = ()) -> Proxy:
        """One of these proxies, or of all; one that runs, if any does."""
        every = among or self.proxies
        return self.chance.choice([one for one in every if one.runs] or every)

    async def pause(self, most: float) -> None:
        await asyncio.sleep(self.chance.uniform(0, most))

    async def pass_time(self, seconds: float) -> None:
        """Long times, in strides: in each, what proxies do again and again is done once."""
        ends = self.world.loop.now + seconds
        while self.world.loop.now < ends:
            self.world.loop.now += STRIDE_SECONDS
            await asyncio.sleep(1)

    async def together(self, *work: Coroutine[Any, Any, None]) -> None:
        """Run all of these at once; the first that fails ends the run."""
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)

    async def kill_some(self, count: int, within: float, among: Sequence[Proxy] = ()) -> None:
        """Kill proxies now and then, in the middle of something or between two steps, and start
        them again."""
        for _ in range(count):
            await self.pause(2 * within / count)
            one = self.chance.choice(among or self.proxies)
            if not one.runs:
                continue
            if self.chance.randrange(3):
                one.kill_at(self.chance.randrange(60))
                await self.pause(5)
            one.kill()
            await self.pause(3)
            await one.revive()

    async def kill_during(self, one: Proxy, times: int) -> None:
        """Kill a proxy in the middle of what it does now, and start it again, so many times."""
        for _ in range(times):
            if one.runs and self.chance.randrange(2):
                one.kill_at(self.chance.randrange(80))
                await self.pause(2)
            elif one.runs:
                # The one that publishes a job is the one whose outcome matters most.
                to, most = self.chance.choice([("", 30), ("/publish/", 2)])
                done = self.chance.randrange(2) == 0
                one.kill_sending(self.chance.randrange(most), done=done, to=to)
                await self.pause(4)
            one.kill()
            await self.pause(1)
            await one.revive()

    async def disturb_some(self, count: int, within: float) -> None:
        """Have machines' disks be full for a while, their clocks be ahead, or proxies be stopped
        and started."""
        for _ in range(count):
            await self.pause(2 * within / count)
            one = self.chance.choice(self.proxies)
            match self.chance.choice(["disk", "clock", "stop"]):
                case "disk":
                    self.world.full.add(one.name)
                    await self.pause(6)
                    self.world.full.discard(one.name)
                case "clock":
                    self.world.fast[one.name] = self.chance.uniform(0, 70_000)
                    await self.pause(10)
                    self.world.fast[one.name] = 0.0
                case "stop" if one.runs:
                    await one.stop()
                    await self.pause(3)
                    await one.revive()

    async def sweep_some(self, count: int, within: float) -> None:
        """Have the API delete what is over, now and then."""
        for _ in range(count):
            await self.pause(2 * within / count)
            self.api.sweep()

    async def calm(self) -> None:
        """No more trouble, all proxies run, and nothing is on its way any more."""
        self.network.trouble = 0
        self.network.away = False
        self.world.lives.clear()
        self.network.ends.clear()
        self.world.full.clear()
        for one in self.proxies:
            one.lost = 0
            await one.revive()
        await asyncio.sleep(QUIET_SECONDS)

    def new_key(self) -> str:
        """A fresh Idempotency-Key."""
        now = int((BEGINS + self.world.loop.now - MONOTONIC) * 1000)
        chance = self.chance.getrandbits
        return str(uuid.UUID(int=now << 80 | 7 << 76 | chance(12) << 64 | 2 << 62 | chance(62)))

    # --- what people ask ---------------------------------------------------------------------

    async def ask(
        self,
        proxy: Proxy,
        account: Account,
        method: str,
        target: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        may: Collection[int | str] = (),
    ) -> Said:
        """One request of somebody's.

        Args:
            may: statuses and codes of errors that are right here, besides those that always are.

        Raises:
            Fault: an answer that nobody should get.
        """
        try:
            answer = await proxy.call(method, target, body, auth=account.auth, headers=headers)
        except Gone:
            self.counts[f"{method} gone"] += 1
            return Said(None, False, False)
        self.counts[f"{method} {answer.code or answer.status}"] += 1
        if answer.status < 300:
            return Said(answer, True, False)
        if answer.status == 500:
            raise Fault(f"{method} {target} at {proxy.life}: {answer}")
        if answer.status > 500:
            return Said(answer, False, False)
        if answer.code not in OVERTAKEN and not {answer.status, answer.code} & set(may):
            raise Fault(f"{method} {target} at {proxy.life} is refused: {answer}")
        return Said(answer, False, True)

    async def must(
        self, proxy: Proxy, account: Account, method: str, target: str, body: Any = None
    ) -> Any:
        """What a request without trouble is answered with.

        Raises:
            Fault: it fails.
        """
        said = await self.ask(proxy, account, method, target, body)
        if not said.done:
            raise Fault(f"{method} {target} at {proxy.life} fails: {said.answer}")
        assert said.answer is not None
        return said.answer.json() if said.answer.body else None

    async def read_all(
        self,
        proxy: Proxy,
        account: Account,
        schema: str,
        where: Any = None,
        *,
        may: Collection[int | str] = (),
        **more: Any,
    ) -> list[Any] | None:
        """All records that match, page by page; None where there is no such answer.

        Args:
            may: as of :meth:`ask`.
            more: members of the request.
        """
        found: list[Any] = []
        cursor = None
        while True:
            body = {"schema": schema, "where": where, "limit": 1000, "cursor": cursor, **more}
            said = await self.ask(proxy, account, "POST", "/api/records/search/", body, may=may)
            if not said.done:
                return None
            page = said.json()
            found += page["results"]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    async def new_schema(
        self, proxy: Proxy, account: Account, definition: Any, name: str = "rows"
    ) -> str:
        """The path of a new schema in a new dataset."""
        dataset = await self.must(
            *(proxy, account, "POST", "/api/datasets/"),
            {"name": f"of {name}", "organization": account.organization},
        )
        schema = await self.must(
            *(proxy, account, "POST", "/api/schemas/"),
            {"name": name, "dataset": dataset["url"], "schema": definition},
        )
        return str(schema["url"])

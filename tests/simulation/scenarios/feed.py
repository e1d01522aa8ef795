"""The change feed: consumers follow a schema at two proxies and keep a copy of it, while three
people store, change and delete, records are erased and sealed again, groups compacted, and
proxies and consumers killed.

A copy holds what a search finds, whenever the feed says that it is current; no record in it ever
becomes older or comes back; and a copy that lost its last steps catches up again.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.expected import Expected, Fault
from tests.simulation.proxy import Proxy
from tests.simulation.scenarios.erasure import Eraser
from tests.simulation.scenarios.records import two_proxies
from tests.simulation.scenarios.reseals import Keeper
from tests.simulation.scenarios.writer import DEFINITION, Writer, judge_end
from tests.simulation.scene import Scene

#: An answer of the feed may be older than its request by a second.
STALE_SECONDS = 1.1


@dataclass
class Copy:
    """What a consumer keeps: the records by id, each with its version, and the cursor."""

    records: dict[str, tuple[int, Any]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    cursor: str | None = None


class Consumer:
    """A program that applies what the feed says, and now and then is killed."""

    def __init__(
        self, scene: Scene, name: str, schema: str, expected: Expected, proxies: Sequence[Proxy]
    ) -> None:
        self._scene = scene
        self._name = name
        self._schema = schema
        self._expected = expected
        self._proxies = proxies
        self.copy = Copy()
        self._saved = Copy()

    async def follow(self, seconds: float) -> None:
        ends = self._scene.world.loop.now + seconds
        while self._scene.world.loop.now < ends:
            await self.step(wait=self._scene.chance.choice([0, 0, 3]))
            if not self._scene.chance.randrange(6):
                self._die()
            await self._scene.pause(1)

    def _die(self) -> None:
        """It is killed: it has what it saved last, and of that maybe only the cursor is old."""
        if self._scene.chance.randrange(2):
            self.copy.cursor = self._saved.cursor
        else:
            self.copy = copy.deepcopy(self._saved)

    async def step(self, wait: int = 0) -> bool:
        """One request; whether the copy is current."""
        scene, chance = self._scene, self._scene.chance
        floors = self._expected.floors()
        await asyncio.sleep(STALE_SECONDS)
        limit = chance.choice([1, 3, 100, 1000])
        target = f"/api/records/changes/?schema={self._schema}&limit={limit}&wait={wait}"
        if self.copy.cursor is not None:
            target += f"&cursor={self.copy.cursor}"
        said = await scene.ask(
            *(scene.some(self._proxies), scene.accounts[0], "GET", target), may={"start_again"}
        )
        if said.code == "start_again":
            if self.copy.cursor is None:
                raise Fault("who begins has to start again")
            self.copy = Copy()
            scene.counts[said.json()["detail"]] += 1
            return False
        if not said.done:
            return False
        page = said.json()
        for change in page["results"]:
            self._apply(change)
        self.copy.cursor = page["cursor"]
        if page["current"]:
            held = [{"id": one, "data": data} for one, (_, data) in self.copy.records.items()]
            self._expected.judge_results(floors, None, held)
        if not chance.randrange(3):
            self._saved = copy.deepcopy(self.copy)
        return bool(page["current"])

    def _apply(self, change: Any) -> None:
        """
        Raises:
            Fault: a record becomes older, or comes back.
        """
        one, version = change["id"], int(change["etag"].strip('"'))
        before, _ = self.copy.records.get(one, (0, None))
        if version < before:
            raise Fault(f"{self._name} is told of version {version} after {before} of {one}")
        if change["op"] == "delete":
            self.copy.records.pop(one, None)
            self.copy.deleted.add(one)
        elif one in self.copy.deleted:
            raise Fault(f"{self._name} is told that {one} is there again")
        else:
            self.copy.records[one] = (version, change["data"])

    async def judge_end(self, account: Any, proxy: Proxy) -> None:
        """The copy catches up, and is what a search finds.

        Raises:
            Fault: it does not, or is not.
        """
        for _ in range(10_000):
            if await self.step():
                break
        else:
            raise Fault(f"{self._name} never catches up")
        found = await self._scene.read_all(proxy, account, self._schema) or []
        held = {one: data for one, (_, data) in self.copy.records.items()}
        if held != {record["id"]: record["data"] for record in found}:
            raise Fault(f"{self._name} holds {held}, and a search finds {found}")


async def run(scene: Scene) -> None:
    one, two, schema = await two_proxies(scene)
    expected = Expected(DEFINITION["properties"])
    writers = [
        *(Writer(scene, name, schema, expected) for name in "xy"),
        Eraser(scene, "z", schema, expected),
    ]
    consumers = [Consumer(scene, name, schema, expected, [one, two]) for name in ("c", "d")]
    resealer = Keeper(scene, schema)
    scene.network.trouble = 8
    one.lost = two.lost = 5
    await scene.together(
        *(writer.work(14) for writer in writers),
        *(consumer.follow(40) for consumer in consumers),
        resealer.reseal(1),
        resealer.define(1),
        scene.kill_some(4, 30),
        scene.sweep_some(6, 30),
    )
    await scene.calm()
    for consumer in consumers:
        await consumer.judge_end(scene.accounts[0], one)
    await judge_end(scene, schema, expected, [one, two])

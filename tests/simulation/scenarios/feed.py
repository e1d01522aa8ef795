"""The change feed: consumers follow a schema at the proxies of three people and keep a copy of it,
while all three store, change and delete, records are erased and sealed again, groups compacted,
and proxies and consumers killed.

A copy holds what a search finds, whenever the feed says that it is current; no record in it ever
becomes older or comes back; and a copy that lost its last steps catches up again. A consumer whose
user is put out is told so by name, and is told nothing more.

``SIMULATION_STEPS=150 python -m tests.simulation feed --seeds 0-29`` makes 13,500 steps of writers,
of which four fifths store, change or delete records.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.expected import Expected, Fault
from tests.simulation.proxy import Proxy
from tests.simulation.scenarios.erasure import Eraser
from tests.simulation.scenarios.records import two_proxies
from tests.simulation.scenarios.removal import OUT, Removed, insist, let_in
from tests.simulation.scenarios.reseals import Keeper
from tests.simulation.scenarios.writer import DEFINITION, Writer, judge_end
from tests.simulation.scene import Scene

#: Of each writer.
STEPS = int(os.environ.get("SIMULATION_STEPS", "12"))
#: An answer of the feed may be older than its request by a second.
STALE_SECONDS = 1.1


@dataclass
class Copy:
    """What a consumer keeps: the records by id, each with its version, and the cursor."""

    records: dict[str, tuple[int, Any]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    cursor: str | None = None


class Consumer:
    """A program that applies what the feed says, and now and then is killed.

    Attributes:
        is_out: whether its user was put out, and that is acknowledged.
    """

    def __init__(
        self,
        scene: Scene,
        name: str,
        schema: str,
        expected: Expected,
        proxies: Sequence[Proxy],
        who: int = 0,
    ) -> None:
        self.is_out = False
        self._account = scene.accounts[who]
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
        """It is killed: it has what it saved last, and of that maybe only the cursor is old.

        Without a cursor it begins with nothing.
        """
        if self._scene.chance.randrange(2) and self._saved.cursor is not None:
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
        was_out = self.is_out
        said = await scene.ask(
            *(scene.some(self._proxies), self._account, "GET", target), may={"start_again", *OUT}
        )
        if said.done and was_out:
            raise Fault(f"{self._name} is told {said.answer} after its user was put out")
        if said.code == "start_again":
            if self.copy.cursor is None:
                raise Fault("who begins has to start again")
            self.copy, self._saved = Copy(), Copy()
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
    three, four = scene.proxy("c"), scene.proxy("d")
    await three.start()
    await four.start()
    ada, bea, cleo = scene.accounts[:3]
    dataset = (await scene.must(one, ada, "GET", schema))["dataset"]
    expected = Expected(DEFINITION["properties"])
    own = [one, two]
    eraser = Eraser(scene, "x", schema, expected, proxies=own)
    member = Writer(scene, "y", schema, expected, account=bea, proxies=[three])
    leaving = Removed(scene, "z", schema, expected, account=cleo, proxies=[four])
    consumers = [
        Consumer(scene, "c", schema, expected, own),
        Consumer(scene, "d", schema, expected, [three], 1),
        Consumer(scene, "e", schema, expected, [four], 2),
    ]
    await eraser.store()
    await let_in(scene, one, three, dataset)
    person = await let_in(scene, one, four, dataset, 2)
    scene.network.trouble = 8
    for proxy in scene.proxies:
        proxy.lost = 5
    lasts = 3.0 * STEPS

    async def put_out() -> None:
        await asyncio.sleep(lasts / 2)
        await insist(
            *(scene, one, 0, "DELETE", f"{ada.organization}people/{person}/"),
            may={"not_a_member"},
            until=lambda said: said.done or said.refused,
        )
        leaving.is_out = consumers[2].is_out = True

    resealer = Keeper(scene, schema, own)
    await scene.together(
        *(writer.work(STEPS) for writer in (eraser, member, leaving)),
        *(consumer.follow(lasts) for consumer in consumers),
        put_out(),
        resealer.reseal(1),
        resealer.define(1),
        scene.kill_some(STEPS // 3, lasts),
        scene.sweep_some(STEPS // 2, lasts),
    )
    await scene.calm()
    await insist(scene, one, 0, "POST", f"{dataset}rotate/")
    await consumers[0].judge_end(ada, one)
    await consumers[1].judge_end(bea, three)
    if await consumers[2].step():
        raise Fault("a consumer whose user was put out is told that it is current")
    await judge_end(scene, schema, expected, own)

"""Reseals: all records are sealed again, and the definition gets fields, while writers of one
keyring store, change and delete at two proxies that are killed.

A reseal changes no record, no version and no order. It ends by itself, and fails only because
another one was first. A definition that was acknowledged holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.simulation.expected import Expected, Fault
from tests.simulation.proxy import Proxy
from tests.simulation.scenarios.jobs import MOST_SECONDS, POLL_SECONDS
from tests.simulation.scenarios.records import two_proxies
from tests.simulation.scenarios.writer import DEFINITION, Writer, judge_end
from tests.simulation.scene import Scene

#: What a reseal may end with: another one, or another definition, was first.
MAY_FAIL = ("resealed_meanwhile", "definition_moved")
#: What the request for one may be answered with.
REFUSED = ("reseal_under_way", "nothing_to_reseal", "needs_reencryption")
TRIES = 30


class Keeper:
    """Somebody who has all records sealed again, and adds fields."""

    def __init__(self, scene: Scene, schema: str, proxies: Sequence[Proxy] = ()) -> None:
        self._scene = scene
        self._schema = schema
        self._proxies = proxies
        #: those whose addition was acknowledged
        self.added: list[str] = []
        self._fields = dict(DEFINITION["properties"])

    async def reseal(self, count: int) -> None:
        scene = self._scene
        for _ in range(count):
            await scene.pause(8)
            proxy = scene.some(self._proxies)
            said = await scene.ask(
                *(proxy, scene.accounts[0], "POST", f"{self._schema}reseal/"), may=REFUSED
            )
            if said.done:
                await self._follow(proxy, said.json()["job_id"])

    async def _follow(self, proxy: Any, job: str) -> None:
        scene = self._scene
        ends = scene.world.loop.now + MOST_SECONDS
        told: Any = None
        while scene.world.loop.now < ends:
            said = await scene.ask(proxy, scene.accounts[0], "GET", f"/api/jobs/{job}/")
            told = said.json() if said.done else {}
            if told.get("status") == "completed":
                return
            if told.get("status") == "failed":
                if not any(code in told["error"] for code in MAY_FAIL):
                    raise Fault(f"a reseal fails: {told}")
                return
            await scene.pause(POLL_SECONDS)
        raise Fault(f"a reseal does not end: {told}")

    async def define(self, count: int) -> None:
        """Add optional fields, one after the other."""
        scene = self._scene
        for number in range(count):
            await scene.pause(10)
            self._fields[f"more{number}"] = {"type": "string"}
            definition = {**DEFINITION, "properties": dict(self._fields)}
            for _ in range(TRIES):
                proxy = scene.some(self._proxies)
                said = await scene.ask(
                    *(proxy, scene.accounts[0], "PATCH", self._schema, {"schema": definition})
                )
                if said.done:
                    self.added.append(f"more{number}")
                    break
                await scene.pause(5)
            else:
                raise Fault(f"a field cannot be added: {said.answer}")


async def run(scene: Scene) -> None:
    one, two, schema = await two_proxies(scene)
    expected = Expected(DEFINITION["properties"])
    writers = [Writer(scene, name, schema, expected) for name in "xy"]
    keeper = Keeper(scene, schema)
    scene.network.trouble = 8
    one.lost = two.lost = 10
    await scene.together(
        *(writer.work(14) for writer in writers),
        keeper.reseal(3),
        keeper.define(2),
        scene.kill_some(3, 25),
        scene.sweep_some(2, 25),
    )
    await scene.calm()
    for proxy in scene.proxies:
        told = await scene.must(proxy, scene.accounts[0], "GET", schema)
        missing = set(keeper.added) - set(told["schema"]["properties"])
        if missing:
            raise Fault(f"{proxy.life} shows a definition without {sorted(missing)}")
    await judge_end(scene, schema, expected)

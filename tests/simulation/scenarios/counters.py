"""Counters: five clients at two proxies raise two numbers, by what they have read and ``If-Match``.

No raise is lost, and none is done twice: a record's number is its version less one, always. Who
reads later never reads less.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.expected import Fault
from tests.simulation.scenarios.records import two_proxies
from tests.simulation.scene import Said, Scene

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 1000}},
    "required": ["n"],
}
CLIENTS, RAISES = 5, 8


class Counter:
    """One record; ``least`` is what everybody reads from now on, or more."""

    def __init__(self, identifier: str) -> None:
        self.path = f"/api/records/{identifier}/"
        self.least = 0
        self.raised = 0
        self.unknown = 0

    def judge(self, said: Said, least: int) -> int:
        """The number that an answer shows.

        Raises:
            Fault: it is not the version's, or less than was read before.
        """
        assert said.answer is not None
        number = int(said.json()["data"]["n"])
        version = int(said.answer.headers["etag"].strip('"'))
        if number != version - 1:
            raise Fault(f"{self.path} has {number} at version {version}")
        if number < least:
            raise Fault(f"{self.path} has {number}, after {least}")
        self.least = max(self.least, number)
        return number


class Client:
    def __init__(self, scene: Scene, counters: list[Counter]) -> None:
        self._scene = scene
        self._counters = counters

    async def raise_some(self, count: int) -> None:
        for _ in range(count):
            counter = self._scene.chance.choice(self._counters)
            for _ in range(30):
                if await self._raise(counter):
                    break
                await self._scene.pause(2)
            await self._scene.pause(0.3)

    async def _ask(self, *request: Any, **more: Any) -> Said:
        scene = self._scene
        proxy = scene.some()
        return await scene.ask(proxy, scene.accounts[0], *request, **more)

    async def _raise(self, counter: Counter) -> bool:
        """Whether there is nothing to try again."""
        least = counter.least
        said = await self._ask("GET", counter.path)
        if not said.done:
            return False
        number = counter.judge(said, least)
        headers = {"If-Match": f'"{number + 1}"'}
        body = {"data": {"n": number + 1}}
        said = await self._ask(
            *("PATCH", counter.path, body), headers=headers, may=["precondition_failed"]
        )
        if said.done:
            counter.judge(said, number + 1)
            counter.raised += 1
        elif not said.refused:
            counter.unknown += 1
        return not said.refused


async def run(scene: Scene) -> None:
    one, _, _ = await two_proxies(scene)
    schema = await scene.new_schema(one, scene.accounts[0], DEFINITION, "counters")
    body = [{"schema": schema, "data": {"n": 0}}] * 2
    made = await scene.must(one, scene.accounts[0], "POST", "/api/records/ingest/", body)
    counters = [Counter(each["id"]) for each in made]
    scene.network.trouble = 12
    clients = [Client(scene, counters) for _ in range(CLIENTS)]
    await scene.together(*(client.raise_some(RAISES) for client in clients), scene.kill_some(3, 15))
    await scene.calm()
    for counter in counters:
        for proxy in scene.proxies:
            said = await scene.ask(proxy, scene.accounts[0], "GET", counter.path)
            number = counter.judge(said, counter.least)
            if not counter.raised <= number <= counter.raised + counter.unknown:
                raise Fault(
                    f"{counter.path} has {number}, was raised {counter.raised} times, and"
                    f" {counter.unknown} times perhaps"
                )

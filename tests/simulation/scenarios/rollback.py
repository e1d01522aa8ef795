"""Rollback: the API is put back to an older copy of what it stores, beside kills, while writers of
one keyring work at two proxies, and a member at a third.

Every proxy that has seen more says so by name, behind a kill too, and neither shows nor stores
anything, until its user accepts the older log; who accepts goes on with what the copy has, to the
last record. The others notice that the accepted log went another way.
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from tests.simulation.expected import Expected, Fault
from tests.simulation.proxy import Proxy
from tests.simulation.scenarios.removal import insist, let_in
from tests.simulation.scenarios.writer import DEFINITION, Writer, judge_end
from tests.simulation.scene import Said, Scene

#: Answers of a proxy that has seen more than it is shown.
NOTICED = {"log_broken", "roster_older"}
#: Seconds after which nothing is on its way any more that was sent before.
LATEST_SECONDS = 20.0


class Place:
    """A proxy with one user's memory of the log, and a writer at it."""

    def __init__(self, proxy: Proxy, writer: Writer) -> None:
        self.proxy = proxy
        self.writer = writer
        self._scene = writer.scene

    async def ask(self, method: str, target: str, body: Any = None, **more: Any) -> Said:
        return await self._scene.ask(
            *(self.proxy, self.writer.account, method, target, body), **more
        )

    async def see(self) -> None:
        """Read, until there is an answer."""
        for _ in range(60):
            floors = self.writer.expected.floors()
            found = await self._scene.read_all(self.proxy, self.writer.account, self.writer.schema)
            if found is not None:
                self.writer.expected.judge_results(floors, None, found)
                return
            await self._scene.pause(5)
        raise Fault(f"nothing can be read at {self.proxy.life}")

    async def judge_refusing(self, count: int, then: Expected) -> None:
        """
        Args:
            then: what the API has. That it has no record of an id is its word.

        Raises:
            Fault: something is answered though the log lacks what was seen here.
        """
        chance = self._scene.chance
        row = {"schema": self.writer.schema, "data": {"tag": "never", "n": 0}}
        line = chance.choice([each for each in self.writer.expected.lines.values() if each.id])
        assert line.id is not None
        requests: list[tuple[str, str, Any]] = [
            ("POST", "/api/records/ingest/", [row]),
            ("POST", "/api/records/search/", {"schema": self.writer.schema}),
            ("POST", "/api/records/export/", {"schema": self.writer.schema, "format": "ndjson"}),
            ("GET", f"/api/records/{line.id}/", None),
            ("PATCH", f"/api/records/{line.id}/", {"data": {"n": 1}}),
            ("DELETE", f"/api/records/{line.id}/", None),
        ]
        for _ in range(count):
            asked = chance.choice(requests)
            said = await self.ask(*asked, may=NOTICED | {"not_found"})
            is_gone = line.id in asked[1] and then.may_be_gone(line.tag)
            may = NOTICED | {"not_found"} if is_gone else NOTICED
            if said.done or (said.refused and said.code not in may):
                raise Fault(
                    f"{asked} at {self.proxy.life} is answered {said.answer}, though the API lacks"
                    " what was seen there"
                )
            await self._scene.pause(1)

    async def accept(self, organization: str) -> None:
        """Take what the API has.

        Raises:
            Fault: it is not shown to lack anything, or cannot be taken.
        """
        proof = {"password": self.writer.account.password}
        path = f"{organization}rollback/"
        for _ in range(60):
            said = await self.ask("GET", path)
            if said.done and said.json()["state"] == "whole":
                break
            if said.done:
                shown = said.json()
                body = {name: shown[name] for name in ("number", "digest")}
                await self.ask("POST", path, {**body, "forked": True, "proof": proof})
            await self._scene.pause(3)
        else:
            raise Fault(f"the roster is never taken: {said.answer}")
        log, was = f"{self.writer.schema}log/", ""
        for _ in range(60):
            said = await self.ask("GET", log)
            if said.done and said.json()["state"] == "whole":
                if not was:
                    raise Fault(f"{self.proxy.life} lacks nothing: {said.answer}")
                return
            if said.done:
                shown = said.json()
                was = shown["state"]
                if was not in ("older", "forked"):
                    raise Fault(f"an older log is shown as {shown}")
                body = {name: shown[name] for name in ("version", "digest")}
                body |= {"forked": was == "forked", "proof": proof}
                await self.ask("POST", f"{self.writer.schema}accept-log/", body)
            await self._scene.pause(3)
        raise Fault(f"the log is never taken: {said.answer}")


async def run(scene: Scene) -> None:
    one, two, three = (scene.proxy(name) for name in "abc")
    await one.start()
    await three.start()
    ada, bea = scene.accounts[:2]
    await scene.must(one, ada, "POST", "/api/keyring/backup/")
    schema = await scene.new_schema(one, ada, DEFINITION)
    dataset = (await scene.must(one, ada, "GET", schema))["dataset"]
    two.take_keys(one)
    await two.start()
    expected = Expected(DEFINITION["properties"])
    writers = [
        Writer(scene, "x", schema, expected, proxies=[one]),
        Writer(scene, "y", schema, expected, proxies=[two]),
        Writer(scene, "z", schema, expected, proxies=[three], account=bea),
    ]
    places = [Place(*pair) for pair in zip((one, two, three), writers, strict=True)]
    await writers[0].store()  # an owner signs the schema with the first records
    await let_in(scene, one, three, dataset)
    await scene.together(*(writer.work(5) for writer in writers))
    await scene.calm()
    for place in places:
        await place.see()
    kept, then = scene.api.keep_copy(), copy.deepcopy(expected)

    scene.network.trouble = 8
    rotating = scene.chance.randrange(2)
    await scene.together(*(writer.work(6) for writer in writers), scene.kill_some(2, 10))
    await writers[0].store()
    if rotating:
        await insist(scene, one, 0, "POST", f"{dataset}rotate/")
    for place in places:
        await place.see()
    scene.network.trouble = 0
    await asyncio.sleep(LATEST_SECONDS)
    scene.api.put_back(kept)
    scene.network.trouble = 8
    for proxy in scene.proxies:
        if scene.chance.randrange(2):
            proxy.kill()
            await proxy.revive()
    await scene.together(
        *(place.judge_refusing(5, then) for place in places), scene.kill_some(2, 6)
    )

    _go_back(writers, then)
    first, *others = scene.chance.sample(places, len(places))
    await first.accept(ada.organization)
    await scene.together(
        first.writer.work(6),
        *(place.judge_refusing(3, then) for place in others),
        scene.kill_some(2, 6),
    )
    for place in others:
        await place.accept(ada.organization)
    await scene.together(*(writer.work(4) for writer in writers), scene.kill_some(2, 10))
    await scene.calm()
    await judge_end(scene, schema, then, [one, two])


def _go_back(writers: list[Writer], then: Expected) -> None:
    """Have them know what the copy has, and nothing that was stored since."""
    for writer in writers:
        writer.expected = then
        writer.own = [line for tag, line in then.lines.items() if tag.startswith(writer.name)]

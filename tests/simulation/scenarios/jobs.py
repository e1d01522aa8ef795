"""Jobs: two uploads of several chunks beside writers, with lost workers and killed proxies.

All of a job is there when it is completed, and nothing of it otherwise, as when it is cancelled; no
row is there twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.simulation.expected import Data, Expected, Fault, Line
from tests.simulation.proxy import Proxy
from tests.simulation.scenarios.records import two_proxies
from tests.simulation.scenarios.writer import DEFINITION, Writer, judge_end
from tests.simulation.scene import Scene

#: Seconds until a job has to have ended, and between two looks at it.
MOST_SECONDS, POLL_SECONDS = 4000, 5
#: How often an upload is begun that has no answer.
TRIES = 5


class Upload:
    """A file that is uploaded as a job, once or more often: each time it has other rows.

    Attributes:
        cancelled: percent of the jobs that are cancelled.
    """

    cancelled = 25

    def __init__(
        self, scene: Scene, name: str, proxy: Proxy, schema: str, expected: Expected
    ) -> None:
        self._scene = scene
        self._name = name
        self._proxy = proxy
        self._schema = schema
        self._expected = expected
        #: of each attempt, which is all there or not at all
        self.attempts: list[list[Line]] = []

    async def work(self) -> None:
        await self._scene.pause(8)
        for attempt in range(TRIES):
            lines = self._lines(attempt)
            self.attempts.append(lines)
            job = await self._send(
                [{"schema": self._schema, "data": line.present.data} for line in lines]
            )
            if job is not None:
                killing = self._scene.kill_during(self._proxy, 2)
                is_cancelled = self._scene.chance.randrange(100) < self.cancelled
                following = self._cancel(job, lines) if is_cancelled else self._follow(job, lines)
                await self._scene.together(following, killing)
                return
            await self._scene.pause(10)

    async def _send(self, records: list[Any]) -> str | None:
        """The id of the job that stores these records; None where there may be none."""
        said = await self._scene.ask(
            self._proxy, self._scene.accounts[0], "POST", "/api/jobs/upload/", records
        )
        return str(said.json()["job_id"]) if said.done else None

    def _lines(self, attempt: int) -> list[Line]:
        chance = self._scene.chance
        rows: list[Data] = [
            {"tag": f"{self._name}{attempt}-{at}", "n": chance.randrange(10)}
            for at in range(chance.randint(50, 150))
        ]
        return [self._expected.new(row) for row in rows]

    async def _follow(self, job: str, lines: list[Line]) -> None:
        """Look at the job until it has ended.

        Raises:
            Fault: it fails, or goes on for ever.
        """
        scene = self._scene
        ends = scene.world.loop.now + MOST_SECONDS
        while scene.world.loop.now < ends:
            said = await scene.ask(self._proxy, scene.accounts[0], "GET", f"/api/jobs/{job}/")
            told = said.json() if said.done else {}
            if told.get("status") == "failed":
                raise Fault(f"a job of {len(lines)} rows fails: {told}")
            if told.get("status") == "completed":
                for line in lines:
                    line.done()
                return
            await scene.pause(POLL_SECONDS)
        raise Fault(f"a job of {len(lines)} rows does not end: {told}")

    async def _cancel(self, job: str, lines: list[Line]) -> None:
        """Cancel the job, and see whether it was in time.

        Raises:
            Fault: it ends as none does.
        """
        scene = self._scene
        asked = (self._proxy, scene.accounts[0])
        await scene.pause(POLL_SECONDS)
        await scene.ask(*asked, "DELETE", f"/api/jobs/{job}/", may={"job_ended"})
        for _ in range(MOST_SECONDS // POLL_SECONDS):
            said = await scene.ask(*asked, "GET", f"/api/jobs/{job}/", may={"not_found"})
            status = said.json().get("status") if said.done else said.code
            if status == "failed":
                for line in lines:
                    line.refused()
                return
            if status in ("completed", "not_found"):  # it had ended, and is forgotten
                for line in lines:
                    line.done()
                return
            await scene.pause(POLL_SECONDS)
        raise Fault(f"a job that was cancelled does not end: {said.answer}")

    def judge_whole(self, results: list[Any]) -> None:
        """
        Raises:
            Fault: of an attempt some rows are there and others not.
        """
        found = {result["data"]["tag"] for result in results}
        for lines in self.attempts:
            there = [line.tag for line in lines if line.tag in found]
            if len(there) not in (0, len(lines)):
                raise Fault(f"of {len(lines)} rows of a job {len(there)} are there")


class Reader:
    """Somebody who looks whether jobs are there as a whole."""

    def __init__(self, scene: Scene, schema: str, uploads: list[Upload]) -> None:
        self._scene, self._schema, self._uploads = scene, schema, uploads

    async def work(self, count: int) -> None:
        for _ in range(count):
            await self._scene.pause(5)
            proxy = self._scene.some()
            found = await self._scene.read_all(proxy, self._scene.accounts[0], self._schema)
            for upload in self._uploads if found is not None else ():
                upload.judge_whole(found or [])


async def run(
    scene: Scene, kind: type[Upload] = Upload, overrides: Mapping[str, Any] | None = None
) -> None:
    one, two, schema = await two_proxies(scene, overrides or {})
    expected = Expected(DEFINITION["properties"])
    uploads = [
        kind(scene, name, proxy, schema, expected) for name, proxy in (("u", one), ("v", two))
    ]
    writers = [Writer(scene, name, schema, expected) for name in "xy"]
    scene.network.trouble = 10
    one.lost = two.lost = 15
    await scene.together(
        *(writer.work(6) for writer in writers),
        *(upload.work() for upload in uploads),
        Reader(scene, schema, uploads).work(4),
        scene.kill_some(3, 30),
    )
    await scene.calm()
    found = await scene.read_all(one, scene.accounts[0], schema)
    for upload in uploads:
        upload.judge_whole(found or [])
    await judge_end(scene, schema, expected)

"""Erasure: records are deleted and their bytes erased, and whole schemas' dead rows, while others
write, search and export, segments are merged and proxies killed.

An export has every record of one version, however much is erased meanwhile: its hold is waited for.
In the end nothing is held, and no file of either side contains a ciphertext of what was erased.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.simulation.expected import Expected, Fault
from tests.simulation.scenarios.records import two_proxies
from tests.simulation.scenarios.writer import DEFINITION, Writer, judge_end
from tests.simulation.scene import Scene

#: How often somebody asks whether all is gone, and seconds between.
TRIES, PAUSE_SECONDS = 12, 60
#: Seconds after which a hold ends that nobody renews: of an export whose proxy was killed.
HELD_SECONDS = 301


class Eraser(Writer):
    """A writer whose deletions erase. ``traces`` are ciphertexts of records that were deleted, by
    their tags."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.traces: dict[str, list[bytes]] = {}

    async def delete(self) -> None:
        line = self._known()
        if line is None:
            return
        path = f"/api/records/{line.id}/"
        said = await self.ask("GET", f"{path}?sealed=true")
        line.begin(None)
        asked = await self.ask("DELETE", f"{path}?erase=true")
        if asked.refused:
            line.refused()
        elif asked.done:
            line.done()
            if said.done:
                self.traces[line.tag] = traces_of(said.json())

    async def erase_all(self) -> None:
        await self.ask("POST", f"{self.schema}erasure/")


class Exporter(Writer):
    """Somebody who takes all records along."""

    async def export(self, count: int) -> None:
        for _ in range(count):
            await self.scene.pause(4)
            floors = self.expected.floors()
            body = {"schema": self.schema, "format": "ndjson"}
            said = await self.ask("POST", "/api/records/export/", body)
            if said.done and said.answer is not None:
                lines = said.answer.body.splitlines()
                self.expected.judge_results(floors, None, [msgspec.json.decode(x) for x in lines])


async def run(scene: Scene) -> None:
    one, two, schema = await two_proxies(scene)
    expected = Expected(DEFINITION["properties"])
    eraser, other = (Eraser(scene, name, schema, expected) for name in "xy")
    exporter = Exporter(scene, "e", schema, expected)
    for _ in range(3):
        await eraser.store()
    scene.network.trouble = 8

    async def erase() -> None:
        for _ in range(4):
            await scene.pause(3)
            await eraser.delete()
            await eraser.erase_all()

    await scene.together(
        eraser.work(8),
        other.work(10),
        erase(),
        exporter.export(6),
        scene.kill_some(3, 20),
        scene.sweep_some(20, 20),
    )
    await scene.calm()
    await _see_through(scene, schema)
    await judge_end(scene, schema, expected, [one, two])
    folders = [scene.api.file.parent, *(proxy.folder for proxy in scene.proxies)]
    judge_files(folders, {**eraser.traces, **other.traces})


async def _see_through(scene: Scene, schema: str) -> None:
    """Ask both proxies, until all that ended is gone.

    Raises:
        Fault: it never is.
    """
    for _ in range(TRIES):
        said = [
            await scene.must(proxy, scene.accounts[0], "POST", f"{schema}erasure/")
            for proxy in scene.proxies
        ]
        if all(one["gone"] for one in said):
            break
        await scene.pause(PAUSE_SECONDS)
        scene.api.sweep()
    else:
        raise Fault(f"what was deleted is never gone: {said}")
    await asyncio.sleep(HELD_SECONDS)
    told = await scene.must(scene.proxies[0], scene.accounts[0], "GET", f"{schema}erasure/")
    if told["api"]["rows"] or told["index"]["rows"] or told["api"]["holds"]:
        raise Fault(f"something is left of what was deleted: {told}")


def traces_of(sealed: Mapping[str, Any]) -> list[bytes]:
    """The ciphertexts of a record, as an answer has it: without their ends, which files may say
    otherwise."""
    return [base64.b64decode(field)[2:-2] for field in sealed["fields"].values()]


def judge_files(folders: Iterable[Path], traces: Mapping[str, list[bytes]]) -> None:
    """
    Raises:
        Fault: a file has a ciphertext of what was erased.
    """
    for folder in folders:
        for path in sorted(one for one in folder.rglob("*") if one.is_file()):
            content = path.read_bytes()
            for tag, sealed in traces.items():
                if any(one in content for one in sealed):
                    raise Fault(f"{path.name} has what was erased of {tag}")

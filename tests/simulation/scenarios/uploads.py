"""Resumable uploads (TUS): jobs whose files come in pieces, as one upload or as parts that are put
together, beside writers, with killed proxies and lost workers.

An upload is never behind what was acknowledged of it, nor ahead of what was sent. It becomes a job
as those of :mod:`.jobs`.
"""

from __future__ import annotations

import base64
import uuid
from typing import Any
from urllib.parse import urlsplit

import msgspec

from encrypted_records.model.ids import from_text
from tests.simulation.expected import Fault
from tests.simulation.scenarios import jobs
from tests.simulation.scene import Said, Scene

_ALWAYS = {"Tus-Resumable": "1.0.0"}
_BYTES = _ALWAYS | {"Content-Type": "application/offset+octet-stream"}
_JSON = base64.b64encode(b"application/json").decode()
#: How often a request is repeated.
TRIES = 40


class Resumable(jobs.Upload):
    """A file that is sent in pieces, each until it is there."""

    async def _send(self, records: list[Any]) -> str | None:
        content, chance = msgspec.json.encode(records), self._scene.chance
        kind = {"Upload-Metadata": f"filetype {_JSON}"}
        if chance.randrange(2):
            upload = await self._create({"Upload-Length": str(len(content))} | kind)
            await self._append(upload, content)
        else:
            cut = chance.randrange(1, len(content))
            parts = []
            for piece in (content[:cut], content[cut:]):
                length = {"Upload-Length": str(len(piece)), "Upload-Concat": "partial"}
                parts.append(await self._create(length))
                await self._append(parts[-1], piece)
            # Not repeated: each would be a job of its own, with the same rows.
            said = await self._ask(
                "POST", "/api/files/", {"Upload-Concat": "final;" + " ".join(parts)} | kind
            )
            if said.answer is None or not said.done:
                return None
            upload = urlsplit(said.answer.headers["location"]).path
        return str(uuid.UUID(bytes=from_text(upload.strip("/").rpartition("/")[2])))

    async def _ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None = None
    ) -> Said:
        asked = (self._proxy, self._scene.accounts[0], method, path, body)
        return await self._scene.ask(*asked, headers=_ALWAYS | headers)

    async def _create(self, headers: dict[str, str]) -> str:
        """The path of a new upload. One that nobody heard of stays empty, and is no job."""
        for _ in range(TRIES):
            said = await self._ask("POST", "/api/files/", headers)
            if said.done and said.answer is not None:
                return urlsplit(said.answer.headers["location"]).path
            await self._scene.pause(5)
        raise Fault("no upload can be made")

    async def _append(self, upload: str, content: bytes) -> None:
        """Send pieces until all is there."""
        known, asked, least = True, 0, 0
        for _ in range(TRIES):
            if not known:
                said = await self._ask("HEAD", upload, {})
            else:
                piece = content[least : least + self._scene.chance.randint(1, len(content))]
                asked = least + len(piece)
                offset = _BYTES | {"Upload-Offset": str(least)}
                said = await self._ask("PATCH", upload, offset, piece)
            if said.refused:
                raise Fault(f"{upload} is refused at {least}: {said.answer}")
            if not said.done or said.answer is None:
                known = False
                await self._scene.pause(5)
                continue
            there = int(said.answer.headers["upload-offset"])
            if not least <= there <= asked or (known and there != asked):
                raise Fault(f"{upload} is at {there}, and was at {least}; {asked} were sent")
            known, least = True, there
            if there == len(content):
                return
        raise Fault(f"{upload} is never there")


async def run(scene: Scene) -> None:
    await jobs.run(scene, Resumable)

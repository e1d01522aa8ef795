"""Checkpoints of logs, as the API keeps them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from encrypted_records.client.transport import Transport
from encrypted_records.errors import ApiFailed, ErsError
from encrypted_records.model import wire
from encrypted_records.model.ids import reference
from encrypted_records.model.records import U32, U63, ManifestDelta
from encrypted_records.model.wire import MAX_CHECKPOINT_BYTES, Checkpoint

#: Bytes a second that the API stores at least.
_STORED_RATE = 1 << 20


class ListedCheckpoint(msgspec.Struct):
    """A checkpoint that the API hands out; ``digest`` is in hexadecimal."""

    version: U63
    key_version: U32
    digest: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    bytes: Annotated[int, Meta(ge=0, le=MAX_CHECKPOINT_BYTES)]


_Listed = Annotated[list[ListedCheckpoint], Meta(max_length=100)]


class CheckpointApi:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def read(
        self, schema: bytes, known: int, auth: str
    ) -> tuple[Checkpoint | None, list[ManifestDelta]]:
        """The newest checkpoint of a schema's log, and the log after it, or after ``known`` where
        that is older; the whole log where there is no checkpoint.

        Args:
            known: the newest version that the caller remembers; 0 for none.

        Raises:
            Conflict: the log does not reach ``known``.
        """
        answer = await self._transport.request(
            "GET",
            f"{reference('schemas', schema)}manifest/",
            params={"since": "0", "checkpoint": str(known)},
            auth=auth,
        )
        checkpoint: Checkpoint | None = None
        deltas: list[ManifestDelta] = []
        try:
            for item in wire.decode(answer.body):
                if isinstance(item, ManifestDelta):
                    deltas.append(item)
                elif isinstance(item, Checkpoint) and checkpoint is None and not deltas:
                    checkpoint = item
                else:
                    raise ApiFailed("the API's answer contains something that was not requested")
        except ApiFailed:
            raise
        except ErsError:
            raise ApiFailed("the API's answer is not in the format of this version") from None
        if not deltas:
            raise ApiFailed("the API's answer contains no manifest")
        return checkpoint, deltas

    async def listed(self, schema: bytes, auth: str) -> list[ListedCheckpoint]:
        """Checkpoints that the API returns, the newest first."""
        answer = await self._transport.request("GET", _path(schema), auth=auth)
        found: list[ListedCheckpoint] = answer.convert(_Listed)
        return found

    async def add(self, schema: bytes, checkpoint: Checkpoint, auth: str) -> None:
        """Store a checkpoint at the API; repeating is safe.

        Raises:
            BadInput: ``invalid_checkpoint``.
            Conflict: ``roster_moved``, ``key_mismatch``, ``log_conflict``.
        """
        body = wire.encode([checkpoint])
        await self._transport.request(
            "POST",
            _path(schema),
            data=body,
            headers={"Content-Type": wire.MEDIA_TYPE},
            auth=auth,
            timeout=self._transport.timing.silent_seconds + len(body) / _STORED_RATE,
            repeatable=True,
        )


def _path(schema: bytes) -> str:
    return f"{reference('schemas', schema)}checkpoints/"

"""The API's endpoints for checkpoints, erasure of ended rows, and holds of log versions."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from encrypted_records.client.api import read_list
from encrypted_records.client.transport import Transport
from encrypted_records.errors import ApiFailed, ErsError
from encrypted_records.model import wire
from encrypted_records.model.ids import reference, to_text
from encrypted_records.model.records import U32, U63, ManifestDelta
from encrypted_records.model.wire import MAX_CHECKPOINT_BYTES, Checkpoint

#: Minimum rate at which the API stores data, in bytes per second.
_STORED_RATE = 1 << 20


class ListedCheckpoint(msgspec.Struct):
    """A checkpoint in an API's answer; ``digest`` is in hexadecimal."""

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
        """The newest checkpoint of a schema's log, and the log after it, or after ``known`` if that
        is older; the whole log if there is no checkpoint.

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


_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Text = Annotated[str, msgspec.Meta(max_length=320)]


class Held(msgspec.Struct):
    """A hold on one version of a log, for a reader that takes long."""

    version: _Number
    reason: _Text
    email: _Text
    begun: datetime
    until: datetime


class ErasureProgress(msgspec.Struct, kw_only=True):
    """The progress of an erasure in a schema, as reported by the API.

    ``done`` is the version up to which the erasure is complete, ``asked`` the version up to which
    it was requested, ``due`` the time when it begins.
    """

    version: _Number
    asked: _Number
    done: _Number
    due: datetime | None
    database: Literal["sqlite", "postgresql"]
    holds: Annotated[list[Held], msgspec.Meta(max_length=1000)]


class ErasureState(ErasureProgress, kw_only=True):
    """The same, with the data that remains: ``rows``, the oldest ended at ``since``, ``segments``
    and ``groups``.
    """

    rows: _Number
    segments: _Number
    groups: _Number
    since: datetime | None


class SchemaOfDataset(msgspec.Struct):
    """A schema in an API's list."""

    id: str


class ErasureApi:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def state(self, schema: bytes, auth: str) -> ErasureState:
        answer = await self._transport.request("GET", _erasure(schema), auth=auth)
        said: ErasureState = answer.convert(ErasureState)
        return said

    async def progress(self, schema: bytes, auth: str) -> ErasureProgress:
        """The same as :meth:`state`, without the counts: cheap enough to poll."""
        params = {"counts": "false"}
        answer = await self._transport.request("GET", _erasure(schema), params=params, auth=auth)
        said: ErasureProgress = answer.convert(ErasureProgress)
        return said

    async def ask(self, schema: bytes, auth: str) -> ErasureState:
        """Request immediate erasure of all ended data."""
        answer = await self._transport.request("POST", _erasure(schema), auth=auth, repeatable=True)
        said: ErasureState = answer.convert(ErasureState)
        return said

    async def schemas_of(self, dataset: bytes, auth: str) -> list[str]:
        """The ids of a dataset's schemas that the caller can access.

        Raises:
            NotFound: there is no such dataset for this caller.
        """
        await self._transport.request("GET", reference("datasets", dataset), auth=auth)
        path = f"/api/schemas/?dataset={to_text(dataset)}&limit=1000"
        return [
            schema.id for schema in await read_list(self._transport, path, SchemaOfDataset, auth)
        ]

    async def hold(
        self, schema: bytes, uid: uuid.UUID, version: int, reason: str, auth: str
    ) -> None:
        """Begin or renew a hold on a version of a schema's log."""
        body = {"id": str(uid), "version": version, "reason": reason}
        await self._transport.request("PUT", _holds(schema), json=body, auth=auth, repeatable=True)

    async def release(self, schema: bytes, uid: uuid.UUID, auth: str) -> None:
        """End a hold."""
        await self._transport.request(
            "DELETE", _holds(schema), params={"id": str(uid)}, auth=auth, repeatable=True
        )


def _erasure(schema: bytes) -> str:
    return f"{reference('schemas', schema)}erasure/"


def _holds(schema: bytes) -> str:
    return f"{reference('schemas', schema)}holds/"

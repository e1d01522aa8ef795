"""Bytes of ended rows as the API reports them, and holds of versions of a log."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from encrypted_records.client.lists import read_list
from encrypted_records.client.transport import Transport
from encrypted_records.model.ids import reference, to_text

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

    ``done`` is the version up to which all of it is gone, ``asked`` up to which it was asked for,
    ``due`` when it begins.
    """

    version: _Number
    asked: _Number
    done: _Number
    due: datetime | None
    database: Literal["sqlite", "postgresql"]
    holds: Annotated[list[Held], msgspec.Meta(max_length=1000)]


class ErasureState(ErasureProgress, kw_only=True):
    """The same, with what is still there: ``rows``, the oldest ``since`` that moment, ``segments``
    and ``groups``."""

    rows: _Number
    segments: _Number
    groups: _Number
    since: datetime | None


class SchemaOfDataset(msgspec.Struct):
    """A schema, as lists have it."""

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
        """The ids of a dataset's schemas that the caller reaches.

        Raises:
            NotFound: there is no such dataset, or not for this caller.
        """
        await self._transport.request("GET", reference("datasets", dataset), auth=auth)
        path = f"/api/schemas/?dataset={to_text(dataset)}&limit=1000"
        return [
            schema.id for schema in await read_list(self._transport, path, SchemaOfDataset, auth)
        ]

    async def hold(
        self, schema: bytes, uid: uuid.UUID, version: int, reason: str, auth: str
    ) -> None:
        """Begin a hold of a version of a schema's log, or renew it."""
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

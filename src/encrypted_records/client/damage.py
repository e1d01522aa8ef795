"""Lost bytes of a schema, as the API reports them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from encrypted_records.client.transport import Transport
from encrypted_records.model.ids import reference

_Uid = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class LostRows(msgspec.Struct):
    """Lost ordinals of a group, as runs of (first, count)."""

    group: _Uid
    runs: list[tuple[_Number, _Number]]


class Damage(msgspec.Struct):
    """The uids, in hex, of segments of which pages are lost, and live rows without bytes."""

    segments: list[_Uid]
    rows: list[LostRows]


class DamageApi:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def of(self, schema: bytes, auth: str) -> Damage:
        path = f"{reference('schemas', schema)}damage/"
        answer = await self._transport.request("GET", path, auth=auth)
        said: Damage = answer.convert(Damage)
        return said

"""Whether a state is the present one: asked of the API once for all queries that wait for it.

A query may answer from a state that the API confirms after the query began: then nothing that was
acknowledged before it is missing. One question to the API confirms it for every query that began
before the question was sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from encrypted_records.client.api import Api
from encrypted_records.errors import Unavailable
from encrypted_records.model.records import ManifestDelta
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.coalescing import Gathering, WaitingLine

#: Schema, version and the credentials that are to see the schema: of others nothing is shared.
_Key = tuple[bytes, int, str]


class Confirmations:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._gathering: Gathering[_Key, _Key, Sequence[ManifestDelta]] = Gathering(self._serve)

    async def after(self, schema: bytes, version: int, caller: Holder) -> Sequence[ManifestDelta]:
        """The log after a version, as the API has it now: :meth:`Api.manifest`."""
        key = (schema, version, caller.auth)
        return await self._gathering.ask(key, key)

    async def _serve(self, line: WaitingLine[_Key, Sequence[ManifestDelta]]) -> None:
        together = line.take()
        if not together:
            return
        # An error is right for all: they asked the same question under the same credentials.
        try:
            deltas = await self._api.manifest(*together[0].item)
        except Unavailable as error:
            # An API that is away is away for those who came meanwhile: they need not try for as
            # long again.
            for waiting in [*together, *line.take()]:
                waiting.refuse(error)
        else:
            for waiting in together:
                waiting.settle(deltas)

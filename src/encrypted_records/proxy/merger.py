"""When to merge small segments, and doing it.

Every direct ingest leaves a small segment behind, and a question looks into all of them. Once
there are many, the ingest that crosses the line merges before it returns.
"""

from __future__ import annotations

import asyncio
import logging

from encrypted_records.client.api import Api
from encrypted_records.errors import ErsError
from encrypted_records.index.merge import merge, worth_merging
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.reader import Reader
from encrypted_records.proxy.schemas import Schemas, SchemaState

log = logging.getLogger(__name__)

#: Small segments that may be live; the ingest that makes one more merges.
MAX_SMALL = 64


class Merger:
    def __init__(self, api: Api, schemas: Schemas, reader: Reader) -> None:
        self._api = api
        self._schemas = schemas
        self._reader = reader

    async def after_ingest(self, caller: Caller, state: SchemaState) -> None:
        """Merge if it is time. The records are stored already, so failing is only logged."""
        try:
            while worth_merging(state.ledger.view(), MAX_SMALL + 1):
                await self.merge(caller, state)
        except ErsError as error:
            log.warning("merging failed, a later ingest tries again: %s", error.message)

    async def merge(self, caller: Caller, state: SchemaState) -> None:
        """One merge, as one commit that conserves every live row.

        Raises:
            Conflict: another proxy merged the same segments first.
        """
        async with state.lock:
            if state.uncertain:
                await self._schemas.refresh(caller, state)
            ledger, view = state.ledger, state.ledger.view()
            inputs = worth_merging(view, MAX_SMALL + 1)
            if not inputs:
                return
            opened = await self._reader.segments(caller, state, inputs)
            built = await asyncio.to_thread(merge, ledger.key, state.definition, opened, view)
            upload = ledger.draft(
                state.definition.digest,
                segments=[built.segment],
                replaced=[segment.uid for segment in inputs],
                pages=built.pages,
            )
            # Until the receipt is in the ledger, no other commit may take this one's place.
            state.uncertain = True
            (receipt,) = await self._api.commit([upload], caller.auth)
            await self._schemas.settle(caller, state, upload, receipt)
            state.uncertain = False
            log.info("merged %d segments of %d rows", len(inputs), built.segment.count)

"""When to merge segments, and doing it.

Every direct ingest leaves a small segment behind, and a question looks into all of them. Once
there are many, the ingest that crosses the line merges before it returns. All other merging goes
on in the background after a commit, with the credentials of the request that made it, one merge
at a time: it may fail or lose a race, and then a later commit tries again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from encrypted_records.client.api import Api
from encrypted_records.errors import Conflict, ErsError
from encrypted_records.index.merge import TIERS, Merge, Tier, worth_merging
from encrypted_records.index.paged import PagedSegment
from encrypted_records.index.segments import Built
from encrypted_records.model.records import Segment
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.pager import Pager
from encrypted_records.proxy.reader import Reader
from encrypted_records.proxy.schemas import Schemas, SchemaState

log = logging.getLogger(__name__)

#: Pages of one commit. The API takes bodies of 64 MiB.
_MOST_BYTES = 62 << 20


@dataclass(frozen=True, slots=True)
class Merged:
    """``inputs`` segments became one of ``rows`` rows."""

    inputs: int
    rows: int


class Merger:
    def __init__(
        self,
        api: Api,
        schemas: Schemas,
        reader: Reader,
        pager: Pager,
        tiers: tuple[Tier, ...] = TIERS,
    ) -> None:
        self._api = api
        self._schemas = schemas
        self._reader = reader
        self._pager = pager
        #: per user and schema, which merges what others of its proxy would only race for
        self._running: dict[tuple[bytes, bytes], asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._tiers = tiers
        #: of schemas whose segments turned out too large to be sent
        self._lower: dict[bytes, tuple[Tier, ...]] = {}

    async def after_ingest(self, caller: Caller, state: SchemaState) -> None:
        """Merge if it is time. The records are stored already, so failing is only logged."""
        try:
            while await self._merge(caller, state, self._tiers[:1]):
                pass
        except ErsError as error:
            log.warning("merging failed, a later ingest tries again: %s", error.message)
        place = (caller.user, state.id)
        if place not in self._running and self.pending(state):
            self._running[place] = asyncio.create_task(self._in_background(caller, state))

    async def once(self, caller: Caller, state: SchemaState) -> Merged | None:
        """The next merge of a schema; None where nothing is worth it.

        Raises:
            ErsError: it failed, and changed nothing.
        """
        async with self._one_at_a_time:
            return await self._merge(caller, state, self._lower.get(state.id, self._tiers))

    async def close(self) -> None:
        """Leave merges that are under way; nothing of them is stored."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    @property
    def running(self) -> int:
        """How many schemas are being merged in the background."""
        return len(self._running)

    def pending(self, state: SchemaState) -> bool:
        """Whether there is something to merge."""
        tiers = self._lower.get(state.id, self._tiers)
        return bool(worth_merging(state.ledger.view(), tiers, now=_now()))

    async def _in_background(self, caller: Caller, state: SchemaState) -> None:
        try:
            while await self.once(caller, state):
                pass
        except ErsError as error:
            log.warning("merging failed, a later ingest tries again: %s", error.message)
        except Exception as error:
            log.error("merging failed by a bug of ours: %s", type(error).__name__)  # noqa: TRY400
        finally:
            del self._running[caller.user, state.id]

    async def _merge(
        self, caller: Caller, state: SchemaState, tiers: tuple[Tier, ...]
    ) -> Merged | None:
        """One merge, as one commit that conserves every live row.

        It is built without the lock, since that may take long, and committed if all its inputs
        are live then. Rows that die meanwhile are dead rows of the new segment.

        Raises:
            Conflict: another proxy merged some of the same segments first.
        """
        ledger = state.ledger
        inputs = worth_merging(ledger.view(), tiers, now=_now())
        if not inputs:
            return None
        built = await self._built(caller, state, inputs)
        if sum(len(page.data) for page in built.pages) > _MOST_BYTES:
            log.warning("%d rows are too many for one segment of this schema", built.segment.count)
            *lower, last = tiers
            self._lower[state.id] = (*lower, replace(last, capacity=built.segment.count // 2))
            return Merged(0, 0)
        replaced = [segment.uid for segment in inputs]
        async with state.lock:
            if state.uncertain:
                await self._schemas.refresh(caller, state)
            live = {segment.uid for segment in state.ledger.view().segments}
            if state.ledger is not ledger or not live.issuperset(replaced):
                raise Conflict("another merge came first", code="segment_not_live")
            upload = ledger.draft(
                state.definition.digest,
                segments=[built.segment],
                replaced=replaced,
                pages=built.pages,
            )
            # Until the receipt is in the ledger, no other commit may take this one's place.
            state.uncertain = True
            (receipt,) = await self._api.commit([upload], caller.auth)
            await self._schemas.settle(caller, state, upload, receipt)
            state.uncertain = False
        await asyncio.to_thread(self._pager.drop, replaced)
        log.info("merged %d segments of %d rows", len(inputs), built.segment.count)
        return Merged(len(inputs), built.segment.count)

    async def _built(self, caller: Caller, state: SchemaState, inputs: Sequence[Segment]) -> Built:
        """Column by column: no more pages of the inputs are in memory than those of one column."""
        opened = await self._reader.segments(caller, state, inputs, lambda _: set())
        merging = Merge(state.ledger.key, state.definition, opened, state.ledger.view())
        for name in merging.fields:
            await self._reader.fill(
                caller,
                state,
                opened,
                lambda segment: segment.missing_columns([name]),  # noqa: B023
            )
            await asyncio.to_thread(merging.take, name)
            for segment in opened:
                if isinstance(segment, PagedSegment):
                    segment.blocks.clear()
        return await asyncio.to_thread(merging.finish)


def _now() -> int:
    return time.time_ns() // 1_000_000

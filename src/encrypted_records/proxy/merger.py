"""When to merge segments, and doing it.

Every direct ingest leaves a small segment behind, and a question looks into all of them. Once
there are many, the ingest that crosses the line merges before it returns. All other merging goes
on in the background after a commit, with the credentials of the request that made it, one merge
at a time: it may fail or lose a race, and then a later commit tries again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from encrypted_records.client.api import Api
from encrypted_records.errors import BadInput, Conflict, ErsError, NotFound
from encrypted_records.index.merge import TIERS, Merge, Tier, worth_merging
from encrypted_records.index.paged import PagedSegment
from encrypted_records.index.segments import Built
from encrypted_records.model import wire
from encrypted_records.model.records import Part, PartUpload, Segment
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.committing import Committer
from encrypted_records.proxy.pager import Pager
from encrypted_records.proxy.reader import Reader
from encrypted_records.proxy.schemas import Schemas, SchemaState

log = logging.getLogger(__name__)

#: Pages that travel in one body; more are stored ahead of their commit, in parts of so many.
PAGES_AT_ONCE = 1024


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
        committer: Committer,
        tiers: tuple[Tier, ...] = TIERS,
        pages_at_once: int = PAGES_AT_ONCE,
    ) -> None:
        self._api = api
        self._schemas = schemas
        self._reader = reader
        self._pager = pager
        self._committer = committer
        #: per user and schema, which merges what others of its proxy would only race for
        self._running: dict[tuple[bytes, bytes], asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._tiers = tiers
        self._pages_at_once = pages_at_once

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
            return await self._merge(caller, state, self._tiers)

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
        return bool(worth_merging(state.ledger.view(), self._tiers, now=_now()))

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
        replaced = [segment.uid for segment in inputs]
        definition = state.definition.digest
        ahead: bytes | None = None
        staged: list[bytes] = []
        if len(built.pages) > self._pages_at_once:
            ahead = _staging(state, replaced)
            staged = await self._stage(caller, state, definition, ahead, built)
        async with state.lock:
            await self._committer.ready(caller, [state])
            live = {segment.uid for segment in state.ledger.view().segments}
            if state.ledger is not ledger or not live.issuperset(replaced):
                raise Conflict("another merge came first", code="segment_not_live")
            upload = ledger.draft(
                definition,
                segments=[built.segment],
                replaced=replaced,
                pages=() if staged else built.pages,
                staged=staged,
            )
            try:
                await self._committer.store(caller, [(state, upload)], staging=ahead)
            except (BadInput, NotFound) as error:
                # Another proxy at the same merge has put its parts in the place of ours.
                if ahead is None or error.reason not in ("invalid_commit", "staging_gone"):
                    raise
                raise Conflict("another merge came first", code="segment_not_live") from None
        await asyncio.to_thread(self._pager.drop, replaced)
        log.info("merged %d segments of %d rows", len(inputs), built.segment.count)
        return Merged(len(inputs), built.segment.count)

    async def _stage(
        self, caller: Caller, state: SchemaState, definition: bytes, ahead: bytes, built: Built
    ) -> list[bytes]:
        """Store the pages under the staging ``ahead``, in parts; the parts' digests.

        A merge that was cut off leaves parts behind, whose places the next try takes.
        """
        digests: list[bytes] = []
        for sequence, begin in enumerate(range(0, len(built.pages), self._pages_at_once)):
            pages = built.pages[begin : begin + self._pages_at_once]
            part = Part(ahead, sequence, definition, [], [built.segment])
            body = b"".join(wire.encode_part(PartUpload(part, (), pages)))
            await self._api.stage(state.id, body, caller.auth)
            digests.append(wire.part_digest((), pages))
        return digests

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


def _staging(state: SchemaState, inputs: Sequence[bytes]) -> bytes:
    """One id for every attempt at one merge (docs/SPEC.md, section 7.6)."""
    return hashlib.sha256(b"".join((state.id, *inputs))).digest()[:16]


def _now() -> int:
    return time.time_ns() // 1_000_000

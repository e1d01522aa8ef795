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
from dataclasses import dataclass

from encrypted_records.errors import BadInput, Conflict, ErsError, NotFound
from encrypted_records.index.merge import TIERS, Tier, worth_merging
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.committing import Committer
from encrypted_records.proxy.merge_builds import MergeBuilds
from encrypted_records.proxy.pager import Pager
from encrypted_records.proxy.schemas import SchemaState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Merged:
    """``inputs`` segments became one of ``rows`` rows."""

    inputs: int
    rows: int


class Merger:
    def __init__(
        self,
        builds: MergeBuilds,
        pager: Pager,
        committer: Committer,
        tiers: tuple[Tier, ...] = TIERS,
    ) -> None:
        self._builds = builds
        self._pager = pager
        self._committer = committer
        #: per user and schema, which merges what others of its proxy would only race for
        self._running: dict[tuple[bytes, bytes], asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._tiers = tiers

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
        view = ledger.view()
        inputs = worth_merging(view, tiers, now=_now())
        if not inputs:
            return None
        definition = state.definition.digest
        new = await self._builds.prepared(caller, state, view, inputs)
        replaced = [segment.uid for segment in inputs]
        async with state.lock:
            await self._committer.ready(caller, [state])
            live = {segment.uid for segment in state.ledger.view().segments}
            if state.ledger is not ledger or not live.issuperset(replaced):
                raise Conflict("another merge came first", code="segment_not_live")
            upload = ledger.draft(
                definition,
                segments=[new.segment],
                replaced=replaced,
                pages=new.pages,
                staged=new.staged,
            )
            try:
                await self._committer.store(caller, [(state, upload)], staging=new.staging)
            except (BadInput, NotFound) as error:
                # Another proxy at the same merge has put its parts in the place of ours.
                if new.staging is None or error.reason not in ("invalid_commit", "staging_gone"):
                    raise
                raise Conflict("another merge came first", code="segment_not_live") from None
        await asyncio.to_thread(self._pager.drop, replaced)
        log.info("merged %d segments of %d rows", len(inputs), new.segment.count)
        return Merged(len(inputs), new.segment.count)


def _now() -> int:
    return time.time_ns() // 1_000_000

"""One merge: built, and then stored as one commit that conserves every live row.

Another proxy may merge some of the same segments meanwhile, and only one of the two is stored. A
merge of minutes looks now and then whether that has happened, and stops if it has.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from encrypted_records import runtime
from encrypted_records.errors import BadInput, Conflict, NotFound, Unavailable
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.segments.merge_policy import rows_of
from encrypted_records.model.records import Segment
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.page_fetcher import PageFetcher
from encrypted_records.proxy.write.committer import Committer
from encrypted_records.proxy.write.lanes import Lanes
from encrypted_records.proxy.write.merge_executor import FetchRows, MergeExecutor, PreparedSegment

log = logging.getLogger(__name__)

#: Seconds between two looks at the log while a huge merge is built.
LOOK_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """``inputs`` segments became one of ``rows`` rows."""

    inputs: int
    rows: int


class MergeCommits:
    def __init__(self, executor: MergeExecutor, pager: PageFetcher, committer: Committer) -> None:
        self._executor = executor
        self._pager = pager
        self._committer = committer

    async def make(
        self,
        caller: Holder,
        state: SchemaState,
        inputs: Sequence[Segment],
        lanes: Lanes,
        fetch: FetchRows | None = None,
    ) -> MergeOutcome:
        """Merge segments, and store what comes of it.

        It is built without the schema's lock, since that may take long, and committed if all its
        inputs are live then. Rows that die meanwhile are dead rows of the new segment.

        Args:
            fetch: gives rows, where there is one input, whose pages are lost.

        Raises:
            Conflict: another proxy merged some of the same segments first.
        """
        ledger = state.ledger
        seen = ledger.snapshot()
        rows = rows_of(inputs)
        large = rows not in lanes.ordinary.rows
        looked = runtime.monotonic()

        async def look() -> None:
            nonlocal looked
            if rows in lanes.huge.rows and runtime.monotonic() - looked >= LOOK_SECONDS:
                await self._look(caller, state, ledger, inputs)
                looked = runtime.monotonic()

        if fetch is None:
            new = await self._executor.build(caller, state, seen, inputs, large=large, look=look)
        else:
            (lost,) = inputs
            new = await self._executor.rebuild(
                caller, state, seen, lost, fetch, large=large, look=look
            )
        try:
            await self._publish(caller, state, ledger, seen, inputs, new)
        except (BadInput, NotFound) as error:
            # Another proxy does the same merge and has replaced our parts. Where that is a lie, the
            # segments stay as they are, and an erasure that waits for the merge fails by name.
            if new.staging is None or error.reason not in ("invalid_commit", "staging_gone"):
                raise
            raise _overtaken() from None
        except Conflict:
            await self._executor.give_up(caller, new.staging)
            raise
        await runtime.in_thread(self._pager.drop, [segment.uid for segment in inputs])
        log.info("merged %d segments of %d rows", len(inputs), new.segment.count)
        return MergeOutcome(len(inputs), new.segment.count)

    async def _look(
        self, caller: Holder, state: SchemaState, ledger: Ledger, inputs: Sequence[Segment]
    ) -> None:
        """
        Raises:
            Conflict: some of the inputs are not live any more.
        """
        # The next page or part that is asked for says it if the API is away.
        with suppress(Unavailable):
            await self._committer.catch_up(caller, state)
        _require_live(state, ledger, inputs)

    async def _publish(
        self,
        caller: Holder,
        state: SchemaState,
        ledger: Ledger,
        seen: Snapshot,
        inputs: Sequence[Segment],
        new: PreparedSegment,
    ) -> None:
        """Have the new segment stand for its inputs, as the ledger had them before it was built."""
        async with state.lock:
            await self._committer.prepare(caller, [state])
            _require_live(state, ledger, inputs)
            now = ledger.snapshot()
            if any(now.groups_of(source) != seen.groups_of(source) for source in inputs):
                raise Conflict("groups of the segments have ended", code="group_not_live")
            upload = ledger.draft(
                seen.definition,
                segments=[new.segment],
                replaced=[segment.uid for segment in inputs],
                pages=new.pages,
                headers=() if new.staging else [new.header],
            )
            await self._committer.store(
                caller, [(state, upload)], built=new.built, staging=new.staging
            )


def _require_live(state: SchemaState, ledger: Ledger, inputs: Sequence[Segment]) -> None:
    live = {segment.uid for segment in state.ledger.snapshot().segments}
    if state.ledger is not ledger or not live.issuperset(source.uid for source in inputs):
        raise _overtaken()


def _overtaken() -> Conflict:
    return Conflict("another merge came first", code="segment_not_live")

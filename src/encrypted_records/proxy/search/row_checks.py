"""Rows that came beside those that were needed are authenticated, in the order in which they came.

An API that altered one could otherwise learn from later events whether it was needed. Queries are
answered before that, so this is work that others leave behind: it is done a little at a time, in
between, of one answer after the other. A query that brings more while much waits is answered once
enough of what came before it is done; who came first goes on first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model.records import RowRef
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.row_cache import RowCache
from encrypted_records.proxy.search.row_opening import FEW_BYTES, Sealed, authenticate

log = logging.getLogger(__name__)

#: Bytes of extra rows that wait, before queries wait for them.
MOST_BYTES = 8 << 20
#: Fields of one step: so many for each answer that waits, up to so many answers.
_CELLS_AT_ONCE, _MOST_TIMES = 160, 12


class _Standing(NamedTuple):
    """A log, and a version of it: as long as it stays there, no row dies."""

    ledger: Ledger
    version: int

    def is_of(self, state: SchemaState) -> bool:
        """Whether the state has this very log, as it stood. Another one that is equal is another:
        to compare what is in them would take long, and tell nothing."""
        return state.ledger is self.ledger and state.ledger.version == self.version


class RowChecks:
    def __init__(self, kept: RowCache, most_bytes: int = MOST_BYTES) -> None:
        """
        Args:
            most_bytes: of rows that wait, before queries wait for them.
        """
        self._kept = kept
        self._most = most_bytes
        self._turn = asyncio.Lock()
        #: how many answers wait, or are in their turn
        self._waiting = 0
        self._under_way: set[asyncio.Task[None]] = set()
        #: bytes of all that ever came, and of what of it is done
        self._came = self._done = 0
        #: queries that wait until so many bytes are done, the first one first
        self._held: deque[tuple[int, asyncio.Future[None]]] = deque()
        #: schemas of which a row was altered, until an error has said so
        self._altered: set[bytes] = set()

    def __len__(self) -> int:
        """Of how many answers rows are not checked yet, or not on disk."""
        return len(self._under_way)

    async def close(self) -> None:
        """Finish what has begun."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def raise_altered(self, schema: bytes) -> None:
        """
        Raises:
            DoesNotOpen: ``row_altered``: a row of this schema was, and nobody was told yet.
        """
        if schema in self._altered:
            self._altered.remove(schema)
            raise altered()

    async def add(
        self, state: SchemaState, snapshot: Snapshot, rows: Sealed, needed: Collection[RowRef]
    ) -> None:
        """Have rows checked in their turn, and stored on disk; return before that, unless much
        waits.

        Args:
            rows: of which each is live, as :func:`select_live` has just said.
            needed: those of the rows that were opened.
        """
        extra = {ref: row for ref, row in rows.items() if ref not in needed}
        size = sum(map(len, extra.values()))
        self._came += size
        self._waiting += 1
        task = asyncio.create_task(self._check(state, snapshot, rows, extra, _standing(state)))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        if self._came - self._done > self._most:
            enough = asyncio.get_running_loop().create_future()
            self._held.append((self._came - self._most, enough))
            await enough

    async def _check(
        self,
        state: SchemaState,
        snapshot: Snapshot,
        rows: Sealed,
        extra: Sealed,
        lived: _Standing,
    ) -> None:
        try:
            try:
                async with self._turn:
                    await self._authenticate(state, snapshot, extra)
            finally:
                self._waiting -= 1
                self._done += sum(map(len, extra.values()))
                self._let_go_on()
            await self._store(state, snapshot, rows, lived)
        except DoesNotOpen:
            log.warning("the API altered a row that it was asked for beside others")
            self._altered.add(state.id)
            await asyncio.to_thread(self._kept.drop, state.id, snapshot, rows)
        except Exception as error:
            log.error("rows are not kept by a bug of ours: %s", type(error).__name__)  # noqa: TRY400

    async def _authenticate(self, state: SchemaState, snapshot: Snapshot, rows: Sealed) -> None:
        fields = len(state.definition.fields)
        some: dict[RowRef, bytes] = {}
        size = 0
        for ref, row in rows.items():
            some[ref] = row
            size += len(row)
            cells = _CELLS_AT_ONCE * min(_MOST_TIMES, self._waiting)
            if (len(some) + 1) * fields > cells or size > FEW_BYTES // 2:
                await authenticate(state, snapshot, some)
                await asyncio.sleep(0)  # let queries go first
                some, size = {}, 0
        await authenticate(state, snapshot, some)

    def _let_go_on(self) -> None:
        while self._held and self._held[0][0] <= self._done:
            _, enough = self._held.popleft()
            if not enough.done():
                enough.set_result(None)

    async def _store(
        self, state: SchemaState, snapshot: Snapshot, rows: Sealed, lived: _Standing
    ) -> None:
        """
        Args:
            lived: where the log stood when all of these rows were live.
        """
        if not lived.is_of(state):
            rows, lived = select_live(state, rows), _standing(state)
        await asyncio.to_thread(self._kept.store, state.id, snapshot, rows)
        # Rows that died meanwhile must not stay.
        if lived.is_of(state):
            return
        if dead := rows.keys() - select_live(state, rows).keys():
            await asyncio.to_thread(self._kept.forget, state.id, snapshot, dead)


def _standing(state: SchemaState) -> _Standing:
    """Where the log stands."""
    return _Standing(state.ledger, state.ledger.version)


def select_live(state: SchemaState, rows: Sealed) -> dict[RowRef, bytes]:
    """The rows that are live in the newest known state: an export may read an earlier version."""
    present = state.ledger.snapshot()
    return {ref: row for ref, row in rows.items() if present.is_live(ref.group, ref.ordinal)}


def altered() -> DoesNotOpen:
    """A row that came beside others was; one error for each who is told."""
    return DoesNotOpen(
        "the API altered a row that it was asked for beside others",
        code="row_altered",
        hint="what it had altered is not used; ask again, and do not trust this API",
    )

"""Fetch sealed rows from the API together with cover rows, cache them, and open them.

Cached rows are not requested again, so a repeated query tells the API nothing. Cover rows are
checked as well, after the query is answered (:mod:`.row_checks`). Only checked rows go to disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from encrypted_records import runtime
from encrypted_records.errors import DoesNotOpen, LogBroken, NotFound
from encrypted_records.fair_queue import FairQueue
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model.records import MAX_ROW_REFS, PlainRecord, RowRef
from encrypted_records.proxy.process import Background, Fetch, Fetches, Recent, shuffled, wait_for
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.caches import BLOCK, RowBlock, RowCache
from encrypted_records.proxy.search.cover import (
    MOST,
    MOST_RANKED,
    RANKED_AT_ONCE,
    RANKED_SIZES,
    SIZES,
    Draw,
    RetrySets,
    choose_cover,
)
from encrypted_records.proxy.search.row_checks import (
    Records,
    RowChecks,
    RowNumber,
    Sealed,
    altered,
    numbers_of,
    open_row,
    open_rows,
    prove_rows,
    select_live,
)
from encrypted_records.proxy.search.upstream import RowsGone, Upstream

#: Maximum number of recent rows that determine a width, and of schemas with a known width.
_ROWS = 4096
_SCHEMAS = 1000


class RowWidths:
    def __init__(self) -> None:
        #: rows and bytes, by schema
        self._seen: Recent[bytes, tuple[float, float]] = Recent(_SCHEMAS)

    def __contains__(self, schema: bytes) -> bool:
        return schema in self._seen

    def add(self, schema: bytes, rows: Collection[bytes]) -> None:
        if not rows:
            return
        count, size = self._seen.pop(schema, (0.0, 0.0))
        fade = min(1.0, max(0.0, 1 - len(rows) / _ROWS))
        self._seen[schema] = (count * fade + len(rows), size * fade + sum(map(len, rows)))

    def rows_in(self, schema: bytes, size: int) -> int:
        """The number of rows of a schema that take ``size`` bytes; very large if nothing is
        known.
        """
        if schema not in self._seen:
            return 1 << 30
        count, seen = self._seen[schema]
        return int(size * count / max(1.0, seen))


#: A request for more rows is neither cached nor given cover rows.
MOST_OPENED = 4096
#: Fewest rows that an export opens together; more, up to ``MOST_OPENED``, within these bytes.
LEAST_WINDOW = 500
_WINDOW_BYTES = 4 << 20
#: Maximum bytes of a request with cover rows, and of one for ranked rows; and the number of rows
#: that are requested first, while the width of a schema's rows is not known.
BESIDE_BYTES = 1 << 20
RANKED_BYTES = 8 << 20
FIRST_ROWS = 32
#: Concurrent requests for rows, of all queries. Fewer than the connections
#: (:data:`encrypted_records.client.transport.CONNECTIONS`): requests of all kinds wait for a
#: connection in one queue, also those that confirm a state.
AT_ONCE = 24
#: The expected size of one answer of the API.
ANSWER_BYTES = 32 << 20
#: Maximum number of rows in failed requests that are remembered.
_MOST_RETRY_ITEMS = 1 << 16
#: Number of records whose rows are remembered.
_MOST_RECENT = 50_000

_encoder = msgspec.msgpack.Encoder()
T = TypeVar("T")
#: Verifies sealed rows and converts them to the needed form.
Work = Callable[[SchemaState, Snapshot, Sealed], Awaitable[dict[RowRef, T]]]


@dataclass(frozen=True, slots=True)
class _CoverLimits:
    """The limits of a request with cover rows: sizes of runs, and maximum rows and bytes, the
    needed rows among them.
    """

    sizes: tuple[int, ...]
    rows: int
    size: int


_USUAL = _CoverLimits(SIZES, MOST, BESIDE_BYTES)
_RANKED = _CoverLimits(RANKED_SIZES, MOST_RANKED, RANKED_BYTES)


class RowFetcher:
    def __init__(self, kept: RowCache, background: Background) -> None:
        self._kept = kept
        self._widths = RowWidths()
        #: single flight of blocks, by schema and number
        self._fetches: Fetches[tuple[bytes, int]] = Fetches()
        #: schema and row of records that were opened here, the newest last
        self._recent: Recent[bytes, tuple[bytes, RowRef]] = Recent(_MOST_RECENT)
        self._retry_sets: RetrySets[RowNumber] = RetrySets(_MOST_RETRY_ITEMS)
        self._checks = RowChecks(kept, self._retry_sets, background)
        self._places = FairQueue(AT_ONCE)

    async def open_rows(
        self,
        upstream: Upstream,
        wanted: Sequence[RowRef],
        *,
        alone: bool = False,
        ranked: bool = False,
    ) -> list[PlainRecord]:
        """The rows, opened, in the order of ``wanted``.

        Args:
            alone: fetch no cover rows, and cache nothing.
            ranked: they are needed because of their rank in an order, after others were. They are
                requested in the order of storing, some at a time, with many more cover rows.

        Raises:
            DoesNotOpen: a row was altered or belongs elsewhere; ``row_altered`` if it was a cover
                row of an earlier request.
            LogBroken: the API lacks a row, or returned another than was requested.
            NotFound: ``row_gone``; the API lacks a dead row.
            Moved: as :meth:`Upstream.fetch_rows`.
        """
        parts = [list(wanted)]
        if ranked:
            stored = sorted(set(wanted), key=upstream.snapshot.number)
            starts = range(0, len(stored), RANKED_AT_ONCE)
            parts = [stored[start : start + RANKED_AT_ONCE] for start in starts]
        records: Records = {}
        for part in parts:
            records |= await self._bring(upstream, part, open_rows, alone=alone, ranked=ranked)
        if not alone:
            self._remember(upstream.state.id, records)
        return [records[ref] for ref in wanted]

    async def prove_rows(
        self, upstream: Upstream, wanted: Sequence[RowRef], *, alone: bool = False
    ) -> dict[RowRef, bytes]:
        """The rows as they are sealed, each proven to be the row that was stored.

        Args:
            alone: as for :meth:`open_rows`.

        Raises:
            DoesNotOpen, LogBroken, NotFound, Moved: as :meth:`open_rows`.
        """
        return await self._bring(upstream, wanted, prove_rows, alone=alone)

    async def _bring(
        self,
        upstream: Upstream,
        wanted: Sequence[RowRef],
        work: Work[T],
        *,
        alone: bool,
        ranked: bool = False,
    ) -> dict[RowRef, T]:
        state, snapshot = upstream.state, upstream.snapshot
        self._checks.raise_altered(state.id)
        since = asyncio.get_running_loop().time()
        found = await self._load_kept(state, snapshot, wanted, work)
        missing = _find_missing(wanted, found)
        # Two equal queries at once make one request to the API.
        given_up = True
        while given_up and (others := self._fetches.of(_blocks(state, snapshot, missing))):
            given_up = await _wait_confirmed(upstream, others.values())
            found |= await self._load_kept(state, snapshot, missing, work)
            missing = _find_missing(wanted, found)
        room = _RANKED if ranked else _USUAL
        if missing and alone:
            sealed = await self._request(upstream, missing, shuffled(missing), since, room)
            found |= await work(state, snapshot, sealed)
        elif missing:
            with self._fetches.claim(_blocks(state, snapshot, missing)):
                order = await self._choose(upstream, missing, room)
                name = partial(numbers_of, state.id, snapshot, order)
                with self._retry_sets.request(name):
                    sealed = await self._request(upstream, missing, order, since, room)
                    needed = {ref: sealed[ref] for ref in missing}
                    found |= await work(state, snapshot, needed)
                rows = select_live(state, sealed)
                self._kept.keep(state.id, snapshot, rows)
            await self._checks.add(state, snapshot, rows, needed)
        return found

    def _remember(self, schema: bytes, records: Records) -> None:
        for ref, record in records.items():
            self._recent[record.record_id] = (schema, ref)

    def window(self, schema: bytes) -> int:
        """The number of rows of a schema that an export opens together."""
        if schema not in self._widths:
            return LEAST_WINDOW
        fitting = self._widths.rows_in(schema, _WINDOW_BYTES)
        return min(MOST_OPENED, max(LEAST_WINDOW, fitting))

    def row_of(self, record_id: bytes) -> tuple[bytes, RowRef] | None:
        """Schema and row of a record that was opened here recently."""
        return self._recent.get(record_id)

    @property
    def checks(self) -> int:
        """The number of answers whose cover rows are still being checked."""
        return len(self._checks)

    async def close(self) -> None:
        """Finish checking rows."""
        await self._checks.close()

    # --- from memory and disk ----------------------------------------------------------------

    async def _load_kept(
        self, state: SchemaState, snapshot: Snapshot, wanted: Sequence[RowRef], work: Work[T]
    ) -> dict[RowRef, T]:
        """The wanted rows that are in memory or on disk, converted by ``work``."""
        block_of = {ref: snapshot.number(ref) // BLOCK for ref in wanted}
        blocks = self._kept.in_memory(state.id, set(block_of.values()))
        numbers = {
            at
            for ref, at in block_of.items()
            if at not in blocks or (ref not in blocks[at].rows and not blocks[at].loaded)
        }
        if numbers:
            blocks |= await runtime.in_thread(self._kept.blocks, state.id, numbers)
        sealed = {
            ref: blocks[at].rows[ref] for ref, at in block_of.items() if ref in blocks[at].rows
        }
        try:
            return await work(state, snapshot, sealed)
        except DoesNotOpen:
            unchecked = {ref for ref in sealed if ref in blocks[block_of[ref]].unchecked}
            left = await self._drop_broken(state, snapshot, sealed, unchecked)
            return await work(state, snapshot, left)

    async def _drop_broken(
        self, state: SchemaState, snapshot: Snapshot, sealed: Sealed, unchecked: Collection[RowRef]
    ) -> Sealed:
        """The rows that open. The others were damaged on our disk, or come from an API that altered
        cover rows.

        Raises:
            DoesNotOpen: ``row_altered``.
        """
        broken = []
        for ref, row in sealed.items():
            try:
                open_row(state, snapshot, ref, row)
            except DoesNotOpen:
                broken.append(ref)
        await runtime.in_thread(self._kept.forget, state.id, snapshot, broken)
        if any(ref in unchecked for ref in broken):
            # Afterwards the request that brought them is remembered, and its rows are dropped as a
            # whole: a repeated request before that would have other cover rows.
            await self._checks.settle()
            raise altered()
        return {ref: row for ref, row in sealed.items() if ref not in broken}

    # --- from the API ------------------------------------------------------------------------

    async def _choose(
        self, upstream: Upstream, missing: Sequence[RowRef], room: _CoverLimits
    ) -> list[RowRef]:
        """The rows to request: the missing rows, cover rows, and the rows of failed requests that
        contained some of these, unless rows are wide.
        """
        state, snapshot = upstream.state, upstream.snapshot
        needed = numbers_of(state.id, snapshot, missing)
        draw = upstream.draws(number.to_bytes(8, "big") for _, number in needed)
        again = [number for _, number in self._retry_sets.same_request(needed) - needed]
        if len(again) > self._widths.rows_in(state.id, 2 * room.size):
            again = []  # the rows have turned out to be wide, and wide rows are requested exactly
        extra = await runtime.in_thread(
            self._choose_extra, state.id, snapshot, missing, draw, room, again
        )
        return shuffled(dict.fromkeys([*missing, *extra]))

    def _choose_extra(
        self,
        schema: bytes,
        snapshot: Snapshot,
        missing: Sequence[RowRef],
        draw: Draw,
        room: _CoverLimits,
        again: Sequence[int],
    ) -> list[RowRef]:
        """The rows in the runs of the missing rows, and in cover runs.

        Args:
            again: numbers of rows that are requested, too, unless they are cached or dead.
        """
        numbers = {snapshot.number(ref) for ref in missing}
        most = min(room.rows, self._widths.rows_in(schema, room.size))
        if again:
            blocks = self._kept.blocks(schema, {number // BLOCK for number in again})
            numbers |= {
                number
                for number in again
                for ref in snapshot.live_between(number, number + 1)
                if ref not in blocks[number // BLOCK].rows
            }
            most += 2 * len(again)  # so that they do not displace other rows
        cover = choose_cover(numbers, snapshot.stored, draw, most, room.sizes)
        size = cover.size
        cached_blocks: dict[int, RowBlock] = {}

        def list_lacking(runs: Collection[int]) -> Iterator[list[RowRef]]:
            """The missing rows of each run that has any."""
            blocks = {run * size // BLOCK for run in runs} - cached_blocks.keys()
            cached_blocks.update(self._kept.blocks(schema, blocks))
            for run in runs:
                rows = cached_blocks[run * size // BLOCK].rows
                between = snapshot.live_between(run * size, (run + 1) * size)
                if lacking := [ref for ref in between if ref not in rows]:
                    yield lacking

        chosen_rows = list(list_lacking(cover.needed))
        # A few at a time, because looking for them on disk takes a while.
        at_once = max(8, 2 * (cover.total - len(cover.needed)))
        for start in range(0, len(cover.others), at_once):
            if len(chosen_rows) >= cover.total:
                break
            chosen_rows += list_lacking(cover.others[start : start + at_once])
        return [ref for lacking in chosen_rows[: cover.total] for ref in lacking]

    async def _request(
        self,
        upstream: Upstream,
        missing: Collection[RowRef],
        order: Sequence[RowRef],
        since: float,
        room: _CoverLimits,
    ) -> dict[RowRef, bytes]:
        """The rows of ``order`` from the API; only the missing rows if the rows of this schema are
        wider than expected.

        Args:
            since: when they were needed, by the event loop's clock; requests of a user are served
                in this order.
        """
        schema = upstream.state.id
        sealed: dict[RowRef, bytes] = {}
        left = list(order)
        while left:
            new = schema not in self._widths
            fitting = FIRST_ROWS if new else self._widths.rows_in(schema, ANSWER_BYTES)
            at_once = max(1, min(MAX_ROW_REFS, fitting))
            batch, left = left[:at_once], left[at_once:]
            sealed |= await self._fetch(upstream, batch, since)
            if new and len(left) > self._widths.rows_in(schema, room.size):
                needed = set(missing)
                left = [ref for ref in left if ref in needed]
        return sealed

    async def _fetch(
        self, upstream: Upstream, order: Sequence[RowRef], since: float
    ) -> dict[RowRef, bytes]:
        try:
            async with self._places.take(upstream.caller.user, since=since):
                stored = await upstream.fetch_rows(order)
        except NotFound as error:
            live = all(upstream.snapshot.is_live(ref.group, ref.ordinal) for ref in order)
            if error.reason != "row_gone" or not live:
                raise
            raise RowsGone from None
        sealed: dict[RowRef, bytes] = {}
        # For cover rows as well: how an answer is treated must not depend on what was needed.
        for ref, row in zip(order, stored, strict=True):
            if (row.group, row.ordinal) != (ref.group, ref.ordinal):
                raise LogBroken("the API returned a row that was not requested")
            sealed[ref] = _encoder.encode(row.row)
        self._widths.add(upstream.state.id, sealed.values())
        return sealed


async def _wait_confirmed(upstream: Upstream, fetches: Collection[Fetch]) -> bool:
    """Wait like :func:`wait_for`, and confirm the state at the same time: a confirmation afterwards
    would wait a second time, after all later requests.

    Raises:
        Moved: as for :meth:`Upstream.confirm`.
    """
    waiting = asyncio.ensure_future(wait_for(fetches))  # noqa: TID251 # ends with its request
    try:
        await upstream.confirm()
        return await waiting
    finally:
        waiting.cancel()  # if there is nothing left to wait for


def _blocks(
    state: SchemaState, snapshot: Snapshot, rows: Iterable[RowRef]
) -> set[tuple[bytes, int]]:
    """The blocks of these rows, as they are fetched."""
    return {(state.id, snapshot.number(ref) // BLOCK) for ref in rows}


def _find_missing(wanted: Iterable[RowRef], found: Collection[RowRef]) -> list[RowRef]:
    return list(dict.fromkeys(ref for ref in wanted if ref not in found))

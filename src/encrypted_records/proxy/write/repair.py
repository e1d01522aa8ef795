"""Compare all stored data of a schema with its log, and repair a schema after data loss.

With the API's help, a holder of the schema's key can replace stored bytes by others that open. Each
group's commit names a digest of its rows, and each segment's commit a digest of its pages
(docs/SPEC.md, section 7.2.1). A verification fetches everything from the API, and caches nothing.

After data loss at the API, such as after a restore, a repair deletes records without remaining
data, and rebuilds missing indexes from rows. The API reports what is lost, and may lie: then an
index is rebuilt needlessly, and a hidden record is deleted. The API could hide that record anyway,
but a deletion is a commit of this proxy, and permanent. So nothing is deleted before a user has
confirmed the number of records.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from pyroaring import BitMap

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.errors import Altered, Conflict, Malformed, NotFound
from encrypted_records.index.log.order import LogHead
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model.digests import (
    DIGEST,
    RUN,
    check_page,
    check_pages,
    check_row,
    group_digest,
    row_digests,
    run_digests,
)
from encrypted_records.model.records import Group, PageRef, RowDigests, RowRef, SealedRow, Segment
from encrypted_records.model.resources import Damage
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.workers.messages import ChunkAt, RowsReply
from encrypted_records.proxy.write.compactor import RowSource, refetch
from encrypted_records.proxy.write.merge_scheduler import MergeScheduler
from encrypted_records.proxy.write.update import MAX_DELETED, Updater

#: Rows and pages in one request.
ROWS_AT_ONCE, PAGES_AT_ONCE = 1000, 200
#: Maximum number of altered places that are named; the others are only counted.
MAX_NAMED = 1000


@dataclass(slots=True)
class VerificationCounts:
    """The counts of a verification so far. ``altered`` counts altered places; ``named`` are the
    first of them.
    """

    head: LogHead
    groups: int = 0
    rows: int = 0
    segments: int = 0
    pages: int = 0
    altered: int = 0
    named: list[str] = field(default_factory=list)

    def note(self, place: str) -> None:
        self.altered += 1
        if len(self.named) < MAX_NAMED:
            self.named.append(place)


class LogVerifier:
    def __init__(self, api: Api, schemas: Schemas) -> None:
        self._api = api
        self._schemas = schemas

    async def verify(
        self, caller: Callable[[], Awaitable[Holder]], schema: bytes
    ) -> AsyncIterator[VerificationCounts]:
        """Compare every live row and page of a schema; yields the same object after each step.

        Args:
            caller: awaited for each request, because a verification takes long.

        Raises:
            ErsError: as :meth:`Schemas.refresh`; ``row_gone`` or ``segment_gone`` if the log still
                contains data that the API says is gone.
        """
        state = await self._schemas.verified(await caller(), schema)
        snapshot = state.ledger.snapshot()
        done = VerificationCounts(state.ledger.head)
        yield done
        for state_of_group in list(snapshot.groups.values()):
            group = state_of_group.group
            async for _ in self._group(caller, schema, snapshot, group, done):
                yield done
            done.groups += 1
        for segment in snapshot.segments:
            async for _ in self._segment(caller, schema, snapshot, segment, done):
                yield done
            done.segments += 1
        yield done

    # --- rows -------------------------------------------------------------------------------

    async def _group(
        self,
        caller: Callable[[], Awaitable[Holder]],
        schema: bytes,
        snapshot: Snapshot,
        group: Group,
        done: VerificationCounts,
    ) -> AsyncIterator[None]:
        first: RowDigests | None = None
        for batch in _batches(list(snapshot.live_of([group.uid]))):
            wanted = batch
            while wanted:
                who = await caller()
                try:
                    if first is None:
                        (first,) = await self._api.row_digests(schema, wanted[:1], who.auth)
                        if first.group != group.uid or group_digest(first.runs) != group.rows:
                            done.note(f"group {group.uid.hex()}: what proves its rows")
                            return
                    rows = await self._api.rows(schema, wanted, who.auth)
                    sealed = {row.ordinal: row.row for row in rows if row.group == group.uid}
                    await self._runs(who, schema, group, wanted, sealed, first, done)
                    break
                except NotFound as error:
                    # Rows that ended meanwhile are gone; rows that are still live are missing.
                    state = await self._schemas.refresh(await caller(), schema)
                    now = state.ledger.snapshot()
                    left = [ref for ref in wanted if now.is_live(ref.group, ref.ordinal)]
                    if len(left) == len(wanted):
                        done.note(f"group {group.uid.hex()}, rows: {error.message}")
                        break
                    wanted = left
            done.rows += len(batch)
            yield

    async def _runs(
        self,
        who: Holder,
        schema: bytes,
        group: Group,
        batch: Sequence[RowRef],
        sealed: dict[int, SealedRow],
        first: RowDigests,
        done: VerificationCounts,
    ) -> None:
        """Compare the rows of whole runs; if rows of a run are gone, or the run does not match its
        digest, the API has to prove each row of the run."""
        by_run: dict[int, list[RowRef]] = defaultdict(list)
        for ref in batch:
            by_run[ref.ordinal // RUN].append(ref)
        doubtful = [
            number
            for number, refs in by_run.items()
            if not _is_proven(group, number, refs, sealed, first)
        ]
        if not doubtful:
            return
        wanted = [by_run[number][0] for number in doubtful]
        proofs = await self._api.row_digests(schema, wanted, who.auth)
        for number, proof in zip(doubtful, proofs, strict=True):
            for place in await runtime.in_thread(_faults, group, by_run[number], sealed, proof):
                done.note(place)

    # --- pages ------------------------------------------------------------------------------

    async def _segment(
        self,
        caller: Callable[[], Awaitable[Holder]],
        schema: bytes,
        snapshot: Snapshot,
        segment: Segment,
        done: VerificationCounts,
    ) -> AsyncIterator[None]:
        try:
            who = await caller()
            (page_digests,) = await self._api.page_digests(schema, [segment.uid], who.auth)
            try:
                check_pages(segment, snapshot.header(segment), page_digests.pages)
            except Altered as error:
                done.note(error.message)
                return
            for start in range(0, segment.pages, PAGES_AT_ONCE):
                numbers = range(start, min(start + PAGES_AT_ONCE, segment.pages))
                who = await caller()
                pages = await self._api.pages(
                    schema, [PageRef(segment.uid, number) for number in numbers], who.auth
                )
                for number, page in zip(numbers, pages, strict=True):
                    try:
                        check_page(segment.uid, number, page.data, page_digests.pages)
                    except Altered as error:
                        done.note(error.message)
                done.pages += len(pages)
                yield
        except NotFound as error:
            # A segment that ended meanwhile is gone; one that is still live is missing.
            state = await self._schemas.refresh(await caller(), schema)
            if state.ledger.has_segment(segment.uid):
                done.note(f"segment {segment.uid.hex()}: {error.message}")


def _batches(live: Sequence[RowRef]) -> Iterator[list[RowRef]]:
    """Rows of whole runs, about ``ROWS_AT_ONCE`` in each part."""
    part: list[RowRef] = []
    for _, run in itertools.groupby(live, lambda ref: ref.ordinal // RUN):
        part += run
        if len(part) > ROWS_AT_ONCE - RUN:
            yield part
            part = []
    if part:
        yield part


def _is_proven(
    group: Group,
    number: int,
    refs: Sequence[RowRef],
    sealed: dict[int, SealedRow],
    first: RowDigests,
) -> bool:
    """Whether all rows of a run are here and match the run's digest."""
    places = range(number * RUN, min(number * RUN + RUN, group.count))
    if len(refs) < len(places) or any(at not in sealed for at in places):
        return False
    runs = run_digests(row_digests(first.salt, [sealed[at] for at in places]))
    return runs == first.runs[number * DIGEST : (number + 1) * DIGEST]


def _faults(
    group: Group, refs: Sequence[RowRef], sealed: dict[int, SealedRow], proof: RowDigests
) -> list[str]:
    """Places of a run that are not as they were stored."""
    found: list[str] = []
    for ref in refs:
        row = sealed.get(ref.ordinal)
        if row is None:
            found.append(f"group {group.uid.hex()}, row {ref.ordinal}: the API did not return it")
            continue
        try:
            check_row(ref, row, group.rows, proof)
        except (Altered, Malformed) as error:
            found.append(error.message)
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class SchemaLoss:
    """Losses of a schema to be repaired: ``records`` without remaining data, and ``segments`` of
    the index, which have ``rows``.
    """

    records: int
    segments: int
    rows: int

    @property
    def nothing(self) -> bool:
        return not (self.records or self.segments)


@dataclass(frozen=True, slots=True)
class _Losses:
    rows: dict[bytes, BitMap]
    segments: Sequence[Segment]

    @property
    def loss(self) -> SchemaLoss:
        records = sum(map(len, self.rows.values()))
        return SchemaLoss(
            records, len(self.segments), sum(segment.count for segment in self.segments)
        )


@dataclass(eq=False, repr=False)
class Repairer:
    _api: Api
    _schemas: Schemas
    _merger: MergeScheduler
    _changer: Updater

    async def look(self, caller: Holder, schema: bytes) -> SchemaLoss:
        """Losses to be repaired, according to the API.

        Raises:
            ErsError: as :meth:`Schemas.refresh`.
        """
        _, found = await self._find(caller, schema)
        return found.loss

    async def repair_next(self, caller: Holder, schema: bytes, confirmed: int) -> SchemaLoss:
        """Delete some of the lost records, or rebuild one segment; returns the losses from before.

        Args:
            confirmed: how many records may be deleted.

        Raises:
            Conflict: ``confirm_count``; more are lost. Or another proxy does the same.
            ErsError: as :meth:`Updater.delete_rows` and :meth:`MergeScheduler.rebuild`.
        """
        state, found = await self._find(caller, schema)
        loss = found.loss
        if loss.records > confirmed:
            raise Conflict(
                f"the API has lost {loss.records} records entirely",
                code="confirm_count",
                hint=f"to delete them, repeat the request with ?confirm={loss.records}",
            )
        if found.rows:
            refs = (RowRef(uid, at) for uid, ordinals in found.rows.items() for at in ordinals)
            await self._changer.delete_rows(caller, state, list(islice(refs, MAX_DELETED)))
        elif found.segments:
            await self._rebuild(caller, state, found.segments[0])
        return loss

    async def _find(self, caller: Holder, schema: bytes) -> tuple[SchemaState, _Losses]:
        state = await self._schemas.refresh(caller, schema)
        damage = await self._api.damage(schema, caller.auth)
        return state, await runtime.in_thread(_compare, state.ledger.snapshot(), damage)

    async def _rebuild(self, caller: Holder, state: SchemaState, lost: Segment) -> None:
        rows = RowSource(self._api, caller, state)

        async def fetch(group: Group, first: int) -> RowsReply:
            snapshot = state.ledger.snapshot()
            if group.uid not in snapshot.groups:
                raise Conflict(
                    "another change of the same groups came first", code="group_not_live"
                )
            begin = snapshot.number(RowRef(group.uid, 0))
            at, end = begin + first, begin + group.count
            fetched = await refetch(self._schemas, caller, rows, ChunkAt(at, end, 0, 1, end - at))
            return RowsReply(fetched.end - begin, fetched.sources, fetched.rows, fetched.digests)

        await self._merger.rebuild(caller, state, lost.uid, fetch)


def _compare(snapshot: Snapshot, damage: Damage) -> _Losses:
    """Losses among the live records and segments of the log."""
    rows: dict[bytes, BitMap] = {}
    for row in damage.rows:
        uid = bytes.fromhex(row.group)
        state = snapshot.groups.get(uid)
        if state is None:
            continue
        lost = BitMap()
        for first, count in row.runs:
            lost.add_range(first, min(first + count, state.group.count))
        lost -= snapshot.dead.get(uid, BitMap())
        if lost:
            rows[uid] = lost
    named = {bytes.fromhex(uid) for uid in damage.segments}
    return _Losses(rows, [segment for segment in snapshot.segments if segment.uid in named])

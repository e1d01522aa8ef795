"""Repair a schema after data loss at the API, such as after a restore: delete records without
remaining data, and rebuild missing indexes from rows.

The API reports what is lost, and may lie: then an index is rebuilt needlessly, and a hidden record
is deleted. The API could hide that record anyway, but a deletion is a commit of this proxy, and
permanent. So nothing is deleted before a user has confirmed the number of records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from pyroaring import BitMap

from encrypted_records import runtime
from encrypted_records.client.api import Api, Damage, DamageApi
from encrypted_records.errors import Conflict
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model.records import Group, RowRef, Segment
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.workers.messages import ChunkAt, RowsReply
from encrypted_records.proxy.write.compactor import RowSource, refetch
from encrypted_records.proxy.write.merge_scheduler import MergeScheduler
from encrypted_records.proxy.write.update import MAX_DELETED, Updater


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
class _Found:
    rows: dict[bytes, BitMap]
    segments: Sequence[Segment]

    @property
    def loss(self) -> SchemaLoss:
        records = sum(map(len, self.rows.values()))
        return SchemaLoss(
            records, len(self.segments), sum(segment.count for segment in self.segments)
        )


class Repairer:
    def __init__(
        self, api: Api, schemas: Schemas, merger: MergeScheduler, changer: Updater
    ) -> None:
        self._api = api
        self._damage = DamageApi(api.transport)
        self._schemas = schemas
        self._merger = merger
        self._changer = changer

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
            every = (RowRef(uid, at) for uid, own in found.rows.items() for at in own)
            await self._changer.delete_rows(caller, state, list(islice(every, MAX_DELETED)))
        elif found.segments:
            await self._rebuild(caller, state, found.segments[0])
        return loss

    async def _find(self, caller: Holder, schema: bytes) -> tuple[SchemaState, _Found]:
        state = await self._schemas.refresh(caller, schema)
        said = await self._damage.of(schema, caller.auth)
        return state, await runtime.in_thread(_compare, state.ledger.snapshot(), said)

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


def _compare(snapshot: Snapshot, said: Damage) -> _Found:
    """Losses among the live records and segments of the log."""
    rows: dict[bytes, BitMap] = {}
    for row in said.rows:
        uid = bytes.fromhex(row.group)
        state = snapshot.groups.get(uid)
        if state is None:
            continue
        own = BitMap()
        for first, count in row.runs:
            own.add_range(first, min(first + count, state.group.count))
        own -= snapshot.dead.get(uid, BitMap())
        if own:
            rows[uid] = own
    named = {bytes.fromhex(uid) for uid in said.segments}
    return _Found(rows, [segment for segment in snapshot.segments if segment.uid in named])

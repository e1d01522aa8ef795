"""The sealed rows of a chunk, and what proves them, as the API answers: a worker reads them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import msgspec
from pyroaring import BitMap

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.errors import Conflict, LogBroken, NotFound
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.log.spans import count_live, spans
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.digests import RUN
from encrypted_records.model.records import MAX_DIGEST_REFS, MAX_ROW_REFS, Group, RowRef
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.workers.messages import ChunkAt, ResealTask, SourceRows
from encrypted_records.proxy.write.unique import LOG_MOVED

#: Rows asked for first, while their width is not known; bytes of one answer, and of a part.
_FIRST_ROWS = 32
_ANSWER_BYTES = 4 << 20
MOST_BYTES = 16 << 20
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """The rows from a chunk's first to below number ``end``, at ``snapshot``."""

    snapshot: Snapshot
    end: int
    sources: list[SourceRows]
    rows: list[bytes]
    digests: list[bytes]

    def cut(self, chunk: ChunkAt) -> tuple[ChunkAt, ChunkAt]:
        """The chunk as far as it is here, and its rest."""
        living = count_live(self.snapshot, chunk.number, self.end)
        last = min(chunk.last, chunk.first + living - 1)
        return (
            msgspec.structs.replace(chunk, offset=self.end, last=last),
            msgspec.structs.replace(chunk, number=self.end, first=last + 1),
        )

    def task(
        self,
        state: SchemaState,
        staging: bytes,
        *,
        definition: SchemaDefinition | None = None,
        origins: Sequence[tuple[int, int]] = (),
        number: int = 0,
        indexed: bool = True,
    ) -> ResealTask:
        """The task that seals these rows again under the newest key.

        Args:
            definition: another than the present one; ``origins``, ``number`` and ``indexed`` are
                as :class:`ResealTask` has them.
        """
        ledger, history = state.ledger, self.snapshot.history
        assert history is not None, "what is stored has a definition"
        key = ledger.key
        versions = {key.version, *(source.group.key_version for source in self.sources)}
        return ResealTask(
            schema=state.id,
            organization=key.organization,
            definition=(definition or history.present).canonical,
            earlier=[definition.canonical for definition in history.every.values()],
            keys=[(version, ledger.keys.of(version).hand_over()) for version in versions],
            version=key.version,
            sources=self.sources,
            rows=self.rows,
            digests=self.digests,
            origins=list(origins),
            staging=staging,
            number=number,
            indexed=indexed,
        )


class RowSource:
    """Rows of one schema for one caller; ``locked`` says that the caller holds the state's lock."""

    def __init__(
        self, api: Api, caller: Holder, state: SchemaState, *, locked: bool = False
    ) -> None:
        self._api = api
        self._caller = caller
        self.state = state
        self.locked = locked
        self._rows_at_once = _FIRST_ROWS

    async def fetch(self, chunk: ChunkAt) -> FetchedRows:
        """The live rows of a chunk, as many as one part takes.

        Raises:
            NotFound: ``row_gone``; the state is an older one than the API's.
        """
        snapshot = self.state.ledger.snapshot()
        live = snapshot.live_between(chunk.number, chunk.offset)
        wanted = await runtime.in_thread(list, live)
        bodies: list[bytes] = []
        at = size = 0
        while at < len(wanted) and size < MOST_BYTES:
            some = wanted[at : at + self._rows_at_once]
            body = await self._api.rows_unread(self.state.id, some, self._caller.auth)
            bodies.append(body)
            at, size = at + len(some), size + len(body)
            fitting = _ANSWER_BYTES * len(some) // max(1, len(body))
            self._rows_at_once = max(1, min(MAX_ROW_REFS, fitting))
        end = chunk.offset if at == len(wanted) else snapshot.number(wanted[at])
        sources = list(_sources(snapshot, chunk.number, end))
        return FetchedRows(snapshot, end, sources, bodies, await self._digests(sources))

    async def _digests(self, sources: Sequence[SourceRows]) -> list[bytes]:
        wanted: list[RowRef] = []
        bodies: list[bytes] = []
        size = 0
        for source in sources:
            for ref in _to_prove(source):
                wanted.append(ref)
                size += _digest_bytes(source.group)
                if len(wanted) == MAX_DIGEST_REFS or size > _ANSWER_BYTES:
                    bodies.append(await self._ask(wanted))
                    wanted, size = [], 0
        if wanted:
            bodies.append(await self._ask(wanted))
        return bodies

    async def _ask(self, wanted: Sequence[RowRef]) -> bytes:
        return await self._api.digests_unread(self.state.id, wanted, self._caller.auth)


async def refetch(schemas: Schemas, caller: Holder, rows: RowSource, chunk: ChunkAt) -> FetchedRows:
    """Fetch rows again on a newer state where the API has removed some; see
    :meth:`RowSource.fetch`.

    Raises:
        LogBroken: the API lacks a row that its log holds.
        Conflict: ``log_moved``; others remove rows faster than these are read.
    """
    for _ in range(_ATTEMPTS):
        version = rows.state.ledger.version
        try:
            return await rows.fetch(chunk)
        except NotFound as error:
            if error.reason != "row_gone":
                raise
        # Believed only if the log has moved on since, and says itself which rows have ended.
        async with nullcontext() if rows.locked else rows.state.lock:
            await schemas.catch_up(caller, rows.state)
        if rows.state.ledger.version == version:
            raise LogBroken("the API lacks a row that its log contains")
    raise Conflict("the log has moved on", code=LOG_MOVED)


def _sources(snapshot: Snapshot, first: int, end: int) -> list[SourceRows]:
    sources: list[SourceRows] = []
    for sequence, begin, until in spans(snapshot, first, end):
        group = snapshot.in_order[sequence]
        dead = snapshot.dead.get(group.uid, BitMap()) & BitMap(range(begin, until))
        sources.append(SourceRows(group, begin, until, dead.serialize()))
    return sources


def _to_prove(source: SourceRows) -> list[RowRef]:
    """A live row of each run of which not all rows are asked for; one row where there is none."""
    dead = BitMap.deserialize(source.dead)
    living = BitMap(range(source.first, source.end)) - dead
    if not living:
        return []
    wanted: list[int] = []
    for first in range(source.first - source.first % RUN, source.end, RUN):
        run = BitMap(range(first, min(first + RUN, source.group.count)))
        held = run & living
        if held and len(held) < len(run):
            wanted.append(held.min())
    return [RowRef(source.group.uid, at) for at in wanted or [living.min()]]


def _digest_bytes(group: Group) -> int:
    """About how long what proves a row of a group is."""
    return 32 * (RUN + group.count // RUN)

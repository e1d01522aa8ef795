"""Compact many small groups into one while their segment stays (docs/SPEC.md, section 7.7.2).

Compaction runs in the background after merges, with the credentials of the request that made the
last commit. The rows are fetched, compared with their signed digests, opened and sealed again. A
few rows come with the commit that ends the old groups; more are staged, and then that commit is
small. Until it is in the log nothing has changed, and an interruption leaves at most a staging that
the next attempt replaces.

:class:`RowSource` fetches the sealed rows of a chunk and their proofs, for every task in which a
worker opens stored rows.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass

import msgspec
from pyroaring import BitMap

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.errors import BadInput, Conflict, DoesNotOpen, ErsError, LogBroken, NotFound
from encrypted_records.index.log.snapshot import Snapshot, count_live, spans
from encrypted_records.index.segments.merge_policy import STANDARD_CROWDS, Crowd, Crowds, CrowdSizes
from encrypted_records.model import records, wire
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.digests import RUN
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import aside
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.workers import messages
from encrypted_records.proxy.workers.pool import WorkerPool
from encrypted_records.proxy.workers.segments import reseal
from encrypted_records.proxy.write.committer import Committer, staging_id
from encrypted_records.proxy.write.unique import LOG_MOVED

log = logging.getLogger(__name__)


#: Rows requested first, while their width is not known; bytes of one answer, and of a part.
_FIRST_ROWS = 32
_ANSWER_BYTES = 4 << 20
MOST_BYTES = 16 << 20
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """The rows of a chunk from its first to before number ``end``, at ``snapshot``."""

    snapshot: Snapshot
    end: int
    sources: list[messages.SourceRows]
    rows: list[bytes]
    digests: list[bytes]

    def cut(self, chunk: messages.ChunkAt) -> tuple[messages.ChunkAt, messages.ChunkAt]:
        """The fetched part of the chunk, and its rest."""
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
    ) -> messages.ResealTask:
        """The task that seals these rows again under the newest key.

        Args:
            definition: if it is not the current definition; ``origins``, ``number`` and ``indexed``
                are as in :class:`messages.ResealTask`.
        """
        ledger = state.ledger
        key = ledger.key
        versions = {key.version, *(source.group.key_version for source in self.sources)}
        return messages.ResealTask(
            schema=state.id,
            organization=key.organization,
            definition=(definition or self.snapshot.definition).canonical,
            earlier=self.snapshot.definitions,
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

    async def fetch(self, chunk: messages.ChunkAt) -> FetchedRows:
        """The live rows of a chunk, as many as fit into one part.

        Raises:
            NotFound: ``row_gone``; the state is older than the API's.
        """
        snapshot = self.state.ledger.snapshot()
        live = snapshot.live_between(chunk.number, chunk.offset)
        wanted = await runtime.in_thread(list, live)
        bodies: list[bytes] = []
        at = size = 0
        while at < len(wanted) and size < MOST_BYTES:
            batch = wanted[at : at + self._rows_at_once]
            body = await self._api.rows_unread(self.state.id, batch, self._caller.auth)
            bodies.append(body)
            at, size = at + len(batch), size + len(body)
            fitting = _ANSWER_BYTES * len(batch) // max(1, len(body))
            self._rows_at_once = max(1, min(records.MAX_ROW_REFS, fitting))
        end = chunk.offset if at == len(wanted) else snapshot.number(wanted[at])
        sources = list(_sources(snapshot, chunk.number, end))
        return FetchedRows(snapshot, end, sources, bodies, await self._digests(sources))

    async def _digests(self, sources: Sequence[messages.SourceRows]) -> list[bytes]:
        wanted: list[records.RowRef] = []
        bodies: list[bytes] = []
        size = 0
        for source in sources:
            for ref in _to_prove(source):
                wanted.append(ref)
                size += _digest_bytes(source.group)
                if len(wanted) == records.MAX_DIGEST_REFS or size > _ANSWER_BYTES:
                    bodies.append(await self._ask(wanted))
                    wanted, size = [], 0
        if wanted:
            bodies.append(await self._ask(wanted))
        return bodies

    async def _ask(self, wanted: Sequence[records.RowRef]) -> bytes:
        return await self._api.digests_unread(self.state.id, wanted, self._caller.auth)


async def refetch(
    schemas: Schemas, caller: Holder, rows: RowSource, chunk: messages.ChunkAt
) -> FetchedRows:
    """Fetch rows again on a newer state if the API has removed some; see
    :meth:`RowSource.fetch`.

    Raises:
        LogBroken: the API lacks a row that its log contains.
        Conflict: ``log_moved``; others remove rows faster than these are read.
    """
    for _ in range(_ATTEMPTS):
        version = rows.state.ledger.version
        try:
            return await rows.fetch(chunk)
        except NotFound as error:
            if error.reason != "row_gone":
                raise
        # Believed only if the log has moved on since, and itself says which rows have ended.
        async with nullcontext() if rows.locked else rows.state.lock:
            await schemas.catch_up(caller, rows.state)
        if rows.state.ledger.version == version:
            raise LogBroken("the API lacks a row that its log contains")
    raise Conflict("the log has moved on", code=LOG_MOVED)


def _sources(snapshot: Snapshot, first: int, end: int) -> list[messages.SourceRows]:
    sources: list[messages.SourceRows] = []
    for sequence, begin, until in spans(snapshot, first, end):
        group = snapshot.in_order[sequence]
        dead = snapshot.dead.get(group.uid, BitMap()) & BitMap(range(begin, until))
        sources.append(messages.SourceRows(group, begin, until, dead.serialize()))
    return sources


def _to_prove(source: messages.SourceRows) -> list[records.RowRef]:
    """A live row of each run of which not all rows are requested; one row if there is none."""
    dead = BitMap.deserialize(source.dead)
    living = BitMap(range(source.first, source.end)) - dead
    if not living:
        return []
    wanted: list[int] = []
    for first in range(source.first - source.first % RUN, source.end, RUN):
        run = BitMap(range(first, min(first + RUN, source.group.count)))
        live_of_run = run & living
        if live_of_run and len(live_of_run) < len(run):
            wanted.append(live_of_run.min())
    return [records.RowRef(source.group.uid, at) for at in wanted or [living.min()]]


def _digest_bytes(group: records.Group) -> int:
    """The approximate length of the proof of a group's row."""
    return 32 * (RUN + group.count // RUN)


#: Storing up to this many bytes is faster than staging: a staging takes a dozen statements.
MOST_WITH_COMMIT = 128 << 10


class Compactor:
    def __init__(
        self,
        api: Api,
        schemas: Schemas,
        committer: Committer,
        workers: WorkerPool,
        sizes: CrowdSizes = STANDARD_CROWDS,
        most_with_commit: int = MOST_WITH_COMMIT,
    ) -> None:
        """
        Args:
            most_with_commit: maximum bytes of rows in a commit; more are staged.
        """
        self._api = api
        self._schemas = schemas
        self._committer = committer
        self._workers = workers
        self._crowds = Crowds(sizes)
        self._most_with_commit = most_with_commit

    def find(self, state: SchemaState, taken: Collection[bytes] = ()) -> Crowd | None:
        """The next groups to compact; ``taken`` are uids of segments that are left alone."""
        return self._crowds.find(state.ledger.snapshot(), taken)

    async def compact(self, caller: Holder, state: SchemaState, crowd: Crowd) -> int:
        """Compact these groups into one; returns how many they were, or 0 if they cannot be
        compacted.

        Raises:
            Conflict: ``group_not_live``; others merged, deleted or resealed some of them. Or as
                :meth:`Committer.store`.
            Altered, DoesNotOpen: a row is not as it was stored: nothing of it is sealed again.
            ErsError: as any request to the API. Nothing was changed.
        """
        fetched = await self._fetch(caller, state, crowd)
        ended = [source.group.uid for source in fetched.sources]
        if len(ended) < 2 or not _is_whole(fetched):
            self._crowds.leave(state.ledger.snapshot(), crowd)
            return 0
        name = staging_id(caller.user, state, ended)
        try:
            part = await self._seal(state, fetched, name)
        except DoesNotOpen:
            self._crowds.leave(state.ledger.snapshot(), crowd)
            raise
        staging = name if len(part.body) > self._most_with_commit else None
        if staging:
            await self._api.stage(state.id, part.body, caller.auth)
        try:
            async with state.lock:
                await self._committer.prepare(caller, [state])
                upload = await aside(_draft, state, ended, part, is_staged=staging is not None)
                await self._committer.store(caller, [(state, upload)], staging=staging)
        except (BadInput, NotFound) as error:
            # Another proxy does the same, and has replaced our part or published its part. If the
            # API lies about it, the groups stay as they are.
            if staging is None or error.reason not in ("invalid_commit", "staging_gone"):
                raise
            raise _overtaken() from None
        except Conflict:
            if staging:
                with suppress(ErsError):  # otherwise the API removes it after a week
                    await self._api.drop_parts(staging, caller.auth)
            raise
        log.info("made one group of %d, of %d rows", len(ended), part.groups[0].count)
        return len(ended)

    async def _fetch(self, caller: Holder, state: SchemaState, crowd: Crowd) -> FetchedRows:
        """The rows of as many whole groups of the crowd as fit into one part."""
        rows = RowSource(self._api, caller, state)
        fetched = await refetch(self._schemas, caller, rows, _chunk(crowd.first, crowd.end))
        if fetched.end < crowd.end:
            # Its texts are longer than its groups state: take the whole groups that fit a part.
            end = fetched.snapshot.number(records.RowRef(fetched.sources[-1].group.uid, 0))
            if end > crowd.first:
                fetched = await refetch(self._schemas, caller, rows, _chunk(crowd.first, end))
        return fetched

    async def _seal(
        self, state: SchemaState, fetched: FetchedRows, staging: bytes
    ) -> messages.SealedPart:
        task = fetched.task(state, staging, indexed=False)
        if sum(source.group.count for source in fetched.sources) <= records.MAX_MINI_RECORDS:
            sealed = await runtime.in_thread(reseal, task)
        else:
            worked = await self._workers.run(task)
            assert isinstance(worked, messages.SealedChunk)
            sealed = worked
        (part,) = sealed.parts
        return part


def _chunk(first: int, end: int) -> messages.ChunkAt:
    return messages.ChunkAt(first, end, 0, 1, end - first)


def _is_whole(fetched: FetchedRows) -> bool:
    return all(source.first == 0 and source.end == source.group.count for source in fetched.sources)


def _overtaken() -> Conflict:
    return Conflict("another change of the same groups came first", code="group_not_live")


def _draft(
    state: SchemaState, ended: list[bytes], part: messages.SealedPart, *, is_staged: bool
) -> records.CommitUpload:
    """The commit that replaces the groups by the new one, with its rows unless they are staged.

    Raises:
        Conflict: they can no longer become one group.
        StaleDefinition: as :meth:`Ledger.draft`.
    """
    (group,) = part.groups
    snapshot = state.ledger.snapshot()
    if group.key_version != state.ledger.key.version or not _follow_one_another(snapshot, ended):
        raise _overtaken()
    holes = BitMap()
    for first, count in part.holes:
        holes.add_range(first, first + count)
    dead, base = BitMap(), 0
    for uid in ended:
        dead |= snapshot.dead.get(uid, BitMap()).shift(base)
        base += snapshot.groups[uid].group.count
    brought = None if is_staged else wire.decode_part(bytes(part.body))
    return state.ledger.draft(
        state.definition,
        groups=[group],
        rows=brought.rows if brought else (),
        salts=brought.salts if brought else (),
        killed=[records.RowRef(group.uid, at) for at in dead - holes],
        ended=ended,
        holes=[records.RowRef(group.uid, at) for at in holes],
    )


def _follow_one_another(snapshot: Snapshot, uids: list[bytes]) -> bool:
    """Whether these groups live and are neighbours in one segment and in the order of storing."""
    if any(uid not in snapshot.groups for uid in uids):
        return False
    first = snapshot.groups[uids[0]].sequence
    if [snapshot.groups[uid].sequence for uid in uids] != list(range(first, first + len(uids))):
        return False
    for segment in snapshot.segments:
        named = [uid for uid, _ in snapshot.groups_of(segment)]
        if uids[0] in named:
            at = named.index(uids[0])
            return named[at : at + len(uids)] == uids
    return False

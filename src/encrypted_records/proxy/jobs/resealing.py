"""Reseal all records of a schema: check -> seal -> publish, like every job, and safe to repeat.

The source is the log at the version at which the job began: runs of rows by their numbers, which do
not change when rows are merged, ended or resealed meanwhile. Each run becomes a group that is
staged. Then later rows are sealed, until only few are left, which are sealed under the schema's
lock. One commit adds the new groups, ends all old groups, and names the rows that died meanwhile.
The runs that a worker reseals together are aligned to the rows that the API proves together.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from pyroaring import BitMap

from encrypted_records import runtime
from encrypted_records.errors import Conflict, NotFound, StaleDefinition
from encrypted_records.index.log.snapshot import Snapshot, count_live
from encrypted_records.ingest.check import STANDARD
from encrypted_records.model.ciphertext_lengths import least_class
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.digests import RUN
from encrypted_records.model.records import CommitUpload, RowRef
from encrypted_records.proxy.jobs.job import StoredJob
from encrypted_records.proxy.jobs.publisher import as_checked, is_published
from encrypted_records.proxy.jobs.store import JobDependencies, StagedContents
from encrypted_records.proxy.jobs.tables import SealTarget
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import aside, run_together
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.fetcher import PageFetcher
from encrypted_records.proxy.search.upstream import VersionHold
from encrypted_records.proxy.workers import messages
from encrypted_records.proxy.workers.pool import WorkerPool
from encrypted_records.proxy.write.committer import LOST_RACES, Committer
from encrypted_records.proxy.write.compactor import FetchedRows, RowSource, refetch

log = logging.getLogger(__name__)

#: Rows that are sealed under the schema's lock, while this proxy's writers wait.
FEW_ROWS = 256
#: How often the commit may lose races to other proxies; each time few rows are sealed again.
ATTEMPTS = 50
#: Rows of the sample from which the duration is estimated.
SAMPLE_ROWS = 2048
_RACE_LOST = LOST_RACES | {"group_not_live", "segment_not_live", "staging_gone"}


class Resealing:
    def __init__(
        self,
        dependencies: JobDependencies,
        *,
        committer: Committer,
        workers: WorkerPool,
        pager: PageFetcher,
    ) -> None:
        self._uses = dependencies
        self._committer = committer
        self._workers = workers
        self._pager = pager

    async def run(self, job: StoredJob, caller: Holder) -> SchemaState:
        """Continue a job until its commit is in the log.

        Raises:
            StaleDefinition: the keys, or a definition that was to stay unchanged, have changed: the
                job has to start again.
            Altered, DoesNotOpen: a row differs from the stored row.
            Conflict: ``resealed_meanwhile``, ``definition_moved``, ``not_convertible``.
        """
        assert job.options.named is not None
        state = await self._state(job, caller)
        # Rows that others end meanwhile stay readable, so no fetch has to be repeated for them.
        uid = uuid.UUID(bytes=job.id)
        hold = VersionHold(self._uses.api, caller, state.id, state.ledger.version, "job", uid)
        await hold.end()  # the hold of a killed process, which was of an earlier version
        await hold.begin()
        async with hold.renewed():
            if job.phase == "check":
                await self._check(job, caller)
            await self._seal_open(job, caller, await self._state(job, caller))
            await runtime.in_thread(self._uses.store.mark_sealed, job.id)
            return await self._publish(job, caller)

    async def _state(self, job: StoredJob, caller: Holder) -> SchemaState:
        """The current state of the schema, into which the caller may store."""
        assert job.options.named is not None
        return await self._uses.schemas.refresh_ready(caller, job.options.named)

    async def _target(self, job: StoredJob) -> SealTarget:
        return await runtime.in_thread(self._uses.store.targets.get, job.id)

    async def _check(self, job: StoredJob, caller: Holder) -> None:
        target, state = await self._target(job), await self._state(job, caller)
        if target.definition and state.definition.digest != target.planned:
            raise _definition_moved()
        # Both from the state just read: the log moves on during each of the next steps.
        snapshot, checked = state.ledger.snapshot(), as_checked(state)
        definition = _definition(target, state.definition)
        chunks = await aside(plan_chunks, snapshot, definition, 0)
        await runtime.in_thread(self._uses.store.targets.note_seen, job.id, snapshot.version)
        await runtime.in_thread(
            self._uses.store.mark_checked,
            job.id,
            rows=snapshot.count,
            bad_rows=0,
            errors=[],
            chunks=chunks,
            schemas=[checked],
        )
        self._uses.progress.announce(job.id)

    async def _require_same(self, job: StoredJob, state: SchemaState) -> SealTarget:
        """
        Raises:
            StaleDefinition, Conflict: as :meth:`run`.
        """
        target = await self._target(job)
        if state.ledger.resealed.version > target.seen:
            raise Conflict(
                "somebody else re-encrypted all records of the schema in the meantime",
                code="resealed_meanwhile",
                hint="nothing of this job was stored; start it again if you still want it",
            )
        (checked,) = await runtime.in_thread(self._uses.store.schemas, job.id)
        now = as_checked(state)
        if now.definition != checked.definition and target.definition:
            raise _definition_moved()
        if now != checked:
            raise StaleDefinition(
                "a schema's definition or key changed while its records were re-encrypted"
            )
        return target

    # --- seal -------------------------------------------------------------------------------

    async def _seal_open(
        self, job: StoredJob, caller: Holder, state: SchemaState, *, locked: bool = False
    ) -> None:
        """Seal and stage every open chunk, several at the same time."""
        if await self._is_published(job, state):
            return
        target = await self._require_same(job, state)
        rows = RowSource(self._uses.api, caller, state, locked=locked)
        chunks = iter(await runtime.in_thread(self._uses.store.open_chunks, job.id))

        async def seal_chunks() -> None:
            for chunk in chunks:
                open_part: messages.ChunkAt | None = chunk
                while open_part is not None:
                    open_part = await self._seal(job, caller, rows, target, open_part)

        # One more than there are workers, so that no worker waits for the API.
        await run_together([seal_chunks] * (self._workers.count + 1))

    async def _seal(
        self,
        job: StoredJob,
        caller: Holder,
        rows: RowSource,
        target: SealTarget,
        chunk: messages.ChunkAt,
    ) -> messages.ChunkAt | None:
        """Seal and stage a chunk, or as much of it as fits into one part; returns the rest."""
        fetched = await refetch(self._uses.schemas, caller, rows, chunk)
        left: messages.ChunkAt | None = None
        if fetched.end < chunk.offset:
            chunk, left = fetched.cut(chunk)
            await runtime.in_thread(self._uses.store.targets.split, job.id, chunk, left)
        sealed = await self._work(rows.state, fetched, target, job.id, chunk.number)
        attempt = await runtime.in_thread(self._uses.store.next_attempt, job.id)
        for part in sealed.parts:
            await self._uses.api.stage(part.schema, part.body, caller.auth, attempt=attempt)
        await runtime.in_thread(self._uses.store.done, job.id, chunk, sealed.parts)
        self._uses.progress.announce(job.id)
        return left

    async def _work(
        self,
        state: SchemaState,
        fetched: FetchedRows,
        target: SealTarget,
        staging: bytes,
        number: int,
    ) -> messages.SealedChunk:
        task = fetched.task(
            state,
            staging,
            definition=_definition(target, fetched.snapshot.definition),
            origins=target.origins,
            number=number,
        )
        sealed = await self._workers.run(task)
        assert isinstance(sealed, messages.SealedChunk)
        return sealed

    async def measure(self, caller: Holder, schema: bytes, target: SealTarget) -> float:
        """Seconds that resealing all records of a schema takes, estimated from some records that
        are fetched, opened and sealed now, without the time in which the API stores them.
        """
        state = await self._uses.schemas.refresh(caller, schema)
        rows, snapshot = RowSource(self._uses.api, caller, state), state.ledger.snapshot()
        chunk = messages.ChunkAt(0, min(snapshot.stored, SAMPLE_ROWS), 0, 1, SAMPLE_ROWS)
        sampled = count_live(snapshot, 0, chunk.offset)
        seconds = 0.0
        # Twice: the first time may start a worker, and the width of rows is not known.
        for _ in range(2 if sampled else 0):
            began = runtime.monotonic()
            fetched = await refetch(self._uses.schemas, caller, rows, chunk)
            await self._work(state, fetched, target, bytes(16), 0)
            seconds = runtime.monotonic() - began
        return seconds * snapshot.count / max(1, sampled) / self._workers.count

    # --- publish ----------------------------------------------------------------------------

    async def _parts(self, job: StoredJob) -> list[StagedContents]:
        assert job.options.named is not None
        return await runtime.in_thread(self._uses.store.parts, job.id, job.options.named)

    async def _is_published(self, job: StoredJob, state: SchemaState) -> bool:
        return is_published(state, job.id, await self._parts(job))

    async def _publish(self, job: StoredJob, caller: Holder) -> SchemaState:
        """Add the new groups and end the old groups, unless that was done already."""
        attempt = 0
        while True:
            state = await self._state(job, caller)
            if await self._is_published(job, state):
                return state
            await self._require_same(job, state)
            if await self._add_chunks(job, state, at_least=FEW_ROWS):
                await self._seal_open(job, caller, state)
                continue
            attempt += 1
            try:
                async with state.lock:
                    done = await self._commit(job, caller, state)
            except (Conflict, NotFound) as error:
                lost = error.reason in _RACE_LOST and not isinstance(error, StaleDefinition)
                if not lost or attempt == ATTEMPTS:
                    raise
                # Not proof of publication, which only the log gives: all is sealed again.
                if error.reason == "staging_gone" and attempt > 1:
                    raise StaleDefinition("the staged parts of the job are missing") from None
                log.info("a job's commit lost a race (%s) and is drafted again", error.reason)
                continue
            if done:
                return state

    async def _add_chunks(self, job: StoredJob, state: SchemaState, *, at_least: int) -> bool:
        """Add the rows after the job's last chunk, if there are at least ``at_least``."""
        snapshot = state.ledger.snapshot()
        end = await runtime.in_thread(self._uses.store.targets.end_of_chunks, job.id)
        open_chunks = await runtime.in_thread(self._uses.store.open_chunks, job.id)
        if snapshot.stored - end >= at_least:
            target = await self._target(job)
            definition = _definition(target, state.definition)
            chunks = await aside(plan_chunks, snapshot, definition, end)
            await runtime.in_thread(self._uses.store.targets.add_chunks, job.id, chunks)
            return True
        return bool(open_chunks)

    async def _commit(self, job: StoredJob, caller: Holder, state: SchemaState) -> bool:
        """Commit, while the lock is held; False if so many rows came meanwhile that they are sealed
        first, without the lock."""
        await self._committer.prepare(caller, [state])
        if await self._add_chunks(job, state, at_least=FEW_ROWS):
            return False
        if await self._add_chunks(job, state, at_least=1):
            await self._seal_open(job, caller, state, locked=True)
            if await self._add_chunks(job, state, at_least=1):
                return False  # sealing read on in the log, and found more rows
        target = await self._require_same(job, state)
        snapshot = state.ledger.snapshot()
        if not snapshot.stored and not target.definition:
            return True  # nothing was ever stored
        upload = await aside(_draft, state, snapshot, target, await self._parts(job))
        await self._committer.store(caller, [(state, upload)], staging=job.id)
        replaced = [segment.uid for segment in snapshot.segments]
        await runtime.in_thread(self._pager.drop, replaced)
        return True


def _definition(target: SealTarget, present: SchemaDefinition) -> SchemaDefinition:
    return parse_canonical(target.definition) if target.definition else present


def _definition_moved() -> Conflict:
    return Conflict(
        "the schema's definition has changed since this change was planned",
        code="definition_moved",
        hint="nothing was stored; look at the current definition, and plan the change again",
    )


def _draft(
    state: SchemaState, snapshot: Snapshot, target: SealTarget, parts: Sequence[StagedContents]
) -> CommitUpload:
    groups = [group for part in parts for group in part.groups]
    holes = [part.holes for part in parts]
    dead = BitMap()
    for uid, rows in snapshot.dead.items():
        dead |= rows.shift(snapshot.starts[snapshot.groups[uid].sequence])
    begins = accumulate((group.count for group in groups), initial=0)
    killed: list[RowRef] = []
    for group, holes_of_group, begin in zip(groups, holes, begins, strict=False):
        gone = dead & BitMap(range(begin, begin + group.count))
        left = gone.shift(-begin) - BitMap(_ordinals(holes_of_group))
        killed += [RowRef(group.uid, at) for at in left]
    return state.ledger.draft(
        _definition(target, state.definition),
        groups=groups,
        segments=[segment for part in parts for segment in part.segments],
        killed=killed,
        replaced=[segment.uid for segment in snapshot.segments],
        exact=True,
        new_definition=bool(target.definition),
        ended=[group.uid for group in snapshot.in_order[: len(snapshot.groups)]],
        holes=[
            RowRef(group.uid, at)
            for group, holes_of_group in zip(groups, holes, strict=True)
            for at in _ordinals(holes_of_group)
        ],
    )


def _ordinals(runs: Sequence[tuple[int, int]]) -> Iterator[int]:
    for first, count in runs:
        yield from range(first, first + count)


#: The same limits as for a job that stores an upload.
LIMITS = STANDARD


def plan_chunks(
    snapshot: Snapshot,
    definition: SchemaDefinition,
    first: int,
) -> list[messages.ChunkAt]:
    """Chunks of all rows from number ``first`` on.

    A chunk's ``number`` is that of its first row, ``offset`` that of the row after its last;
    ``first`` and ``last`` count the live records, from 1 on.

    Args:
        definition: the definition to seal for.
    """
    most = _most_rows(snapshot, definition)
    edges = [first, *_edges(snapshot, first, most)]
    chunks: list[messages.ChunkAt] = []
    done = 0
    for begin, end in pairwise(edges):
        living = count_live(snapshot, begin, end)
        chunks.append(messages.ChunkAt(begin, end, 0, done + 1, done + living))
        done += living
    return chunks


def _most_rows(snapshot: Snapshot, definition: SchemaDefinition) -> int:
    """The largest number of rows of a chunk, by the higher of their old and new length classes."""
    limits = LIMITS
    shapes = {
        (tuple(state.group.fields), tuple(state.group.classes))
        for state in snapshot.groups.values()
    }
    had: dict[int, int] = {}
    for fields, classes in shapes:
        for number, stated in zip(fields, classes, strict=True):
            had[number] = max(had.get(number, 0), stated.length)
    specs = definition.fields.values()
    padded = sum(least_class(spec, had.get(spec.id, 0)).length for spec in specs)
    by_cells, by_bytes = limits.cells // max(1, len(specs)), limits.padded // max(1, padded)
    return max(RUN, min(limits.records, by_cells, by_bytes))


def _edges(snapshot: Snapshot, first: int, most: int) -> Iterator[int]:
    """Ends of chunks: no run of a group is cut, so that it is proven as a whole."""
    begin = first
    while begin < snapshot.stored:
        end = min(begin + most, snapshot.stored)
        if end < snapshot.stored:
            ordinal = snapshot.ref(end).ordinal
            end = max(end - ordinal % RUN, begin + 1) if end - ordinal % RUN > begin else end
        yield end
        begin = end

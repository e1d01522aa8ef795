"""Pack the index of a large job: one segment for the rows of many chunks, before it is published.

Segments of single chunks would be merged right after the publication, and most of the written pages
thrown away. So chunks of a large job are sealed without an index. A worker follows: it takes the
sorted columns of each chunk of a *pack*, as soon as the chunk is sealed, and builds one segment of
all of them, whose pages are staged as well. After an interruption it reads the rows from the upload
again. Packed segments are recorded in the job's store, and count as long as they cover the current
groups of the chunks: a chunk that is sealed again has another group, and its pack is built again.
Nothing waits on the disk, so a crash leaves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.model.records import Segment
from encrypted_records.proxy.jobs.conflicts import decode_fates
from encrypted_records.proxy.jobs.job import StoredJob
from encrypted_records.proxy.jobs.store import JobDependencies
from encrypted_records.proxy.jobs.tables import sequence_of
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import run_together
from encrypted_records.proxy.spool import KEEP_FREE_BYTES
from encrypted_records.proxy.workers import messages
from encrypted_records.proxy.workers.pool import WorkerPool
from encrypted_records.proxy.write.merge_executor import PAGES_AT_ONCE


@dataclass(frozen=True, slots=True)
class PackingPolicy:
    """Jobs of ``least`` records or more are packed, about ``rows`` together. ``keep_free`` bytes of
    the disk stay free; ``pages`` are sent at once. For each job, at most ``run_bytes`` bytes of
    sorted columns wait in memory to be packed; the rows of further chunks are read again."""

    least: int = 1_000_000
    rows: int = 1 << 20
    keep_free: int = KEEP_FREE_BYTES
    pages: int = PAGES_AT_ONCE
    run_bytes: int = 32 << 20

    def takes(self, job: StoredJob) -> bool:
        """Whether the job's chunks are sealed without a separate index."""
        return job.options.work == "store" and job.total >= self.least


PACKING = PackingPolicy()


def _size_of(groups: Sequence[messages.SealedRows]) -> int:
    """The size of the groups' runs in bytes."""
    return sum(len(block) for group in groups for _, blocks in group.runs for block in blocks)


def _without_runs(groups: Sequence[messages.SealedRows]) -> list[messages.SealedRows]:
    return [messages.SealedRows(group.schema, group.chunk, group.group) for group in groups]


def plan_packs(chunks: Sequence[messages.ChunkAt], rows: int) -> list[list[messages.ChunkAt]]:
    """Divide chunks into packs of neighbours with about the same number of chunks.

    The result depends on the upload alone, so a pack that is built again keeps its number.
    """
    if not chunks:
        return []
    count = min(len(chunks), -(-chunks[-1].last // rows))
    edges = [len(chunks) * at // count for at in range(count + 1)]
    return [list(chunks[begin:end]) for begin, end in pairwise(edges)]


class Packing:
    """Packs for all jobs: half as many packs at once as there are workers."""

    def __init__(
        self, dependencies: JobDependencies, workers: WorkerPool, policy: PackingPolicy
    ) -> None:
        self.uses = dependencies
        self.workers = workers
        self.policy = policy
        self.at_once = max(1, workers.count // 2)
        self.turns = asyncio.Semaphore(self.at_once)

    async def begin(
        self,
        job: StoredJob,
        caller: Holder,
        source: messages.UploadSource,
        schemas: Sequence[messages.SchemaKeyBytes],
    ) -> JobPacking:
        chunks = await runtime.in_thread(self.uses.store.chunks, job.id)
        packs = plan_packs(chunks, self.policy.rows)
        begun = JobPacking(self, job, caller, source, schemas, packs)
        await begun.open()
        return begun


class JobPacking:
    """The packing of one job during one attempt."""

    def __init__(
        self,
        packing: Packing,
        job: StoredJob,
        caller: Holder,
        source: messages.UploadSource,
        schemas: Sequence[messages.SchemaKeyBytes],
        packs: Sequence[Sequence[messages.ChunkAt]],
    ) -> None:
        self._packing = packing
        self._store = packing.uses.store
        self._api: Api = packing.uses.api
        self._job = job
        self._caller = caller
        self._source = source
        self._schemas = schemas
        self._packs = packs
        self._place = {part.number: at for at, pack in enumerate(packs) for part in pack}
        #: the groups of sealed chunks, by chunk
        self._groups: dict[int, list[messages.SealedRows]] = {}
        self._sealed = {part.number: asyncio.Event() for pack in packs for part in pack}
        #: packs that had chunks to seal when this attempt began
        self._open: list[int] = []
        #: bytes of the runs in ``_groups``
        self._run_bytes = 0
        self._done: set[int] = set()

    async def open(self) -> None:
        """Load the results of an earlier attempt."""
        chunks = await runtime.in_thread(self._store.open_chunks, self._job.id)
        groups, _ = await runtime.in_thread(self._store.packs.read, self._job.id)
        self._open = sorted({self._place[chunk.number] for chunk in chunks})
        self._note(groups, self._sealed.keys() - {chunk.number for chunk in chunks})
        packs = len(self._packs) if self._packing.policy.takes(self._job) else 0
        if packs or self._job.packs:
            await runtime.in_thread(self._store.packs.plan, self._job.id, packs)

    def note_sealed(self, chunk: messages.ChunkAt, parts: Sequence[messages.SealedPart]) -> None:
        """Note that a chunk is staged."""
        groups = [
            messages.SealedRows(part.schema, chunk.number, group, part.runs)
            for part in parts
            for group in part.groups
        ]
        size = _size_of(groups)
        if self._run_bytes + size <= self._packing.policy.run_bytes:
            self._run_bytes += size
        else:
            groups = _without_runs(groups)
        self._note(groups, [chunk.number])

    def _note(self, groups: Sequence[messages.SealedRows], chunks: Iterable[int]) -> None:
        """Note that these chunks are sealed, and have these groups."""
        by_chunk: dict[int, list[messages.SealedRows]] = {}
        for group in groups:
            by_chunk.setdefault(group.chunk, []).append(group)
        for number in chunks:
            self._groups[number] = by_chunk.get(number, [])
            self._sealed[number].set()

    def _take(self, chunk: int) -> list[messages.SealedRows]:
        """The groups of a sealed chunk; their runs are returned only once."""
        groups = self._groups[chunk]
        self._run_bytes -= _size_of(groups)
        self._groups[chunk] = _without_runs(groups)
        return groups

    async def follow(self) -> None:
        """Build the packs while their chunks are sealed, each as soon as its first chunk is."""
        places = iter(self._open if self._packing.policy.takes(self._job) else [])

        async def pack_next() -> None:
            for place in places:
                await self._sealed[self._packs[place][0].number].wait()
                await self._pack(place)

        await run_together([pack_next] * self._packing.at_once)

    async def finish(self) -> None:
        """Pack all chunks that are sealed without an index and not packed yet."""
        stale = await self._stale()
        left = iter(sorted({*range(len(self._packs))} - self._done | stale.keys()))

        async def pack_next() -> None:
            for place in left:
                if place in stale:
                    await self._pack(place, stale[place])
                else:
                    await self._note_packed(place)

        await run_together([pack_next] * self._packing.at_once)

    async def _stale(self) -> Mapping[int, Set[bytes]]:
        """The schemas of each pack whose current groups no segment covers; segments of other groups
        are deleted."""
        job = self._job.id
        groups, stored = await runtime.in_thread(self._store.packs.read, job)
        self._note(groups, self._sealed)
        wanted: dict[tuple[bytes, int], list[bytes]] = {}
        for group in groups:
            wanted.setdefault((group.schema, self._place[group.chunk]), []).append(group.group.uid)
        good = {
            (schema, place)
            for (schema, place), uids in wanted.items()
            if (known := stored.get((schema, sequence_of(place)))) is not None
            and [uid for uid, _ in known.groups] == uids
        }
        others = stored.keys() - {(schema, sequence_of(place)) for schema, place in good}
        if others:
            await runtime.in_thread(self._store.packs.drop, job, others)
        stale: dict[int, set[bytes]] = {}
        for schema, place in wanted.keys() - good:
            stale.setdefault(place, set()).add(schema)
        return stale

    async def _pack(self, place: int, schemas: Set[bytes] | None = None) -> None:
        """Build the segments of a pack, for these schemas or all."""
        async with self._packing.turns:
            segments = await self._build(place, schemas)
        await runtime.in_thread(self._store.packs.add, self._job.id, sequence_of(place), segments)
        await self._note_packed(place)

    async def _note_packed(self, place: int) -> None:
        self._done.add(place)
        if self._packing.policy.takes(self._job):
            await runtime.in_thread(self._store.packs.mark, self._job.id, len(self._done))
            self._packing.uses.progress.announce(self._job.id)

    async def _build(self, place: int, schemas: Set[bytes] | None) -> list[tuple[bytes, Segment]]:
        chunks = self._packs[place]
        fates = await runtime.in_thread(self._store.fates.get, self._job.id)
        task = messages.PackTask(
            source=self._source,
            chunks=list(chunks),
            fates=[
                decode_fates(fates[chunk.number]) if chunk.number in fates else []
                for chunk in chunks
            ],
            schemas=list(self._schemas),
            staging=self._job.id,
            sequence=sequence_of(place),
            most=self._packing.policy.pages,
            folder=str(self._packing.uses.spool.folder),
            keep_free=self._packing.policy.keep_free,
        )

        attempt = await runtime.in_thread(self._store.next_attempt, self._job.id)

        async def listen(message: messages.Interim) -> messages.GroupsReply | None:
            if isinstance(message, messages.GroupsRequest):
                await self._sealed[message.chunk].wait()
                groups = self._take(message.chunk)
                return messages.GroupsReply(
                    [group for group in groups if schemas is None or group.schema in schemas]
                )
            assert isinstance(message, messages.PackedPages)
            await self._api.stage(message.schema, message.body, self._caller.auth, attempt=attempt)
            return None

        packed = await self._packing.workers.run(task, listen, additional=True)
        assert isinstance(packed, messages.PackedChunks)
        return packed.segments

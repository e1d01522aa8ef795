"""Packs the index of a large job: one segment for the rows of many chunks, before it is published.

Segments of single chunks would be merged right after the publication, and most of what was written
of them thrown away. So chunks of a large job are sealed without an index. As soon as all chunks of
a *pack* are sealed, a worker reads their rows from the upload once more and builds one segment of
them, whose pages are staged as well. What is packed is kept in the job's store, and holds as long
as it covers the very groups that the chunks have: a chunk that is sealed again has another group,
and its pack is built again. Nothing waits on the disk, so a crash leaves nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from encrypted_records.client.api import Api
from encrypted_records.model.records import Segment
from encrypted_records.proxy.jobs.conflicts import decode_fates
from encrypted_records.proxy.jobs.dependencies import JobDependencies
from encrypted_records.proxy.jobs.job import Job
from encrypted_records.proxy.jobs.pack_store import sequence_of
from encrypted_records.proxy.jobs.together import run_together
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.spool.spool import KEEP_FREE_BYTES
from encrypted_records.proxy.workers import messages
from encrypted_records.proxy.workers.pool import WorkerPool
from encrypted_records.proxy.write.merge_executor import PAGES_AT_ONCE


@dataclass(frozen=True, slots=True)
class PackingPolicy:
    """Jobs of ``least`` records or more are packed, about ``rows`` together. ``keep_free`` bytes of
    the disk stay free; ``pages`` are sent at once."""

    least: int = 1_000_000
    rows: int = 1 << 20
    keep_free: int = KEEP_FREE_BYTES
    pages: int = PAGES_AT_ONCE

    def takes(self, job: Job) -> bool:
        """Whether the job's chunks are sealed without an index of their own."""
        return job.options.work == "store" and job.total >= self.least


PACKING = PackingPolicy()


def plan_packs(chunks: Sequence[messages.ChunkAt], rows: int) -> list[list[messages.ChunkAt]]:
    """Neighbours that are packed together, about as many in each pack.

    It depends on the upload alone: what is packed again has the number that it had.
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
        job: Job,
        caller: Holder,
        source: messages.UploadSource,
        schemas: Sequence[messages.SchemaKeyBytes],
    ) -> JobPacking:
        chunks = await asyncio.to_thread(self.uses.store.chunks, job.id)
        packs = plan_packs(chunks, self.policy.rows)
        begun = JobPacking(self, job, caller, source, schemas, packs)
        await begun.open()
        return begun


class JobPacking:
    """The packing of one job, as far as one attempt comes."""

    def __init__(
        self,
        packing: Packing,
        job: Job,
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
        self._place = {one.number: at for at, own in enumerate(packs) for one in own}
        #: by pack, how many chunks are not sealed yet
        self._open: Counter[int] = Counter()
        self._done: set[int] = set()

    async def open(self) -> None:
        """See what is left of an earlier attempt."""
        chunks = await asyncio.to_thread(self._store.open_chunks, self._job.id)
        self._open = Counter(self._place[one.number] for one in chunks)
        packs = len(self._packs) if self._packing.policy.takes(self._job) else 0
        if packs or self._job.packs:
            await asyncio.to_thread(self._store.packs.plan, self._job.id, packs)

    async def note_sealed(self, chunk: messages.ChunkAt) -> None:
        """A chunk is staged; build its pack, if it was the last one of it."""
        place = self._place[chunk.number]
        self._open[place] -= 1
        if not self._open[place]:
            await self._pack(place, await self._stale())

    async def finish(self) -> None:
        """Pack all that is sealed without an index, and is not packed yet."""
        stale = await self._stale()
        left = iter(sorted({*range(len(self._packs))} - self._done | stale.keys()))

        async def pack_next() -> None:
            for place in left:
                await self._pack(place, stale)

        await run_together([pack_next] * self._packing.at_once)

    async def _stale(self) -> Mapping[int, list[messages.SealedRows]]:
        """By pack, the groups that no segment covers as they are; segments of others are
        forgotten."""
        job = self._job.id
        groups, stored = await asyncio.to_thread(self._store.packs.read, job)
        wanted: dict[tuple[bytes, int], list[messages.SealedRows]] = {}
        for one in groups:
            place = self._place[one.chunk]
            wanted.setdefault((one.schema, place), []).append(one)
        good = {
            (schema, place)
            for (schema, place), own in wanted.items()
            if (known := stored.get((schema, sequence_of(place)))) is not None
            and [uid for uid, _ in known.groups] == [one.group.uid for one in own]
        }
        others = stored.keys() - {(schema, sequence_of(place)) for schema, place in good}
        if others:
            await asyncio.to_thread(self._store.packs.drop, job, others)
        stale: dict[int, list[messages.SealedRows]] = {}
        for (schema, place), own in wanted.items():
            if (schema, place) not in good:
                stale.setdefault(place, []).extend(own)
        return stale

    async def _pack(self, place: int, stale: Mapping[int, list[messages.SealedRows]]) -> None:
        groups = stale.get(place, [])
        if groups:
            async with self._packing.turns:
                segments = await self._build(place, groups)
            await asyncio.to_thread(
                self._store.packs.add, self._job.id, sequence_of(place), segments
            )
        self._done.add(place)
        if self._packing.policy.takes(self._job):
            await asyncio.to_thread(self._store.packs.mark, self._job.id, len(self._done))
            self._packing.uses.progress.announce(self._job.id)

    async def _build(
        self, place: int, groups: list[messages.SealedRows]
    ) -> list[tuple[bytes, Segment]]:
        chunks = self._packs[place]
        fates = await asyncio.to_thread(self._store.fates.get, self._job.id)
        task = messages.PackTask(
            source=self._source,
            chunks=list(chunks),
            fates=[
                decode_fates(fates[one.number]) if one.number in fates else [] for one in chunks
            ],
            groups=groups,
            schemas=list(self._schemas),
            staging=self._job.id,
            sequence=sequence_of(place),
            most=self._packing.policy.pages,
            folder=str(self._packing.uses.spool.folder),
            keep_free=self._packing.policy.keep_free,
        )

        async def listen(said: messages.Interim) -> None:
            assert isinstance(said, messages.PackedPages)
            await self._api.stage(said.schema, said.body, self._caller.auth)

        packed = await self._packing.workers.run(task, listen, beside=True)
        assert isinstance(packed, messages.PackedChunks)
        return packed.segments

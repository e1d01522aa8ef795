"""Begin jobs that seal all records of a schema again: one of a schema at a time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from encrypted_records import runtime
from encrypted_records.errors import Conflict, ErsError
from encrypted_records.model.record_formats import Format
from encrypted_records.proxy.jobs.dependencies import JobDependencies
from encrypted_records.proxy.jobs.job import JobOptions, StoredJob
from encrypted_records.proxy.jobs.service import BatchJobs
from encrypted_records.proxy.jobs.targets import SealTarget
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.workers.messages import LOST
from encrypted_records.proxy.write.definitions import DefinitionPlan

#: The definition that holds, whatever it is.
PRESENT = SealTarget(b"", b"")


def target_of(plan: DefinitionPlan) -> SealTarget:
    """The target that a plan has all records sealed for."""
    assert plan.present is not None
    had, new, target = plan.present.by_id, plan.new.fields, plan.target
    origins = [
        (spec.id, new[name].id) for name, spec in target.fields.items() if new[name].id in had
    ]
    # What may be lost becomes no field, which has no number.
    fields = plan.present.fields
    origins += [(LOST, fields[name].id) for name in plan.dropped if name in fields]
    return SealTarget(target.canonical, plan.present.digest, origins=tuple(origins))


class Reseals:
    def __init__(self, dependencies: JobDependencies, jobs: BatchJobs) -> None:
        self._uses = dependencies
        self._jobs = jobs
        #: between the look for another one and the beginning of this one
        self._beginning = asyncio.Lock()

    async def with_seconds(
        self, caller: Holder, schema: bytes, plan: DefinitionPlan
    ) -> DefinitionPlan:
        """The plan with how long sealing all records again will take, as measured now.

        Raises:
            ErsError: as :meth:`Schemas.refresh`; rows do not open.
        """
        target = target_of(plan)
        seconds = await self._jobs.runner.resealing.measure(caller, schema, target)
        return replace(plan, seconds=seconds)

    async def begin(
        self,
        caller: Holder,
        schema: bytes,
        target: SealTarget = PRESENT,
    ) -> StoredJob:
        """A job that seals all records of the schema again.

        Args:
            target: the definition to seal for.

        Raises:
            Conflict: ``reseal_under_way``; ``nothing_to_reseal`` where nothing was ever stored.
            NotAllowed: ``not_writer``.
            ErsError: as :meth:`Schemas.refresh` and :meth:`BatchJobs.begin`.
        """
        state = await self._uses.schemas.refresh(caller, schema)
        async with state.lock:
            await self._uses.schemas.ready(caller, state)
        if not state.ledger.snapshot().stored:
            raise Conflict(
                "the schema has no records to re-encrypt",
                code="nothing_to_reseal",
                hint="nothing needs to be done: new records are encrypted under the current key",
            )
        options = JobOptions(kind=Format.JSON, named=schema, work="reseal")
        async with self._beginning:
            if await runtime.in_thread(self._uses.store.targets.under_way, schema):
                raise Conflict(
                    "the records of this schema are already being re-encrypted",
                    code="reseal_under_way",
                    hint="wait for that job, or cancel it: ers job list",
                )
            job = await self._jobs.begin(caller, options)
            try:
                await runtime.in_thread(self._uses.store.targets.add, job.id, target)
                await self._jobs.mark_received(caller, job, 0)
            except ErsError as error:
                # Else it would wait for an upload, and no other could begin.
                await self._jobs.abandon(job.id, error)
                raise
        return job

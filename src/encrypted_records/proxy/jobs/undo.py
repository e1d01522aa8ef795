"""Undo a job: delete its records that were not changed or deleted since."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from encrypted_records import runtime
from encrypted_records.errors import Conflict
from encrypted_records.proxy.jobs.job import StoredJob
from encrypted_records.proxy.jobs.store import JobStore
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.write.update import Updater

log = logging.getLogger(__name__)


class Undo:
    """Undoes jobs. A job's records are in groups of its own, which the store remembers. A record
    that was changed since is in another group, and stays.
    """

    def __init__(self, store: JobStore, schemas: Schemas, changer: Updater) -> None:
        self._store = store
        self._schemas = schemas
        self._changer = changer

    async def count(self, caller: Holder, job: StoredJob) -> int:
        """The number of records that :meth:`delete` would delete now.

        Raises:
            NotFound: the caller does not reach a schema of the job any more.
            Conflict: ``job_resealed``; its groups have ended.
        """
        count = 0
        for schema, groups in (await self._groups(job)).items():
            snapshot = (await self._schemas.refresh(caller, schema)).ledger.snapshot()
            if not snapshot.groups.keys() >= set(groups):
                raise Conflict(
                    "the records of this job were re-encrypted and are mixed with others now",
                    code="job_resealed",
                    hint="search for them, and delete what you find",
                )
            count += snapshot.count_live(groups)
        return count

    async def delete(self, caller: Holder, job: StoredJob, confirmed: int) -> int:
        """Delete them; how many they were.

        Many are deleted in several commits. After an interruption, a repetition deletes the rest.

        Raises:
            Conflict: ``confirm_count``; they are not as many as ``confirmed``. Nothing is deleted.
                Or ``job_resealed``, as :meth:`count`, maybe after some were deleted.
            ErsError: as :meth:`Updater.delete_groups`.
        """
        count = await self.count(caller, job)
        if count != confirmed:
            raise Conflict(
                f"{count} of the job's records are still there",
                code="confirm_count",
                hint=f"to delete them, repeat the request with ?confirm={count}",
            )
        deleted = 0
        for schema, groups in (await self._groups(job)).items():
            deleted += await self._changer.delete_groups(caller, schema, groups)
        if deleted < confirmed:
            await self.count(caller, job)  # somebody else deleted some, or its groups have ended
        await runtime.in_thread(self._store.mark_undone, job.id)
        log.info("deleted %d records of a job that is undone", deleted)
        return deleted

    async def _groups(self, job: StoredJob) -> Mapping[bytes, list[bytes]]:
        return await runtime.in_thread(self._store.stored_groups, job.id)

"""Hands complete uploads over to their jobs, and ends the jobs of uploads that have ended."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress

from encrypted_records import runtime
from encrypted_records.crypto.keys import Keyring
from encrypted_records.errors import BadInput, Conflict, ErsError, NotFound, UploadedBefore
from encrypted_records.ingest.layouts import check_start
from encrypted_records.proxy.jobs.job import ENDED, StoredJob
from encrypted_records.proxy.jobs.service import BatchJobs
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.spool import Spool
from encrypted_records.proxy.uploads.store import Upload, charset_of, format_of, status_of
from encrypted_records.proxy.uploads.tus import headers as header

#: How many bytes of a file are read to check its format.
_START_BYTES = 4096


class Handover:
    def __init__(self, jobs: BatchJobs, spool: Spool) -> None:
        self._jobs = jobs
        self._spool = spool

    async def job_of(self, upload: Upload) -> StoredJob | None:
        try:
            owner = Holder.of_accepted_work(upload.owner)
            return await self._jobs.find(owner, str(uuid.UUID(bytes=upload.id)))
        except NotFound:
            return None

    async def has_lost_job(self, upload: Upload) -> bool:
        """Whether the upload still needs bytes for a job that has ended."""
        if not upload.has_job or upload.is_complete:
            return False
        job = await self.job_of(upload)
        return job is None or job.state in ENDED

    async def give(self, caller: Holder | None, upload: Upload, keyring: Keyring) -> None:
        """Give a complete upload to its job, or fail the job if the upload is no valid input.

        A second call changes nothing.

        Args:
            caller: who sent the last bytes; None if that is no longer known.
        """
        if not (upload.has_job and upload.is_complete):
            return
        job = await self.job_of(upload)
        if job is None or job.state != "uploading":
            return
        assert upload.length is not None
        try:
            metadata = header.metadata(status_of(upload, keyring).metadata or "")
            if job.sealed_reading is None:
                await runtime.in_thread(self._check_start, upload, keyring, metadata)
            once = metadata.get("on_repeat") == b"refuse"
            await self._jobs.accept(caller, job, upload.length, once=once)
        except (BadInput, UploadedBefore) as error:
            await self._jobs.abandon(upload.id, error)

    def _check_start(self, upload: Upload, keyring: Keyring, metadata: Mapping[str, bytes]) -> None:
        assert upload.length is not None
        size = min(upload.length, _START_BYTES)
        start = b"".join(self._spool.read(upload.id, keyring, size=size))
        check_start(start, format_of(metadata), charset_of(metadata))

    async def cancel(self, caller: Holder, upload: Upload) -> None:
        """Cancel the upload's job, if it has one that has not ended."""
        if not upload.has_job:
            return
        job = await self.job_of(upload)
        if job is not None and job.state not in ENDED:
            with suppress(Conflict):  # it ended before it could be cancelled
                await self._jobs.cancel(caller, job)

    async def fail(self, upload: Upload, error: ErsError) -> None:
        """Fail the upload's job, if it has one that has not ended."""
        if upload.has_job:
            with suppress(Conflict):  # its owner has ended it
                await self._jobs.abandon(upload.id, error)

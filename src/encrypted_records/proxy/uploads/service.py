"""Resumable uploads, from their creation until their job takes them over, or until they end.

All checks precede the first byte of a body: the upload is the caller's, it has not ended, no other
request uses it, and the request fits it. For users other than its owner an upload does not exist.

A file is recognized by its first bytes (its type, its CSV header, and the schema in the header) as
soon as they arrive, not after the last byte: a sender learns that a file cannot be stored before
terabytes of it are sent. Bytes with a checksum count only after it was compared. If the API is
unreachable, the job makes these checks later.
"""

from __future__ import annotations

import logging
import math
import re
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from encrypted_records import errors, runtime
from encrypted_records.crypto.keys import Keyring
from encrypted_records.ingest.layouts import SHORTEST, check_start
from encrypted_records.ingest.parsing import MAX_HEADER_BYTES
from encrypted_records.model import ids
from encrypted_records.model.record_formats import Format
from encrypted_records.proxy.http.guard import OwnNames
from encrypted_records.proxy.jobs.job import ENDED, FileNote, JobOptions, StoredJob
from encrypted_records.proxy.jobs.service import BatchJobs
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.retention import WatchedClock
from encrypted_records.proxy.spool import Spool
from encrypted_records.proxy.uploads import tus
from encrypted_records.proxy.uploads import tus as header
from encrypted_records.proxy.uploads.store import (
    Receiver,
    Upload,
    UploadLock,
    UploadLocks,
    UploadState,
    UploadStore,
    charset_of,
    format_of,
    seal_note,
    status_of,
)

log = logging.getLogger(__name__)


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
        except errors.NotFound:
            return None

    async def has_lost_job(self, upload: Upload) -> bool:
        """Whether the upload still needs bytes for a job that has ended."""
        if not upload.has_job or upload.is_complete:
            return False
        job = await self.job_of(upload)
        return job is None or job.state in ENDED

    async def give(self, caller: Holder | None, upload: Upload, keyring: Keyring) -> None:
        """Give a complete upload to its job, or fail the job if the upload is not valid input.

        A second call changes nothing.

        Args:
            caller: the sender of the last bytes; None if that is no longer known.
        """
        if not (upload.has_job and upload.is_complete):
            return
        job = await self.job_of(upload)
        if job is None or job.state != "uploading":
            return
        assert upload.length is not None
        try:
            metadata = header.read_metadata(status_of(upload, keyring).metadata or "")
            if job.sealed_reading is None:
                await runtime.in_thread(self._check_start, upload, keyring, metadata)
            once = metadata.get("on_repeat") == b"refuse"
            await self._jobs.accept(caller, job, upload.length, once=once)
        except (errors.BadInput, errors.UploadedBefore) as error:
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
            with suppress(errors.Conflict):  # the job has ended already
                await self._jobs.cancel(caller, job)

    async def fail(self, upload: Upload, error: errors.ErsError) -> None:
        """Fail the upload's job, if it has one that has not ended."""
        if upload.has_job:
            with suppress(errors.Conflict):  # the job's owner has ended it
                await self._jobs.abandon(upload.id, error)


#: An upload that receives no bytes for this many seconds expires.
LIFETIME_SECONDS = 7 * 86_400.0
#: Seconds after its end during which the address of an upload reports that it has ended.
REMEMBERED_SECONDS = 30 * 86_400.0
SWEEP_SECONDS = 10.0

_URL = re.compile(r"(https?://[^/]+)?/api/files/([^/?#]+)/?")


class UploadService:
    def __init__(
        self,
        store: UploadStore,
        spool: Spool,
        keyrings: Keyrings,
        jobs: BatchJobs,
        names: OwnNames,
        clock: WatchedClock,
    ) -> None:
        """
        Args:
            clock: for the expiry of uploads; doubtful time ends none.
        """
        self._store = store
        self._spool = spool
        self._keyrings = keyrings
        self._jobs = jobs
        self._names = names
        self._clock = clock
        self._handover = Handover(jobs, spool)
        self._judge = Judge(jobs, spool, self._handover)
        self._holds = UploadLocks()
        self._receiver = Receiver()
        self._left: list[StoredJob] | None = None

    async def create(
        self,
        caller: Holder,
        creation: header.Create,
        options: JobOptions,
        stream: AsyncIterator[bytes],
        note: FileNote,
    ) -> Upload:
        """Create an upload, with the request's body if it has one, and with a job unless it is
        partial.

        Args:
            note: the sender's note on the file.

        Raises:
            Conflict: ``uploaded_before``, if the options require the check.
            OutOfSpace: the disk has no space for its announced length.
            NotFound, BadInput, Conflict: a part does not exist, is not partial, or not complete.
            ErsError: the body was refused, or the job; then the upload does not exist.
        """
        keyring = await runtime.in_thread(self._keyrings.of, caller)
        parts = [await self._part(caller, keyring, url) for url in creation.parts]
        length = sum(size for _, size in parts) if creation.parts else creation.status.length
        if length is not None and length > header.MAX_SIZE:
            raise header.too_large()
        if creation.status.kind is header.Kind.PARTIAL:
            upload = ids.new_id()
        else:
            if options.once and length is not None:
                await self._jobs.refuse_repeated(caller, options, length, note)
            upload = (await self._jobs.begin(caller, options, note)).id
        begin = replace(creation.status, length=length)
        try:
            made = await runtime.in_thread(self._enter, upload, caller, keyring, begin, parts)
            if creation.body is not None:
                return await self.append(
                    caller, upload, header.Append(0, None, creation.body), stream
                )
            await self._handover.give(caller, made, keyring)
        except errors.ErsError as error:
            # No response has contained the upload's address.
            await self._drop(upload, error)
            raise
        return made

    def _enter(
        self,
        upload: bytes,
        caller: Holder,
        keyring: Keyring,
        begin: header.UploadStatus,
        parts: list[tuple[bytes, int]],
    ) -> Upload:
        """Add a new upload to store and spool; an upload with a job has its file already."""
        made = Upload(
            id=upload,
            owner=caller.user,
            began=caller.began,
            kind=begin.kind,
            length=begin.length,
            offset=0,
            expires=self._clock.wall() + LIFETIME_SECONDS,
            note=seal_note(upload, keyring, begin),
        )
        if made.kind is not header.Kind.FINAL:
            self._spool.require_space(self._store.sum_owed() + (made.length or 0))
        # Stored before its file is made: a file that the store does not know would never be
        # deleted.
        self._store.put(made)
        if made.kind is header.Kind.PARTIAL:
            self._spool.create(upload, keyring)
        elif made.kind is header.Kind.FINAL:
            self._spool.delete(upload)
            self._spool.join(upload, keyring, parts)
            made = replace(made, offset=made.length or 0)
            self._store.put(made)
        return made

    async def _drop(self, upload: bytes, error: errors.ErsError) -> None:
        """Forget an upload whose creation has failed, and fail its job."""
        with suppress(errors.Conflict, errors.NotFound):
            await self._jobs.abandon(upload, error)
        await runtime.in_thread(self._spool.delete, upload)
        await runtime.in_thread(self._store.forget, upload)

    async def _part(self, caller: Holder, keyring: Keyring, url: str) -> tuple[bytes, int]:
        """The upload that a final upload names as its part, and its size."""
        match = _URL.fullmatch(url)
        if match is None or not (match[1] is None or self._names.includes_origin(match[1])):
            raise header.malformed("Upload-Concat", "names an upload that does not exist here")
        part = await self.find(caller, ids.from_path(match[2]))
        if part.kind is not header.Kind.PARTIAL:
            raise header.malformed("Upload-Concat", "names an upload that is not partial")
        async with self._holds.hold(part.id, brief=True):
            offset = await runtime.in_thread(self._offset, part, keyring)
        if offset != part.length:
            raise errors.Conflict(
                "a part is not complete",
                code="upload_unfinished",
                hint="send the rest of every part before they are concatenated",
            )
        return part.id, offset

    async def find(self, caller: Holder, upload: bytes) -> Upload:
        """The caller's upload.

        Raises:
            NotFound: there is no upload of this id, or it is another user's.
            Gone: it has ended.
        """
        entry = await runtime.in_thread(self._store.get, upload)
        if entry is None or not caller.owns(entry.owner, entry.began):
            raise errors.NotFound("there is no such upload")
        due = entry.due or math.inf
        is_due = due < self._clock.wall() and due < await self._clock.certain()
        if is_due and await self._expire(entry):
            entry = replace(entry, state=UploadState.EXPIRED)
        refuse_ended(entry)
        if await self._handover.has_lost_job(entry):
            raise errors.Gone("the job of this upload has ended", code="upload_without_job")
        return entry

    async def show(self, caller: Holder, upload: bytes) -> header.UploadStatus:
        """The state of an upload; while bytes arrive, its offset is the number of bytes on disk.

        Raises:
            NotFound, Gone: as :meth:`find`.
            DoesNotOpen: ``spool_damaged``: bytes that were acknowledged are lost.
        """
        entry = await self.find(caller, upload)
        keyring = await runtime.in_thread(self._keyrings.of, caller)
        hold = self._holds.of(upload)
        if hold is not None and not hold.gives_way:
            synced = entry.offset if hold.appending is None else hold.appending.synced
            # Bytes count only after their checksum was compared.
            offset = entry.offset if entry.state is UploadState.VERIFYING else synced
            return status_of(replace(entry, offset=offset), keyring)
        async with self._holds.hold(upload, brief=True):
            return status_of(await self._settle(caller, upload, keyring), keyring)

    def why_waiting(self, job: StoredJob) -> str | None:
        """The reason why a job waits for its file; None if a request is sending it, or has."""
        if job.state != "uploading" or not job.options.resumable or self._holds.of(job.id):
            return None
        return "its upload was interrupted; send the same file again to continue it"

    async def append(
        self, caller: Holder, upload: bytes, request: header.Append, stream: AsyncIterator[bytes]
    ) -> Upload:
        """Add a body to an upload.

        Raises:
            NotFound, Gone: as :meth:`find`.
            Locked: another request uses it.
            NotAllowed, Conflict, BadInput, TooLarge: as :func:`.tus.admit`; nothing was read.
            OutOfSpace, Unavailable: the disk cannot store it; the written bytes stay.
            ChecksumMismatch, TooLarge: the body itself; nothing of it is kept.
            BadInput: the file, by its first bytes; its job has failed.
            BadInput: ``upload_interrupted``; the bytes that came are kept.
        """
        await self.find(caller, upload)
        keyring = await runtime.in_thread(self._keyrings.of, caller)
        async with self._holds.hold(upload) as hold:
            entry = await self._settle(caller, upload, keyring)
            length = tus.admit(request, status_of(entry, keyring))
            if entry.is_complete:
                if request.body.size != 0:
                    raise tus.beyond_length()
                return entry
            await runtime.in_thread(self._spool.require_space, request.body.size or 0)
            checked = request.body.checksum is not None
            state = UploadState.VERIFYING if checked else UploadState.OPEN
            entry = await self._put(replace(entry, length=length, state=state))
            entry = await self._take(caller, hold, entry, keyring, request, stream)
            await self._handover.give(caller, entry, keyring)
            return entry

    async def _take(
        self,
        caller: Holder,
        hold: UploadLock,
        upload: Upload,
        keyring: Keyring,
        request: header.Append,
        stream: AsyncIterator[bytes],
    ) -> Upload:
        """Receive a body, and check the file as soon as its first bytes arrive."""
        first = await self._judge.first_bytes(caller, upload, keyring)
        try:
            if request.body.checksum is None:
                stream = first.watch(stream)
            upload = await self._receive(hold, upload, keyring, request, stream)
            if request.body.checksum is not None:
                first = await self._judge.first_bytes(caller, upload, keyring)
            await self._judge.conclude(upload, first)
        except errors.BadInput:
            await self._judge.end(upload, first)
            raise
        return upload

    async def _receive(
        self,
        hold: UploadLock,
        upload: Upload,
        keyring: Keyring,
        request: header.Append,
        stream: AsyncIterator[bytes],
    ) -> Upload:
        most = (header.MAX_SIZE if upload.length is None else upload.length) - upload.offset
        problem: errors.ErsError | None
        try:
            with await runtime.in_thread(
                self._spool.append, upload.id, keyring, upload.offset
            ) as appending:
                hold.appending = appending
                offset, problem = await self._receiver.receive(
                    hold, appending, stream, most=most, checksum=request.body.checksum
                )
        except (errors.OutOfSpace, errors.Unavailable) as error:
            if request.body.checksum is not None:
                raise
            offset = await runtime.in_thread(
                self._spool.measure, upload.id, keyring, at_least=upload.offset
            )
            problem = error
        expires = self._clock.wall() + LIFETIME_SECONDS
        upload = await self._put(
            replace(upload, offset=offset, state=UploadState.OPEN, expires=expires)
        )
        if problem is not None:
            raise problem
        return upload

    async def terminate(self, caller: Holder, upload: bytes) -> None:
        """End an upload, and its job if that has not ended; a request that sends it is interrupted.

        Raises:
            NotFound, Gone: as :meth:`find`.
        """
        await self.find(caller, upload)
        await self._holds.settle(upload, force=True)
        async with self._holds.hold(upload):
            entry = await self.find(caller, upload)
            await self._handover.cancel(caller, entry)
            await self._end(entry, UploadState.TERMINATED)

    async def start(self) -> None:
        """Note the jobs that an earlier process left waiting for their uploads, before a request
        can begin a job: a new job has no upload yet either.

        Raises:
            ErsError: the disk cannot be read.
        """
        self._left = await self._jobs.list_awaited()

    async def sweep(self) -> None:
        """End expired uploads, and interrupt requests that send nothing. The first one after
        :meth:`start` finishes the work of an earlier process before that, once, even if it fails.

        Raises:
            ErsError: the disk cannot be read or written; the next sweep continues.
        """
        if self._left is not None:
            left, self._left = self._left, None
            await self._resume(left)
            await self._clear_spool()
        self._holds.interrupt_idle()
        certain = await self._clock.certain()
        due = await runtime.in_thread(self._store.list_expired, certain)
        for upload in due:
            try:
                if upload.may_expire:
                    await self._expire(upload)
                else:
                    await runtime.in_thread(self._store.forget, upload.id)
            except Exception:
                # The next sweep tries again; other uploads must not wait for it.
                log.exception("an expired upload was not deleted")

    async def _resume(self, jobs: Iterable[StoredJob]) -> None:
        """Give complete uploads to their jobs, and fail jobs whose upload was never entered."""
        for job in jobs:
            upload = await runtime.in_thread(self._store.get, job.id)
            try:
                if upload is None:
                    await self._jobs.abandon(
                        job.id, errors.NotFound("the upload was never started")
                    )
                elif upload.is_complete:
                    keyring = await runtime.in_thread(
                        self._keyrings.of, Holder.of_accepted_work(upload.owner)
                    )
                    await self._handover.give(None, upload, keyring)
            except errors.ErsError as error:
                log.warning("an upload's job does not continue: %s", error.message)

    async def _clear_spool(self) -> None:
        """Delete bytes of unknown uploads, which an earlier process did not delete."""
        for upload in await runtime.in_thread(self._spool.uploads):
            # A new upload is entered before its file is made.
            entered = await runtime.in_thread(self._store.get, upload)
            if entered is None and not await self._jobs.knows(upload):
                log.info("bytes of an unknown upload are deleted")
                await runtime.in_thread(self._spool.delete, upload)

    async def _expire(self, upload: Upload) -> bool:
        """End an expired upload, unless bytes are arriving. Returns whether it has ended."""
        if self._holds.of(upload.id) is not None:
            return False
        await self._handover.fail(upload, expired())
        await self._end(upload, UploadState.EXPIRED)
        return True

    def close(self) -> None:
        self._receiver.close()

    async def _end(self, upload: Upload, state: UploadState) -> None:
        await runtime.in_thread(self._spool.delete, upload.id)
        await self._put(
            replace(upload, state=state, expires=self._clock.wall() + REMEMBERED_SECONDS)
        )

    async def _put(self, upload: Upload) -> Upload:
        await runtime.in_thread(self._store.put, upload)
        return upload

    async def _settle(self, caller: Holder, upload: bytes, keyring: Keyring) -> Upload:
        """The upload at the offset of its stored bytes, while no request adds to them.

        The last request may have ended before it stored its offset, or before it handed over a
        complete upload.
        """
        entry = await self.find(caller, upload)
        offset = await runtime.in_thread(self._offset, entry, keyring)
        if offset != entry.offset:
            entry = await self._put(replace(entry, offset=offset))
        await self._handover.give(caller, entry, keyring)
        return entry

    def _offset(self, upload: Upload, keyring: Keyring) -> int:
        if upload.is_complete or upload.state is UploadState.VERIFYING:
            return upload.offset
        return self._spool.measure(upload.id, keyring, at_least=upload.offset)


def refuse_ended(upload: Upload) -> None:
    """
    Raises:
        Gone: ``upload_expired`` or ``upload_terminated``; the upload has ended so.
    """
    if upload.state is UploadState.EXPIRED:
        raise expired()
    if upload.state is UploadState.TERMINATED:
        raise errors.Gone(
            "the upload was terminated", code="upload_terminated", hint="send the file again"
        )


def expired() -> errors.Gone:
    return errors.Gone(
        "the upload was not completed in time and has expired",
        code="upload_expired",
        hint="send the file again",
    )


#: This many bytes are enough to recognize a file or to refuse it; UTF-16 takes twice as many.
_ENOUGH_BYTES = 2 * MAX_HEADER_BYTES + (64 << 10)
#: Bytes that must arrive before the same beginning is parsed again within one request, absolutely
#: and as a fraction of the bytes so far: otherwise a sender of single bytes would cause a parse per
#: byte.
_MORE_BYTES, _MORE_PART = 4096, 4
#: Checked uploads that are remembered; checking an upload again costs little.
_REMEMBERED = 10_000


class FirstBytes:
    """The first bytes of one upload. ``verdict`` is the reason why it cannot be stored.

    Args:
        options: of its job; None if there is nothing left to check.
        kind: the type that its sender declares.
        start: bytes that arrived before.
    """

    def __init__(
        self,
        jobs: BatchJobs,
        caller: Holder,
        options: JobOptions | None,
        kind: Format | None = None,
        start: bytes = b"",
    ) -> None:
        self._jobs = jobs
        self._caller = caller
        self._options = options
        self._kind = kind
        self._start = start
        self._enough = 0
        self.verdict: errors.BadInput | None = None

    @property
    def are_judged(self) -> bool:
        return self._options is None

    async def see(self, data: bytes, *, final: bool = False) -> None:
        """Check the bytes so far, including ``data``.

        Args:
            final: whether the upload ends here.

        Raises:
            BadInput: it cannot be stored, whatever bytes follow.
        """
        if self._options is None:
            return
        self._start += data
        if data and len(self._start) < self._enough:
            return
        self._enough = len(self._start) + max(_MORE_BYTES, len(self._start) // _MORE_PART)
        try:
            if await self._look(self._options, final=final):
                self._options = None
        except errors.BadInput as error:
            self.verdict = error
            raise
        except errors.ErsError:
            self._options = None

    async def _look(self, options: JobOptions, *, final: bool) -> bool:
        if len(self._start) < SHORTEST and not final:
            return False
        if options.reading is None:
            check_start(self._start, self._kind, options.charset)
        return await self._jobs.look(self._caller, options, self._start, final=final)

    async def watch(self, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same bytes, each checked before it is passed on."""
        async for chunk in stream:
            await self.see(chunk)
            yield chunk


class Judge:
    def __init__(self, jobs: BatchJobs, spool: Spool, handover: Handover) -> None:
        self._jobs = jobs
        self._spool = spool
        self._handover = handover
        self._judged: set[bytes] = set()

    async def first_bytes(self, caller: Holder, upload: Upload, keyring: Keyring) -> FirstBytes:
        """The first bytes of an upload, as far as they are on disk."""
        nothing = FirstBytes(self._jobs, caller, None)
        passed = upload.id in self._judged or (
            upload.offset > _ENOUGH_BYTES and not upload.is_complete
        )
        if passed or not upload.has_job:
            return nothing
        job = await self._handover.job_of(upload)
        if job is None:
            return nothing
        metadata = header.read_metadata(status_of(upload, keyring).metadata or "")
        start = await runtime.in_thread(self._read, upload, keyring)
        options = await self._jobs.options_of(job)
        return FirstBytes(self._jobs, caller, options, format_of(metadata), start)

    def _read(self, upload: Upload, keyring: Keyring) -> bytes:
        size = min(upload.offset, _ENOUGH_BYTES)
        return b"".join(self._spool.read(upload.id, keyring, size=size)) if size else b""

    async def conclude(self, upload: Upload, first: FirstBytes) -> None:
        """Check the bytes of an upload so far: all of them if it is complete.

        Raises:
            BadInput: it cannot be stored.
        """
        await first.see(b"", final=upload.is_complete)
        if first.are_judged:
            if len(self._judged) >= _REMEMBERED:
                self._judged.clear()
            self._judged.add(upload.id)

    async def end(self, upload: Upload, first: FirstBytes) -> None:
        """Fail the job of an upload that cannot be stored."""
        if first.verdict is not None:
            with suppress(errors.ErsError):  # the next request, or the sweep, repeats it
                await self._handover.fail(upload, first.verdict)

"""Recognition of a file by its first bytes: its type, its CSV header, and the schema that this
names.

They are looked at as soon as they are there, not when the last byte is: a sender learns that a file
cannot be stored before terabytes of it are sent. Bytes with a checksum count once it was
compared. What cannot be looked at now, because the API is away, the job finds out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

from encrypted_records import runtime
from encrypted_records.crypto.keys import Keyring
from encrypted_records.errors import BadInput, ErsError
from encrypted_records.ingest.filetypes import SHORTEST, check_start
from encrypted_records.ingest.parse_csv import MAX_HEADER_BYTES
from encrypted_records.model.media_types import Format
from encrypted_records.proxy.jobs.job import JobOptions
from encrypted_records.proxy.jobs.service import BatchJobs
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.spool.spool import Spool
from encrypted_records.proxy.uploads.handover import Handover
from encrypted_records.proxy.uploads.notes import format_of, status_of
from encrypted_records.proxy.uploads.store import Upload
from encrypted_records.proxy.uploads.tus import headers as header

#: So many bytes show what a file is, or that it is nothing; of UTF-16 it takes twice as many.
_ENOUGH_BYTES = 2 * MAX_HEADER_BYTES + (64 << 10)
#: Bytes that have to come before the same beginning is looked at again within one request, and as a
#: part of what there is: who sends byte by byte must not have it parsed byte by byte.
_MORE_BYTES, _MORE_PART = 4096, 4
#: Uploads that were judged and are kept in mind; to judge one again costs little.
_REMEMBERED = 10_000


class FirstBytes:
    """The first bytes of one upload. ``verdict`` is why it cannot be stored.

    Args:
        options: of its job; None where there is nothing to judge any more.
        kind: what its sender calls it.
        start: what came of it before.
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
        self.verdict: BadInput | None = None

    @property
    def are_judged(self) -> bool:
        return self._options is None

    async def see(self, data: bytes, *, final: bool = False) -> None:
        """Judge what has come by now, with ``data``.

        Args:
            final: whether the upload ends here.

        Raises:
            BadInput: it cannot be stored, whatever comes.
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
        except BadInput as error:
            self.verdict = error
            raise
        except ErsError:
            self._options = None

    async def _look(self, options: JobOptions, *, final: bool) -> bool:
        if len(self._start) < SHORTEST and not final:
            return False
        if options.reading is None:
            check_start(self._start, self._kind, options.charset)
        return await self._jobs.look(self._caller, options, self._start, final=final)

    async def watch(self, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same bytes, each judged before it is passed on."""
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
        metadata = header.metadata(status_of(upload, keyring).metadata or "")
        start = await runtime.in_thread(self._read, upload, keyring)
        options = await self._jobs.options_of(job)
        return FirstBytes(self._jobs, caller, options, format_of(metadata), start)

    def _read(self, upload: Upload, keyring: Keyring) -> bytes:
        size = min(upload.offset, _ENOUGH_BYTES)
        return b"".join(self._spool.read(upload.id, keyring, size=size)) if size else b""

    async def conclude(self, upload: Upload, first: FirstBytes) -> None:
        """Judge what has come of an upload, all of it where it is complete.

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
            with suppress(ErsError):  # the next request, or the sweep, does it then
                await self._handover.fail(upload, first.verdict)

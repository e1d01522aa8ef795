"""Resumable uploads, from their creation to the job that takes them over, or to their end.

Everything is asked of an upload before a byte of body is read: that it is the caller's, that it has
not ended, that nobody else is at it, and that the request fits it. To others than its owner an
upload does not exist.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import replace

import msgspec

from encrypted_records.crypto import format as fmt
from encrypted_records.crypto import spooling
from encrypted_records.crypto.keys import Keyring
from encrypted_records.errors import (
    BadInput,
    Conflict,
    ErsError,
    Gone,
    NotFound,
    OutOfSpace,
    Unavailable,
)
from encrypted_records.ingest.filetypes import check_start, is_csv
from encrypted_records.model import ids
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.batch_jobs import BatchJobs
from encrypted_records.proxy.guard import OwnNames
from encrypted_records.proxy.jobs import ENDED, Job, Order
from encrypted_records.proxy.keyrings import Keyrings
from encrypted_records.proxy.receiving import Hold, Holds, Receiver
from encrypted_records.proxy.spool import Spool
from encrypted_records.proxy.tus import headers as header
from encrypted_records.proxy.tus import protocol
from encrypted_records.proxy.tus.headers import Kind
from encrypted_records.proxy.tus.protocol import Append, Create, Standing
from encrypted_records.proxy.upload_store import State, Upload, UploadStore

log = logging.getLogger(__name__)

#: An upload to which nothing is added for so long expires.
LIFETIME_SECONDS = 7 * 86_400.0
#: And for so long its address says so.
REMEMBERED_SECONDS = 30 * 86_400.0
SWEEP_SECONDS = 10.0

#: How much of a file is looked at to see what it is.
_START_BYTES = 4096
_URL = re.compile(r"(https?://[^/]+)?/api/files/([^/?#]+)/?")


class Uploads:
    def __init__(
        self,
        store: UploadStore,
        spool: Spool,
        keyrings: Keyrings,
        jobs: BatchJobs,
        names: OwnNames,
    ) -> None:
        self._store = store
        self._spool = spool
        self._keyrings = keyrings
        self._jobs = jobs
        self._names = names
        self._holds = Holds()
        self._receiver = Receiver()

    async def create(
        self, caller: Caller, asked: Create, order: Order, stream: AsyncIterator[bytes]
    ) -> Upload:
        """A new upload, with the body that came along, and its job unless it is partial.

        Raises:
            OutOfSpace: there is no room for what it announces.
            NotFound, BadInput, Conflict: its parts are not there, no parts, or not complete.
            ErsError: the body was not taken, or there can be no job; there is no upload.
        """
        keyring = await asyncio.to_thread(self._keyrings.of, caller.user)
        parts = [await self._part(caller, keyring, url) for url in asked.parts]
        length = sum(size for _, size in parts) if asked.parts else asked.standing.length
        if length is not None and length > header.MAX_SIZE:
            raise header.too_large()
        if asked.standing.kind is Kind.PARTIAL:
            upload = ids.new_id()
        else:
            upload = (await self._jobs.begin(caller, order)).id
        try:
            made = await asyncio.to_thread(
                self._enter,
                upload,
                caller.user,
                keyring,
                replace(asked.standing, length=length),
                parts,
            )
            if asked.body is not None:
                return await self.append(caller, upload, Append(0, None, asked.body), stream)
            await self._hand_over(caller, made, keyring)
        except ErsError as error:
            # Nobody has been told its address.
            await self._drop(upload, error)
            raise
        return made

    def _enter(
        self,
        upload: bytes,
        user: bytes,
        keyring: Keyring,
        begin: Standing,
        parts: list[tuple[bytes, int]],
    ) -> Upload:
        """Enter a new upload into store and spool; a job's has its file already."""
        note = msgspec.msgpack.encode([begin.metadata or "", begin.concat or ""])
        made = Upload(
            id=upload,
            owner=user,
            kind=begin.kind,
            length=begin.length,
            offset=0,
            expires=time.time() + LIFETIME_SECONDS,
            note=spooling.seal_whole(fmt.SPOOL_NOTE, keyring.spool(upload), note),
        )
        if made.kind is not Kind.FINAL:
            self._spool.require_space(self._store.owed() + (made.length or 0))
        # Before there is a file that nobody would ever delete if nobody knew of it.
        self._store.put(made)
        if made.kind is Kind.PARTIAL:
            self._spool.create(upload, keyring)
        elif made.kind is Kind.FINAL:
            self._spool.delete(upload)
            self._spool.join(upload, keyring, parts)
            made = replace(made, offset=made.length or 0)
            self._store.put(made)
        return made

    async def _drop(self, upload: bytes, error: ErsError) -> None:
        """Forget an upload whose creation has failed, and fail its job."""
        with suppress(Conflict, NotFound):
            await self._jobs.abandon(upload, error)
        await asyncio.to_thread(self._spool.delete, upload)
        await asyncio.to_thread(self._store.forget, upload)

    async def _part(self, caller: Caller, keyring: Keyring, url: str) -> tuple[bytes, int]:
        """The upload that a final one names as its part, and its size."""
        match = _URL.fullmatch(url)
        if match is None or not (match[1] is None or self._names.includes_origin(match[1])):
            raise header.malformed("Upload-Concat", "names something that is no upload here")
        part = await self.find(caller, ids.from_text(match[2]))
        if part.kind is not Kind.PARTIAL:
            raise header.malformed("Upload-Concat", "names an upload that is not partial")
        async with self._holds.hold(part.id, brief=True):
            offset = await asyncio.to_thread(self._offset, part, keyring)
        if offset != part.length:
            raise Conflict(
                "a part is not complete",
                code="upload_unfinished",
                hint="send the rest of every part before they are concatenated",
            )
        return part.id, offset

    async def find(self, caller: Caller, upload: bytes) -> Upload:
        """The caller's upload.

        Raises:
            NotFound: there is none of this id, or it is somebody else's.
            Gone: there was.
        """
        found = await asyncio.to_thread(self._store.get, upload)
        if found is None or found.owner != caller.user:
            raise NotFound("there is no such upload")
        if (found.due or math.inf) < time.time() and await self._expire(found):
            found = replace(found, state=State.EXPIRED)
        if found.state is State.EXPIRED:
            raise Gone("the upload has expired", code="upload_expired", hint="send the file again")
        if found.state is State.TERMINATED:
            raise Gone(
                "the upload was terminated", code="upload_terminated", hint="send the file again"
            )
        if found.has_job and not found.is_complete:
            job = await self._job(found)
            if job is None or job.state in ENDED:
                raise Gone("the job of this upload has ended", code="upload_without_job")
        return found

    async def _job(self, upload: Upload) -> Job | None:
        try:
            return await self._jobs.find(upload.owner, str(uuid.UUID(bytes=upload.id)))
        except NotFound:
            return None

    async def show(self, caller: Caller, upload: bytes) -> Standing:
        """How far an upload is; while bytes are coming in, how many of them are on disk.

        Raises:
            NotFound, Gone: as :meth:`find`.
            DoesNotOpen: ``spool_damaged``: bytes that were acknowledged are lost.
        """
        found = await self.find(caller, upload)
        keyring = await asyncio.to_thread(self._keyrings.of, caller.user)
        hold = self._holds.of(upload)
        if hold is not None and not hold.gives_way:
            synced = found.offset if hold.appending is None else hold.appending.synced
            # Of a checksum that has not been compared yet, nothing counts.
            offset = found.offset if found.state is State.VERIFYING else synced
            return self._standing(replace(found, offset=offset), keyring)
        async with self._holds.hold(upload, brief=True):
            return self._standing(await self._settled(caller, upload, keyring), keyring)

    async def append(
        self, caller: Caller, upload: bytes, asked: Append, stream: AsyncIterator[bytes]
    ) -> Upload:
        """Take a body.

        Raises:
            NotFound, Gone: as :meth:`find`.
            Locked: another request is at it.
            NotAllowed, Conflict, BadInput, TooLarge: as :func:`protocol.admit`; nothing was read.
            OutOfSpace, Unavailable: the disk does not take it; what was written stays.
            ChecksumMismatch, TooLarge: of the body itself; nothing of it stays.
            BadInput: ``upload_interrupted``; what came stays.
        """
        await self.find(caller, upload)
        keyring = await asyncio.to_thread(self._keyrings.of, caller.user)
        async with self._holds.hold(upload) as hold:
            found = await self._settled(caller, upload, keyring)
            length = protocol.admit(asked, self._standing(found, keyring))
            if found.is_complete:
                if asked.body.size != 0:
                    raise protocol.beyond_length()
                return found
            await asyncio.to_thread(self._spool.require_space, asked.body.size or 0)
            found = await self._put(
                replace(
                    found,
                    length=length,
                    state=State.OPEN if asked.body.checksum is None else State.VERIFYING,
                )
            )
            found = await self._receive(hold, found, keyring, asked, stream)
            await self._hand_over(caller, found, keyring)
            return found

    async def _receive(
        self,
        hold: Hold,
        upload: Upload,
        keyring: Keyring,
        asked: Append,
        stream: AsyncIterator[bytes],
    ) -> Upload:
        room = (header.MAX_SIZE if upload.length is None else upload.length) - upload.offset
        problem: ErsError | None
        try:
            with await asyncio.to_thread(
                self._spool.append, upload.id, keyring, upload.offset
            ) as appending:
                hold.appending = appending
                offset, problem = await self._receiver.receive(
                    hold, appending, stream, room=room, checksum=asked.body.checksum
                )
        except (OutOfSpace, Unavailable) as error:
            if asked.body.checksum is not None:
                raise
            offset = await asyncio.to_thread(
                self._spool.synced, upload.id, keyring, at_least=upload.offset
            )
            problem = error
        expires = time.time() + LIFETIME_SECONDS
        upload = await self._put(replace(upload, offset=offset, state=State.OPEN, expires=expires))
        if problem is not None:
            raise problem
        return upload

    async def terminate(self, caller: Caller, upload: bytes) -> None:
        """End an upload, and its job if it has not ended; whoever is at it is interrupted.

        Raises:
            NotFound, Gone: as :meth:`find`.
        """
        await self.find(caller, upload)
        await self._holds.settle(upload, force=True)
        async with self._holds.hold(upload):
            found = await self.find(caller, upload)
            if found.has_job:
                await self._cancel(caller, found)
            await self._end(found, State.TERMINATED)

    async def _cancel(self, caller: Caller, upload: Upload) -> None:
        job = await self._job(upload)
        if job is not None and job.state not in ENDED:
            with suppress(Conflict):  # it came to its end before it could be cancelled
                await self._jobs.cancel(caller, job)

    async def sweep(self) -> None:
        """Once in a while: end what has expired, and requests that bring nothing any more."""
        await self._take_up()
        await self._clear_spool()
        while True:
            self._holds.interrupt_idle()
            try:
                await self._clear_expired()
            except ErsError as error:
                log.warning("expired uploads are not cleared away yet: %s", error.message)
            await asyncio.sleep(SWEEP_SECONDS)

    async def _clear_expired(self) -> None:
        for upload in await asyncio.to_thread(self._store.expired, time.time()):
            try:
                if upload.may_expire:
                    await self._expire(upload)
                else:
                    await asyncio.to_thread(self._store.forget, upload.id)
            except Exception:
                # It is tried again, and other uploads must not wait for it.
                log.exception("an expired upload was not cleared away")

    async def _take_up(self) -> None:
        """Do what an earlier process was kept from: give complete uploads to their jobs, and fail
        jobs that were begun for an upload of which nobody was told."""
        for job in await self._jobs.awaited():
            upload = await asyncio.to_thread(self._store.get, job.id)
            try:
                if upload is None:
                    await self._jobs.abandon(job.id, NotFound("the upload was never begun"))
                elif upload.is_complete:
                    keyring = await asyncio.to_thread(self._keyrings.of, upload.owner)
                    await self._hand_over(None, upload, keyring)
            except ErsError as error:
                log.warning("an upload's job does not go on: %s", error.message)

    async def _clear_spool(self) -> None:
        """Delete bytes that belong to nothing any more: an earlier process was kept from it."""
        for upload in await asyncio.to_thread(self._spool.uploads):
            # Whatever is new is entered before it has a file.
            entered = await asyncio.to_thread(self._store.get, upload)
            if entered is None and not await self._jobs.knows(upload):
                log.info("bytes of an upload that nobody knows are deleted")
                await asyncio.to_thread(self._spool.delete, upload)

    async def _expire(self, upload: Upload) -> bool:
        """End an upload whose time is over, unless bytes are coming in; whether it has ended."""
        if self._holds.of(upload.id) is not None:
            return False
        if upload.has_job:
            error = Gone(
                "the upload was not completed in time, and has expired",
                code="upload_expired",
                hint="send the file again",
            )
            with suppress(Conflict):  # its owner has ended it
                await self._jobs.abandon(upload.id, error)
        await self._end(upload, State.EXPIRED)
        return True

    def close(self) -> None:
        self._receiver.close()
        self._store.close()

    async def _end(self, upload: Upload, state: State) -> None:
        await asyncio.to_thread(self._spool.delete, upload.id)
        await self._put(replace(upload, state=state, expires=time.time() + REMEMBERED_SECONDS))

    async def _hand_over(self, caller: Caller | None, upload: Upload, keyring: Keyring) -> None:
        """Give a complete upload to its job, or fail the job where it cannot be one's input.

        Done again, it changes nothing.
        """
        if not (upload.has_job and upload.is_complete):
            return
        job = await self._job(upload)
        if job is None or job.state != "uploading":
            return
        assert upload.length is not None
        try:
            await asyncio.to_thread(self._check_start, upload, keyring)
            await self._jobs.received(caller, upload.id, upload.length)
        except BadInput as error:
            await self._jobs.abandon(upload.id, error)

    def _check_start(self, upload: Upload, keyring: Keyring) -> None:
        assert upload.length is not None
        size = min(upload.length, _START_BYTES)
        start = b"".join(self._spool.read(upload.id, keyring, size=size))
        said = header.metadata(self._standing(upload, keyring).metadata or "")
        check_start(start, csv=kind_of(said))

    async def _put(self, upload: Upload) -> Upload:
        await asyncio.to_thread(self._store.put, upload)
        return upload

    async def _settled(self, caller: Caller, upload: bytes, keyring: Keyring) -> Upload:
        """The upload at the offset that its bytes have, which nobody adds to now.

        Whatever ended the last request may have kept it from saying how far it got, and from
        handing over what was complete.
        """
        found = await self.find(caller, upload)
        offset = await asyncio.to_thread(self._offset, found, keyring)
        if offset != found.offset:
            found = await self._put(replace(found, offset=offset))
        await self._hand_over(caller, found, keyring)
        return found

    def _offset(self, upload: Upload, keyring: Keyring) -> int:
        if upload.is_complete or upload.state is State.VERIFYING:
            return upload.offset
        return self._spool.synced(upload.id, keyring, at_least=upload.offset)

    def _standing(self, upload: Upload, keyring: Keyring) -> Standing:
        version = spooling.read_head(upload.note).version
        note = spooling.open_whole(fmt.SPOOL_NOTE, keyring.spool(upload.id, version), upload.note)
        metadata, concat = msgspec.msgpack.decode(note, type=tuple[str, str])
        return Standing(
            kind=upload.kind,
            offset=upload.offset,
            length=upload.length,
            expires=upload.due,
            metadata=metadata or None,
            concat=concat or None,
        )


def kind_of(metadata: Mapping[str, bytes]) -> bool | None:
    """Whether an upload is CSV, and not JSON, by what was said of it; None if nothing was."""
    filetype, filename = (
        metadata.get(name, b"").decode(errors="replace") for name in ("filetype", "filename")
    )
    return is_csv(filetype, filename)

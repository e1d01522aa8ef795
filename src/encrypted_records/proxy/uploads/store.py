"""Resumable uploads as they are stored: their state, in SQLite, and their bytes, in the spool.

The sender's metadata of an upload (its file's name and type) is kept sealed. An upload that has
ended stays in the store for a while, so that its address can report that.

A sealed note contains the headers Upload-Metadata and Upload-Concat as they were sent
(docs/SPEC.md, section 11, kind 3).

A body is written into the spool for one request per upload at a time. While a request sends bytes
to an upload, other requests for it are refused at once. A stalled request, which may be a broken
connection, gives way to the next one. The bytes that it has sent are kept, unless they have a
checksum that can no longer be compared. A thread gets the bytes in large pieces. While it seals,
writes and syncs one piece, the next one arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect

from encrypted_records import runtime
from encrypted_records.crypto import format as fmt
from encrypted_records.crypto import spooling
from encrypted_records.crypto.keys import Keyring
from encrypted_records.errors import BadInput, ChecksumMismatch, ErsError, Locked
from encrypted_records.model import record_formats
from encrypted_records.model.record_formats import Charset, Format
from encrypted_records.proxy.disk import Database
from encrypted_records.proxy.spool import Appending
from encrypted_records.proxy.uploads import tus

_TABLE = """
CREATE TABLE IF NOT EXISTS upload (
    id BLOB PRIMARY KEY,
    owner BLOB NOT NULL,
    kind TEXT NOT NULL,
    length INTEGER,
    offset INTEGER NOT NULL,
    state TEXT NOT NULL,
    expires REAL NOT NULL,
    note BLOB NOT NULL,
    -- SHA-256 of the API token that began it
    began BLOB
) WITHOUT ROWID
"""
_COLUMNS = "id, owner, kind, length, offset, state, expires, note, began"


class UploadState(Enum):
    """``VERIFYING``: the checksum of the bytes after the offset is not compared yet."""

    OPEN = "open"
    VERIFYING = "verifying"
    EXPIRED = "expired"
    TERMINATED = "terminated"

    @property
    def has_ended(self) -> bool:
        return self in (UploadState.EXPIRED, UploadState.TERMINATED)


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload.

    ``id`` is also the id of the job that uses its bytes; partial uploads have no job. ``offset`` is
    the last acknowledged length in bytes, ``expires`` is in seconds since 1970, ``note`` is
    encrypted (docs/SPEC.md, section 11, kind 3). ``began`` is the digest of the API token that
    began it, if one did.
    """

    id: bytes
    owner: bytes
    kind: tus.Kind
    length: int | None
    offset: int
    expires: float
    note: bytes
    state: UploadState = UploadState.OPEN
    began: bytes | None = None

    @property
    def is_complete(self) -> bool:
        return self.offset == self.length

    @property
    def has_job(self) -> bool:
        return self.kind is not tus.Kind.PARTIAL

    @property
    def may_expire(self) -> bool:
        """Whether it has not ended and its bytes are not a job's."""
        return not self.state.has_ended and not (self.has_job and self.is_complete)

    @property
    def due(self) -> float | None:
        """The expiry time in seconds since 1970, if any."""
        return self.expires if self.may_expire else None


class UploadStore:
    """Safe to use from several threads; every change is on disk when its call returns.

    Every method raises OutOfSpace where the disk is full, and Unavailable (``proxy_store_failed``)
    where the file fails otherwise.
    """

    def __init__(self, path: Path) -> None:
        """
        Raises:
            Startup: the file is damaged, or cannot be opened.
        """
        self._database = Database(
            path,
            _TABLE,
            code="proxy_store_failed",
            message="this proxy's list of uploads cannot be read or written",
            loss="unfinished resumable uploads are then forgotten, and their jobs fail: send"
            " those files again",
            later={"upload": {"began": "BLOB"}},
        )

    def put(self, upload: Upload) -> None:
        """Store a new upload, or the new state of a known one."""
        self._database.run(
            f"INSERT OR REPLACE INTO upload ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our own names
            *(upload.id, upload.owner, upload.kind.value, upload.length, upload.offset),
            *(upload.state.value, upload.expires, upload.note, upload.began),
        )

    def get(self, upload: bytes) -> Upload | None:
        uploads = self._select("WHERE id = ?", upload)
        return uploads[0] if uploads else None

    def list_expired(self, now: float) -> list[Upload]:
        """Uploads whose time is over, both open and ended ones."""
        return self._select("WHERE expires < ?", now)

    def sum_owed(self) -> int:
        """The number of bytes that are announced and not yet received."""
        (owed,) = self._database.row(
            "SELECT coalesce(sum(length - offset), 0) FROM upload"
            " WHERE length IS NOT NULL AND state IN ('open', 'verifying')"
        )
        return int(owed)

    def forget(self, upload: bytes) -> None:
        self._database.run("DELETE FROM upload WHERE id = ?", upload)

    def close(self) -> None:
        self._database.close()

    def _select(self, where: str, *values: object) -> list[Upload]:
        rows = self._database.rows(f"SELECT {_COLUMNS} FROM upload {where}", *values)  # noqa: S608 - our own names
        return [
            Upload(
                id=row["id"],
                owner=row["owner"],
                kind=tus.Kind(row["kind"]),
                length=row["length"],
                offset=row["offset"],
                state=UploadState(row["state"]),
                expires=row["expires"],
                note=row["note"],
                began=row["began"],
            )
            for row in rows
        ]


def seal_note(upload: bytes, keyring: Keyring, status: tus.UploadStatus) -> bytes:
    note = msgspec.msgpack.encode([status.metadata or "", status.concat or ""])
    return spooling.seal_whole(fmt.SPOOL_NOTE, keyring.spool(upload), note)


def status_of(upload: Upload, keyring: Keyring) -> tus.UploadStatus:
    """The upload's state, with the headers from its note.

    Raises:
        DoesNotOpen, KeyMissing: the note is altered, or sealed under another keyring version.
    """
    version = spooling.read_head(upload.note).version
    note = spooling.open_whole(fmt.SPOOL_NOTE, keyring.spool(upload.id, version), upload.note)
    metadata, concat = msgspec.msgpack.decode(note, type=tuple[str, str])
    return tus.UploadStatus(
        kind=upload.kind,
        offset=upload.offset,
        length=upload.length,
        expires=upload.due,
        metadata=metadata or None,
        concat=concat or None,
    )


def charset_of(metadata: Mapping[str, bytes]) -> Charset | None:
    """The charset in an upload's metadata, as ``charset`` or in ``filetype``; None for UTF-8, and
    if no charset is declared.

    Raises:
        Unsupported: ``unsupported_charset``: an unsupported charset, or two charsets.
    """
    declared = metadata.get("charset", b"").decode(errors="replace")
    kind = metadata.get("filetype", b"").decode(errors="replace")
    return record_formats.charset_of(f"{kind}; charset={declared}" if declared else kind)


def format_of(metadata: Mapping[str, bytes]) -> Format | None:
    """The format that an upload's metadata names; None if it names none."""
    filetype, filename = (
        metadata.get(name, b"").decode(errors="replace") for name in ("filetype", "filename")
    )
    return Format.of_upload(filetype, filename)


#: A request that has sent nothing for this many seconds gives way to another request.
STALLED_SECONDS = 5.0
#: A request that has sent nothing for this many seconds is ended, even without another request.
IDLE_SECONDS = 60.0
#: Seconds that the other request waits until the received bytes are on disk.
ENDING_SECONDS = 30.0
#: Bytes that are passed to the idle thread at once, and bytes that may wait for the busy thread.
PIECE_BYTES = 1 << 20
MOST_BYTES = 8 << 20


class UploadLock:
    """The lock of one request on one upload; other requests wait if it is ``brief``."""

    def __init__(self, *, brief: bool) -> None:
        self.released = asyncio.Event()
        #: the writer of the body, once it has begun
        self.appending: Appending | None = None
        self._last = runtime.monotonic()
        self._taking: asyncio.Task[Any] | None = None
        self._ending = brief

    def came(self) -> None:
        """Note that bytes have arrived."""
        self._last = runtime.monotonic()

    def idle(self, seconds: float) -> bool:
        return runtime.monotonic() - self._last > seconds

    @property
    def gives_way(self) -> bool:
        """Whether another request may wait for the upload: this request is ending or stalled."""
        return self._ending or self.idle(STALLED_SECONDS)

    def interrupt(self) -> None:
        """Accept no more bytes."""
        if self._taking is not None:
            self._taking.cancel()

    async def take(self, taking: Coroutine[Any, Any, None]) -> bool:
        """Run ``taking``. Returns whether it ended without an interruption."""
        self._taking = asyncio.create_task(taking)  # noqa: TID251 # ends with its request
        try:
            await asyncio.wait([self._taking])
        except asyncio.CancelledError:
            self._taking.cancel()
            raise
        finally:
            self._ending = True
        if self._taking.cancelled():
            return False
        self._taking.result()
        return True


class UploadLocks:
    """The locks of this process, which is the only process that appends."""

    def __init__(self) -> None:
        self._holds: dict[bytes, UploadLock] = {}

    def of(self, upload: bytes) -> UploadLock | None:
        return self._holds.get(upload)

    def interrupt_idle(self) -> None:
        for hold in list(self._holds.values()):
            if hold.idle(IDLE_SECONDS):
                hold.interrupt()

    async def settle(self, upload: bytes, *, force: bool = False) -> None:
        """Wait for a request that gives way, or, with ``force``, for any request.

        Raises:
            Locked: the upload is still in use.
        """
        hold = self._holds.get(upload)
        if hold is None:
            return
        if not (force or hold.gives_way):
            raise _locked()
        hold.interrupt()
        try:
            async with asyncio.timeout(ENDING_SECONDS):
                await hold.released.wait()
        except TimeoutError:
            raise _locked() from None

    @asynccontextmanager
    async def hold(self, upload: bytes, *, brief: bool = False) -> AsyncIterator[UploadLock]:
        """Hold the upload; ``brief`` if no body is expected.

        Raises:
            Locked: another request does, and has not stalled.
        """
        while upload in self._holds:
            await self.settle(upload)
        hold = self._holds[upload] = UploadLock(brief=brief)
        try:
            yield hold
        finally:
            del self._holds[upload]
            hold.released.set()


class Receiver:
    """Threads that only encrypt and write bodies, so that nothing else waits for them."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="receiving")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def receive(
        self,
        hold: UploadLock,
        appending: Appending,
        stream: AsyncIterator[bytes],
        *,
        most: int,
        checksum: tus.Checksum | None,
    ) -> tuple[int, ErsError | None]:
        """Append a body, or the part of it that arrives.

        Args:
            stream: may raise BadInput; then nothing of the body is kept.
            most: if more bytes than that arrive, nothing of the body is kept.

        Returns:
            The upload's offset, which is on disk, and the error that interrupted the body.

        Raises:
            OutOfSpace, Unavailable: the disk cannot store it; the spool records the stored bytes.
        """
        pieces = _Pieces(self._threads, appending, checksum)
        problem: ErsError | None = None
        broken_off = False
        try:
            broken_off = not await hold.take(_fill(pieces, hold, stream, most))
        except ClientDisconnect:
            broken_off = True
        except BadInput as error:
            problem = error
        finally:
            # After this, no thread may still be writing.
            await pieces.hand_over()
            await pieces.wait()
        if broken_off:
            problem = _interrupted()
        elif problem is None and not pieces.match:
            problem = ChecksumMismatch("the body does not match its checksum")
        keep = problem is None or (checksum is None and broken_off)
        end = appending.finish if keep else appending.discard
        return await asyncio.get_running_loop().run_in_executor(self._threads, end), problem


async def _fill(pieces: _Pieces, hold: UploadLock, stream: AsyncIterator[bytes], most: int) -> None:
    async for chunk in stream:
        hold.came()
        most -= len(chunk)
        if most < 0:
            raise tus.beyond_length()
        pieces.put(chunk)
        if pieces.are_due:
            await pieces.hand_over()


class _Pieces:
    """Chunks of a body, collected into pieces; the thread works on one piece at a time."""

    def __init__(
        self, threads: ThreadPoolExecutor, appending: Appending, checksum: tus.Checksum | None
    ) -> None:
        self._threads = threads
        self._appending = appending
        self._checksum = checksum
        self._hasher = checksum.hasher() if checksum else None
        self._chunks: list[bytes] = []
        self._size = 0
        self._writing: asyncio.Future[None] | None = None

    def put(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)

    @property
    def are_due(self) -> bool:
        """Whether the thread waits for more bytes, or must be waited for."""
        is_free = self._writing is None or self._writing.done()
        return self._size >= (PIECE_BYTES if is_free else MOST_BYTES)

    async def hand_over(self) -> None:
        await self.wait()
        chunks, self._chunks, self._size = self._chunks, [], 0
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(self._threads, self._write, chunks)

    async def wait(self) -> None:
        """Wait for the thread."""
        if self._writing is not None:
            # An interruption here does not stop the thread, so a later call must wait for it.
            await asyncio.shield(self._writing)
            self._writing = None

    def _write(self, chunks: list[bytes]) -> None:
        for chunk in chunks:
            if self._hasher is not None:
                self._hasher.update(chunk)
            self._appending.write(chunk)

    @property
    def match(self) -> bool:
        """Whether the written bytes match the checksum, if there is one."""
        if self._checksum is None or self._hasher is None:
            return True
        return self._hasher.digest() == self._checksum.digest


def _locked() -> Locked:
    return Locked("another request is sending bytes to this upload")


def _interrupted() -> BadInput:
    return BadInput(
        "the body ended too early",
        code="upload_interrupted",
        hint="the received part was kept; ask for the offset with HEAD, and continue there",
    )

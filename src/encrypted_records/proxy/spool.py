"""Uploads on disk, sealed: one file each, and no plaintext in any of them at any moment.

Batch jobs and resumable uploads use it alike::

    spool.create(upload, keyring)
    with spool.append(upload, keyring, offset) as appending:
        for chunk in body:
            appending.write(chunk)          # the larger the chunk the better
        offset = appending.finish()         # on disk: acknowledge now
    for plain in spool.read(upload, keyring, size=offset): ...
    spool.delete(upload)

The rules it upholds:

- What ``finish`` or ``synced`` has returned is on disk and stays readable, whatever ends this
  process or the machine.
- ``synced`` never returns more than what is on disk and opens. An append that was cut off may have
  left any number of whole frames; the next one goes on behind the offset that its caller names,
  and what lies beyond is cut off.
- Reading gives exactly the bytes that were written, or raises.

The caller answers for the offset and for the lock: one append to an upload at a time, neither
``synced`` nor ``delete`` meanwhile, and only offsets that this module has returned. Everything here
blocks; asynchronous callers use threads. Memory does not grow with the size of an upload.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import struct
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Protocol

from encrypted_records.crypto import format as fmt
from encrypted_records.crypto import spooling
from encrypted_records.crypto.keys import Keyring, SpoolKey
from encrypted_records.errors import (
    DoesNotOpen,
    ErsError,
    NotFound,
    OutOfSpace,
    Unavailable,
    Unsupported,
)
from encrypted_records.model import ids
from encrypted_records.proxy.durable import sync_folder

log = logging.getLogger(__name__)


class SpoolKeys(Protocol):
    """Gives the key of an upload under a keyring version; a keyring does."""

    def spool(self, upload: bytes, version: int) -> SpoolKey: ...


Buffer = bytes | bytearray | memoryview

#: Bytes written between two syncs. While one goes on, so many more may be written.
SYNC_BYTES = 16 << 20
#: Left free on the disk, for the databases beside the uploads.
KEEP_FREE_BYTES = 256 << 20
#: Smaller pieces are collected to whole frames.
_LARGE_BYTES = 64 << 10
#: What one more frame may need, and the sealed bytes that go to the file in one call.
_ROOM_BYTES = spooling.SESSION_BYTES + spooling.FRAME_OVERHEAD + fmt.SPOOL_FRAME_BYTES
_BATCH_BYTES = 4 * _ROOM_BYTES
#: At the end of a file, the part that may have been written after the last sync.
_DOUBTFUL_BYTES = 2 * (SYNC_BYTES + _BATCH_BYTES)
#: A part of a joined upload: its id, and its length. A list of parts is one frame.
_PART = struct.Struct(">16sQ")
_LIST_BYTES = spooling.HEAD_BYTES + _ROOM_BYTES
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True, slots=True)
class _Extent:
    """What a file holds: plaintext up to ``offset``, sealed up to ``end``, in ``sessions``."""

    offset: int
    end: int
    sessions: int


class Spool:
    """A folder of uploads. Safe to use from several threads, for different uploads."""

    def __init__(self, folder: Path, *, keep_free: int = KEEP_FREE_BYTES) -> None:
        self.folder = folder
        self._keep_free = keep_free
        folder.mkdir(mode=0o700, exist_ok=True)
        #: What is known of files in use, so that not every append reads through its file.
        self._extents: dict[bytes, _Extent] = {}
        self._lock = threading.Lock()

    def require_space(self, size: int) -> None:
        """See whether ``size`` more bytes would fit beside what must stay free.

        Raises:
            OutOfSpace: they would not.
        """
        if shutil.disk_usage(self.folder).free < size + self._keep_free:
            raise OutOfSpace("the disk has no room for this upload")

    def create(self, upload: bytes, keyring: Keyring) -> None:
        """Make the file of an upload, empty, and put it on disk.

        Args:
            upload: a new 16-byte identifier.

        Raises:
            OutOfSpace: not even that fits.
        """
        head = spooling.SpoolHead(fmt.SPOOL_PLAIN, keyring.newest, upload).encode()
        self._create(upload, head)
        self._remember(upload, _Extent(0, len(head), 0))

    def join(self, upload: bytes, keyring: Keyring, parts: Sequence[tuple[bytes, int]]) -> None:
        """Make a new upload of the bytes of others, one after the other, without copying them.

        They can be deleted afterwards: the new upload keeps what it needs.

        Args:
            parts: other uploads that nothing is appended to any more, and how long each is.

        Raises:
            NotFound: one of them is not here.
            OutOfSpace, Unavailable: the disk does not take it.
        """
        with _named_errors():
            for part in {part for part, _ in parts}:
                try:
                    os.link(self._path(part), self._part(upload, part))
                except FileNotFoundError:
                    raise _no_bytes() from None
        listed = b"".join(_PART.pack(*part) for part in parts)
        key = keyring.spool(upload)
        self._create(upload, spooling.seal_whole(fmt.SPOOL_JOINED, key, listed))

    def _create(self, upload: bytes, content: bytes) -> None:
        with _named_errors():
            handle = os.open(self._path(upload), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with FileIO(handle, "w") as file:
                _write(file, memoryview(content))
                os.fsync(handle)
            sync_folder(self.folder)

    def synced(self, upload: bytes, keyring: Keyring, *, at_least: int = 0) -> int:
        """How many bytes of the upload are on disk, after whatever ended the last append.

        Args:
            at_least: what was acknowledged.

        Raises:
            NotFound: there is no such upload.
            DoesNotOpen: ``spool_damaged``: it does not open, or only less of it than that.
            KeyMissing: it is sealed under a keyring version that ``keyring`` lacks.
        """
        extent = self._known(upload)
        if extent is None:
            with self._file(upload) as file:
                key, head = _head_of(file, upload, keyring)
                with _named_errors():
                    os.fsync(file.fileno())
                extent = _survey(file, key, head)
            self._remember(upload, extent)
        if extent.offset < at_least:
            raise _damaged("less of it is left than was acknowledged")
        return extent.offset

    def append(self, upload: bytes, keyring: Keyring, offset: int) -> Appending:
        """Go on at ``offset``, and forget what lies beyond it.

        Args:
            offset: one that ``finish`` or ``synced`` has returned; 0 for a new upload.

        Raises:
            NotFound, DoesNotOpen, KeyMissing: as :meth:`synced`.
        """
        file = self._file(upload)
        try:
            key, head = _head_of(file, upload, keyring)
            start = self._known(upload)
            # Until this append finishes, nobody knows where the file ends.
            self._remember(upload, None)
            if start is None or start.offset != offset:
                start = _survey(file, key, head, up_to=offset)
            if start.offset != offset:
                raise _damaged("no append has ended at this offset")
            with _named_errors():
                file.truncate(start.end)
            file.seek(start.end)
        except BaseException:
            file.close()
            raise
        return Appending(self, upload, file, key, head, start)

    def read(
        self, upload: bytes, keyring: SpoolKeys, *, start: int = 0, size: int
    ) -> Iterator[bytes]:
        """The upload's bytes from ``start`` up to ``size``, in pieces of up to 256 KiB.

        Args:
            size: how long the upload is, as its caller knows. What the file holds beyond that was
                never acknowledged, and is not read.

        Raises:
            NotFound, KeyMissing: as :meth:`synced`; with the first piece.
            DoesNotOpen: ``spool_damaged``: altered, or shorter than ``size``.
            Unavailable: ``spool_failed``: the disk fails.
        """
        parts = self._parts(upload, keyring)
        if parts is None:
            yield from _read(self._file(upload), upload, keyring, start, size)
            return
        for part, length in parts:
            if start < min(length, size):
                file = _open(self._part(upload, part))
                yield from _read(file, part, keyring, start, min(length, size))
            start, size = max(start - length, 0), size - length
        if size > 0:
            raise _damaged("it is shorter than it was")

    def keys(self, upload: bytes, keyring: SpoolKeys) -> list[SpoolKey]:
        """What opens the upload, for a process that is not to hold the keyring.

        Raises:
            NotFound, KeyMissing, DoesNotOpen: as :meth:`read`.
        """
        with self._file(upload) as file, _as_damage():
            found = [_head_of(file, upload, keyring)[0]]
        for part, _ in self._parts(upload, keyring) or ():
            with _open(self._part(upload, part)) as file, _as_damage():
                found.append(_head_of(file, part, keyring)[0])
        return found

    def _parts(self, upload: bytes, keyring: SpoolKeys) -> list[tuple[bytes, int]] | None:
        """Of a joined upload, what it is made of."""
        with self._file(upload) as file:
            key, head = _head_of(file, upload, keyring)
            if spooling.read_head(head).kind != fmt.SPOOL_JOINED:
                return None
            with _named_errors():
                content = os.pread(file.fileno(), _LIST_BYTES, 0)
        with _as_damage():
            listed = spooling.open_whole(fmt.SPOOL_JOINED, key, content)
        return list(_PART.iter_unpack(listed))

    def delete(self, upload: bytes) -> None:
        """Remove the upload's bytes, if there are any."""
        self._remember(upload, None)
        for path in (self._path(upload), *self.folder.glob(f"{ids.to_text(upload)}.*.part")):
            path.unlink(missing_ok=True)
        sync_folder(self.folder)

    def uploads(self) -> list[bytes]:
        """Every upload that has bytes here; one that nobody knows any more is to be deleted."""
        return [ids.from_text(path.stem) for path in self.folder.glob("*.spool")]

    def _known(self, upload: bytes) -> _Extent | None:
        with self._lock:
            return self._extents.get(upload)

    def _remember(self, upload: bytes, extent: _Extent | None) -> None:
        with self._lock:
            if extent is None:
                self._extents.pop(upload, None)
            else:
                self._extents[upload] = extent

    def _path(self, upload: bytes) -> Path:
        return self.folder / f"{ids.to_text(upload)}.spool"

    def _part(self, upload: bytes, part: bytes) -> Path:
        return self.folder / f"{ids.to_text(upload)}.{ids.to_text(part)}.part"

    def _file(self, upload: bytes) -> FileIO:
        return _open(self._path(upload))


class Appending:
    """One append, as a context. Left without ``finish``, it has acknowledged nothing."""

    def __init__(
        self, spool: Spool, upload: bytes, file: FileIO, key: SpoolKey, head: bytes, start: _Extent
    ) -> None:
        self._spool = spool
        self._upload = upload
        self._file = file
        self._key = key
        self._head = head
        self._start = start
        self._written = start
        self._session: spooling.Session | None = None
        self._rest = bytearray()
        self._batch = memoryview(bytearray(_BATCH_BYTES))
        self._filled = 0
        self._unsynced = 0
        self._synced = start.offset
        self._thread: ThreadPoolExecutor | None = None
        #: a sync that goes on, and what will be on disk when it is done
        self._syncing: tuple[Future[None], int] | None = None

    def __enter__(self) -> Appending:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._thread.shutdown()
        self._file.close()

    @property
    def synced(self) -> int:
        """How much of the upload is on disk so far; another thread may ask."""
        return self._synced

    def write(self, data: Buffer) -> None:
        """Take more bytes. They are on disk after ``finish``, or when much has come after them.

        Raises:
            OutOfSpace: the disk is full; ``synced`` tells what is left.
            Unavailable: ``spool_failed``: the disk fails otherwise.
        """
        view = memoryview(data)
        if self._rest:
            missing = fmt.SPOOL_FRAME_BYTES - len(self._rest)
            self._rest += view[:missing]
            view = view[missing:]
            if len(self._rest) < fmt.SPOOL_FRAME_BYTES:
                return
            self._seal_rest()
        if len(view) < _LARGE_BYTES:
            self._rest += view
            return
        # Straight from where it is: what comes in large pieces need not be copied together.
        frames = -(-len(view) // fmt.SPOOL_FRAME_BYTES)
        for number in range(frames):
            begin, end = (len(view) * one // frames for one in (number, number + 1))
            self._seal(view[begin:end])

    def finish(self) -> int:
        """Put everything on disk; the offset that may now be acknowledged.

        Raises:
            OutOfSpace, Unavailable: as :meth:`write`.
        """
        if self._rest:
            self._seal_rest()
        self._flush()
        self._sync()
        self._await_sync()
        self._spool._remember(self._upload, self._written)
        return self._written.offset

    def discard(self) -> int:
        """Forget what was written; the offset where the upload is again, durably.

        Raises:
            Unavailable: as :meth:`write`.
        """
        self._await_sync()
        with _named_errors():
            self._file.truncate(self._start.end)
            os.fsync(self._file.fileno())
        self._written = self._start
        self._synced = self._start.offset
        self._spool._remember(self._upload, self._start)
        return self._start.offset

    def _seal_rest(self) -> None:
        self._seal(self._rest)
        self._rest = bytearray()

    def _seal(self, plain: Buffer) -> None:
        if len(self._batch) - self._filled < _ROOM_BYTES:
            self._flush()
        if self._session is None or self._session.is_full:
            number = self._written.sessions if self._session is None else self._session.number + 1
            offset = self._written.offset if self._session is None else self._session.offset
            self._session = spooling.Session(self._key, self._head, number, offset)
            self._put(self._session.encode())
        self._filled += self._session.seal_into(plain, self._batch[self._filled :])

    def _put(self, data: bytes) -> None:
        self._batch[self._filled : self._filled + len(data)] = data
        self._filled += len(data)

    def _flush(self) -> None:
        """Write what is sealed, all of it or nothing."""
        if not self._filled:
            return
        assert self._session is not None
        try:
            with _named_errors():
                _write(self._file, self._batch[: self._filled])
        except ErsError:
            # Half a frame would be cut off later anyway, but a full disk can use the room now.
            self._file.truncate(self._written.end)
            raise
        end = self._written.end + self._filled
        self._written = _Extent(self._session.offset, end, self._session.number + 1)
        self._unsynced += self._filled
        self._filled = 0
        if self._unsynced >= SYNC_BYTES:
            self._sync()
            self._spool.require_space(0)

    def _sync(self) -> None:
        """Begin to put on disk what was written, when the sync before is done.

        Writing goes on meanwhile, or a disk that is slow to sync would have nothing to do but that.
        """
        self._await_sync()
        if self._unsynced:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="syncing")
            syncing = self._thread.submit(os.fsync, self._file.fileno())
            self._syncing, self._unsynced = (syncing, self._written.offset), 0

    def _await_sync(self) -> None:
        if self._syncing is not None:
            (syncing, offset), self._syncing = self._syncing, None
            with _named_errors():
                syncing.result()
            self._synced = offset


def _open(path: Path) -> FileIO:
    try:
        return FileIO(path, "r+")
    except FileNotFoundError:
        raise _no_bytes() from None


def _no_bytes() -> NotFound:
    return NotFound("the bytes of this upload are no longer here")


def _read(
    file: FileIO, upload: bytes, keyring: SpoolKeys, start: int, size: int
) -> Iterator[bytes]:
    """The bytes from ``start`` up to ``size`` of a file, which is closed then."""
    reached = start
    with file, _as_damage(), _named_errors():
        key, head = _head_of(file, upload, keyring)
        for session, place, length in _frames(file, key, head):
            begin = session.offset
            if begin >= size:
                break
            if begin + length <= start:
                session.skip(length)
                continue
            plain = session.open(_bytes_at(file, place, length + spooling.TAG_BYTES))
            yield plain[max(start - begin, 0) : size - begin]
            reached = session.offset
    if reached < size:
        raise _damaged("it is shorter than it was")


def _head_of(file: FileIO, upload: bytes, keyring: SpoolKeys) -> tuple[SpoolKey, bytes]:
    data = os.pread(file.fileno(), spooling.HEAD_BYTES, 0)
    with _as_damage():
        head = spooling.read_head(data)
    if head.upload != upload:
        raise _damaged("it is the file of another upload")
    return keyring.spool(upload, head.version), data


def _frames(
    file: FileIO, key: SpoolKey, head: bytes
) -> Iterator[tuple[spooling.Session, int, int]]:
    """Every frame as its session, the place of its ciphertext, and the length of its plaintext.

    The caller opens or skips each in its session before it asks for the next.

    Raises:
        DoesNotOpen: something else than a session or a frame begins where one should.
    """
    handle, place, session = file.fileno(), spooling.HEAD_BYTES, None
    while begin := os.pread(handle, spooling.FRAME_HEAD_BYTES, place):
        if begin[0] == fmt.SPOOL_SESSION:
            salt = _bytes_at(file, place + 1, fmt.SPOOL_SALT_BYTES)
            number, offset = (session.number + 1, session.offset) if session else (0, 0)
            session = spooling.Session(key, head, number, offset, salt)
            place += spooling.SESSION_BYTES
            continue
        length = spooling.frame_size(begin)
        if session is None or session.is_full:
            raise DoesNotOpen("a frame belongs to no session")
        place += spooling.FRAME_HEAD_BYTES
        yield session, place, length
        place += length + spooling.TAG_BYTES


def _survey(file: FileIO, key: SpoolKey, head: bytes, *, up_to: int | None = None) -> _Extent:
    """What is whole of a file, up to the plaintext offset ``up_to``.

    Whatever was written before the last sync is on disk, so that only the end need be opened.
    """
    size = os.fstat(file.fileno()).st_size
    extent = _Extent(0, spooling.HEAD_BYTES, 0)
    try:
        for session, place, length in _frames(file, key, head):
            if extent.offset == up_to:
                break
            end = place + length + spooling.TAG_BYTES
            if size - end < _DOUBTFUL_BYTES:
                session.open(_bytes_at(file, place, end - place))
            else:
                session.skip(length)
            extent = _Extent(session.offset, end, session.number + 1)
    except DoesNotOpen:
        log.info("the end of an upload's file is of an append that was cut off")
    return extent


def _bytes_at(file: FileIO, place: int, size: int) -> bytes:
    data = os.pread(file.fileno(), size, place)
    if len(data) < size:
        raise DoesNotOpen("a spool file is cut short")
    return data


def _write(file: FileIO, data: memoryview) -> None:
    while data:
        data = data[file.write(data) :]


def _damaged(what: str) -> DoesNotOpen:
    return DoesNotOpen(
        f"the stored bytes of this upload are damaged: {what}",
        code="spool_damaged",
        hint="delete the upload and send the file again",
    )


@contextmanager
def _as_damage() -> Iterator[None]:
    try:
        yield
    except (DoesNotOpen, Unsupported) as error:
        raise _damaged(error.message) from None


@contextmanager
def _named_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise OutOfSpace("the disk is full") from None
        raise Unavailable(
            f"the disk fails under the upload: {(error.strerror or 'it fails').lower()}",
            code="spool_failed",
            hint="look at the disk that holds the proxy's data folder",
        ) from None

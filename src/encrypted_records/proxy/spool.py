"""Uploads that have not become records yet, encrypted: one file each, never with plaintext.

Batch jobs and resumable uploads use it in the same way::

    spool.create(upload, keyring)
    with spool.append(upload, keyring, offset) as appending:
        for chunk in body:
            appending.write(chunk)          # the larger the chunk the better
        offset = appending.finish()         # on disk: acknowledge now
    for plain in spool.read(upload, keyring, size=offset): ...
    spool.delete(upload)

Invariants:

- The bytes up to the offset from ``finish`` or ``synced`` are on disk and stay readable, even if
  this process or the machine stops.
- ``synced`` never returns more than the bytes that are on disk and decrypt. An interrupted append
  may have left any number of whole frames. The next append begins at its caller's offset, and later
  bytes are truncated.
- Reading returns exactly the written bytes, or raises.

The caller is responsible for the offset and the lock: one append to an upload at a time, neither
``synced`` nor ``delete`` meanwhile, and only offsets that this module has returned. All functions
block; asynchronous callers use threads. Memory use does not grow with the size of an upload.
"""

from __future__ import annotations

import logging
import os
import shutil
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Protocol

from encrypted_records.crypto import format as fmt
from encrypted_records.crypto import spooling
from encrypted_records.crypto.keys import Keyring, SpoolKey
from encrypted_records.errors import DoesNotOpen, ErsError, NotFound, OutOfSpace, Unsupported
from encrypted_records.model import ids
from encrypted_records.proxy.disk import NamelessFile, disk_errors, sync_folder

log = logging.getLogger(__name__)


class SpoolKeys(Protocol):
    """Returns the key of an upload under a keyring version; a keyring implements it."""

    def spool(self, upload: bytes, version: int) -> SpoolKey: ...


@dataclass(frozen=True, slots=True)
class Extent:
    """The extent of a file: plaintext up to ``offset``, ciphertext up to ``end``, in
    ``sessions``.
    """

    offset: int
    end: int
    sessions: int


def _open_file(path: Path) -> FileIO:
    try:
        return FileIO(path, "r+")
    except FileNotFoundError:
        raise _no_bytes() from None


def _no_bytes() -> NotFound:
    return NotFound("the bytes of this upload are no longer here")


def _head_of(file: FileIO, upload: bytes, keyring: SpoolKeys) -> tuple[SpoolKey, bytes]:
    data = os.pread(file.fileno(), spooling.HEAD_BYTES, 0)
    with _as_damage():
        head = spooling.read_head(data)
    if head.upload != upload:
        raise damaged("it is the file of another upload")
    return keyring.spool(upload, head.version), data


def _write_all(file: FileIO, data: memoryview) -> None:
    while data:
        data = data[file.write(data) :]


def damaged(detail: str) -> DoesNotOpen:
    return DoesNotOpen(
        f"the stored bytes of this upload are damaged: {detail}",
        code="spool_damaged",
        hint="delete the upload and send the file again",
    )


@contextmanager
def _as_damage() -> Iterator[None]:
    try:
        yield
    except (DoesNotOpen, Unsupported) as error:
        raise damaged(error.message) from None


def _name_errors() -> AbstractContextManager[None]:
    """Convert disk errors to named errors."""
    return disk_errors("the disk failed under the upload", code="spool_failed")


# Appending: seal, write, and sync at the same time. Bytes count only when they are on disk. Writing
# continues during a sync, so that the network does not wait for a disk that is slow to sync.

_Buffer = bytes | bytearray | memoryview

#: Bytes written between two syncs. During a sync, as many more may be written.
_SYNC_BYTES = 16 << 20
#: Smaller pieces are collected into whole frames.
_LARGE_BYTES = 64 << 10
#: Maximum bytes of one more frame; the constant below is the encrypted size of one write to the
#: file.
_ROOM_BYTES = spooling.SESSION_BYTES + spooling.FRAME_OVERHEAD + fmt.SPOOL_FRAME_BYTES
_BATCH_BYTES = 4 * _ROOM_BYTES
#: At the end of a file, the part that may have been written after the last sync.
_DOUBTFUL_BYTES = 2 * (_SYNC_BYTES + _BATCH_BYTES)


class Appending:
    """One append, as a context manager. Without ``finish``, it has acknowledged nothing."""

    def __init__(
        self,
        file: FileIO,
        key: SpoolKey,
        head: bytes,
        start: Extent,
        *,
        ended: Callable[[Extent], None],
        require_space: Callable[[int], None],
    ) -> None:
        """Continue in ``file``, which is at the end of ``start`` and is closed with this.

        Args:
            ended: called with the extent of the file when all of it is on disk.
            require_space: raises if the disk has no space for the given number of bytes.
        """
        self._ended = ended
        self._require_space = require_space
        self._file = file
        self._key = key
        self._head = head
        self._start = start
        self._written = start
        self._session: spooling.SpoolSession | None = None
        self._unsealed = bytearray()
        self._batch = memoryview(bytearray(_BATCH_BYTES))
        self._filled = 0
        self._unsynced = 0
        self._synced = start.offset
        self._thread: ThreadPoolExecutor | None = None
        #: a running sync, and the offset that will be on disk when it ends
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
        """The size of the upload that is on disk so far; other threads may read it."""
        return self._synced

    def write(self, data: _Buffer) -> None:
        """Take more bytes. They are on disk after ``finish``, or once much more data has followed.

        Raises:
            OutOfSpace: the disk is full; the bytes up to ``synced`` are kept.
            Unavailable: ``spool_failed``: the disk fails otherwise.
        """
        view = memoryview(data)
        if self._unsealed:
            missing = fmt.SPOOL_FRAME_BYTES - len(self._unsealed)
            self._unsealed += view[:missing]
            view = view[missing:]
            if len(self._unsealed) < fmt.SPOOL_FRAME_BYTES:
                return
            self._seal_unsealed()
        if len(view) < _LARGE_BYTES:
            self._unsealed += view
            return
        # Encrypted in place: large pieces need not be copied together.
        frames = -(-len(view) // fmt.SPOOL_FRAME_BYTES)
        for number in range(frames):
            begin, end = (len(view) * edge // frames for edge in (number, number + 1))
            self._seal(view[begin:end])

    def finish(self) -> int:
        """Put everything on disk; returns the offset that may now be acknowledged.

        Raises:
            OutOfSpace, Unavailable: as :meth:`write`.
        """
        if self._unsealed:
            self._seal_unsealed()
        self._flush()
        self._sync()
        self._await_sync()
        self._ended(self._written)
        return self._written.offset

    def discard(self) -> int:
        """Discard the written bytes; returns the durable offset of the upload.

        Raises:
            Unavailable: as :meth:`write`.
        """
        self._await_sync()
        with _name_errors():
            self._file.truncate(self._start.end)
            os.fsync(self._file.fileno())
        self._written = self._start
        self._synced = self._start.offset
        self._ended(self._start)
        return self._start.offset

    def _seal_unsealed(self) -> None:
        self._seal(self._unsealed)
        self._unsealed = bytearray()

    def _seal(self, plain: _Buffer) -> None:
        if len(self._batch) - self._filled < _ROOM_BYTES:
            self._flush()
        if self._session is None or self._session.is_full:
            number = self._written.sessions if self._session is None else self._session.number + 1
            offset = self._written.offset if self._session is None else self._session.offset
            self._session = spooling.SpoolSession(self._key, self._head, number, offset)
            self._put(self._session.encode())
        self._filled += self._session.seal_into(plain, self._batch[self._filled :])

    def _put(self, data: bytes) -> None:
        self._batch[self._filled : self._filled + len(data)] = data
        self._filled += len(data)

    def _flush(self) -> None:
        """Write the encrypted frames, all or nothing."""
        if not self._filled:
            return
        assert self._session is not None
        try:
            with _name_errors():
                _write_all(self._file, self._batch[: self._filled])
        except ErsError:
            # Half a frame would be cut off later anyway, but a full disk needs the space now.
            self._file.truncate(self._written.end)
            raise
        end = self._written.end + self._filled
        self._written = Extent(self._session.offset, end, self._session.number + 1)
        self._unsynced += self._filled
        self._filled = 0
        if self._unsynced >= _SYNC_BYTES:
            self._sync()
            self._require_space(0)

    def _sync(self) -> None:
        """Begin to sync the written bytes, after the previous sync has ended.

        Writing continues meanwhile, so that a slow sync does not stop it.
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
            with _name_errors():
                syncing.result()
            self._synced = offset


#: Bytes that stay free on the disk, for the databases on the same disk.
KEEP_FREE_BYTES = 256 << 20
#: A part of a joined upload: its id, and its length. A list of parts is one frame.
_PART = struct.Struct(">16sQ")
_LIST_BYTES = spooling.HEAD_BYTES + _ROOM_BYTES


class Spool:
    """A folder of uploads. Safe to use from several threads, for different uploads."""

    def __init__(
        self, folder: Path, *, keep_free: int = KEEP_FREE_BYTES, doubtful: int = _DOUBTFUL_BYTES
    ) -> None:
        """
        Args:
            keep_free: bytes that stay free on the disk.
            doubtful: bytes at the end of a file that are decrypted and checked after a restart.
        """
        self.folder = folder
        self._keep_free = keep_free
        self._doubtful = doubtful
        folder.mkdir(mode=0o700, exist_ok=True)
        #: The extents of files in use, so that not every append reads through its file.
        self._extents: dict[bytes, Extent] = {}
        self._lock = threading.Lock()

    def require_space(self, size: int) -> None:
        """Check that ``size`` more bytes would fit, with enough space left free.

        Raises:
            OutOfSpace: they would not.
        """
        free = shutil.disk_usage(self.folder).free
        if free < size + self._keep_free:
            lacking = -(-(size + self._keep_free - free) // (1 << 20))
            raise OutOfSpace(
                f"the disk has no space for this upload: it needs {lacking:,} MiB more, because"
                f" {self._keep_free >> 20} MiB stay free"
            )

    def scratch(self, work: str) -> NamelessFile:
        """A file without a name, for encrypted data; it disappears with its work or this process.

        Args:
            work: its purpose, for errors.
        """
        return NamelessFile(self.folder, self._keep_free, work)

    def create(self, upload: bytes, keyring: Keyring) -> None:
        """Make the file of an upload, empty, and put it on disk.

        Args:
            upload: a new 16-byte identifier.

        Raises:
            OutOfSpace: the disk is full.
        """
        head = spooling.SpoolHead(fmt.SPOOL_PLAIN, keyring.newest, upload).encode()
        self._create(upload, head)
        self._remember(upload, Extent(0, len(head), 0))

    def join(self, upload: bytes, keyring: Keyring, parts: Sequence[tuple[bytes, int]]) -> None:
        """Make a new upload by concatenating others, without copying their bytes.

        The others can be deleted afterwards: the new upload keeps the bytes that it needs.

        Args:
            parts: uploads that are no longer appended to, and their lengths in bytes.

        Raises:
            NotFound: an upload does not exist.
            OutOfSpace, Unavailable: the disk cannot store it.
        """
        with _name_errors():
            for part in {part for part, _ in parts}:
                try:
                    os.link(self._path(part), self._part(upload, part))
                except FileNotFoundError:
                    raise _no_bytes() from None
        listed = b"".join(_PART.pack(*part) for part in parts)
        key = keyring.spool(upload)
        self._create(upload, spooling.seal_whole(fmt.SPOOL_JOINED, key, listed))

    def _create(self, upload: bytes, content: bytes) -> None:
        with _name_errors():
            handle = os.open(self._path(upload), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with FileIO(handle, "w") as file:
                _write_all(file, memoryview(content))
                os.fsync(handle)
            sync_folder(self.folder)

    def measure(self, upload: bytes, keyring: Keyring, *, at_least: int = 0) -> int:
        """The number of bytes of the upload on disk, even if the last append was cut off.

        Args:
            at_least: the acknowledged length.

        Raises:
            NotFound: there is no such upload.
            DoesNotOpen: ``spool_damaged``: it does not decrypt, or less than that length does.
            KeyMissing: it is encrypted under a keyring version that ``keyring`` lacks.
        """
        extent = self._known(upload)
        if extent is None:
            with self._file(upload) as file:
                key, head = _head_of(file, upload, keyring)
                with _name_errors():
                    os.fsync(file.fileno())
                extent = _survey(file, key, head, doubtful=self._doubtful)
            self._remember(upload, extent)
        if extent.offset < at_least:
            raise damaged("it is shorter than the acknowledged length")
        return extent.offset

    def append(self, upload: bytes, keyring: Keyring, offset: int) -> Appending:
        """Continue at ``offset``, and cut off later bytes.

        Args:
            offset: an offset that ``finish`` or ``synced`` has returned; 0 for a new upload.

        Raises:
            NotFound, DoesNotOpen, KeyMissing: as :meth:`measure`.
        """
        file = self._file(upload)
        try:
            key, head = _head_of(file, upload, keyring)
            start = self._known(upload)
            # The end of the file is unknown until this append finishes.
            self._remember(upload, None)
            if start is None or start.offset != offset:
                start = _survey(file, key, head, doubtful=self._doubtful, up_to=offset)
            if start.offset != offset:
                raise damaged("no append has ended at this offset")
            with _name_errors():
                file.truncate(start.end)
            file.seek(start.end)
        except BaseException:
            file.close()
            raise
        return Appending(
            file,
            key,
            head,
            start,
            ended=partial(self._remember, upload),
            require_space=self.require_space,
        )

    def read(
        self, upload: bytes, keyring: SpoolKeys, *, start: int = 0, size: int
    ) -> Iterator[bytes]:
        """The upload's bytes from ``start`` up to ``size``, in pieces of up to 256 KiB.

        Args:
            size: the length of the upload, which the caller knows. Bytes of the file beyond that
                were never acknowledged, and are not read.

        Raises:
            NotFound, KeyMissing: as :meth:`measure`; with the first piece.
            DoesNotOpen: ``spool_damaged``: altered, or shorter than ``size``.
            Unavailable: ``spool_failed``: the disk fails.
        """
        parts = self._parts(upload, keyring)
        if parts is None:
            yield from _read_file(self._file(upload), upload, keyring, start, size)
            return
        for part, length in parts:
            if start < min(length, size):
                file = _open_file(self._part(upload, part))
                yield from _read_file(file, part, keyring, start, min(length, size))
            start, size = max(start - length, 0), size - length
        if size > 0:
            raise damaged("it is shorter than it was")

    def keys(self, upload: bytes, keyring: SpoolKeys) -> list[SpoolKey]:
        """The keys that open the upload, for a process that has no keyring.

        Raises:
            NotFound, KeyMissing, DoesNotOpen: as :meth:`read`.
        """
        with self._file(upload) as file, _as_damage():
            keys = [_head_of(file, upload, keyring)[0]]
        for part, _ in self._parts(upload, keyring) or ():
            with _open_file(self._part(upload, part)) as file, _as_damage():
                keys.append(_head_of(file, part, keyring)[0])
        return keys

    def _parts(self, upload: bytes, keyring: SpoolKeys) -> list[tuple[bytes, int]] | None:
        """The parts of a joined upload; None for others."""
        with self._file(upload) as file:
            key, head = _head_of(file, upload, keyring)
            if spooling.read_head(head).kind != fmt.SPOOL_JOINED:
                return None
            with _name_errors():
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
        """All uploads with bytes here; the caller deletes unknown ones."""
        return [ids.from_text(path.stem) for path in self.folder.glob("*.spool")]

    def _known(self, upload: bytes) -> Extent | None:
        with self._lock:
            return self._extents.get(upload)

    def _remember(self, upload: bytes, extent: Extent | None) -> None:
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
        return _open_file(self._path(upload))


# Reading: frame by frame; after a crash, only the part that may be damaged is opened.


def _read_file(
    file: FileIO, upload: bytes, keyring: SpoolKeys, start: int, size: int
) -> Iterator[bytes]:
    """The bytes from ``start`` up to ``size`` of a file, which is closed then."""
    reached = start
    with file, _as_damage(), _name_errors():
        key, head = _head_of(file, upload, keyring)
        for session, position, length in _frames(file, key, head):
            begin = session.offset
            if begin >= size:
                break
            if begin + length <= start:
                session.skip(length)
                continue
            plain = session.open(_bytes_at(file, position, length + spooling.TAG_BYTES))
            yield plain[max(start - begin, 0) : size - begin]
            reached = session.offset
    if reached < size:
        raise damaged("it is shorter than it was")


def _frames(
    file: FileIO, key: SpoolKey, head: bytes
) -> Iterator[tuple[spooling.SpoolSession, int, int]]:
    """Every frame as its session, the position of its ciphertext, and the length of its plaintext.

    The caller decrypts or skips each frame in its session before it requests the next.

    Raises:
        DoesNotOpen: a session or a frame does not begin at its position.
    """
    handle, position, session = file.fileno(), spooling.HEAD_BYTES, None
    while begin := os.pread(handle, spooling.FRAME_HEAD_BYTES, position):
        if begin[0] == fmt.SPOOL_SESSION:
            salt = _bytes_at(file, position + 1, fmt.SPOOL_SALT_BYTES)
            number, offset = (session.number + 1, session.offset) if session else (0, 0)
            session = spooling.SpoolSession(key, head, number, offset, salt)
            position += spooling.SESSION_BYTES
            continue
        length = spooling.frame_size(begin)
        if session is None or session.is_full:
            raise DoesNotOpen("a frame belongs to no session")
        position += spooling.FRAME_HEAD_BYTES
        yield session, position, length
        position += length + spooling.TAG_BYTES


def _survey(
    file: FileIO, key: SpoolKey, head: bytes, *, doubtful: int, up_to: int | None = None
) -> Extent:
    """The complete frames of a file, up to the plaintext offset ``up_to``.

    All bytes from before the last sync are on disk, so only the last ``doubtful`` bytes need to be
    opened.
    """
    size = os.fstat(file.fileno()).st_size
    extent = Extent(0, spooling.HEAD_BYTES, 0)
    try:
        for session, position, length in _frames(file, key, head):
            if extent.offset == up_to:
                break
            end = position + length + spooling.TAG_BYTES
            if size - end < doubtful:
                session.open(_bytes_at(file, position, end - position))
            else:
                session.skip(length)
            extent = Extent(session.offset, end, session.number + 1)
    except DoesNotOpen:
        log.info("the end of an upload's file was not written completely")
    return extent


def _bytes_at(file: FileIO, position: int, size: int) -> bytes:
    data = os.pread(file.fileno(), size, position)
    if len(data) < size:
        raise DoesNotOpen("a spool file is truncated")
    return data

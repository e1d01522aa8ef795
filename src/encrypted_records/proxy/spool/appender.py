"""Add to a spool file: seal, write, and sync at the same time.

Bytes count only when they are on disk. Writing continues during a sync, so that the network does
not wait for a disk that is slow to sync.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from io import FileIO
from types import TracebackType

from encrypted_records.crypto import format as fmt
from encrypted_records.crypto import spooling
from encrypted_records.crypto.keys import SpoolKey
from encrypted_records.errors import ErsError
from encrypted_records.proxy.spool.files import Extent, name_errors, write_all

Buffer = bytes | bytearray | memoryview

#: Bytes written between two syncs. During a sync, so many more may be written.
SYNC_BYTES = 16 << 20
#: Smaller pieces are collected to whole frames.
_LARGE_BYTES = 64 << 10
#: The bytes that one more frame may need; below, the sealed bytes of one write to the file.
ROOM_BYTES = spooling.SESSION_BYTES + spooling.FRAME_OVERHEAD + fmt.SPOOL_FRAME_BYTES
_BATCH_BYTES = 4 * ROOM_BYTES
#: At the end of a file, the part that may have been written after the last sync.
DOUBTFUL_BYTES = 2 * (SYNC_BYTES + _BATCH_BYTES)


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
        self._rest = bytearray()
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

    def write(self, data: Buffer) -> None:
        """Take more bytes. They are on disk after ``finish``, or when much has come after them.

        Raises:
            OutOfSpace: the disk is full; ``synced`` is what is kept.
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
        # Sealed from where it is: large pieces need not be copied together.
        frames = -(-len(view) // fmt.SPOOL_FRAME_BYTES)
        for number in range(frames):
            begin, end = (len(view) * edge // frames for edge in (number, number + 1))
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
        self._ended(self._written)
        return self._written.offset

    def discard(self) -> int:
        """Forget what was written; the offset where the upload is again, durably.

        Raises:
            Unavailable: as :meth:`write`.
        """
        self._await_sync()
        with name_errors():
            self._file.truncate(self._start.end)
            os.fsync(self._file.fileno())
        self._written = self._start
        self._synced = self._start.offset
        self._ended(self._start)
        return self._start.offset

    def _seal_rest(self) -> None:
        self._seal(self._rest)
        self._rest = bytearray()

    def _seal(self, plain: Buffer) -> None:
        if len(self._batch) - self._filled < ROOM_BYTES:
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
        """Write what is sealed, all of it or nothing."""
        if not self._filled:
            return
        assert self._session is not None
        try:
            with name_errors():
                write_all(self._file, self._batch[: self._filled])
        except ErsError:
            # Half a frame would be cut off later anyway, but a full disk needs the space now.
            self._file.truncate(self._written.end)
            raise
        end = self._written.end + self._filled
        self._written = Extent(self._session.offset, end, self._session.number + 1)
        self._unsynced += self._filled
        self._filled = 0
        if self._unsynced >= SYNC_BYTES:
            self._sync()
            self._require_space(0)

    def _sync(self) -> None:
        """Begin to put on disk what was written, when the sync before is done.

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
            with name_errors():
                syncing.result()
            self._synced = offset

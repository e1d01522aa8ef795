"""Write a body into the spool, for one request per upload at a time.

While a request sends bytes to an upload, other requests for it are refused at once. A stalled
request, which may be a broken connection, gives way to the next one. The bytes that it has sent are
kept, unless they have a checksum that can no longer be compared.

A thread gets the bytes in large pieces. While it seals, writes and syncs one piece, the next one
arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import ClientDisconnect

from encrypted_records import runtime
from encrypted_records.errors import BadInput, ChecksumMismatch, ErsError, Locked
from encrypted_records.proxy.spool import Appending
from encrypted_records.proxy.uploads import tus
from encrypted_records.proxy.uploads.tus import Checksum

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
        checksum: Checksum | None,
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
        self, threads: ThreadPoolExecutor, appending: Appending, checksum: Checksum | None
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

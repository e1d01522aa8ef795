"""Take a body into the spool, and see to it that one request at a time does so.

A request that holds an upload keeps others out, at once, for as long as bytes keep coming. One that
has stalled, which is what a broken connection looks like from here, gives way to the next. What
it had received is kept, unless there is a checksum that nobody will compare any more.

Bytes are handed to a thread in large pieces; while it seals, writes and syncs one, the next comes
in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import ClientDisconnect

from encrypted_records.errors import BadInput, ChecksumMismatch, ErsError, Locked, TooLarge
from encrypted_records.proxy.appending import Appending
from encrypted_records.proxy.tus import protocol
from encrypted_records.proxy.tus.headers import Checksum

#: A request that has brought nothing for so long gives way to another.
STALLED_SECONDS = 5.0
#: And for so long, it ends by itself.
IDLE_SECONDS = 60.0
#: How long another waits for it to put on disk what it has.
ENDING_SECONDS = 30.0
#: What goes to the thread at once, when it has nothing to do, and what may wait for it.
PIECE_BYTES = 1 << 20
MOST_BYTES = 8 << 20


class Hold:
    """One request's hold on one upload; a ``brief`` one is worth waiting for."""

    def __init__(self, *, brief: bool) -> None:
        self.released = asyncio.Event()
        #: what the body goes to, once it does
        self.appending: Appending | None = None
        self._last = time.monotonic()
        self._taking: asyncio.Task[Any] | None = None
        self._ending = brief

    def came(self) -> None:
        """Bytes have come in."""
        self._last = time.monotonic()

    def idle(self, seconds: float) -> bool:
        return time.monotonic() - self._last > seconds

    @property
    def gives_way(self) -> bool:
        """Whether another request may wait for the upload, since this one is over or stalled."""
        return self._ending or self.idle(STALLED_SECONDS)

    def interrupt(self) -> None:
        """Take no more bytes."""
        if self._taking is not None:
            self._taking.cancel()

    async def take(self, taking: Coroutine[Any, Any, None]) -> bool:
        """Run ``taking``; whether it came to its end, and was not interrupted."""
        self._taking = asyncio.create_task(taking)
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


class Holds:
    """Who holds which upload, in this process, which is the only one that appends."""

    def __init__(self) -> None:
        self._holds: dict[bytes, Hold] = {}

    def of(self, upload: bytes) -> Hold | None:
        return self._holds.get(upload)

    def interrupt_idle(self) -> None:
        for hold in list(self._holds.values()):
            if hold.idle(IDLE_SECONDS):
                hold.interrupt()

    async def settle(self, upload: bytes, *, force: bool = False) -> None:
        """Wait for a request that gives way, or, with ``force``, for whichever has the upload.

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
    async def hold(self, upload: bytes, *, brief: bool = False) -> AsyncIterator[Hold]:
        """Hold the upload, briefly where no body is waited for.

        Raises:
            Locked: another request does, and has not stalled.
        """
        while upload in self._holds:
            await self.settle(upload)
        hold = self._holds[upload] = Hold(brief=brief)
        try:
            yield hold
        finally:
            del self._holds[upload]
            hold.released.set()


class Receiver:
    """Threads that seal and write, apart from those that others wait for."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="receiving")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def receive(
        self,
        hold: Hold,
        appending: Appending,
        stream: AsyncIterator[bytes],
        *,
        room: int,
        checksum: Checksum | None,
    ) -> tuple[int, ErsError | None]:
        """Append a body, or as much of it as comes.

        Args:
            room: if more bytes than that come, nothing of the body is kept.

        Returns:
            The upload's offset, which is on disk, and what stood in the way of the whole body.

        Raises:
            OutOfSpace, Unavailable: the disk does not take it; the spool knows how far it got.
        """
        pieces = _Pieces(self._threads, appending, checksum)
        problem: ErsError | None = None
        try:
            if not await hold.take(_fill(pieces, hold, stream, room)):
                problem = _interrupted()
        except ClientDisconnect:
            problem = _interrupted()
        except TooLarge as error:
            problem = error
        finally:
            # No thread may be writing any more, whatever comes next.
            await pieces.hand_over()
            await pieces.written()
        if problem is None and not pieces.match:
            problem = ChecksumMismatch("the body is not what its checksum says")
        keep = problem is None or (checksum is None and not isinstance(problem, TooLarge))
        end = appending.finish if keep else appending.discard
        return await asyncio.get_running_loop().run_in_executor(self._threads, end), problem


async def _fill(pieces: _Pieces, hold: Hold, stream: AsyncIterator[bytes], room: int) -> None:
    async for chunk in stream:
        hold.came()
        room -= len(chunk)
        if room < 0:
            raise protocol.beyond_length()
        pieces.put(chunk)
        if pieces.are_due:
            await pieces.hand_over()


class _Pieces:
    """Chunks of a body, collected into pieces for the thread, one of which it works on."""

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
        """Whether the thread waits for more, or must be waited for."""
        is_free = self._writing is None or self._writing.done()
        return self._size >= (PIECE_BYTES if is_free else MOST_BYTES)

    async def hand_over(self) -> None:
        await self.written()
        chunks, self._chunks, self._size = self._chunks, [], 0
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(self._threads, self._write, chunks)

    async def written(self) -> None:
        """Wait for the thread."""
        if self._writing is not None:
            # Whoever is interrupted here leaves a thread at work, which somebody must wait for.
            await asyncio.shield(self._writing)
            self._writing = None

    def _write(self, chunks: list[bytes]) -> None:
        for chunk in chunks:
            if self._hasher is not None:
                self._hasher.update(chunk)
            self._appending.write(chunk)

    @property
    def match(self) -> bool:
        """Whether what was written has the checksum, if there is one."""
        if self._checksum is None or self._hasher is None:
            return True
        return self._hasher.digest() == self._checksum.digest


def _locked() -> Locked:
    return Locked("another request is sending bytes to this upload")


def _interrupted() -> BadInput:
    return BadInput(
        "the body came to an end too early",
        code="upload_interrupted",
        hint="what came of it was kept; ask for the offset with HEAD, and go on there",
    )

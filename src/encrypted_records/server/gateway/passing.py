"""An answer on its way from a thread to the network, which takes it when it can.

The thread puts down piece after piece and never waits. What has not been taken lies in memory
while there is room, else in a file; the order stays. Who takes the answer slowly, or not at all,
costs no thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from typing import IO

from encrypted_records.errors import Overloaded
from encrypted_records.server.gateway.held_bodies import SMALL_BYTES, Room

#: What is taken at once, about.
_PIECE_BYTES = 256 << 10


class Untaken(Exception):
    """Nobody takes the answer any more, or it cannot be finished."""


class Passing:
    """One answer: one thread puts, one coroutine of ``loop`` takes."""

    def __init__(self, room: Room, loop: asyncio.AbstractEventLoop) -> None:
        self._room = room
        self._loop = loop
        self._lock = threading.Lock()
        #: Pieces, and whether they are counted. What is in the file came after them.
        self._memory: deque[tuple[bytes, bool]] = deque()
        self._file: IO[bytes] | None = None
        self._read = self._written = 0  # places in the file
        self._is_writing = False
        self.size = 0
        self.is_whole = False
        self._is_broken = self._is_closed = self._is_left = self._is_awaited = False
        self._more = asyncio.Event()

    # --- the thread's ----------------------------------------------------------------------

    def put(self, piece: bytes) -> None:
        """
        Raises:
            Untaken: it is of no use.
            Overloaded: there is no room for it.
        """
        with self._lock:
            if self._is_closed or self._is_left:
                raise Untaken
            self.size += len(piece)
            kept = self._written == 0 and self._keep(piece)
            if not kept:
                if not self._room.disk.take(len(piece)):
                    raise Overloaded("there is no room for the answer just now", retry_after=2)
                self._is_writing = True
                offset = self._written
        if not kept:
            self._write(piece, offset)
        self._tell()

    def _keep(self, piece: bytes) -> bool:
        counted = self.size > SMALL_BYTES
        if counted and not self._room.memory.take(len(piece)):
            return False
        self._memory.append((piece, counted))
        return True

    def _write(self, piece: bytes, offset: int) -> None:
        """Into the file, while others look at the rest."""
        if self._file is None:
            self._file = self._room.file()
        left = memoryview(piece)
        try:
            while left:
                done = os.pwrite(self._file.fileno(), left, offset)
                offset, left = offset + done, left[done:]
        finally:
            with self._lock:
                self._room.disk.give_back(len(left))
                self._is_writing = False
                self._written = offset
                if self._is_closed:
                    self._drop_file()

    def end(self, *, broken: bool = False) -> None:
        """Nothing more comes; ``broken`` says that something is missing."""
        with self._lock:
            self.is_whole, self._is_broken = not broken, broken
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            awaited, self._is_awaited = self._is_awaited, False
        if awaited:
            self._loop.call_soon_threadsafe(self._more.set)

    # --- the coroutine's -------------------------------------------------------------------

    async def take(self) -> bytes:
        """The next piece; nothing when there are no more.

        Raises:
            Untaken: the rest of it could not be made, or it was left.
        """
        while True:
            with self._lock:
                if self._is_left:
                    raise Untaken
                if self._memory:
                    return self._from_memory()
                lies_in_file = self._read < self._written
                if not lies_in_file:
                    if self.is_whole:
                        return b""
                    if self._is_broken:
                        raise Untaken
                    self._more.clear()
                    self._is_awaited = True
            if lies_in_file:
                return await asyncio.to_thread(self._from_file)
            await self._more.wait()

    @property
    def is_taken(self) -> bool:
        """Whether all of it was."""
        return self.is_whole and not self._memory and self._read == self._written

    def _from_memory(self) -> bytes:
        pieces, size, counted = [], 0, 0
        while self._memory and size < _PIECE_BYTES:
            piece, is_counted = self._memory.popleft()
            pieces.append(piece)
            size += len(piece)
            counted += len(piece) if is_counted else 0
        self._room.memory.give_back(counted)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _from_file(self) -> bytes:
        assert self._file is not None
        count = min(_PIECE_BYTES, self._written - self._read)
        piece = os.pread(self._file.fileno(), count, self._read)
        with self._lock:
            self._read += len(piece)
            if self._read == self._written and not self._is_writing:
                self._room.disk.give_back(self._written)
                self._file.truncate(0)
                self._read = self._written = 0
        return piece

    def leave(self) -> None:
        """Nobody takes the rest: it is neither made nor taken any more."""
        with self._lock:
            self._is_left = True
        self._more.set()

    def close(self) -> None:
        """Drop what was not taken. Doing so twice is harmless."""
        with self._lock:
            self._is_closed = True
            counted = sum(len(piece) for piece, is_counted in self._memory if is_counted)
            self._room.memory.give_back(counted)
            self._memory.clear()
            if not self._is_writing:
                self._drop_file()

    def _drop_file(self) -> None:
        self._room.disk.give_back(self._written)
        self._read = self._written = 0
        if self._file is not None:
            self._file.close()
            self._file = None

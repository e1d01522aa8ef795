"""Request and answer bodies between network and threads: their limits by path, and their buffers.

A body is complete before a thread gets it, and the unread part of an answer is detached from its
thread (:mod:`.gateway`); so no thread ever waits for the network. Small bodies are always kept in
memory. Larger bodies share a memory budget, and beyond it a disk budget, in unnamed files. A
request's body is written to a file only if it consists of sealed rows and pages: bodies that may
contain a password are kept in memory, or refused.
"""

from __future__ import annotations

import io
import re
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from encrypted_records.errors import Overloaded
from encrypted_records.fair_queue import FairQueue

MAX_BODY_BYTES = 2 << 20
#: Paths of sealed rows, pages and grants have a higher limit.
MAX_FRAMES_BYTES = 64 << 20
#: Paths that need no credentials have a lower limit.
MAX_OPEN_BYTES = 64 << 10
_OF_FRAMES = re.compile(
    r"/api/(commits|schemas/[^/]+/(staging|checkpoints)|jobs/[^/]+/publish|organizations/[^/]+/roster)/"
)
_OPEN = re.compile(r"/(api/accounts|api/token|admin)/.*", re.DOTALL)


def are_sealed(path: str) -> bool:
    """Whether bodies of this path are frames of sealed rows and pages."""
    return _OF_FRAMES.fullmatch(path) is not None


def limit_of(path: str) -> int:
    """The most bytes that a body of this path may have."""
    if _OPEN.fullmatch(path):
        return MAX_OPEN_BYTES
    return MAX_FRAMES_BYTES if are_sealed(path) else MAX_BODY_BYTES


def is_within(length: str, path: str) -> bool:
    """Whether a body whose Content-Length says ``length`` may be sent to this path."""
    return length.isascii() and length.isdigit() and int(length) <= limit_of(path)


def is_to_be_read(environ: Mapping[str, Any]) -> bool:
    """Whether a request has a body that may be read; :class:`..http.middleware.RequestGate` refuses
    those that may not."""
    length = environ.get("CONTENT_LENGTH") or "0"
    sound = "HTTP_TRANSFER_ENCODING" not in environ and is_within(length, environ["PATH_INFO"])
    return sound and int(length) > 0


#: Bytes of each body that are not counted against the budget. Connections are counted.
SMALL_BYTES = 64 << 10
MEMORY_BYTES = 64 << 20
#: A larger body waits for its turn before it is parsed. Turns are limited by their total bytes.
LARGE_BYTES = 1 << 20
TURN_BYTES = 96 << 20
DISK_BYTES = 4 << 30


class Budget:
    """A budget in bytes, shared by all requests. Thread-safe."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        return self._left

    def take(self, count: int) -> bool:
        with self._lock:
            if count > self._left:
                return False
            self._left -= count
            return True

    def give_back(self, count: int) -> None:
        with self._lock:
            self._left += count


class Room:
    """Memory that all bodies and answers of a process share.

    Args:
        folder: where the files are.
        turns: total bytes of the large bodies that threads may parse at once. Parsing a body takes
            about twice its bytes in addition.
    """

    def __init__(
        self,
        folder: Path,
        *,
        memory: int = MEMORY_BYTES,
        disk: int = DISK_BYTES,
        turns: int = TURN_BYTES,
    ) -> None:
        self._folder = folder
        self.turns = FairQueue(turns)
        self.memory = Budget(memory)
        self.disk = Budget(disk)

    def file(self) -> IO[bytes]:
        """A file without a name, which disappears with the process."""
        return tempfile.TemporaryFile(dir=self._folder, buffering=0)


class HeldBody:
    """A body. Only one thread at a time may use it.

    Args:
        on_disk: whether the body may be written to a file.
    """

    def __init__(self, room: Room, *, on_disk: bool) -> None:
        self._room = room
        self._may_move = on_disk
        self._memory = io.BytesIO()
        self._file: IO[bytes] | None = None
        self.size = 0
        self._counted = 0  # of the memory budget
        self._in_file = 0  # of the disk budget

    @property
    def is_in_file(self) -> bool:
        """Whether reads and writes may wait for a disk."""
        return self._file is not None

    def write(self, data: bytes) -> None:
        """
        Raises:
            Overloaded: there is no room for it.
        """
        count = len(data)
        if self._file is None and self.size + count > SMALL_BYTES:
            if self._room.memory.take(count):
                self._counted += count
            else:
                self._move()
        if self._file is None:
            self._memory.write(data)
        else:
            self._take_disk(count)
            self._file.write(data)
        self.size += count

    def _move(self) -> None:
        if not self._may_move:
            raise Overloaded(
                "there is no memory for a body of this size at the moment", retry_after=2
            )
        self._take_disk(self.size)
        self._file = self._room.file()
        self._file.write(self._memory.getbuffer())
        self._forget_memory()

    def _take_disk(self, count: int) -> None:
        if not self._room.disk.take(count):
            raise Overloaded("there is no space for it on disk at the moment", retry_after=2)
        self._in_file += count

    def _forget_memory(self) -> None:
        # A request parsed from the body refers to this buffer, and may outlive the body.
        self._memory.truncate(0)
        self._memory = io.BytesIO()
        self._room.memory.give_back(self._counted)
        self._counted = 0

    def rewind(self) -> IO[bytes]:
        """The whole body, positioned at its beginning."""
        body = self._memory if self._file is None else self._file
        if self._file is None:
            # Cut to its length, so that reading the whole body returns these very bytes without a
            # copy.
            self._memory.getvalue()
        body.seek(0)
        return body

    def close(self) -> None:
        """Discard the body. Closing it twice is harmless."""
        self._forget_memory()
        self._room.disk.give_back(self._in_file)
        self._in_file = 0
        if self._file is not None:
            self._file.close()

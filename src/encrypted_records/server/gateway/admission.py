"""Limits of what requests occupy of the API's process: places in threads, and room for bodies.

*Places.* A request runs, waits for its turn, or is told to retry later. Senders take turns: each
has its own queue, so that a sender of many requests waits for its own. No sender can occupy all
threads, so that long requests of one sender leave some for others.

The number of waiting requests and their waiting time are bounded: a request that would wait longer
than clients do is refused at once, so that under overload no request waits in vain. If the queues
are full, senders that already have an equal share of the places are refused.

*Room.* A body is complete before a thread gets it, and the unread part of an answer is detached
from its thread (:mod:`.gateway`); so no thread ever waits for the network. Small bodies are always
kept in memory. Larger bodies share a memory budget, and beyond it a disk budget, in unnamed files.
A request's body is written to a file only if it consists of sealed rows and pages: bodies that may
contain a password are kept in memory, or refused.
"""

from __future__ import annotations

import asyncio
import io
import re
import tempfile
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, Generic, TypeVar

from encrypted_records.errors import Overloaded
from encrypted_records.fair_queue import FairQueue

T = TypeVar("T")

#: Key in a request's environment for the id of the user who sent it, once that is known.
SENDER = "ers.sender"
#: The most requests that wait for a thread at once, and the seconds that each may wait.
WAITING, WAIT_SECONDS = 512, 10.0
#: Seconds after which a refused client should retry.
RETRY_SECONDS = 2
#: Seconds between checks of the waiting requests.
_CHECK_INTERVAL = 0.5


class _WorkItem(Generic[T]):
    """A queued request: the work to do in a thread, and the future of its outcome."""

    def __init__(self, work: Callable[[Callable[[T], None]], T], sender: bytes) -> None:
        self._work = work
        self.sender = sender
        self._loop = asyncio.get_running_loop()
        self.since = time.monotonic()
        self.outcome: asyncio.Future[T] = self._loop.create_future()

    def do(self) -> None:
        """In a thread."""
        try:
            outcome = self._work(self._tell)
        except BaseException as error:  # whatever it is, the thread goes on
            self._later(self.fail, error)
        else:
            self._tell(outcome)

    def _tell(self, outcome: T) -> None:
        self._later(self._succeed, outcome)

    def _later(self, callback: Callable[..., None], argument: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing awaits the outcome
            self._loop.call_soon_threadsafe(callback, argument)

    def _succeed(self, outcome: T) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def fail(self, error: BaseException) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


class RequestPlaces:
    """Threads for requests, with a queue per sender: each queue is first in, first out."""

    def __init__(
        self,
        threads: int,
        *,
        waiting: int = WAITING,
        wait_seconds: float = WAIT_SECONDS,
        most_per_sender: int | None = None,
    ) -> None:
        """
        Args:
            most_per_sender: the most threads that a sender may have at once; None for all of them.
        """
        self._most = waiting
        self.wait_seconds = wait_seconds
        self.most_per_sender = most_per_sender or threads
        #: the first sender has the next turn; no queue is empty
        self._lines: OrderedDict[bytes, deque[_WorkItem[Any]]] = OrderedDict()
        self._under_way: Counter[bytes] = Counter()
        self._waiting = 0
        self._changing = threading.Lock()
        #: the queues that wake idle threads; the thread that worked last is last
        self._idle: list[SimpleQueue[None]] = []
        self._looking: asyncio.TimerHandle | None = None
        for number in range(threads):
            threading.Thread(target=self._serve, name=f"request-{number}", daemon=True).start()

    async def run(self, work: Callable[[Callable[[T], None]], T], sender: bytes = b"") -> T:
        """Run ``work`` in a thread as soon as a thread is free.

        Args:
            work: may report its outcome early, through the function that it gets, and go on.
            sender: the sender whose turn the request takes.

        Raises:
            Overloaded: too many requests wait, or the request waited for too long.
        """
        item = _WorkItem(work, sender)
        with self._changing:
            line = self._lines.get(sender) or deque()
            if self._is_full(len(line)):
                raise overloaded()
            ousted = self._oust() if self._waiting >= 2 * self._most else None
            line.append(item)
            self._lines.setdefault(sender, line)
            self._waiting += 1
            # The thread that worked last: its database connection and data are still in the CPU's
            # cache.
            called = self._idle.pop() if self._idle else None
        if ousted is not None:
            ousted.fail(overloaded())
        if called is not None:
            called.put(None)
        if self._looking is None:
            self._look_later()
        return await item.outcome

    def _is_full(self, queued: int) -> bool:
        """Whether a sender with ``queued`` requests may not queue another."""
        if self._waiting < self._most:
            return False
        senders = len(self._lines) + (queued == 0)
        return queued + 1 > self._most / senders

    def _oust(self) -> _WorkItem[Any]:
        """Remove and return the last request of the longest queue. Up to
        twice the limit may wait: otherwise a few senders in succession would keep all others out.
        """
        longest = max(self._lines.values(), key=len)
        self._waiting -= 1
        return longest.pop()

    def _serve(self) -> None:
        call: SimpleQueue[None] = SimpleQueue()
        while True:
            with self._changing:
                item = self._take()
                if item is None:
                    # Requests left in a queue belong to senders that use all threads they may have.
                    # The thread that such a sender frees next takes them.
                    self._idle.append(call)
            if item is None:
                call.get()
                continue
            try:
                item.do()
            finally:
                self._leave(item.sender)
                del item

    def _take(self) -> _WorkItem[Any] | None:
        """The next request, of the first sender that may use another thread."""
        for sender, line in self._lines.items():
            if self._under_way[sender] < self.most_per_sender:
                item = line.popleft()
                self._waiting -= 1
                self._under_way[sender] += 1
                if line:
                    self._lines.move_to_end(sender)
                else:
                    del self._lines[sender]
                return item
        return None

    def _leave(self, sender: bytes) -> None:
        with self._changing:
            self._under_way[sender] -= 1
            if not self._under_way[sender]:
                del self._under_way[sender]

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(_CHECK_INTERVAL, self._look)

    def _look(self) -> None:
        """Refuse the requests that have waited too long."""
        self._looking = None
        late: list[_WorkItem[Any]] = []
        began = time.monotonic() - self.wait_seconds
        with self._changing:
            for sender, line in list(self._lines.items()):
                while line and line[0].since <= began:
                    late.append(line.popleft())
                if not line:
                    del self._lines[sender]
            self._waiting -= len(late)
            waits = bool(self._lines)
        for item in late:
            item.fail(overloaded())
        if waits:
            self._look_later()


def overloaded() -> Overloaded:
    return Overloaded(
        "the API has more requests than it can answer at the moment", retry_after=RETRY_SECONDS
    )


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
            self._write_to(self._file, data)
        self.size += count

    def _move(self) -> None:
        if not self._may_move:
            raise Overloaded(
                "there is no memory for a body of this size at the moment", retry_after=2
            )
        file = self._file = self._room.file()
        self._write_to(file, self._memory.getvalue())
        self._forget_memory()

    def _write_to(self, file: IO[bytes], data: bytes) -> None:
        if not self._room.disk.take(len(data)):
            raise Overloaded("there is no space for it on disk at the moment", retry_after=2)
        self._in_file += len(data)
        left = memoryview(data)
        try:
            while left:  # a disk that is nearly full takes a part
                left = left[file.write(left) :]
        except OSError:
            raise Overloaded("the disk takes no more of it at the moment", retry_after=2) from None

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

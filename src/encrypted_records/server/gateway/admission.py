"""Admission control for the threads: a request runs, waits for its turn, or is told to retry later.

Senders take turns: each has its own queue, so that a sender of many requests waits for its own. No
sender can occupy all threads, so that long requests of one sender leave some for others.

The number of waiting requests and their waiting time are bounded: a request that would wait longer
than clients do is refused at once, so that under overload no request waits in vain. If the queues
are full, senders that already have an equal share of the places are refused.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from encrypted_records.errors import Overloaded

T = TypeVar("T")

#: Key in a request's environment for the id of the user who sent it, once that is known.
SENDER = "ers.sender"
#: The most requests that wait for a thread at once, and the seconds that each may wait.
WAITING, WAIT_SECONDS = 512, 10.0
#: Seconds after which a refused client should retry.
RETRY_SECONDS = 2
_LOOK_SECONDS = 0.5


class _Asked(Generic[T]):
    """A unit of work, and the future of its outcome."""

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

    def _later(self, what: Callable[..., None], argument: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing awaits the outcome
            self._loop.call_soon_threadsafe(what, argument)

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
        most_of_one: int | None = None,
    ) -> None:
        """
        Args:
            most_of_one: the most threads that one sender may have at once; None for all of them.
        """
        self._most = waiting
        self.wait_seconds = wait_seconds
        self.most_of_one = most_of_one or threads
        #: the first sender has the next turn; no queue is empty
        self._lines: OrderedDict[bytes, deque[_Asked[Any]]] = OrderedDict()
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
        asked = _Asked(work, sender)
        with self._changing:
            line = self._lines.get(sender) or deque()
            if self._is_full(len(line)):
                raise overloaded()
            ousted = self._oust() if self._waiting >= 2 * self._most else None
            line.append(asked)
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
        return await asked.outcome

    def _is_full(self, own: int) -> bool:
        """Whether a sender with ``own`` queued requests may not queue another."""
        if self._waiting < self._most:
            return False
        senders = len(self._lines) + (own == 0)
        return own + 1 > self._most / senders

    def _oust(self) -> _Asked[Any]:
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
                asked = self._take()
                if asked is None:
                    # Requests left in a queue belong to senders that use all threads they may have.
                    # The thread that such a sender frees next takes them.
                    self._idle.append(call)
            if asked is None:
                call.get()
                continue
            try:
                asked.do()
            finally:
                self._leave(asked.sender)
                del asked

    def _take(self) -> _Asked[Any] | None:
        """The next request, of the first sender that may use another thread."""
        for sender, line in self._lines.items():
            if self._under_way[sender] < self.most_of_one:
                asked = line.popleft()
                self._waiting -= 1
                self._under_way[sender] += 1
                if line:
                    self._lines.move_to_end(sender)
                else:
                    del self._lines[sender]
                return asked
        return None

    def _leave(self, sender: bytes) -> None:
        with self._changing:
            self._under_way[sender] -= 1
            if not self._under_way[sender]:
                del self._under_way[sender]

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Refuse the requests that have waited too long."""
        self._looking = None
        late: list[_Asked[Any]] = []
        began = time.monotonic() - self.wait_seconds
        with self._changing:
            for sender, line in list(self._lines.items()):
                while line and line[0].since <= began:
                    late.append(line.popleft())
                if not line:
                    del self._lines[sender]
            self._waiting -= len(late)
            waits = bool(self._lines)
        for asked in late:
            asked.fail(overloaded())
        if waits:
            self._look_later()


def overloaded() -> Overloaded:
    return Overloaded(
        "the API has more requests than it can answer at the moment", retry_after=RETRY_SECONDS
    )

"""Long computations run in threads, and long answers take turns, so that short requests stay fast.

The event loop serves all requests, so work that may take more than some milliseconds runs in a
thread. Python threads take turns of a few milliseconds, and the pool is small: if long work used
any number of threads, a short query would wait for a free thread, and at each of its steps for the
turns of all these threads. Therefore:

- Long work has :data:`THREADS` separate threads. Each user has one running task at a time, and
  users take turns, so that no user occupies all threads.
- Keys are derived from passphrases in a separate thread: that takes a core and much memory, so only
  one derivation runs at a time (:mod:`encrypted_records.crypto.recovery`).
- :func:`asyncio.to_thread` is for short work.
- An export decrypts thousands of rows at a time, and several exports would occupy all threads and
  most turns of the event loop. So each user has one part of an export under way, all users together
  :data:`PARTS_AT_ONCE`, and after a part the export rests for as long as the part took, if there
  was a short request (:class:`Turns`).

A single call of a C function that holds the interpreter lock blocks all other threads. No such call
may process more than some MiB, or more than ``strict_json.MAX_VALUES`` values.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar
from weakref import WeakValueDictionary

from encrypted_records import runtime
from encrypted_records.fair_queue import FairQueue

P = ParamSpec("P")
T = TypeVar("T")


THREADS = 2
#: Reading a body of more bytes takes long, and so do the query or the record in it.
LONG_BYTES = 64 << 10
#: Work on at most this many bytes is done on the event loop, unless something else makes it long.
FEW_BYTES = 8 << 10

#: The user of the current context, if any; :class:`Lines` sets it.
current_user: contextvars.ContextVar[bytes] = contextvars.ContextVar("user", default=b"")


class Lines:
    """The proxy's queues in front of the threads: each runs one task per user at a time. Waiting
    work belongs to this proxy, and ends with it.
    """

    def __init__(self) -> None:
        self.long = FairQueue(THREADS, most_of_one=1)
        self.keys = FairQueue(1, most_of_one=1)

    def enter(self, user: bytes) -> None:
        """This context, and the tasks that it starts, work for this user from now on."""
        current_user.set(user)
        _lines.set(self)


#: The queues of the proxy that runs the current request or job. Work without a user waits in none.
_lines: contextvars.ContextVar[Lines | None] = contextvars.ContextVar("lines", default=None)


class Sent(dict[str, Any]):
    """A JSON object from a request, and the size of its body in bytes."""

    def __init__(self, members: dict[str, Any], size: int) -> None:
        super().__init__(members)
        self.size = size


def is_long(body: object) -> bool:
    """Whether reading ``body``, an object of a request, takes long."""
    return isinstance(body, Sent) and body.size > LONG_BYTES


class Run(Protocol):
    """The place where work runs: :func:`aside`, :func:`asyncio.to_thread`, or :func:`here`."""

    async def __call__(
        self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs
    ) -> T: ...


_long = ThreadPoolExecutor(THREADS, "aside")
_keys = ThreadPoolExecutor(1, "keys")


async def _run(threads: ThreadPoolExecutor, queue: FairQueue | None, work: Callable[[], T]) -> T:
    async with nullcontext() if queue is None else queue.take(current_user.get()):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(threads, contextvars.copy_context().run, work)


async def here(function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """Run on the event loop: for work that takes less time than starting a thread."""
    return function(*arguments, **named)


def by_size(size: int, *, few: bool = False) -> Run:
    """The executor for work on ``size`` bytes.

    Args:
        few: whether such work on at most ``FEW_BYTES`` takes less than a millisecond.
    """
    if few and size <= FEW_BYTES:
        return here
    return aside if size > LONG_BYTES else runtime.in_thread


async def aside(function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """Run long work in a thread; see :func:`asyncio.to_thread`."""
    lines = _lines.get()
    return await _run(_long, lines.long if lines else None, partial(function, *arguments, **named))


async def deriving(function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """Derive a key from a passphrase in a thread; see :func:`asyncio.to_thread`."""
    lines = _lines.get()
    return await _run(_keys, lines.keys if lines else None, partial(function, *arguments, **named))


# --- turns of long answers ------------------------------------------------------------------------

#: Export parts under way at once, of all users.
PARTS_AT_ONCE = 2
#: Ratio of a rest to the part before it, the longest rest in seconds, and the longest part in
#: seconds that needs no rest.
REST, MOST_REST_SECONDS, SHORT_SECONDS = 1.0, 2.0, 0.02


class Turns:
    """Used by one event loop."""

    def __init__(self, is_busy: Callable[[float], bool]) -> None:
        """Args:
        is_busy: returns whether short requests were under way within the last given number of
            seconds.
        """
        self._is_busy = is_busy
        self._queue = FairQueue(PARTS_AT_ONCE)
        self._lines: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, user: bytes) -> AsyncIterator[None]:
        """A turn for one part of a user's answer; the rest afterwards belongs to the turn."""
        clock = asyncio.get_running_loop().time
        async with self._lines.setdefault(user, asyncio.Lock()):
            async with self._queue.take(user):
                began = clock()
                yield
                took = clock() - began
            if took > SHORT_SECONDS and self._is_busy(took):
                await runtime.sleep(min(REST * took, MOST_REST_SECONDS))

    async def each(self, user: bytes, parts: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """The parts, each made in a turn; they are closed with this iterator. No turn is held while
        a part is consumed.
        """
        async with aclosing(parts):
            while True:
                async with self.take(user):
                    try:
                        part = await anext(parts)
                    except StopAsyncIteration:
                        return
                yield part

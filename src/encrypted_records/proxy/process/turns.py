"""Parts of long answers take turns, so that short requests beside them are answered soon.

An export opens thousands of rows at a time. Several exports at once would have all threads and most
turns of the event loop. So each user has one part under way, all users together :data:`AT_ONCE`,
and after a part the export rests for as long as that took, if anybody has sent a short request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

from encrypted_records import runtime
from encrypted_records.fair_queue import FairQueue

T = TypeVar("T")

#: Parts under way at once, of all users.
AT_ONCE = 2
#: A rest is so many times as long as the part before it, and at most so many seconds. A shorter
#: part needs none.
REST, MOST_REST_SECONDS, SHORT_SECONDS = 1.0, 2.0, 0.02


class Turns:
    """Used by one event loop."""

    def __init__(self, is_busy: Callable[[float], bool]) -> None:
        """
        Args:
            is_busy: takes a number of seconds, and tells whether short requests were under way
                within that time before now.
        """
        self._is_busy = is_busy
        self._queue = FairQueue(AT_ONCE)
        self._lines: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, user: bytes) -> AsyncIterator[None]:
        """A turn for one part of a user's answer; the rest after it belongs to the turn."""
        clock = asyncio.get_running_loop().time
        async with self._lines.setdefault(user, asyncio.Lock()):
            async with self._queue.take(user):
                began = clock()
                yield
                took = clock() - began
            if took > SHORT_SECONDS and self._is_busy(took):
                await runtime.sleep(min(REST * took, MOST_REST_SECONDS))

    async def each(self, user: bytes, parts: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """The parts, each made in a turn; they are closed with this. No turn is held while a part
        is read."""
        async with aclosing(parts):
            while True:
                async with self.take(user):
                    try:
                        part = await anext(parts)
                    except StopAsyncIteration:
                        return
                yield part

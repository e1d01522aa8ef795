"""A semaphore with a queue in which each waiter has the place of the time that it states.

A task that had to wait for something else before is not queued after all tasks that arrived
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count


class Places:
    """Used by one event loop."""

    def __init__(self, most: int) -> None:
        """
        Args:
            most: how many have a place at once.
        """
        self._free = most
        self._numbers = count()
        #: since when, in the order in which they came where that is the same
        self._line: list[tuple[float, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def take(self, since: float) -> AsyncIterator[None]:
        """A place until the block ends.

        Args:
            since: seconds of the event loop's clock. Who says the earliest goes first.
        """
        if self._free:
            self._free -= 1
        else:
            given = asyncio.get_running_loop().create_future()
            heappush(self._line, (since, next(self._numbers), given))
            try:
                await given
            except asyncio.CancelledError:
                if not given.cancelled():  # it got the place, and goes away all the same
                    self._give()
                raise
        try:
            yield
        finally:
            self._give()

    def _give(self) -> None:
        """A place that is free to the first one who still waits."""
        while self._line:
            _, _, given = heappop(self._line)
            if not given.done():
                given.set_result(None)
                return
        self._free += 1

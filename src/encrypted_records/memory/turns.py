"""Turns at memory: tasks that need much memory at once wait until it is available.

Users take turns, and the requests of one user are served in the order of their arrival. The next
request waits until it fits, and no other overtakes it: otherwise the largest requests would starve.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class _Waiting:
    size: int
    admitted: asyncio.Future[None]


class MemoryTurns:
    """Used from one event loop. Who holds a turn must not wait for another one."""

    def __init__(self, budget: int) -> None:
        """``budget`` is in bytes, of all who have their turn together."""
        self.budget = budget
        self.held = 0
        #: by user, who is next first
        self._lines: OrderedDict[bytes, deque[_Waiting]] = OrderedDict()

    @asynccontextmanager
    async def take(self, size: int, user: bytes) -> AsyncIterator[None]:
        """Reserve ``size`` bytes, or the whole budget if they are more than that.

        Args:
            user: the user whose turn is used.
        """
        size = min(size, self.budget)
        await self._wait(size, user)
        try:
            yield
        finally:
            self._give_back(size)

    @property
    def waiting(self) -> int:
        """The number of tasks that wait."""
        return sum(map(len, self._lines.values()))

    async def _wait(self, size: int, user: bytes) -> None:
        if not self._lines and self.held + size <= self.budget:
            self.held += size
            return
        own = _Waiting(size, asyncio.get_running_loop().create_future())
        self._lines.setdefault(user, deque()).append(own)
        try:
            await own.admitted
        except asyncio.CancelledError:
            if own.admitted.done() and not own.admitted.cancelled():
                self._give_back(size)
            else:
                # Who is behind may fit.
                self._admit()
            raise

    def _give_back(self, size: int) -> None:
        self.held -= size
        self._admit()

    def _admit(self) -> None:
        while self._lines:
            name, line = next(iter(self._lines.items()))
            while line and line[0].admitted.done():
                line.popleft()
            if line:
                if self.held + line[0].size > self.budget:
                    return
                admitted = line.popleft()
                self.held += admitted.size
                admitted.admitted.set_result(None)
            if line:
                self._lines.move_to_end(name)
            else:
                del self._lines[name]

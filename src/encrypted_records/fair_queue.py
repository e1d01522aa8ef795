"""A fair queue for a scarce resource: threads, memory, places at the API.

Users take turns, so that many requests of one user delay only that user. The next task of a user
waits until it fits, and no other task overtakes it: otherwise the largest tasks would starve. The
queue skips only users who already have the maximum number of admitted tasks.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

_arrivals = count()


@dataclass(order=True, slots=True)
class _QueuedTask:
    """Sorted by the time that the task states, then by arrival."""

    since: float
    number: int = field(default_factory=_arrivals.__next__)
    size: int = field(default=0, compare=False, kw_only=True)
    admitted: asyncio.Future[None] = field(compare=False, kw_only=True)


class FairQueue:
    """Used by one event loop. A task that has been admitted must not wait here a second time."""

    def __init__(self, room: int, *, most_per_user: int | None = None) -> None:
        """
        Args:
            room: sum of the sizes of all admitted tasks: a number of places, or of bytes.
            most_per_user: maximum number of admitted tasks per user; None for no limit.
        """
        self.room = room
        self.held = 0
        self._most_per_user = most_per_user
        self._admitted: Counter[bytes] = Counter()
        #: heaps by user, in the order of their turns; no heap is empty
        self._lines: OrderedDict[bytes, list[_QueuedTask]] = OrderedDict()

    @asynccontextmanager
    async def take(
        self, user: bytes, size: int = 1, *, since: float | None = None
    ) -> AsyncIterator[None]:
        """Hold ``size`` of the room, or all of it if it is smaller, until the block ends.

        Args:
            user: the user whose turn is used.
            since: the task's place among the tasks of its user, in seconds of the event loop's
                clock; None means now. A task that already waited for another resource keeps its
                earlier place.
        """
        size = min(size, self.room)
        if self._lines or self._has_most(user) or self.held + size > self.room:
            await self._wait(user, size, since)
        else:
            self._admit(user, size)
        try:
            yield
        finally:
            self._leave(user, size)

    @property
    def waiting(self) -> int:
        """The number of waiting tasks."""
        return sum(map(len, self._lines.values()))

    async def _wait(self, user: bytes, size: int, since: float | None) -> None:
        loop = asyncio.get_running_loop()
        task = _QueuedTask(
            loop.time() if since is None else since, size=size, admitted=loop.create_future()
        )
        heappush(self._lines.setdefault(user, []), task)
        self._admit_next()
        try:
            await task.admitted
        except asyncio.CancelledError:
            if task.admitted.cancelled():
                self._admit_next()  # the next task may fit
            else:
                self._leave(user, size)
            raise

    def _has_most(self, user: bytes) -> bool:
        return self._most_per_user is not None and self._admitted[user] >= self._most_per_user

    def _admit(self, user: bytes, size: int) -> None:
        self.held += size
        self._admitted[user] += 1

    def _leave(self, user: bytes, size: int) -> None:
        self.held -= size
        self._admitted[user] -= 1
        if not self._admitted[user]:
            del self._admitted[user]
        self._admit_next()

    def _admit_next(self) -> None:
        """Admit the tasks whose turn it is, as long as they fit."""
        while (user := self._next_user()) is not None:
            line = self._lines[user]
            if self.held + line[0].size > self.room:
                return
            task = heappop(line)
            self._admit(user, task.size)
            task.admitted.set_result(None)
            if line:
                self._lines.move_to_end(user)
            else:
                del self._lines[user]

    def _next_user(self) -> bytes | None:
        """The first user in turn who has a waiting task and may have another admitted task."""
        for user, line in list(self._lines.items()):
            while line and line[0].admitted.done():  # it was cancelled
                heappop(line)
            if not line:
                del self._lines[user]
            elif not self._has_most(user):
                return user
        return None

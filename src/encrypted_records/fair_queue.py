"""A queue before something of which there is not enough for all at once: threads, memory, places at
the API.

Users take turns, so that one with many requests waits for their own. The next task of a user waits
until it fits, and no other overtakes it: otherwise the largest tasks would starve. Only the tasks
of users who have as many places as one may have are passed over.
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
class _Waiting:
    """Sorted by the time that the task states, and by arrival where that is the same."""

    since: float
    number: int = field(default_factory=_arrivals.__next__)
    size: int = field(default=0, compare=False, kw_only=True)
    admitted: asyncio.Future[None] = field(compare=False, kw_only=True)


class FairQueue:
    """Used by one event loop. A task that has been admitted must not wait here a second time."""

    def __init__(self, room: int, *, most_of_one: int | None = None) -> None:
        """
        Args:
            room: sum of the sizes of all admitted tasks: a number of places, or of bytes.
            most_of_one: tasks of one user that are admitted at once; None for any number.
        """
        self.room = room
        self.held = 0
        self._most_of_one = most_of_one
        self._admitted: Counter[bytes] = Counter()
        #: heaps by user; whose turn it is comes first, and no heap is empty
        self._lines: OrderedDict[bytes, list[_Waiting]] = OrderedDict()

    @asynccontextmanager
    async def take(
        self, user: bytes, size: int = 1, *, since: float | None = None
    ) -> AsyncIterator[None]:
        """Have ``size`` of the room, or all of it if it is less, until the block ends.

        Args:
            user: the user whose turn is used.
            since: the task's place among those of its user, in seconds of the event loop's clock:
                a task that waited for something else before is not queued after all that arrived
                meanwhile. Now, if None.
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
        """The number of tasks that wait."""
        return sum(map(len, self._lines.values()))

    async def _wait(self, user: bytes, size: int, since: float | None) -> None:
        loop = asyncio.get_running_loop()
        task = _Waiting(
            loop.time() if since is None else since, size=size, admitted=loop.create_future()
        )
        heappush(self._lines.setdefault(user, []), task)
        self._admit_next()
        try:
            await task.admitted
        except asyncio.CancelledError:
            if task.admitted.cancelled():
                self._admit_next()  # the task behind it may fit
            else:
                self._leave(user, size)
            raise

    def _has_most(self, user: bytes) -> bool:
        return self._most_of_one is not None and self._admitted[user] >= self._most_of_one

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
        """The first user in turn with a waiting task, who may have one more."""
        for user, line in list(self._lines.items()):
            while line and line[0].admitted.done():  # it was cancelled
                heappop(line)
            if not line:
                del self._lines[user]
            elif not self._has_most(user):
                return user
        return None

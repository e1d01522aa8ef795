"""Retry sets: requests to the API without a usable answer, because the answer failed or the log had
moved on.

A request contains random cover items in addition to the needed ones. If a retry drew other cover
items, the intersection of both requests would reveal the needed items; and an API can cause a retry
by failing, by altering data, or by reporting new commits. So a retry repeats the whole first
request (docs/decisions/watching.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

#: Requests that are remembered, the newest ones.
MOST_REQUESTS = 256
#: Who needs little does not ask for all of a large request: for so many, or so many times as many
#: as are needed.
LEAST_ROOM, TIMES = 1024, 4


class Unanswered(Generic[K]):
    """Used by one event loop."""

    def __init__(self, most: int) -> None:
        """
        Args:
            most: what all requests that are remembered name together.
        """
        self._most = most
        #: all that each of them named
        self._requests: deque[frozenset[K]] = deque(maxlen=MOST_REQUESTS)

    def beside(self, needed: Collection[K]) -> set[K]:
        """All items of unanswered requests that contained some of these; only of the newest
        requests if that would be very much.
        """
        found: set[K] = set()
        room = max(LEAST_ROOM, TIMES * len(needed))
        for asked in reversed(self._requests):
            if not asked.isdisjoint(needed) and len(asked) + len(found) <= room:
                found |= asked
        return found

    @contextmanager
    def request(self, name: Callable[[], Collection[K]]) -> Iterator[None]:
        """Remember a request unless the block, which has it answered, ends well.

        Args:
            name: says what is asked for; called where it matters.
        """
        try:
            yield
        except BaseException:  # a client that goes away is no answer either
            self.add(name())
            raise
        if self._requests:
            self._take_out(frozenset(name()))

    def add(self, asked: Collection[K]) -> None:
        """Remember a request, in place of those that it repeats."""
        new = frozenset(asked)
        self._take_out(new)
        self._requests.append(new)
        while sum(map(len, self._requests)) > self._most:
            self._requests.popleft()

    def _take_out(self, asked: frozenset[K]) -> None:
        """Forget the requests that this one holds."""
        for held in [request for request in self._requests if request <= asked]:
            self._requests.remove(held)

"""What the API was asked for in vain: its answer failed, or said that the log had moved on.

Beside what a question needs, others are asked for, drawn by chance. Were others drawn when the
question is put again, what both requests name would be what it needs; and to have it put again, an
API only has to fail, to alter something, or to tell of one commit after the other. So all of the
first request is asked for again (docs/decisions/0093-asked-for-in-vain.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

#: Requests that are remembered, the newest ones.
MOST_REQUESTS = 256
#: Who needs little does not ask for all of a large request: for so many, or so many times as many
#: as are needed.
LEAST_ROOM, TIMES = 1024, 4


class _Request(NamedTuple, Generic[K]):
    """One that was not answered: what was needed, and all that was asked for."""

    needed: frozenset[K]
    asked: frozenset[K]


class Unanswered(Generic[K]):
    """Used by one event loop."""

    def __init__(self, most: int) -> None:
        """
        Args:
            most: what all requests that are remembered name together.
        """
        self._most = most
        self._requests: deque[_Request[K]] = deque(maxlen=MOST_REQUESTS)

    def beside(self, needed: Collection[K]) -> set[K]:
        """All that was asked for together with some of these, in vain; of the newest requests where
        that is very much."""
        found: set[K] = set()
        room = max(LEAST_ROOM, TIMES * len(needed))
        for one in reversed(self._requests):
            if not one.needed.isdisjoint(needed) and len(one.asked) + len(found) <= room:
                found |= one.asked
        return found

    @contextmanager
    def request(self, name: Callable[[], tuple[Collection[K], Collection[K]]]) -> Iterator[None]:
        """Remember a request unless the block, which has it answered, ends well.

        Args:
            name: says what is needed, and all that is asked for; called where it matters.
        """
        try:
            yield
        except BaseException:  # a client that goes away is no answer either
            self.add(*name())
            raise
        if self._requests:
            self._take_out(frozenset(name()[1]))

    def add(self, needed: Collection[K], asked: Collection[K]) -> None:
        """Remember a request, in place of those that it repeats."""
        all_asked = frozenset(asked)
        repeated = self._take_out(all_asked)
        self._requests.append(_Request(frozenset(needed).union(*repeated), all_asked))
        while sum(len(one.asked) for one in self._requests) > self._most:
            self._requests.popleft()

    def _take_out(self, asked: frozenset[K]) -> list[frozenset[K]]:
        """Forget the requests that this one holds, and return what they needed."""
        held = [one for one in self._requests if one.asked <= asked]
        for one in held:
            self._requests.remove(one)
        return [one.needed for one in held]

"""Time limits for senders, the same for everybody, and more time for known senders.

A sender has a credit of some seconds. Time in which nothing comes uses it up, and bytes add to it
at the rate that is required. So the request of a sender who sends nothing, or too slowly, ends, and
a pause is allowed. Time in which we do not read does not count.

A watch keeps the connections that owe a head or a body, or take no answer. It looks over all of
them a few times a second, which costs less than a timer for every request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

#: Under this name a request's scope has its :class:`Pace`.
_PACE = "ers.pace"


@dataclass(frozen=True)
class ServerLimits:
    """Limits of a server, in seconds, bytes, and bytes a second."""

    #: For a head: from the connection on, or from the first byte after a request.
    head_seconds: float = 10.0
    head_bytes: int = 64 << 10
    #: Between two requests on one connection.
    idle_seconds: int = 5
    #: How far a body may fall behind its least rate.
    grace_seconds: float = 10.0
    least_rate: float = (1 << 20) / 10
    #: The same for known callers, who are given more time; without a rate any is good.
    known_grace_seconds: float = 60.0
    known_least_rate: float | None = None
    #: An answer of which nothing is taken for so long is given up.
    unread_seconds: float = 60.0
    #: Connections held at once; beyond, the one goes that has owed its request the longest.
    connections: int = 8192


class Pace:
    """The credit of a body that is on its way."""

    __slots__ = ("_credit", "_limits", "_rate", "_seconds", "is_known", "is_over")

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._rate: float | None = limits.least_rate
        self._credit = self._seconds = limits.grace_seconds
        self.is_known = False
        #: Whether all of the body is here.
        self.is_over = False

    def know(self) -> None:
        """The sender's credentials hold."""
        self.is_known = True
        self._rate = self._limits.known_least_rate
        self._credit = self._seconds = self._limits.known_grace_seconds

    def came(self, count: int) -> None:
        """Record that ``count`` bytes of the body have arrived."""
        earned = self._seconds if self._rate is None else count / self._rate
        self._credit = min(self._credit + earned, self._seconds)

    def has_lapsed(self, seconds: float) -> bool:
        """Whether the credit is used up after ``seconds`` more of waiting."""
        self._credit -= seconds
        return self._credit <= 0


def put(scope: MutableMapping[str, Any], pace: Pace) -> None:
    """Attach the sender's pace to the scope, for the code that answers the request."""
    scope[_PACE] = pace


def of(scope: MutableMapping[str, Any]) -> Pace | None:
    """The pace of a request; None where a server of another kind took it."""
    pace: Pace | None = scope.get(_PACE)
    return pace


def know(scope: MutableMapping[str, Any]) -> None:
    """Give the sender of a request, whose credentials hold, the time that known callers have."""
    pace = of(scope)
    if pace is not None:
        pace.know()


#: What is read at once, at most.
READ_BYTES = 256 << 10
#: Between two looks; what is due is done so much later at most.
LOOK_SECONDS = 0.5


class Watched(Protocol):
    """A connection, as the watch sees it."""

    @property
    def is_known(self) -> bool:
        """Whether the credentials of the sender of a body hold."""

    def has_lapsed(self, seconds: float) -> bool:
        """Whether the sender of a body has used up its time after ``seconds`` more."""

    def count_unsent(self) -> int:
        """Bytes of an answer that were not taken yet."""

    def let_go(self) -> None:
        """End the connection, with word of why where there is a way to say it."""


class ConnectionWatch:
    """Connections of one server, for its event loop alone.

    Args:
        closed: told of each connection that is ended here, by a word: ``head``, ``body``,
            ``answer``, ``crowd``.
    """

    def __init__(self, limits: ServerLimits, closed: Callable[[str], None]) -> None:
        self.limits = limits
        self._closed = closed
        #: What is read goes here, and is understood before anything else is read: one is enough.
        self.buffer = memoryview(bytearray(READ_BYTES))
        #: Those who owe a head, and since when, in that order.
        self._heads: dict[Watched, float] = {}
        #: Those whose body is on its way, the oldest first.
        self._bodies: dict[Watched, None] = {}
        #: Those who owe nothing until they ask again, the longest first.
        self._idle: dict[Watched, None] = {}
        #: Those who do not take their answer: how much is left of it, and since when.
        self._answers: dict[Watched, tuple[int, float]] = {}
        self._now = 0.0
        self._looked = time.monotonic()

    @property
    def heads_owed(self) -> int:
        """The number of connections that owe a head."""
        return len(self._heads)

    def owes_head(self, watched: Watched) -> None:
        """Start the time for the head of a request; a running time is not restarted."""
        self._idle.pop(watched, None)
        self._heads.setdefault(watched, self._now)

    def has_head(self, watched: Watched) -> None:
        self._idle.pop(watched, None)
        self._heads.pop(watched, None)

    def owes_body(self, watched: Watched) -> None:
        self._bodies[watched] = None

    def has_body(self, watched: Watched) -> None:
        self._bodies.pop(watched, None)

    def is_idle(self, watched: Watched) -> None:
        self._idle[watched] = None

    def takes_nothing(self, watched: Watched) -> None:
        """Note that a connection takes nothing of its answer."""
        self._answers[watched] = watched.count_unsent(), self._now

    def takes_again(self, watched: Watched) -> None:
        self._answers.pop(watched, None)

    def forget(self, watched: Watched) -> None:
        for group in (self._heads, self._bodies, self._idle, self._answers):
            group.pop(watched, None)

    def make_room(self, newest: Watched, count: int) -> None:
        """Ensure that ``count`` connections are not too many."""
        if count > self.limits.connections:
            # Anyone who sends a request at once is not among those who have owed one the longest.
            self._end(next(self._least_needed(newest)), "crowd")

    def _least_needed(self, newest: Watched) -> Iterator[Watched]:
        unknown = (watched for watched in self._bodies if not watched.is_known)
        yield from (
            watched for watched in chain(self._heads, unknown, self._idle) if watched is not newest
        )
        yield newest

    def look(self) -> None:
        """End those who are overdue."""
        moment = time.monotonic()
        # While we were held up ourselves, nobody else was slow.
        passed = min(moment - self._looked, 2 * LOOK_SECONDS)
        self._looked = moment
        self._now += passed
        for watched in list(self._overdue()):
            self._end(watched, "head")
        for watched in [watched for watched in self._bodies if watched.has_lapsed(passed)]:
            self._end(watched, "body")
        for watched, (left, since) in list(self._answers.items()):
            unsent = watched.count_unsent()
            if unsent < left:
                self._answers[watched] = unsent, self._now
            elif self._now - since >= self.limits.unread_seconds:
                self._end(watched, "answer")

    def _overdue(self) -> Iterator[Watched]:
        for watched, since in self._heads.items():
            if self._now - since < self.limits.head_seconds:
                return
            yield watched

    def _end(self, watched: Watched, reason: str) -> None:
        self.forget(watched)
        self._closed(reason)
        watched.let_go()

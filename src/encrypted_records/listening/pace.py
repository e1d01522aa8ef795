"""Time limits for senders, equal for everyone, with more time for known senders.

A sender has a credit of some seconds. Time without data uses it up, and bytes add to it at the
required rate. So a request ends if its sender sends nothing, or too slowly, but pauses are allowed.
Time in which we do not read does not count.

A watch tracks the connections that owe a head or a body, or do not read their answer. It checks all
of them a few times a second, which costs less than a timer for every request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

#: The key of a request's :class:`Pace` in its scope.
_PACE = "ers.pace"


@dataclass(frozen=True)
class ServerLimits:
    """Limits of a server, in seconds, bytes, and bytes a second."""

    #: For a head: from the connection, or from the first byte after a request.
    head_seconds: float = 10.0
    head_bytes: int = 64 << 10
    #: Between two requests on one connection: longer than the minute that many clients and front
    #: servers keep theirs, so that none sends a request while the connection is being closed.
    idle_seconds: int = 75
    #: How far a body may fall behind the minimum rate.
    grace_seconds: float = 10.0
    least_rate: float = (1 << 20) / 10
    #: The same for known callers, who get more time; without a rate, any rate is allowed.
    known_grace_seconds: float = 60.0
    known_least_rate: float | None = None
    #: An answer is abandoned if the peer reads nothing for this long.
    unread_seconds: float = 60.0
    #: Maximum open connections; beyond it, the connection closes that has owed a request the
    #: longest.
    connections: int = 8192


class Pace:
    """The credit of a body in transit."""

    __slots__ = ("_credit", "_limits", "_rate", "_seconds", "is_known", "is_over")

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._rate: float | None = limits.least_rate
        self._credit = self._seconds = limits.grace_seconds
        self.is_known = False
        #: Whether the whole body has arrived.
        self.is_over = False

    def know(self) -> None:
        """Note that the sender's credentials are valid."""
        self.is_known = True
        self._rate = self._limits.known_least_rate
        self._credit = self._seconds = self._limits.known_grace_seconds

    def came(self, count: int) -> None:
        """Record that ``count`` bytes of the body have arrived."""
        earned = self._seconds if self._rate is None else count / self._rate
        self._credit = min(self._credit + earned, self._seconds)

    def has_lapsed(self, seconds: float) -> bool:
        """Whether the credit is used up after waiting for ``seconds`` more."""
        self._credit -= seconds
        return self._credit <= 0


def put(scope: MutableMapping[str, Any], pace: Pace) -> None:
    """Attach the sender's pace to the scope, for the code that answers the request."""
    scope[_PACE] = pace


def of(scope: MutableMapping[str, Any]) -> Pace | None:
    """The pace of a request; None if another kind of server accepted it."""
    pace: Pace | None = scope.get(_PACE)
    return pace


def know(scope: MutableMapping[str, Any]) -> None:
    """Give the sender of a request, whose credentials are valid, the time of known callers."""
    pace = of(scope)
    if pace is not None:
        pace.know()


#: Maximum bytes per read.
READ_BYTES = 256 << 10
#: Seconds between checks, and thus the maximum delay of a timeout.
CHECK_INTERVAL = 0.5


class Watched(Protocol):
    """A connection, as the watch sees it."""

    @property
    def is_known(self) -> bool:
        """Whether the credentials of the sender of a body are valid."""

    def has_lapsed(self, seconds: float) -> bool:
        """Whether the sender of a body has used up its time after ``seconds`` more."""

    def count_unsent(self) -> int:
        """Bytes of an answer that the peer has not read yet."""

    def let_go(self) -> None:
        """End the connection, with the reason if it can still be sent."""


class ConnectionWatch:
    """Connections of one server, used only by its event loop.

    Args:
        closed: called for each connection that is closed here, with a word: ``head``, ``body``,
            ``answer``, ``crowd``.
    """

    def __init__(self, limits: ServerLimits, closed: Callable[[str], None]) -> None:
        self.limits = limits
        self._closed = closed
        #: Shared by all reads: data is parsed before anything else is read.
        self.buffer = memoryview(bytearray(READ_BYTES))
        #: Connections that owe a head, with the start of the wait, in that order.
        self._heads: dict[Watched, float] = {}
        #: Connections with a body in transit, the oldest first.
        self._bodies: dict[Watched, None] = {}
        #: Connections between requests, the longest idle first.
        self._idle: dict[Watched, None] = {}
        #: Connections that do not read their answer: the unread bytes, and the time since then.
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
        """Note that a connection reads nothing of its answer."""
        self._answers[watched] = watched.count_unsent(), self._now

    def takes_again(self, watched: Watched) -> None:
        self._answers.pop(watched, None)

    def forget(self, watched: Watched) -> None:
        for group in (self._heads, self._bodies, self._idle, self._answers):
            group.pop(watched, None)

    def make_room(self, newest: Watched, count: int) -> None:
        """Ensure that ``count`` connections do not exceed the limit."""
        if count > self.limits.connections:
            # A client that sends a request at once is not among those that have owed one the
            # longest.
            self._end(next(self._least_needed(newest)), "crowd")

    def _least_needed(self, newest: Watched) -> Iterator[Watched]:
        unknown = (watched for watched in self._bodies if not watched.is_known)
        yield from (
            watched for watched in chain(self._heads, unknown, self._idle) if watched is not newest
        )
        yield newest

    def look(self) -> None:
        """End overdue connections."""
        moment = time.monotonic()
        # If this process was delayed, the delay does not count against the peers.
        passed = min(moment - self._looked, 2 * CHECK_INTERVAL)
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

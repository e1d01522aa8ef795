"""Time limits for senders, the same for everybody, and more time for known senders.

A sender has a credit of some seconds. Time in which nothing comes uses it up, and bytes add to it
at the rate that is required. So the request of a sender who sends nothing, or too slowly, ends, and
a pause is allowed. Time in which we do not read does not count.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

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

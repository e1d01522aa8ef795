"""More requests than can be answered soon: some are refused at once, and nobody waits for nothing.

How long a request will take to be answered follows from how many are under way and from how fast
they have been answered lately (Little's law). Where that is too long, those are refused whose
sender has more under way than an equal share; who asks little is answered beside who asks much.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from encrypted_records.errors import Overloaded
from encrypted_records.http import problem
from encrypted_records.proxy.http.responses import problem_answer
from encrypted_records.proxy.process.secret_names import SecretNames

#: So many requests under way are never too many: few that take long are no crowd.
FEW = 64
#: In seconds; a request that would be answered later is refused.
MOST_SECONDS = 1.5
#: Bounds of what ``Retry-After`` says, in seconds.
_RETRY = (1, 10)
#: Seconds between two answers, before a crowd has shown how fast they are given, and for how long
#: what it has shown counts.
_PACE, _SHOWN_SECONDS = 0.005, 5.0
#: Weight of the newest answer in the mean.
_NEWEST = 0.05
#: Requests that last as long as their bodies do; their own limits hold for them.
_LONG = ("/api/files/", "/api/jobs/upload/", "/api/records/export/")


class Crowd:
    """Requests under way, by sender, and how long each of them takes the whole proxy."""

    def __init__(
        self,
        few: int = FEW,
        most_seconds: float = MOST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._few = few
        self._most_seconds = most_seconds
        self._clock = clock
        self._under_way: Counter[bytes] = Counter()
        self._total = 0
        self._pace = _PACE
        #: when a crowd was last answered
        self._answered_at: float | None = None

    def _expect(self) -> float:
        """Seconds after which a request that comes now would be answered."""
        if self._answered_at is None or self._clock() - self._answered_at > _SHOWN_SECONDS:
            return (self._total + 1) * _PACE
        return (self._total + 1) * self._pace

    def enter(self, sender: bytes) -> None:
        """Count a request in.

        Raises:
            Overloaded: it would be answered too late.
        """
        excess = self._expect() - self._most_seconds
        if self._total >= self._few and excess > 0 and self._is_greedy(sender):
            least, most = _RETRY
            raise Overloaded(
                "more requests are under way than can be answered soon",
                retry_after=min(most, max(least, math.ceil(excess))),
            )
        self._under_way[sender] += 1
        self._total += 1

    def _is_greedy(self, sender: bytes) -> bool:
        senders = len(self._under_way.keys() | {sender})
        return self._under_way.get(sender, 0) + 1 > self._total / senders

    def leave(self, sender: bytes) -> None:
        """Count a request out: it is answered."""
        # Only in a crowd do the pauses between answers tell how fast they can be given.
        if self._total >= self._few:
            now = self._clock()
            if self._answered_at is None or now - self._answered_at > _SHOWN_SECONDS:
                self._pace = _PACE
            else:
                self._pace += _NEWEST * (now - self._answered_at - self._pace)
            self._answered_at = now
        self._total -= 1
        self._under_way[sender] -= 1
        if not self._under_way[sender]:
            del self._under_way[sender]


def _counts(path: str) -> bool:
    # Pages are not: one person opens few of them at a time, and reads each.
    return path.startswith("/api/") and not path.startswith(_LONG)


class LoadLimit:
    """ASGI middleware: refuses with 503 and ``Retry-After`` what a crowd would keep waiting."""

    def __init__(self, app: ASGIApp, crowd: Crowd) -> None:
        self._app = app
        self._crowd = crowd
        self._names = SecretNames()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _counts(scope["path"]):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        sender = self._names.of([headers.get("authorization", ""), headers.get("cookie", "")])
        try:
            self._crowd.enter(sender)
        except Overloaded as refusal:
            document = problem.of_error(refusal)
            await problem_answer(document, refusal.retry_after)(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._crowd.leave(sender)

"""Load shedding: if more requests arrive than can be answered soon, some are refused at once.

The expected latency of a request follows from the number of running requests and the recent
throughput (Little's law). A sudden slowdown would be noticed too late, so the time that the request
to be answered next has waited already counts as well. If either is too long, requests of senders
with more than an equal share are refused; senders with few requests are still served.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from encrypted_records import runtime
from encrypted_records.errors import Overloaded
from encrypted_records.http import problem
from encrypted_records.proxy.http.messages import problem_answer
from encrypted_records.proxy.process.secrecy import SecretNames

#: With at most this many requests under way, none is refused: a few long requests are not overload.
FEW = 64
#: Maximum mean latency in seconds: requests beyond it are refused. The last requests of a crowd
#: wait longer than the mean.
MOST_SECONDS = 1.0
#: Bounds of ``Retry-After``, in seconds.
_RETRY = (1, 10)
#: Assumed seconds between two answers before a crowd was measured; the same for a first crowd with
#: cold caches; the number of answers up to which caches count as cold; and the assumed time in
#: seconds under load that these values stand for.
_PACE, _FIRST_PACE, _FIRST, _ASSUMED_SECONDS = 0.005, 0.01, 500, 0.25
#: Time constant in seconds of the decaying measurement of a crowd; the seconds for which it is kept
#: after the crowd; and the pause in seconds after which it is kept only if the crowd was slow.
_LATELY, _SHOWN_SECONDS, _PAUSE_SECONDS = 2.0, 5.0, 0.5
#: Requests that last as long as their bodies, or wait; their own limits apply to them.
_LONG = ("/api/files/", "/api/jobs/upload/", "/api/records/changes/", "/api/records/export/")


class _Pace:
    """The throughput under load: answers, and the seconds of load in which they were given.

    Both decay with the time under load, and not with each answer, because answers come in bursts:
    the estimate must not jump after a burst, and has to fall if nothing is answered.
    """

    def __init__(self, assumed: float) -> None:
        self._seconds, self._answers = _ASSUMED_SECONDS, _ASSUMED_SECONDS / assumed

    def pass_time(self, seconds: float) -> None:
        """Record that the load lasted ``seconds`` longer."""
        left = math.exp(-seconds / _LATELY)
        self._seconds = self._seconds * left + _LATELY * (1 - left)
        self._answers *= left

    def count(self) -> None:
        """Count an answer."""
        self._answers += 1

    @property
    def seconds(self) -> float:
        """Seconds between two answers."""
        return self._seconds / max(self._answers, 1e-9)


class RunningRequests:
    """Requests under way, by sender, and the proxy's time per request."""

    def __init__(
        self,
        few: int = FEW,
        most_seconds: float = MOST_SECONDS,
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        self._few = few
        self._most_seconds = most_seconds
        self._clock = clock
        self._under_way: Counter[bytes] = Counter()
        #: arrival times of the requests under way, if they were answered in order of arrival
        self._came: deque[float] = deque()
        self._pace = _Pace(_FIRST_PACE)
        self._answered = 0
        #: time of the last answer
        self._left_at = -math.inf
        #: when a crowd was last seen, and when it began
        self._seen_at: float | None = None
        self._began_at = 0.0

    @property
    def under_way(self) -> int:
        """The number of requests under way."""
        return len(self._came)

    def was_busy(self, seconds: float) -> bool:
        """Whether a request was running within the last ``seconds`` seconds."""
        return bool(self._under_way) or self._clock() - self._left_at <= seconds

    def enter(self, sender: bytes) -> None:
        """Count a request in.

        Raises:
            Overloaded: it would be answered too late.
        """
        now = self._clock()
        if self.under_way >= self._few:
            self._look(now)
            excess = self._expect(now) - self._most_seconds
            if excess > 0 and self._is_greedy(sender):
                least, most = _RETRY
                raise Overloaded(
                    "too many requests are in progress",
                    retry_after=min(most, max(least, math.ceil(excess))),
                )
        self._under_way[sender] += 1
        self._came.append(now)
        if self.under_way == self._few:
            self._begin(now)

    def _expect(self, now: float) -> float:
        """Expected latency in seconds of a request that joins a crowd now."""
        # A few long requests may have begun before the crowd.
        waits = now - max(self._began_at, self._came[0])
        return max((self.under_way + 1) * self._pace.seconds, waits)

    def _is_greedy(self, sender: bytes) -> bool:
        senders = len(self._under_way.keys() | {sender})
        return self._under_way.get(sender, 0) + 1 > self.under_way / senders

    def leave(self, sender: bytes) -> None:
        """Count a request out after its answer."""
        self._answered += 1
        self._left_at = self._clock()
        # Only under load does an answer show the throughput.
        if self.under_way >= self._few:
            self._look(self._clock())
            self._pace.count()
        # The oldest arrival is removed for each answer, whichever request was answered: one long
        # request is not overload.
        self._came.popleft()
        self._under_way[sender] -= 1
        if not self._under_way[sender]:
            del self._under_way[sender]

    def _begin(self, now: float) -> None:
        """A crowd begins now."""
        # A crowd that arrives at once is admitted at once, all of it, before any request is
        # answered. So it is not judged by an earlier crowd, which may have been smaller or cheaper.
        if self._seen_at is None:
            if self._answered >= _FIRST:
                self._pace = _Pace(_PACE)
        else:
            ago = now - self._seen_at
            if ago > _SHOWN_SECONDS or (ago > _PAUSE_SECONDS and self._pace.seconds < _PACE):
                self._pace = _Pace(_PACE)
        self._seen_at = self._began_at = now

    def _look(self, now: float) -> None:
        """A crowd was present until now."""
        assert self._seen_at is not None
        self._pace.pass_time(now - self._seen_at)
        self._seen_at = now


def _counts(path: str) -> bool:
    # Pages are excluded: a person opens few of them at a time, and reads each.
    return path.startswith("/api/") and not path.startswith(_LONG)


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


class LoadLimit:
    """ASGI middleware: refuses requests with 503 and ``Retry-After`` under overload.

    A request counts from the arrival of its complete body: endless bodies, which any client can
    send, do not block other clients. Senders without credentials are distinguished by their
    addresses.
    """

    def __init__(self, app: ASGIApp, crowd: RunningRequests) -> None:
        self._app = app
        self._crowd = crowd
        self._names = SecretNames()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _counts(scope["path"]):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        sender = self._names.of(_credentials(headers) or [_address(scope)])
        entered = False

        def enter() -> None:
            nonlocal entered
            if not entered:
                self._crowd.enter(sender)
                entered = True

        async def counting() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                enter()  # raises Overloaded to the application, which awaits the body
            return message

        if not _has_body(headers):
            try:
                enter()
            except Overloaded as refusal:
                document = problem.of_error(refusal)
                await problem_answer(document, refusal.retry_after)(scope, receive, send)
                return
        try:
            await self._app(scope, counting, send)
        finally:
            if entered:
                self._crowd.leave(sender)


def _credentials(headers: Headers) -> list[str]:
    """The credentials of a request; empty if it has none."""
    sent = [headers.get("authorization", ""), headers.get("cookie", "")]
    return sent if any(sent) else []


def _address(scope: Scope) -> str:
    peer = scope.get("client")
    return peer[0] if peer else ""

"""Checks that precede every request: request id, Host, Origin and Sec-Fetch, load, the access log.

Any page in the user's browser can reach a server on this machine. The Host check stops a page of
another site that makes its name resolve here (DNS rebinding). Browsers' statements about the origin
of a request stop pages that send requests across sites or open a WebSocket: ``Sec-Fetch-Site``, and
``Origin`` for changes. A link from another site may only open a page. Neither check consults the
API. A WebSocket is refused by an HTTP answer, before its upgrade.

No page is under /api/. So no browser navigates there, and every answer from there is marked as
data: much of it comes from the API.

A proxy that runs for one command answers only that command.

If more requests arrive than can be answered soon, some are refused at once. The expected latency of
a request follows from the number of running requests and the recent throughput (Little's law). A
sudden slowdown would be noticed too late, so the time that the request to be answered next has
waited already counts as well. If either is too long, requests of senders with more than an equal
share are refused; senders with few requests are still served.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from encrypted_records import logs, runtime
from encrypted_records.client.transport import Renewal, came_in, forwarded_for, renewal
from encrypted_records.errors import ErsError, Misdirected, NotAllowed, Overloaded
from encrypted_records.http import problem
from encrypted_records.listening.binding import names_of, same_machine
from encrypted_records.listening.connections import STOPPED
from encrypted_records.metrics import Requests
from encrypted_records.model.credentials import INLINE_HEADER
from encrypted_records.proxy.auth import SAFE_METHODS
from encrypted_records.proxy.http.messages import problem_answer
from encrypted_records.proxy.process import SecretNames

log = logging.getLogger("encrypted_records.proxy.request")

#: Messages that begin an answer; an accepted WebSocket begins with 101.
_STARTS = frozenset({"http.response.start", "websocket.http.response.start", "websocket.accept"})
#: A Host header: a name or an IPv6 address, and optionally a port.
_HOST = re.compile(r"(?P<name>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
#: Maximum number of servers in front of this one; earlier addresses are unverified.
_HOPS = 16
_SCHEMES = {"ws": "http", "wss": "https"}

#: Headers of every answer under /api/, which replace those of an endpoint or of the API.
_OF_DATA = {
    "Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class OwnNames:
    """The host names of this proxy.

    Args:
        host, port: the address on which it listens.
        more: names given by the operator, with a port or for any port.
        api: the URL of the API. It is not an address of the proxy, but URLs of its resources
            contain it.
    """

    def __init__(self, host: str, port: int, more: Iterable[str] = (), api: str = "") -> None:
        host_names = names_of(host)
        names = {f"{name}:{port}" for name in host_names}
        if port == 80:
            names |= {*host_names}
        #: The address that is printed at the start, for a caller who used another address.
        self.address = f"http://{host_names[0]}:{port}"
        self._given = frozenset(name.lower() for name in more)
        self._names = frozenset(name.lower() for name in names) | self._given
        self._api = same_machine(api.rstrip("/")) if api else ()

    def includes(self, host: str) -> bool:
        """Whether a Host header names this proxy: exactly, or by a name for any port."""
        match = _HOST.fullmatch(host.lower())
        return match is not None and (match[0] in self._names or match["name"] in self._given)

    def includes_origin(self, origin: str) -> bool:
        """Whether absolute URLs with this origin belong to this proxy."""
        scheme, separator, host = origin.partition("://")
        return bool(separator) and scheme in ("http", "https") and self.includes(host)

    def is_of_page(self, origin: str, scheme: str, host: str) -> bool:
        """Whether an Origin header is that of a page on the same host as the request.

        Behind a front server that adds TLS, the page's scheme is https although the request's is
        not, and its name may be another of the operator's names than the Host header has.

        Args:
            scheme, host: of the request.
        """
        origin, host = origin.lower(), host.lower()
        if origin == f"{scheme}://{host}":
            return True
        front, separator, name = origin.partition("https://")
        if front or not separator:
            return False
        match = _HOST.fullmatch(host)
        is_given = match is not None and not self._given.isdisjoint({match[0], match["name"]})
        return name in self._given or (name == host and is_given)

    @property
    def origins(self) -> tuple[str, ...]:
        """Origins whose absolute URLs count as references to this proxy's resources: this proxy's,
        and the API's.
        """
        origins = (f"{scheme}://{name}" for name in self._names for scheme in ("http", "https"))
        return (*origins, *self._api)


class Guard:
    """ASGI middleware; streaming passes through it untouched."""

    def __init__(self, app: ASGIApp, names: OwnNames, requests: Requests) -> None:
        self._app = app
        self._names = names
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        method = scope.get("method", "WEBSOCKET")
        is_data = scope["path"].startswith("/api/")
        identifier = logs.take_id(headers.get("x-request-id", ""))
        scope["request_id"] = identifier
        token = logs.request_id.set(identifier)
        forwarded_for.set(_way(scope, headers))
        came_in.set(runtime.monotonic())
        known = Renewal()
        before = renewal.set(known)
        started = runtime.monotonic()
        status = 0

        async def answering(message: Message) -> None:
            nonlocal status
            if message["type"] in _STARTS:
                status = message.get("status", 101)
                message.setdefault("headers", [])
                answered = MutableHeaders(scope=message)
                answered["X-Request-ID"] = identifier
                if is_data:
                    answered.update(_OF_DATA)
            await send(message)

        try:
            refusal = self._refusal(method, scope, headers)
            if refusal is None:
                await self._app(scope, receive, answering)
            else:
                await problem_answer(problem.of_error(refusal))(scope, receive, answering)
        except asyncio.CancelledError:
            status = status or STOPPED  # the server answers
            raise
        finally:
            # The query string is never logged: a careless client may have put a value into it.
            seconds = runtime.monotonic() - started
            route = getattr(scope.get("route"), "path", None)
            self._requests.observe(method, route, status, seconds)
            facts = {
                "method": method,
                "path": scope["path"],
                "status": status,
                "milliseconds": round(seconds * 1000, 1),
            }
            # repr: the caller chooses the path, which must not break the line
            log.info("%s %r %s in %s ms", *facts.values(), extra={"facts": facts})
            logs.request_id.reset(token)
            renewal.reset(before)
            known.renew = None  # work after the request must not keep credentials

    def _refusal(self, method: str, scope: Scope, headers: Headers) -> ErsError | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._names.includes(hosts[0]):
            return Misdirected(
                "the name in the Host header does not belong to this proxy",
                hint=f"use {self._names.address}, or allow the name with --allowed-hosts",
            )
        # A client of resumable uploads may send the intended method in a header.
        methods = {method, headers.get("x-http-method-override", method).upper()}
        is_data = scope["path"].startswith("/api/")
        if headers.get("sec-fetch-mode") == "navigate" and is_data:
            return NotAllowed(
                "the paths under /api/ are not pages",
                code="not_a_page",
                hint=(
                    "open the proxy's address without /api/; its pages show and save the same data"
                ),
            )
        site = headers.get("sec-fetch-site", "none")
        if site not in ("same-origin", "none") and not _follows_link(methods, headers):
            return _across()
        origin = headers.get("origin")
        if origin is not None and not methods <= SAFE_METHODS:
            scheme: str = scope.get("scheme", "http")
            if not self._names.is_of_page(origin, _SCHEMES.get(scheme, scheme), hosts[0]):
                return _across()
        return None


def _across() -> ErsError:
    return NotAllowed(
        "a page of another site can open pages here, but send nothing else",
        code="cross_site",
        hint="if it is your own reverse proxy: name it with --allowed-hosts, and let it pass on"
        " the Host header",
    )


def _follows_link(methods: set[str], headers: Headers) -> bool:
    """Whether a browser navigates to an address in a separate tab, so that the page is not
    embedded.
    """
    return (
        methods == {"GET"}
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def _way(scope: Scope, headers: Headers) -> str:
    """The addresses on the way to this proxy; the API decides how many of them to trust.

    Anything else that a client sends as an address is replaced by "unknown".
    """
    announced = ",".join(headers.getlist("x-forwarded-for")).split(",")
    peer = scope.get("client")  # which uvicorn may have taken from the same header
    way = [*announced[-_HOPS:], peer[0] if peer else ""]
    return ", ".join(_address(hop.strip()) for hop in way if hop.strip())


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return "unknown"


class Private:
    """ASGI middleware: refuses requests without the proxy's secret.

    Args:
        secret: required value of the header ``X-ERS-Inline``; None for a proxy that answers all
            clients.
    """

    def __init__(self, app: ASGIApp, secret: str | None) -> None:
        self._app = app
        self._secret = None if secret is None else secret.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._secret is not None and scope["type"] in ("http", "websocket"):
            shown = Headers(scope=scope).get(INLINE_HEADER, "").encode("latin-1")
            if not hmac.compare_digest(shown, self._secret):
                refusal = NotAllowed(
                    "this proxy runs for a single command, and serves no others",
                    code="inline_only",
                    hint="start your own proxy: ers proxy",
                )
                await problem_answer(problem.of_error(refusal))(scope, receive, send)
                return
        await self._app(scope, receive, send)


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
_LONG = (
    "/api/files/",
    "/api/jobs/upload/",
    "/api/records/changes/",
    "/api/records/columns/",
    "/api/records/export/",
)


class _Throughput:
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
        self._pace = _Throughput(_FIRST_PACE)
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
                self._pace = _Throughput(_PACE)
        else:
            ago = now - self._seen_at
            if ago > _SHOWN_SECONDS or (ago > _PAUSE_SECONDS and self._pace.seconds < _PACE):
                self._pace = _Throughput(_PACE)
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
        sender = self._names.of(_credentials(headers) or [_peer(scope)])
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


def _peer(scope: Scope) -> str:
    peer = scope.get("client")
    return peer[0] if peer else ""

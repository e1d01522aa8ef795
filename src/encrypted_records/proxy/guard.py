"""What every request passes first: request id, Host and Origin checks, the access log.

A server on this machine can be reached by any page in the user's browser. A page of another site
that makes its name resolve here (DNS rebinding) is stopped by the Host check; one that sends
requests across sites, or opens a WebSocket, is stopped by the Origin check. Neither ever consults
the API. A WebSocket is refused by an HTTP answer, before its upgrade.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from encrypted_records import logs
from encrypted_records.client.transport import forwarded_for
from encrypted_records.errors import ErsError, NotAllowed
from encrypted_records.metrics import Requests
from encrypted_records.model import problem
from encrypted_records.proxy.access import READING
from encrypted_records.proxy.answers import problem_answer

log = logging.getLogger("encrypted_records.proxy.request")

#: What begins an answer; a WebSocket that is accepted begins with 101.
_STARTS = frozenset({"http.response.start", "websocket.http.response.start", "websocket.accept"})
_LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")


class OwnNames:
    """The names under which this proxy may be addressed.

    Args:
        host, port: where it listens.
        more: names given by the operator, with a port or for any port.
    """

    def __init__(self, host: str, port: int, more: Iterable[str] = ()) -> None:
        names = {f"{name}:{port}" for name in (*_LOCAL_NAMES, host)}
        if port == 80:
            names |= {*_LOCAL_NAMES, host}
        self._names = names | {name.lower() for name in more}

    def includes(self, host: str) -> bool:
        host = host.lower()
        return host in self._names or host.rpartition(":")[0] in self._names

    def includes_origin(self, origin: str) -> bool:
        scheme, separator, host = origin.partition("://")
        return bool(separator) and scheme in ("http", "https") and self.includes(host)

    @property
    def origins(self) -> tuple[str, ...]:
        """Origins whose absolute URLs count as references to our own resources."""
        return tuple(f"{scheme}://{name}" for name in self._names for scheme in ("http", "https"))


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
        identifier = logs.take_id(headers.get("x-request-id", ""))
        scope["request_id"] = identifier
        token = logs.request_id.set(identifier)
        forwarded_for.set(_way(scope, headers))
        started = time.perf_counter()
        status = 0

        async def answering(message: Message) -> None:
            nonlocal status
            if message["type"] in _STARTS:
                status = message.get("status", 101)
                message.setdefault("headers", [])
                MutableHeaders(scope=message)["X-Request-ID"] = identifier
            await send(message)

        try:
            refusal = self._refusal(method, headers)
            if refusal is None:
                await self._app(scope, receive, answering)
            else:
                await problem_answer(problem.of_error(refusal))(scope, receive, answering)
        finally:
            # Never the query string: a careless client may have put a value into it.
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", None)
            self._requests.observe(method, route, status, seconds)
            facts = {
                "method": method,
                "path": scope["path"],
                "status": status,
                "milliseconds": round(seconds * 1000, 1),
            }
            # repr: a path is the caller's, and must not break the line
            log.info("%s %r %s in %s ms", *facts.values(), extra={"facts": facts})
            logs.request_id.reset(token)

    def _refusal(self, method: str, headers: Headers) -> ErsError | None:
        if not self._names.includes(headers.get("host", "")):
            return NotAllowed(
                "this proxy does not go by the name in the Host header",
                code="unknown_host",
                hint="use the address that `ers up` printed, or allow the name: --allowed-hosts",
            )
        origin = headers.get("origin")
        # The method that a client of resumable uploads means may be in a header.
        methods = {method, headers.get("x-http-method-override", method).upper()}
        changes = not methods <= READING
        if changes and origin is not None and not self._names.includes_origin(origin):
            return NotAllowed(
                "a page of another site may not change anything here", code="cross_site"
            )
        return None


def _way(scope: Scope, headers: Headers) -> str:
    """Who spoke to whom until here; the API decides how much of it to believe."""
    peer = scope.get("client")
    return ", ".join([*headers.getlist("x-forwarded-for"), *([peer[0]] if peer else [])])

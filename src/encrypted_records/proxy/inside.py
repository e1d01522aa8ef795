"""The proxy's own HTTP interface, asked from inside its process, as somebody who visits a page.

Pages are a client of the interface that docs/http-api.md describes, like any other: what they
show and do is what its endpoints answer and do, and nothing is implemented twice. Requests go
straight to the router, without a socket and without the guard, which the page's own request has
passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from encrypted_records.model import problem, strict_json

_encoder = msgspec.json.Encoder(decimal_format="number")
#: What the routes of the page's own request have added to its scope.
_OF_THE_PAGE = frozenset({"endpoint", "path_params", "route", "router"})

Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: str) -> str:
        """The value of a header; nothing where there is none."""
        return dict(self.headers).get(name.lower().encode(), b"").decode("latin-1")

    def json(self) -> Any:
        """The body; numbers are exact."""
        return strict_json.loads(self.body) if self.body else None


class Inside:
    """The endpoints under /api/, for one page.

    Args:
        request: the page's own request.
        headers: what proves who asks, in every request.
    """

    def __init__(self, request: Request, headers: Headers) -> None:
        self._request = request
        self._headers = headers

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        headers: Headers | None = None,
    ) -> Answer:
        """What the endpoint answers.

        Args:
            body: anything that JSON can say; bytes go as they are.

        Raises:
            ErsError: what its problem document stands for.
        """
        scope, receive = self._sent(method, path, body, params, headers)
        status = 0
        answered: list[tuple[bytes, bytes]] = []
        parts: list[bytes] = []

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answered.extend(message.get("headers", ()))
            else:
                parts.append(message.get("body", b""))

        await self._request.app.router(scope, receive, send)
        found = Answer(status, answered, b"".join(parts))
        if status >= 400:
            wait = found.header("retry-after")
            raise problem.to_error(status, found.body, int(wait) if wait.isdecimal() else None)
        return found

    def hand_on(self, method: str, path: str, body: Any, *, headers: Headers) -> Response:
        """The endpoint's answer as the page's own, streaming.

        Args:
            headers: put into its answer.
        """
        scope, receive = self._sent(method, path, body, None, None)
        return _HandedOn(self._request, scope, receive, headers)

    def _sent(
        self,
        method: str,
        path: str,
        body: Any,
        params: Mapping[str, str] | None,
        headers: Headers | None,
    ) -> tuple[Scope, Receive]:
        sent = {**self._headers, **(headers or {})}
        data = body if isinstance(body, bytes) else b""
        if body is not None and not isinstance(body, bytes):
            data = _encoder.encode(body)
            sent.setdefault("content-type", "application/json")
        if data or method not in ("GET", "HEAD"):
            sent["content-length"] = str(len(data))
        kept = {
            name: value for name, value in self._request.scope.items() if name not in _OF_THE_PAGE
        }
        scope = kept | {
            "method": method,
            "path": path,
            "raw_path": path.encode("ascii"),
            "query_string": urlencode(params or {}).encode("ascii"),
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
        }
        pending = [data]

        async def receive() -> Message:
            if pending:
                return {"type": "http.request", "body": pending.pop(), "more_body": False}
            return await self._request.receive()

        return scope, receive


class _HandedOn(Response):
    def __init__(self, request: Request, scope: Scope, receive: Receive, headers: Headers) -> None:
        super().__init__()
        self._inner = request.app.router, scope, receive
        self._more = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        async def adding(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._more]
            await send(message)

        router, scope, receive = self._inner
        await router(scope, receive, adding)

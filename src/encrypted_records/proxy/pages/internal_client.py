"""A client of the proxy's own HTTP interface inside its process, which acts for the visitor of a
page.

Pages use the interface that docs/http-api.md describes, like any other client, so that nothing is
implemented twice. Requests go directly to the router, without a socket and without the guard, which
the page's own request has passed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar
from urllib.parse import urlencode

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from encrypted_records.client import messages
from encrypted_records.client.messages import read_retry_after
from encrypted_records.errors import ApiFailed, NotFound
from encrypted_records.http import problem
from encrypted_records.model import resources, strict_json
from encrypted_records.model.forwarded import methods_of

#: Scope keys that the routes of the page's request have added.
_OF_THE_PAGE = frozenset({"endpoint", "path_params", "route", "router"})
#: Paths that need no quoting, so that every parser reads the same path.
_PATH = re.compile(r"/api/[A-Za-z0-9._/-]*")

_Bound: TypeAlias = int | float


class _TextField(Struct, tag_field="type", tag="string"):
    enum: list[str] = []


class _WholeField(Struct, tag_field="type", tag="integer"):
    minimum: _Bound
    maximum: _Bound
    enum: list[_Bound] = []


class _NumberField(Struct, tag_field="type", tag="number"):
    minimum: _Bound
    maximum: _Bound
    precision: _Bound = 0
    enum: list[_Bound] = []


class _Definition(Struct):
    """The parts of a definition that pages show."""

    properties: Annotated[dict[str, _TextField | _WholeField | _NumberField], Meta(min_length=1)]
    required: list[str] = []


class _ShownSchema(resources.SchemaResource, frozen=True, kw_only=True):
    schema: _Definition  # type: ignore[assignment] # only checked here


#: Stricter structures for pages: the API's own leave definitions unparsed.
_STRICTER: Mapping[Any, Any] = {
    resources.SchemaResource: _ShownSchema,
    resources.ListPage[resources.SchemaResource]: resources.ListPage[_ShownSchema],
}

T = TypeVar("T")
Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ProxyAnswer:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: str) -> str:
        """The value of a header; empty if there is none."""
        wanted = name.lower().encode()
        found = (value for key, value in self.headers if key.lower() == wanted)
        return next(found, b"").decode("latin-1")

    def allows(self, method: str) -> bool:
        """Whether the answer lists a method as allowed for the caller, or lists none."""
        allowed = self.header("allow")
        return not allowed or method in allowed.replace(" ", "").split(",")

    def read(self, kind: type[T]) -> T:
        """The body as ``kind``, parsed in a quarter of the time of :meth:`json`."""
        return messages.Response(self.status, {}, self.body).convert(kind)

    def json(self) -> Any:
        """The body; numbers are exact."""
        return strict_json.loads(self.body) if self.body else None


#: Parameters of a query: a list repeats its name.
Parameters = Mapping[str, str | Sequence[str]]


class Inside:
    """The endpoints under /api/, for one page.

    Args:
        request: the page's request.
        headers: credentials for every request.
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
        params: Parameters | None = None,
        headers: Headers | None = None,
    ) -> ProxyAnswer:
        """Call an endpoint; returns its answer.

        Args:
            body: any JSON value; bytes, or an iterator of bytes, are sent unchanged.

        Raises:
            ErsError: the error of its problem document.
            ApiFailed: the answer was interrupted; or the answer of the API, which was forwarded,
                has no end, or lacks members that pages need.
        """
        scope, receive = self._send(method, path, body, params, headers)
        forwarded = methods_of(path).get(method)
        more, status = True, 0
        answered: list[tuple[bytes, bytes]] = []
        parts: list[bytes] = []

        async def send(message: Message) -> None:
            nonlocal more, status
            if message["type"] == "http.response.start":
                status = message["status"]
                answered.extend(message.get("headers", ()))
            else:
                parts.append(message.get("body", b""))
                more = message.get("more_body", False)

        await self._request.app.router(scope, receive, send)
        if more:
            raise ApiFailed("the answer was interrupted")
        response = ProxyAnswer(status, answered, b"".join(parts))
        if status >= 400:
            wait = read_retry_after(response.header("retry-after"))
            raise problem.to_error(status, response.body, wait)
        if forwarded is not None and forwarded.structure is not None:
            structure = _STRICTER.get(forwarded.structure, forwarded.structure)
            messages.Response(status, {}, response.body).convert(structure)
        return response

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, body: Any, params: Parameters | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body of an answer, in pieces as they arrive.

        Raises:
            ErsError: the error of its problem document.
        """
        scope, receive = self._send(method, path, body, params, None)
        heard: asyncio.Queue[Message | Exception | None] = asyncio.Queue(1)

        async def work() -> None:
            try:
                await self._request.app.router(scope, receive, heard.put)
            except Exception as error:
                await heard.put(error)
            else:
                await heard.put(None)

        async def pieces() -> AsyncIterator[bytes]:
            more = True
            while (message := await heard.get()) is not None:
                if isinstance(message, Exception):
                    raise message
                more = message.get("more_body", False)
                yield message.get("body", b"")
            if more:
                raise ApiFailed("the answer was interrupted")

        task = asyncio.ensure_future(work())  # noqa: TID251 - ends with this block
        try:
            start = await heard.get()
            if isinstance(start, Exception):
                raise start
            assert start is not None
            if start["status"] >= 400:
                refusal = b"".join([piece async for piece in pieces()])
                raise problem.to_error(start["status"], refusal, None)
            yield pieces()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _send(
        self,
        method: str,
        path: str,
        body: Any,
        params: Parameters | None,
        headers: Headers | None,
    ) -> tuple[Scope, Receive]:
        # Parts of a path may come from a form, or from the API.
        if not (isinstance(path, str) and _PATH.fullmatch(path)):
            raise NotFound("there is nothing at that address")
        sent = {**self._headers, **(headers or {})}
        data = body if isinstance(body, bytes) else b""
        streams = isinstance(body, AsyncIterator)
        if body is not None and not streams and not isinstance(body, bytes):
            data = strict_json.encode(body)
            sent.setdefault("content-type", "application/json")
        if not streams and (data or method not in ("GET", "HEAD")):
            sent["content-length"] = str(len(data))
        kept = {
            name: value for name, value in self._request.scope.items() if name not in _OF_THE_PAGE
        }
        scope = kept | {
            "method": method,
            "path": path,
            "raw_path": path.encode("ascii"),
            "query_string": urlencode(params or {}, doseq=True).encode("ascii"),
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
        }
        if streams:
            return scope, _receive_from(body)
        pending = [data]

        async def receive() -> Message:
            if pending:
                return {"type": "http.request", "body": pending.pop(), "more_body": False}
            return await self._request.receive()

        return scope, receive


def _receive_from(pieces: AsyncIterator[bytes]) -> Receive:
    async def receive() -> Message:
        async for piece in pieces:
            return {"type": "http.request", "body": piece, "more_body": True}
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive

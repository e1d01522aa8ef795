"""Everything else under /api/ goes to the API unchanged, streaming both ways.

Paths on which clients send plaintext are the proxy's alone. Where it has no such endpoint it
refuses the request itself: forwarded, the body would reach the API in the clear.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import aiohttp
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from yarl import URL

from encrypted_records.client.transport import ANSWER_SECONDS, CONNECT_SECONDS, forwarded_for
from encrypted_records.errors import ApiTimeout, ApiUnreachable, NotFound, Refused
from encrypted_records.proxy.answers import answer
from encrypted_records.proxy.parts import parts_of

_METHODS = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
_OWN = (
    "/api/records/",
    "/api/jobs/",
    "/api/files/",
    "/api/ws/",
    "/api/commits/",
    "/api/keyring/",
    "/api/schemas/infer/",
    "/api/schemas/estimate/",
    # Ours to ask: a page that runs here must not get hold of more than its session.
    "/api/token/session/",
)
#: Endpoints that end logins where they succeed, which takes a login or a link.
_ENDING = frozenset(
    f"/api/accounts/{name}/" for name in ("logout", "change-password", "reset-password")
)
_HOP_BY_HOP = frozenset(
    "connection keep-alive proxy-authenticate proxy-authorization te trailer"
    " transfer-encoding upgrade".split()
)
_REPLACED = frozenset({"host", "origin", "referer", "content-length", "x-forwarded-for"})
_CHUNK = 64 << 10
#: A stream may take as long as it likes, but not pause for longer than this.
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=ANSWER_SECONDS)


async def forward(request: Request) -> Response:
    """The API's answer to this request.

    Raises:
        ApiUnreachable, ApiTimeout: there is none.
    """
    transport = parts_of(request).api.transport
    url = URL(transport.base_url + request.scope["raw_path"].decode("ascii"), encoded=True)
    if request.url.query:
        url = URL(f"{url}?{request.url.query}", encoded=True)
    try:
        upstream = await transport.session.request(
            request.method,
            url,
            headers=_request_headers(request, transport.base_url),
            data=_body(request),
            allow_redirects=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            timeout=_TIMEOUT,
        )
    except TimeoutError:
        raise ApiTimeout("the API gave no answer in time") from None
    except (aiohttp.ClientError, OSError):
        raise ApiUnreachable("the API cannot be reached") from None
    if upstream.status < 400 and request.url.path in _ENDING:
        parts_of(request).access.forget_everyone()
    response = StreamingResponse(_stream(upstream), upstream.status)
    response.raw_headers = [
        (name.lower().encode(), value.encode("latin-1"))
        for name, value in upstream.headers.items()
        if name.lower() not in _HOP_BY_HOP
    ]
    return response


def _request_headers(request: Request, base_url: str) -> list[tuple[str, str]]:
    """The client's headers, with those that name a host naming the API's.

    The Origin was checked against the proxy's own names; Django checks it against its own.
    """
    kept = [
        (name, value)
        for name, value in request.headers.items()
        if name not in _HOP_BY_HOP and name not in _REPLACED
    ]
    if "content-length" in request.headers:
        kept.append(("Content-Length", request.headers["content-length"]))
    if "origin" in request.headers:
        kept.append(("Origin", base_url))
    if "referer" in request.headers:
        kept.append(("Referer", base_url + "/"))
    kept.append(("X-Request-ID", request.scope["request_id"]))
    kept.append(("X-Forwarded-For", forwarded_for.get()))
    return kept


def _body(request: Request) -> AsyncIterator[bytes] | None:
    has_body = "content-length" in request.headers or "transfer-encoding" in request.headers
    return request.stream() if has_body else None


async def _stream(upstream: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async with upstream:
        async for chunk in upstream.content.iter_chunked(_CHUNK):
            yield chunk


def ends_here(path: str) -> bool:
    """Whether a path is one that is never forwarded."""
    return f"{path}/".startswith(_OWN)


async def other(request: Request) -> Response:
    """A path that is no endpoint of the proxy's own."""
    if ends_here(request.url.path):
        if request.method in ("GET", "HEAD"):
            raise NotFound("the proxy has no such endpoint")
        raise Refused(
            "the proxy has no such endpoint, and what clients send here is never forwarded",
            code="not_forwarded",
        )
    return await forward(request)


async def status(request: Request) -> Response:
    """GET /api/status/: the API's own, seen through the proxy."""
    found = await parts_of(request).api.transport.request("GET", "/api/status/", repeatable=False)
    return answer(json.loads(found.body) | {"behind_proxy": True})


routes = [
    Route("/api/status/", status, methods=["GET"]),
    Route("/api/{path:path}", other, methods=_METHODS),
]

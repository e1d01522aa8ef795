"""Parts of the API's answer that a client of the proxy receives.

The answer reaches browsers under the proxy's own address, where pages hold keys and records. So it
is data or nothing: JSON, or an error of ours. Each header is on a list and must have its form.
:mod:`encrypted_records.proxy.http.guard` sets the headers that tell a browser how to treat the
answer, as for all paths under /api/.

That the body is JSON is checked of answers up to 256 KiB, which nearly all are. Longer ones stream,
as lists of definitions may be long: a check would need them whole in memory. It is for clients'
sake. The headers keep browsers from running an answer that is not JSON.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
from starlette.responses import Response, StreamingResponse

from encrypted_records import runtime
from encrypted_records.client import messages, transport
from encrypted_records.errors import ApiFailed, ApiTimeout, ApiUnreachable, Malformed
from encrypted_records.http import problem
from encrypted_records.model import strict_json
from encrypted_records.model.forwarded import JSON, Forwarded, methods_of
from encrypted_records.proxy.http.messages import CHALLENGES
from encrypted_records.proxy.http.sessions import rewrite_cookies

CHECKED_BYTES = 256 << 10
#: The longest answer of which something is changed.
WHOLE_BYTES = 32 << 20
#: Above this, JSON is read in a thread: it takes longer than others should wait.
_QUICK_BYTES = 64 << 10
_CHUNK_BYTES = 64 << 10
_NO_CONTENT = 204

#: Headers that are forwarded, and what each must look like.
_HEADERS = {
    "ETag": re.compile(r'(?:W/)?"[\x21\x23-\x7e]{0,200}"'),
    "Retry-After": re.compile(r"[0-9]{1,6}"),
    "Allow": re.compile(r"[A-Z]{1,10}(?:, ?[A-Z]{1,10}){0,10}"),
}


async def answer_of(
    upstream: aiohttp.ClientResponse, endpoint: Forwarded, *, secure: bool
) -> Response:
    """The API's answer as the proxy's own. ``upstream`` is closed in the end, in any case.

    Args:
        secure: whether the request came by https.

    Raises:
        ApiFailed: ``api_answer``: it is not an answer that the API gives. Its content is dropped.
        ApiUnreachable, ApiTimeout: it broke off.
    """
    try:
        kind = _kind(upstream)
        response = await _body(upstream, kind)
    except BaseException:
        upstream.close()
        raise
    return _with_headers(response, upstream, endpoint, secure=secure)


async def changed_answer_of(
    upstream: aiohttp.ClientResponse,
    endpoint: Forwarded,
    change: Callable[[bytes], Awaitable[bytes]],
    *,
    secure: bool,
) -> Response | None:
    """The same with another body, of one that is held whole; None where it is too long for that.

    Raises:
        ApiFailed, ApiUnreachable, ApiTimeout: as :func:`answer_of`.
    """
    try:
        kind = _kind(upstream)
        body = bytearray()
        with _ours():
            async with asyncio.timeout(transport.ANSWER_SECONDS):
                async for chunk in upstream.content.iter_chunked(_CHUNK_BYTES):
                    body += chunk
                    if len(body) > WHOLE_BYTES:
                        upstream.close()
                        return None
        if len(body) <= CHECKED_BYTES:
            await _check(bytes(body))
        response = Response(await change(bytes(body)), upstream.status, media_type=kind)
    except BaseException:
        upstream.close()
        raise
    upstream.release()
    return _with_headers(response, upstream, endpoint, secure=secure)


def _with_headers(
    response: Response, upstream: aiohttp.ClientResponse, endpoint: Forwarded, *, secure: bool
) -> Response:
    response.raw_headers += [
        (name.lower().encode(), value.encode("latin-1"))
        for name, value in _headers(upstream, endpoint, secure=secure)
    ]
    return response


def refusal(detail: str) -> ApiFailed:
    """The API's answer is not forwarded; ``detail`` quotes nothing of it."""
    return ApiFailed(
        f"the API's answer was not forwarded: {detail}",
        code="api_answer",
        hint="check that --base-url names the API itself, and check any server in front of it",
    )


def read_object(upstream: messages.Response, kind: str = JSON) -> dict[str, Any]:
    """The JSON object that the API has answered a question of the proxy's own with.

    Args:
        kind: the media type that it must have.

    Raises:
        ApiFailed: ``api_answer``: it is not one.
    """
    if upstream.status != 200 or _essence(upstream.headers.get("Content-Type", "")) != kind:
        raise refusal("it is not the requested kind of answer")
    try:
        value = strict_json.loads(upstream.body)
    except Malformed:
        raise refusal("it is not JSON, although it is declared as JSON") from None
    if not isinstance(value, dict):
        raise refusal("it is not a JSON object")
    return value


def _kind(upstream: aiohttp.ClientResponse) -> str:
    """The answer's media type; empty where it has no body.

    Raises:
        ApiFailed: the API gives no such answer.
    """
    status = upstream.status
    if not (200 <= status < 300 or 400 <= status < 600):
        # A client would follow it, perhaps with its body and password, to where the API says.
        raise refusal("it has a status that the API does not use")
    if upstream.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise refusal("it is compressed, which was not requested")
    kind = _essence(upstream.headers.get("Content-Type", ""))
    if status >= 400 and not kind:
        # The API names its errors; a load balancer that has no API to ask may say nothing.
        raise refusal(f"it has status {status} and no problem document")
    if status == _NO_CONTENT or (not kind and upstream.headers.get("Content-Length") == "0"):
        return ""
    if kind not in ((JSON,) if status < 400 else (JSON, problem.MEDIA_TYPE)):
        raise refusal("it is not JSON")
    return kind


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


async def _body(upstream: aiohttp.ClientResponse, kind: str) -> Response:
    status = upstream.status
    if not kind:
        upstream.release()
        return Response(status_code=status)
    if upstream.method == "HEAD":
        upstream.release()
        return _head(upstream, kind)
    begin = bytearray()
    with _ours():
        # Until there is an answer nobody sees a client leave, whom an API keeps waiting.
        async with asyncio.timeout(transport.ANSWER_SECONDS):
            async for chunk in upstream.content.iter_chunked(_CHUNK_BYTES):
                begin += chunk
                if len(begin) > CHECKED_BYTES:
                    rest = _rest(upstream, bytes(begin))
                    return StreamingResponse(rest, status, media_type=kind)
    upstream.release()
    await _check(bytes(begin))
    if status >= 400 and not problem.is_named(bytes(begin)):
        raise refusal(f"it has status {status} and no problem document")
    return Response(bytes(begin), status, media_type=kind)


def _head(upstream: aiohttp.ClientResponse, kind: str) -> Response:
    response = Response(status_code=upstream.status, media_type=kind)
    # The length of the body of the same GET, which is forwarded byte by byte.
    length = upstream.headers.get("Content-Length", "")
    del response.headers["content-length"]
    if re.fullmatch(r"[0-9]{1,12}", length):
        response.headers["Content-Length"] = length
    return response


async def _check(body: bytes) -> None:
    quick = len(body) <= _QUICK_BYTES
    try:
        if quick:
            strict_json.loads(body)
        else:
            await runtime.in_thread(strict_json.loads, body)
    except Malformed:
        raise refusal("it is not JSON, although it is declared as JSON") from None


async def _rest(upstream: aiohttp.ClientResponse, begin: bytes) -> AsyncIterator[bytes]:
    async with upstream:
        yield begin
        with _ours():
            async for chunk in upstream.content.iter_chunked(_CHUNK_BYTES):
                yield chunk


@contextmanager
def _ours() -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise ApiTimeout("the API gave no answer in time") from None
    except (aiohttp.ClientError, OSError):
        raise ApiUnreachable("the connection to the API was lost") from None


def _headers(
    upstream: aiohttp.ClientResponse, endpoint: Forwarded, *, secure: bool
) -> Iterator[tuple[str, str]]:
    yield "Cache-Control", "no-store"
    for name, form in _HEADERS.items():
        value = upstream.headers.get(name, "")
        if form.fullmatch(value):
            yield name, value
    location = upstream.headers.get("Location", "")
    if "GET" in methods_of(location):
        yield "Location", location
    if upstream.status == 401:
        yield from CHALLENGES
    lines = upstream.headers.getall("Set-Cookie", [])
    for line in rewrite_cookies(lines, endpoint.sets, secure=secure):
        yield "Set-Cookie", line

"""Forwarded requests and answers: the parts that the API, and a client, receive.

Each header of a request is on a list, and is made here if possible. Other headers of a client are
not sent, nor is a device secret. Parameters must be those of the endpoint; they are encoded again,
so that the proxy and the API read the address alike.

The API's answer reaches browsers under the proxy's own address, where pages hold keys and records.
So it must be data: JSON, or an error of this proxy. Each header is on a list and must be well
formed. :mod:`encrypted_records.proxy.http.guard` sets the headers that tell a browser how to treat
the answer, as for all paths under /api/.

Answers up to 256 KiB, which nearly all are, are checked to be JSON, for clients' sake. Longer
answers, such as lists of definitions, are streamed: a check would need them whole in memory. The
headers keep browsers from running an answer that is not JSON. An answer without an end breaks off:
clients trust their proxy, and hold its answers in memory.
"""

from __future__ import annotations

import asyncio
import codecs
import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

import aiohttp
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records import errors, runtime
from encrypted_records.client import messages, transport
from encrypted_records.client.transport import forwarded_for
from encrypted_records.http import problem
from encrypted_records.model import strict_json
from encrypted_records.model.credentials import without_device
from encrypted_records.model.forwarded import JSON, SIGNED, Forwarded, methods_of
from encrypted_records.model.ids import from_reference, reference, slug_in
from encrypted_records.model.record_formats import charset_of, require_utf8
from encrypted_records.proxy.api.endpoint import is_service_string
from encrypted_records.proxy.api.parameters import require_once
from encrypted_records.proxy.auth import (
    RequestCredentials,
    authorization_of,
    plain,
    refuse_in_basic,
    refuse_service_string,
)
from encrypted_records.proxy.http.messages import CHALLENGES, Download, media_type, read_body
from encrypted_records.proxy.http.sessions import cookie_header, rewrite_cookies
from encrypted_records.proxy.services import services_of
from encrypted_records.proxy.sharing.shown_names import Collection

#: Above this size, JSON is parsed in a thread: it takes longer than other requests should wait.
_QUICK_BYTES = 64 << 10
#: RFC 6750, section 2.1.
_BEARER = re.compile(r"bearer [A-Za-z0-9._~+/-]+=*", re.IGNORECASE)

_ETAG = r'(?:W/)?"[\x21\x23-\x7e]{0,200}"'
_ETAGS = re.compile(rf"\*|{_ETAG}(?:[ \t]*,[ \t]*{_ETAG}){{0,9}}")


async def query_of(request: Request, endpoint: Forwarded) -> str:
    """The request's parameters, encoded again.

    Raises:
        InvalidQuery: a parameter that the endpoint does not have.
        BadInput: they are not UTF-8.
    """
    try:
        pairs = parse_qsl(request.url.query, keep_blank_values=True, errors="strict")
    except ValueError:
        raise errors.BadInput("the parameters are not UTF-8") from None
    flaws = tuple(
        errors.Flaw("unknown_parameter", "there is no such parameter", parameter=name)
        for name in dict.fromkeys(name for name, _ in pairs)
        if name not in endpoint.query
    )
    if flaws:
        raise errors.InvalidQuery(
            "this path does not have such a parameter",
            hint="leave it out; docs/http-api.md lists the parameters of each path",
            flaws=flaws,
        )
    for name, times in Counter(name for name, _ in pairs).items():
        require_once(name, times)
    sent: list[tuple[str, str]] = []
    for name, value in pairs:
        collection = endpoint.references.get(name, "")
        try:
            sent.append((name, await _as_path(request, value, collection, pointer="")))
        except errors.BadInput as error:
            flaws = tuple(replace(flaw, pointer=None, parameter=name) for flaw in error.flaws)
            raise errors.BadInput(
                f"{name}: {error.message}", hint=error.hint, flaws=flaws
            ) from None
    return urlencode(sent)


async def _as_path(request: Request, value: str, collection: str, *, pointer: str) -> str:
    """A reference by a URL of this proxy or by a slug, as a path: the API does not know this
    proxy's address, and does not look up names.

    Args:
        collection: the collection of the referenced object; empty if the value is not a reference.

    Raises:
        ErsError: as :meth:`ShownNames.of_reference`.
    """
    services = services_of(request)
    own_hosts = services.own_origins
    named: Collection = "datasets" if collection == "datasets" else "schemas"
    if collection == named and slug_in(value, named, own_hosts=own_hosts):
        holder = await services.admission.holder(request)
        find = services.sharing.shown_names.of_reference
        return reference(
            named, await find(holder, value, named, pointer=pointer, own_hosts=own_hosts)
        )
    if not collection or "://" not in value:
        return value
    try:
        return reference(
            collection, from_reference(value, collection, pointer="", own_hosts=own_hosts)
        )
    except errors.BadInput:
        return value  # the API's error names its position


async def body_of(request: Request, endpoint: Forwarded) -> bytes | None:
    """The request's body, if the endpoint takes one; otherwise a body is not read.

    Raises:
        Unsupported: another media type, or a charset other than UTF-8.
        TooLarge: longer than the endpoint's limit; the rest is not read.
        Malformed: not a JSON object.
        NotAuthenticated: a member is a service's secret key.
        BadInput: a member is a proof.
    """
    announced = request.headers.get("content-length", "0")
    comes = announced != "0" or "transfer-encoding" in request.headers
    if not comes or not endpoint.takes:
        return None
    if media_type(request) not in endpoint.takes:
        raise errors.Unsupported(
            f"this path accepts {' or '.join(sorted(endpoint.takes))}",
            code="unsupported_media_type",
            hint="name it in Content-Type",
        )
    require_utf8(charset_of(request.headers.get("content-type", "")))
    if announced.isdecimal() and int(announced) > endpoint.most:
        raise _too_large(endpoint)
    try:
        body = await read_body(request, limit=endpoint.most)
    except errors.TooLarge:
        raise _too_large(endpoint) from None
    if not body:
        return body
    members = await _read_object(body)
    # For example as the password of a login: the API's operator would get the keys.
    refuse_service_string(*(member for member in members.values() if isinstance(member, str)))
    if "proof" in members:  # likewise a password, or the words of a keyring
        raise errors.BadInput(
            "this path does not require a proof; nothing was forwarded",
            hint="check the path; only this proxy may receive a proof, and the API must not",
            flaws=(errors.Flaw("unknown_member", "the API takes no such member", "/proof"),),
        )
    return await _as_sent_on(request, body, members, endpoint)


def _too_large(endpoint: Forwarded) -> errors.TooLarge:
    return errors.TooLarge(
        f"the body is larger than {endpoint.most} bytes, the maximum for this path",
        hint="nothing was forwarded; check that the body belongs to this path",
    )


async def _as_sent_on(
    request: Request, body: bytes, members: Mapping[str, object], endpoint: Forwarded
) -> bytes:
    """The body with its references as paths, and without ``signed``, which this proxy adds to
    answers and the API does not know. All other members are unchanged, byte by byte, so that a
    definition comes back unchanged.
    """
    added = {SIGNED} & members.keys() if endpoint.resources in ("datasets", "schemas") else set()
    paths: dict[str, str | list[str]] = {}
    for name, collection in endpoint.references.items():
        sent = members.get(name)
        if isinstance(sent, str):
            paths[name] = await _as_path(request, sent, collection, pointer=f"/{name}")
        elif isinstance(sent, list) and all(isinstance(item, str) for item in sent):
            paths[name] = [
                await _as_path(request, entry, collection, pointer=f"/{name}/{number}")
                for number, entry in enumerate(sent)
            ]
    paths = {name: path for name, path in paths.items() if path != members[name]}
    if not paths and not added:
        return body
    text = body.removeprefix(codecs.BOM_UTF8)
    written = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    kept = {name: sent for name, sent in written.items() if name not in added}
    return msgspec.json.encode(kept | paths)


async def _read_object(body: bytes) -> Mapping[str, object]:
    """The API takes only objects, so other bodies were not meant for it."""
    quick = len(body) <= _QUICK_BYTES
    value = strict_json.loads(body) if quick else await runtime.in_thread(strict_json.loads, body)
    if not isinstance(value, dict):
        raise errors.Malformed("expected a JSON object; nothing was forwarded")
    return value


def headers_of(request: Request, base_url: str, body: bytes | None) -> Sequence[tuple[str, str]]:
    """The headers for the API.

    ``Origin`` was checked against the proxy's own address; Django checks it against the API's.

    Args:
        body: the body from :func:`body_of`.

    Raises:
        BadInput: ``If-Match`` is not a list of ETags.
    """
    sent = request.headers
    headers = [
        ("Accept-Encoding", "identity"),
        ("X-Request-ID", request.scope["request_id"]),
        ("X-Forwarded-For", forwarded_for.get()),
    ]
    authorization = _authorization(sent.get("authorization", ""))
    if authorization:
        headers.append(("Authorization", authorization))
    cookie = cookie_header(request.cookies)
    if cookie:
        headers.append(("Cookie", cookie))
    token = plain(sent.get("x-csrftoken"))
    if token:
        headers.append(("X-CSRFToken", token))
    if "origin" in sent:
        headers.append(("Origin", base_url))
    if "referer" in sent:
        headers.append(("Referer", f"{base_url}/"))
    matching = ", ".join(sent.getlist("if-match"))
    if _ETAGS.fullmatch(matching):
        headers.append(("If-Match", matching))
    elif matching:
        detail = 'expected "*", or ETags'
        raise errors.BadInput(detail, flaws=(errors.Flaw("invalid", detail, header="If-Match"),))
    if body is not None:
        headers.append(("Content-Type", media_type(request)))
    return headers


def _authorization(value: str) -> str:
    """Basic and Bearer credentials; empty for other schemes, which are not for the API. The API
    receives the token that is derived from a service's secret key, not the secret key.

    Raises:
        NotAuthenticated: a service's secret key is used as a password.
    """
    if is_service_string(value):
        service = RequestCredentials("bearer", value.strip().partition(" ")[2].strip()).service
        return "" if service is None else authorization_of(service)
    # Any number of blanks may follow the scheme (RFC 9110, section 11.4).
    scheme, _, secret = value.strip().partition(" ")
    kept = without_device(f"{scheme} {secret.strip()}")
    refuse_in_basic(kept)
    is_basic = kept.startswith("Basic ")
    return kept if is_basic or _BEARER.fullmatch(kept) else ""


# --- answers --------------------------------------------------------------------------------------

CHECKED_BYTES = 256 << 10
#: Maximum size of an answer that is changed.
WHOLE_BYTES = 32 << 20
_CHUNK_BYTES = 64 << 10
_NO_CONTENT = 204

#: Headers that are forwarded, and the required form of each.
_HEADERS = {
    "ETag": re.compile(r'(?:W/)?"[\x21\x23-\x7e]{0,200}"'),
    "Retry-After": re.compile(r"[0-9]{1,6}"),
    "Allow": re.compile(r"[A-Z]{1,10}(?:, ?[A-Z]{1,10}){0,10}"),
}


async def answer_of(
    upstream: aiohttp.ClientResponse, endpoint: Forwarded, *, secure: bool
) -> Response:
    """The API's answer as the proxy's. ``upstream`` is always closed at the end.

    Args:
        secure: whether the request came by https.

    Raises:
        ApiFailed: ``api_answer``: it is not a valid answer of the API. Its content is dropped.
        ApiUnreachable, ApiTimeout: it was interrupted.
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
    """Like :func:`answer_of`, with the body changed by ``change``; the body is held in memory. None
    if it is too long for that.

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
    response.headers["Cache-Control"] = "no-store"
    response.raw_headers += [
        (name.lower().encode(), value.encode("latin-1"))
        for name, value in _headers(upstream, endpoint, secure=secure)
    ]
    return response


def refusal(detail: str) -> errors.ApiFailed:
    """The API's answer is not used; ``detail`` quotes nothing of it."""
    return errors.ApiFailed(
        f"the API's answer was not forwarded: {detail}",
        code="api_answer",
        hint="check that --base-url names the API itself, and check any server in front of it",
    )


def read_object(upstream: messages.Response, kind: str = JSON) -> dict[str, Any]:
    """The JSON object in the API's answer to a request of the proxy.

    Args:
        kind: the required media type.

    Raises:
        ApiFailed: ``api_answer``: it is not a JSON object.
    """
    if upstream.status != 200 or _essence(upstream.headers.get("Content-Type", "")) != kind:
        raise refusal("it is not the requested kind of answer")
    try:
        value = strict_json.loads(upstream.body)
    except errors.Malformed:
        raise refusal("it is not JSON, although it is declared as JSON") from None
    if not isinstance(value, dict):
        raise refusal("it is not a JSON object")
    return value


def _kind(upstream: aiohttp.ClientResponse) -> str:
    """The answer's media type; empty if it has no body.

    Raises:
        ApiFailed: it is not a valid answer of the API.
    """
    status = upstream.status
    if not (200 <= status < 300 or 400 <= status < 600):
        # A client would follow a redirect, perhaps with its body and password, to an address that
        # the API chooses.
        raise refusal("it has a status that the API does not use")
    if upstream.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise refusal("it is compressed, which was not requested")
    kind = _essence(upstream.headers.get("Content-Type", ""))
    if status >= 400 and not kind:
        # The API names its errors; a load balancer without a reachable API may answer without a
        # name.
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
        # Until there is an answer, a client that disconnects is not noticed, so the API could keep
        # it waiting.
        async with asyncio.timeout(transport.ANSWER_SECONDS):
            async for chunk in upstream.content.iter_chunked(_CHUNK_BYTES):
                begin += chunk
                if len(begin) > CHECKED_BYTES:
                    if status >= 400:
                        raise refusal("its error is longer than any of the API")
                    return Download(_stream_body(upstream, bytes(begin)), kind, status)
    upstream.release()
    await _check(bytes(begin))
    if status < 400:
        return Response(bytes(begin), status, media_type=kind)
    if not problem.is_named(bytes(begin)):
        raise refusal(f"it has status {status} and no problem document")
    named = strict_json.encode(problem.of_api(status, bytes(begin)))
    return Response(named, status, media_type=kind)


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
    except errors.Malformed:
        raise refusal("it is not JSON, although it is declared as JSON") from None


async def _stream_body(
    upstream: aiohttp.ClientResponse, begin: bytes
) -> AsyncGenerator[bytes, None]:
    left = transport.MAX_JSON_BYTES - len(begin)
    async with upstream:
        yield begin
        with _ours():
            async for chunk in upstream.content.iter_chunked(_CHUNK_BYTES):
                left -= len(chunk)
                if left < 0:
                    raise refusal("it has no end")
                yield chunk


@contextmanager
def _ours() -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise errors.ApiTimeout("the API gave no answer in time") from None
    except (aiohttp.ClientError, OSError):
        raise errors.ApiUnreachable("the connection to the API was lost") from None


def _headers(
    upstream: aiohttp.ClientResponse, endpoint: Forwarded, *, secure: bool
) -> Iterator[tuple[str, str]]:
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

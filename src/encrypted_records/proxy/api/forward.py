"""Forwarding to the API: endpoints on a list are forwarded, all other paths are refused.

A path that is spelled differently from :mod:`encrypted_records.model.forwarded`, by as little as a
slash or a percent sign, may have plaintext that was meant for an endpoint of the proxy. It is
refused before its body is read. :mod:`.outgoing` makes the request that is sent, and
:mod:`.incoming` the answer that is returned.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from urllib.parse import parse_qsl, urlencode

import aiohttp
import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, WebSocketRoute
from starlette.websockets import WebSocket

from encrypted_records.client import journal
from encrypted_records.errors import ApiTimeout, ApiUnreachable, BadInput, Flaw, NotFound
from encrypted_records.model.credentials import ANSWER_HEADER, api_token_of
from encrypted_records.model.forwarded import FORWARDED, Forwarded, has_form, methods_of
from encrypted_records.model.ids import (
    ID_BYTES,
    from_path,
    no_identifier,
    reference,
    slug_in,
)
from encrypted_records.proxy.api.endpoint import LAST, Endpoints, PathRoute
from encrypted_records.proxy.api.incoming import answer_of, changed_answer_of, read_object, refusal
from encrypted_records.proxy.api.outgoing import body_of, headers_of, query_of
from encrypted_records.proxy.api.parameters import find_slug
from encrypted_records.proxy.api.signed_names import free_name, name_as_signed, sign_change
from encrypted_records.proxy.api.token_uses import require_writing
from encrypted_records.proxy.http.messages import answer
from encrypted_records.proxy.services import services_of
from encrypted_records.proxy.sharing.shown_names import Collection

#: Schemas that are held together however long their definitions and descriptions are: of 1 MiB and
#: 100,000 characters, each written in six.
_FEW = 16
#: A deleted resource is gone, also where an earlier request deleted it. An API that only says so
#: keeps something that nobody looks for any more: its owner has asked for the end of it by id.
_GONE = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND)
#: The most bytes that are read of a refusal: more than any problem document has.
_PROBLEM_BYTES = 16 << 10
_OF_LOGINS = frozenset({"Authorization", "Cookie", "X-CSRFToken"})

_OF_RESOURCE = re.compile(r"/api/(datasets|schemas)/([^/]+)/(.*)")
_ANY = {
    collection: reference(collection, bytes(ID_BYTES)) for collection in ("datasets", "schemas")
}

endpoint = Endpoints("forward")


@endpoint.every_method(LAST)
async def forward(request: Request) -> Response:
    """The API's answer to this request.

    Raises:
        NotFound, HTTPException: it is not on the list, by its path or its method.
        BadInput, Unsupported: it has parameters or a body that are not.
        ApiUnreachable, ApiTimeout: there is no answer.
        ApiFailed: there is one that is not forwarded.
    """
    path = await _by_id(request, request.scope["raw_path"].decode("latin-1"))
    methods = methods_of(path)
    endpoint = methods.get("GET" if request.method == "HEAD" else request.method)
    if endpoint is None:
        raise _refusal(request, path)
    query = await query_of(request, endpoint)
    body = await body_of(request, endpoint)
    target = f"{path}?{query}" if query else path
    if endpoint.defines and body:
        upstream = await _define(request, path, target, body)
    else:
        upstream = await _ask(request, target, body)
    if endpoint.signed and body and upstream.status == HTTPStatus.CONFLICT:
        upstream = await _sign(request, path, target, body, upstream)
        if endpoint.defines and upstream.status == HTTPStatus.CONFLICT:
            upstream = await _define_late(request, path, target, body, upstream)
    if endpoint.frees and upstream.status in _GONE:
        await free_name(request, path)
    if upstream.status < 400 and endpoint.ends_logins:
        services_of(request).access.forget_everyone()
    secure = request.url.scheme == "https"
    if endpoint.shows and request.method == "GET":
        return await _show(request, path, endpoint, upstream, secure=secure)
    return await answer_of(upstream, endpoint, secure=secure)


async def _by_id(request: Request, path: str) -> str:
    """The path with the id of a dataset or schema where it has its slug.

    Raises:
        ErsError: as :func:`find_slug`.
    """
    found = _OF_RESOURCE.fullmatch(path)
    if found is None or methods_of(path):
        return path
    collection: Collection = "datasets" if found[1] == "datasets" else "schemas"
    if slug_in(found[2], collection) is None or not methods_of(f"{_ANY[collection]}{found[3]}"):
        return path
    resource = await find_slug(request, collection, found[2])
    return f"{reference(collection, resource)}{found[3]}"


async def _show(
    request: Request,
    path: str,
    endpoint: Forwarded,
    upstream: aiohttp.ClientResponse,
    *,
    secure: bool,
) -> Response:
    """The answer with the names that were signed.

    A list whose definitions are too long to be held together is asked for once more, as a page of
    few: its ``next`` goes on from there, so that clients that follow it have all of the list.
    """
    named = partial(name_as_signed, request, endpoint.shows)
    for last in (False, True):
        if upstream.status != HTTPStatus.OK:
            return await answer_of(upstream, endpoint, secure=secure)
        shown = await changed_answer_of(upstream, endpoint, named, secure=secure)
        if shown is not None:
            return shown
        if last or "limit" not in endpoint.query:
            break
        asked = parse_qsl(await query_of(request, endpoint), keep_blank_values=True)
        few = [(name, value) for name, value in asked if name != "limit"]
        upstream = await _ask(request, f"{path}?{urlencode([*few, ('limit', _FEW)])}", None)
    raise refusal("it is longer than any answer of the API")


async def _sign(
    request: Request, path: str, target: str, body: bytes, refused: aiohttp.ClientResponse
) -> aiohttp.ClientResponse:
    """Sign a change that the API refused because the roster has to say it, and send it again; what
    it refused for another reason is only sent again, since its answer was read."""
    try:
        begin = await refused.content.read(_PROBLEM_BYTES)
    except (aiohttp.ClientError, OSError, TimeoutError):
        raise ApiUnreachable("the API cannot be reached") from None
    finally:
        refused.close()
    if b'"code":"through_a_proxy"' not in begin.replace(b" ", b""):
        return await _ask(request, target, body)
    require_writing(api_token_of(request.headers.get("authorization", "")))
    signed = await sign_change(request, path, body)
    # The API has compared the ETag before it refused. By now its names are those of the entry.
    upstream = await _ask(request, target, body, matching=False)
    try:
        await signed.finish(taken=upstream.status < 400)
    except BaseException:
        upstream.close()
        raise
    return upstream


async def _define(request: Request, path: str, target: str, body: bytes) -> aiohttp.ClientResponse:
    # The commit is this proxy's own, and is not made for a token that the API would refuse.
    require_writing(api_token_of(request.headers.get("authorization", "")))
    had_log = await _commit_definition(request, path, body)
    upstream = await _ask(request, target, body)
    if had_log or upstream.status != HTTPStatus.CONFLICT:
        return upstream
    return await _define_late(request, path, target, body, upstream)


async def _define_late(
    request: Request, path: str, target: str, body: bytes, upstream: aiohttp.ClientResponse
) -> aiohttp.ClientResponse:
    """Go on from an answer that refuses: the first records may have been stored since the log was
    looked for, and from then on it holds the definition."""
    try:
        has_log = await _commit_definition(request, path, body)
    except BaseException:
        upstream.close()
        raise
    if not has_log:
        return upstream
    upstream.close()
    return await _ask(request, target, body)


async def _commit_definition(request: Request, path: str, body: bytes) -> bool:
    """Commit the definition that a body brings for a schema with records.

    Returns:
        Whether the schema has records, and so a log that holds its definition.

    Raises:
        ErsError: it is not committed, and the body not sent on.
    """
    text = msgspec.json.decode(body, type=dict[str, msgspec.Raw]).get("schema")
    if text is None:
        return False
    if "if-match" in request.headers:
        raise BadInput(
            "a definition is committed to the schema's log, and an ETag is not a version"
            " of that log",
            hint="send it to /api/schemas/<id>/change/ with the definition that it replaces",
            flaws=(Flaw("invalid", "cannot be used to change a definition", header="If-Match"),),
        )
    services = services_of(request)
    caller = await services.caller(request)
    schema = from_path(path.split("/")[3])
    if not await services.definitions.has_log(caller.user, schema, caller.auth):
        return False
    holder = await services.holder(request)
    await services.definitions.change(holder, schema, bytes(text))
    return True


async def _ask(
    request: Request, target: str, body: bytes | None, *, matching: bool = True
) -> aiohttp.ClientResponse:
    transport = services_of(request).api.transport
    headers = headers_of(request, transport.base_url, body)
    if services_of(request).mirrored is not None:
        # No credentials of a login are a mirror's.
        reader = await services_of(request).caller(request)
        headers = [(name, value) for name, value in headers if name not in _OF_LOGINS]
        headers.append(("Authorization", reader.auth))
    if not matching:
        headers = [(name, value) for name, value in headers if name != "If-Match"]
    try:
        answered = await transport.open(request.method, target, headers, body)
    except TimeoutError:
        raise ApiTimeout("the API gave no answer in time") from None
    except (aiohttp.ClientError, OSError):
        raise ApiUnreachable("the API cannot be reached") from None
    journal.note(request.method, target, len(body or b""), answered.content_length, answered.status)
    return answered


def _refusal(request: Request, path: str) -> Exception:
    """Why this is not forwarded: the path has no such method, or there is no such path."""
    allowed = set(methods_of(path))
    if "GET" in allowed:
        allowed.add("HEAD")
    if allowed:
        return HTTPException(405, headers={"Allow": ", ".join(sorted(allowed))})
    if has_form(path):
        return no_identifier()
    return NotFound(
        "unknown path; it is not forwarded, because the request could contain plaintext",
        code="not_forwarded",
        hint=_advice(request, path),
    )


def _advice(request: Request, path: str) -> str:
    """A guess at the path that was meant."""
    if path == "/api/docs/":
        return "the page for users is /docs/"
    if methods_of(f"{path}/") or _own(request, f"{path}/"):
        return "paths end in a slash"
    above = path.rstrip("/").rpartition("/")[0] + "/"
    known = _own(request, above) or (above if methods_of(above) else "")
    if known:
        return (
            f"there is {known}, and nothing of this name below it; curl -T FILE appends the"
            " file's name to an address that ends in a slash: use -X POST -T -"
        )
    literal = [route.path for route in _routes(request) if "{" not in route.path]
    literal += [forwarded.template for forwarded in FORWARDED if "{" not in forwarded.template]
    near = difflib.get_close_matches(path, literal, 1, 0.8)
    meant = f"did you mean {near[0]}? " if near else ""
    return f"{meant}docs/http-api.md lists all paths"


def _routes(request: Request) -> Iterator[PathRoute]:
    """The proxy's own."""
    return (
        route
        for route in request.app.routes
        if isinstance(route, PathRoute) and route.path.startswith("/api/") and route.path != LAST
    )


def _own(request: Request, path: str) -> str:
    """The proxy's own path that this is, as documents write it; empty if there is no such path."""
    scope = {**request.scope, "path": path}
    found = (route.path for route in _routes(request) if route.matches(scope)[0] is not Match.NONE)
    return next(found, "")


async def _refuse_socket(socket: WebSocket) -> None:
    """
    Raises:
        NotFound: always.
    """
    slash = "" if socket.scope["path"].endswith("/") else "paths end in a slash; "
    raise NotFound(
        "there is no WebSocket at this path",
        hint=f"{slash}the WebSocket of a job is /api/ws/jobs/<id>/",
    )


#: The route of WebSockets to any other path.
NO_SOCKET = WebSocketRoute("/{path:path}", _refuse_socket)


@endpoint.undescribed("GET", "/api/status/")
async def get_status(request: Request) -> Response:
    """The API's own answer, with ``behind_proxy``, and ``clock_jumped`` where that is so."""
    transport = services_of(request).api.transport
    upstream = await transport.request("GET", "/api/status/", repeatable=False)
    told = read_object(upstream) | {"behind_proxy": True}
    if services_of(request).clock.doubtful > 0:
        told["clock_jumped"] = True
    response = answer(told)
    proof = services_of(request).admission.answer_to(request.headers)
    if proof is not None:
        response.headers[ANSWER_HEADER] = proof
    return response

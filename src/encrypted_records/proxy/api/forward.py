"""Forwarding to the API: endpoints on a list are forwarded, all other paths are refused.

A path that differs from :mod:`encrypted_records.model.forwarded`, even by a slash or a percent
sign, may have plaintext that was meant for an endpoint of the proxy. It is refused before its body
is read. :mod:`.relay` makes the request that is sent, and the answer that is returned.

Changes of data in the roster are signed here first. The API refuses them as ``through_a_proxy``
unless a roster entry says the same. So a change is first forwarded unchanged, and after that
refusal it is signed and sent again: a user without a roster has no extra cost, and needs no
keyring.

In the API's answers, datasets and schemas have only the names of the roster. A client that finds an
object by a name takes its id, and stores into it. An API that swaps names could divert records into
data that others read. So each placed dataset and schema is shown under its signed slug, name,
dataset and organization, whatever the API calls it (docs/http-api.md, People). Unsigned names come
from the API unverified, and are marked.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlencode

import aiohttp
import msgspec
from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, WebSocketRoute
from starlette.websockets import WebSocket

from encrypted_records import errors, runtime
from encrypted_records.client.messages import note_request
from encrypted_records.client.transport import ANSWER_SECONDS
from encrypted_records.model import credentials, ids, resources, strict_json
from encrypted_records.model.credentials import ANSWER_HEADER, api_token_of
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.forwarded import FORWARDED, SIGNED, Forwarded, has_form, methods_of
from encrypted_records.model.roster import Placement
from encrypted_records.proxy.api.endpoint import LAST, Endpoints, PathRoute, require_writing
from encrypted_records.proxy.api.parameters import find_slug
from encrypted_records.proxy.api.relay import (
    answer_of,
    body_of,
    changed_answer_of,
    headers_of,
    query_of,
    read_object,
    refusal,
)
from encrypted_records.proxy.http.messages import answer
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import by_size
from encrypted_records.proxy.services import Services, services_of
from encrypted_records.proxy.sharing.founding import WantedNames
from encrypted_records.proxy.sharing.shown_names import Collection, ShownAs, ShownName

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SignedChange:
    """A change whose entries are in the roster. ``before`` and ``after`` are placements of a schema
    without records, for use after the API's answer; None if it stays placed.
    """

    services: Services
    holder: Holder
    organization: bytes
    before: Placement | None = None
    after: Placement | None = None

    async def finish(self, *, taken: bool) -> None:
        """Place a schema whose name was freed; ``taken`` is whether the API accepted the change.

        Raises:
            ErsError: as :meth:`Founding.place`; the next owner who stores into it places it.
        """
        placement = self.after if taken else self.before
        if placement is not None:
            await self.services.sharing.founding.place(self.holder, self.organization, [placement])
            self.services.schemas.forget(self.holder, [placement.schema])


async def sign_change(request: Request, path: str, body: bytes) -> SignedChange:
    """Sign a change of a dataset or schema, so that the API accepts it.

    Args:
        path: of the dataset or schema.
        body: a JSON object, as it is forwarded.

    Raises:
        ErsError: it is not signed, and must not be forwarded.
    """
    services = services_of(request)
    holder = await services.holder(request)
    members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    names = WantedNames(_text_of_change(members, "slug"), _text_of_change(members, "name"))
    resource = ids.from_path(path.split("/")[3])
    if path.split("/")[2] == "datasets":
        dataset = await services.sharing.api.dataset(resource, holder.auth)
        organization = _organization(dataset)
        await services.sharing.naming.name_dataset(holder, organization, resource, names)
        return SignedChange(services, holder, organization)
    schema = await services.sharing.api.schema(resource, holder.auth)
    organization, text = _organization(schema), members.get("schema")
    await services.sharing.naming.name_schema(holder, organization, resource, names)
    if text is None or schema.key_version is not None:
        return SignedChange(services, holder, organization)
    # The API's claim that there are no records must not free a name under which others look for
    # records.
    if (await services.schemas.refresh(holder, resource)).ledger.version:
        return SignedChange(services, holder, organization)
    definition = await by_size(len(text))(parse_definition, bytes(text))
    before = await services.sharing.naming.free_schema(holder, organization, resource)
    if before is None:
        return SignedChange(services, holder, organization)
    after = replace(before, definition=definition.digest)
    return SignedChange(services, holder, organization, before, after)


async def free_name(request: Request, path: str) -> None:
    """Free the name of a dataset or schema that the API has deleted by this request: others no
    longer look for records there; and drop its copies here. If this fails, the deletion remains,
    and a repeated request does the rest.

    Args:
        path: of the dataset or schema.
    """
    services = services_of(request)
    sharing, resource = services.sharing, ids.from_path(path.split("/")[3])
    try:
        require_writing(credentials.api_token_of(request.headers.get("authorization", "")))
        holder = await services.holder(request)
        if path.split("/")[2] == "schemas":
            view = await sharing.finder.of_schema(holder, resource)
            schemas, dataset = [resource], None
        else:
            view = await sharing.finder.of_dataset(holder, resource)
            placed = [] if view is None else view.roster.schemas(resource)
            schemas, dataset = [each.schema for each in placed], resource
        if view is not None:
            await sharing.naming.free_deleted(holder, view.organization, schemas, dataset)
            for schema in schemas:
                await services.schemas.forget_deleted(holder, schema)
    except errors.ErsError as error:
        log.warning("a deleted resource keeps its name in the roster: %s", error.reason)


def _organization(shown: resources.DatasetResource | resources.SchemaResource) -> bytes:
    return ids.from_reference(shown.organization, "organizations", pointer="/organization")


def _text_of_change(members: dict[str, Any], name: str) -> str | None:
    """A string member of a change; the API refuses other types."""
    try:
        return msgspec.json.decode(members[name], type=str) if name in members else None
    except msgspec.ValidationError:
        return None


_Resource = dict[str, msgspec.Raw]


async def name_as_signed(request: Request, kind: str, body: bytes) -> bytes:
    """An answer of the API, with the roster's names of datasets or schemas.

    Args:
        kind: "datasets" or "schemas".

    Raises:
        ApiFailed: it is malformed.
        Refused, Unavailable: as :meth:`ShownNames.find`.
    """
    listing, texts = _read_answer(body)
    if not texts:
        return body
    services = services_of(request)
    try:
        # A lookup only reads: the proxy does not act for an owner because of it.
        holder = await services.admission.holder(request)
    except (errors.NotAuthenticated, errors.NotAllowed):
        return body  # without keys they store nothing
    shown = [_shown_object(kind, text) for text in texts]
    params = request.query_params
    found = await services.sharing.shown_names.find(
        holder,
        shown,
        everywhere="dataset" not in params,
        by_names={params[name] for name in ("slug", "name") if name in params},
    )
    listed = [msgspec.json.decode(text, type=_Resource) for text in texts]
    for resource, named in zip(listed, found, strict=True):
        if named is not None:
            _signed_name(resource, named)
    if listing is None:
        return msgspec.json.encode(listed[0])
    return msgspec.json.encode(listing | {"results": listed})


def _read_answer(body: bytes) -> tuple[dict[str, Any] | None, Sequence[bytes | msgspec.Raw]]:
    """A list's other members, None for a single resource; and the resources."""
    try:
        decoded = msgspec.json.decode(body, type=_Resource)
        if "results" not in decoded:
            return None, [body]
        return dict(decoded), msgspec.json.decode(decoded["results"], type=list[msgspec.Raw])
    except strict_json.UNREADABLE:
        raise refusal("it is not a dataset or schema") from None


def _shown_object(kind: str, text: bytes | msgspec.Raw) -> ShownName:
    try:
        shown: resources.DatasetResource | resources.SchemaResource
        dataset: bytes | None = None
        if kind == "schemas":
            shown = msgspec.json.decode(text, type=resources.SchemaResource)
            dataset = ids.from_reference(shown.dataset, "datasets", pointer="")
        else:
            shown = msgspec.json.decode(text, type=resources.DatasetResource)
        organization = ids.from_reference(shown.organization, "organizations", pointer="")
        return ShownName(ids.from_text(shown.id), organization, shown.slug, shown.name, dataset)
    except (*strict_json.UNREADABLE, errors.Malformed, errors.BadInput):
        raise refusal("it is not a dataset or schema") from None


def _signed_name(resource: _Resource, named: ShownAs) -> None:
    members: dict[str, Any] = {SIGNED: named.signed}
    if named.signed:
        shown = named.shown
        members |= {
            "organization": ids.reference("organizations", shown.organization),
            "slug": shown.slug,
            "name": shown.name,
        }
        if shown.dataset is not None:
            members["dataset"] = ids.reference("datasets", shown.dataset)
    resource.update(
        {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in members.items()}
    )


# --- forwarding -----------------------------------------------------------------------------------

#: Number of schemas that fit in memory whatever their size: definitions of 1 MiB and descriptions
#: of 100,000 characters, each escaped to six characters.
_FEW = 16
#: A deleted resource is gone, also if an earlier request deleted it. An API that only claims so
#: keeps data that nobody looks for any more: its owner has requested the deletion by id.
_GONE = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND)
#: Seconds between the clocks of proxy and API that are worth a word.
_CLOCKS_DIFFER = 30
#: Bytes of a refusal that are read: more than any problem document has.
_PROBLEM_BYTES = 16 << 10
_OF_LOGINS = frozenset({"Authorization", "Cookie", "X-CSRFToken"})

_OF_RESOURCE = re.compile(r"/api/(datasets|schemas)/([^/]+)/(.*)")
_ANY = {
    collection: ids.reference(collection, bytes(ids.ID_BYTES))
    for collection in ("datasets", "schemas")
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
    """The path with the id of a dataset or schema in place of its slug.

    Raises:
        ErsError: as :func:`find_slug`.
    """
    found = _OF_RESOURCE.fullmatch(path)
    if found is None or methods_of(path):
        return path
    collection: Collection = "datasets" if found[1] == "datasets" else "schemas"
    if ids.slug_in(found[2], collection) is None or not methods_of(f"{_ANY[collection]}{found[3]}"):
        return path
    resource = await find_slug(request, collection, found[2])
    return f"{ids.reference(collection, resource)}{found[3]}"


async def _show(
    request: Request,
    path: str,
    endpoint: Forwarded,
    upstream: aiohttp.ClientResponse,
    *,
    secure: bool,
) -> Response:
    """The answer with the signed names.

    If a list's definitions are too long to be held in memory together, a smaller page is requested:
    its ``next`` continues from there, so that clients that follow it get the whole list.
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
        params = parse_qsl(await query_of(request, endpoint), keep_blank_values=True)
        few = [(name, value) for name, value in params if name != "limit"]
        upstream = await _ask(request, f"{path}?{urlencode([*few, ('limit', _FEW)])}", None)
    raise refusal("it is longer than any answer of the API")


async def _sign(
    request: Request, path: str, target: str, body: bytes, refused: aiohttp.ClientResponse
) -> aiohttp.ClientResponse:
    """Sign a change that the API refused because the roster has to contain it, and send it again. A
    change that was refused for another reason is only sent again, because its answer was consumed.
    """
    try:
        begin = await refused.content.read(_PROBLEM_BYTES)
    except (aiohttp.ClientError, OSError, TimeoutError):
        raise errors.ApiUnreachable("the API cannot be reached") from None
    finally:
        refused.close()
    if b'"code":"through_a_proxy"' not in begin.replace(b" ", b""):
        return await _ask(request, target, body)
    require_writing(api_token_of(request.headers.get("authorization", "")))
    signed = await sign_change(request, path, body)
    # The API has compared the ETag before it refused. The object now has the names of the entry.
    upstream = await _ask(request, target, body, matching=False)
    try:
        await signed.finish(taken=upstream.status < 400)
    except BaseException:
        upstream.close()
        raise
    return upstream


async def _define(request: Request, path: str, target: str, body: bytes) -> aiohttp.ClientResponse:
    # The proxy itself makes the commit, and must not make it for a token that the API would refuse.
    require_writing(api_token_of(request.headers.get("authorization", "")))
    had_log = await _commit_definition(request, path, body)
    upstream = await _ask(request, target, body)
    if had_log or upstream.status != HTTPStatus.CONFLICT:
        return upstream
    return await _define_late(request, path, target, body, upstream)


async def _define_late(
    request: Request, path: str, target: str, body: bytes, upstream: aiohttp.ClientResponse
) -> aiohttp.ClientResponse:
    """Continue after a refusal: the first records may have been stored since the log was checked,
    and from then on the log has the definition.
    """
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
    """Commit the definition in a body for a schema with records.

    Returns:
        Whether the schema has records, and so a log with its definition.

    Raises:
        ErsError: it is not committed, and the body is not forwarded.
    """
    text = msgspec.json.decode(body, type=dict[str, msgspec.Raw]).get("schema")
    if text is None:
        return False
    if "if-match" in request.headers:
        raise errors.BadInput(
            "a definition is committed to the schema's log, and an ETag is not a version"
            " of that log",
            hint="send it to /api/schemas/<id>/change/ with the definition that it replaces",
            flaws=(
                errors.Flaw("invalid", "cannot be used to change a definition", header="If-Match"),
            ),
        )
    services = services_of(request)
    caller = await services.caller(request)
    schema = ids.from_path(path.split("/")[3])
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
        # A mirror accepts no login credentials.
        reader = await services_of(request).caller(request)
        headers = [(name, value) for name, value in headers if name not in _OF_LOGINS]
        headers.append(("Authorization", reader.auth))
    if not matching:
        headers = [(name, value) for name, value in headers if name != "If-Match"]
    try:
        # With each interim answer (1xx) the wait of the library begins again.
        async with asyncio.timeout(ANSWER_SECONDS):
            answered = await transport.open(request.method, target, headers, body)
    except TimeoutError:
        raise errors.ApiTimeout("the API gave no answer in time") from None
    except (aiohttp.ClientError, OSError) as error:
        raise transport.no_connection(error) from None
    note_request(request.method, target, len(body or b""), answered.content_length, answered.status)
    return answered


def _refusal(request: Request, path: str) -> Exception:
    """The error for a path that is not forwarded: an unknown method, or an unknown path."""
    allowed = set(methods_of(path))
    if "GET" in allowed:
        allowed.add("HEAD")
    if allowed:
        return HTTPException(405, headers={"Allow": ", ".join(sorted(allowed))})
    if has_form(path):
        return ids.no_identifier()
    return errors.NotFound(
        "unknown path; it is not forwarded, because the request could contain plaintext",
        code="not_forwarded",
        hint=_advice(request, path),
    )


def _advice(request: Request, path: str) -> str:
    """A guess at the path that was meant."""
    if path == "/api/docs/":
        return "the page for users is /docs/"
    if methods_of(f"{path}/") or _route_of(request, f"{path}/"):
        return "paths end in a slash"
    above = path.rstrip("/").rpartition("/")[0] + "/"
    known = _route_of(request, above) or (above if methods_of(above) else "")
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
    """The proxy's routes."""
    return (
        route
        for route in request.app.routes
        if isinstance(route, PathRoute) and route.path.startswith("/api/") and route.path != LAST
    )


def _route_of(request: Request, path: str) -> str:
    """The documented form of this path if it is the proxy's own; otherwise empty."""
    scope = {**request.scope, "path": path}
    found = (route.path for route in _routes(request) if route.matches(scope)[0] is not Match.NONE)
    return next(found, "")


async def _refuse_socket(socket: WebSocket) -> None:
    """
    Raises:
        NotFound: always.
    """
    slash = "" if socket.scope["path"].endswith("/") else "paths end in a slash; "
    raise errors.NotFound(
        "there is no WebSocket at this path",
        hint=f"{slash}the WebSocket of a job is /api/ws/jobs/<id>/",
    )


#: The route of WebSockets to any other path.
NO_SOCKET = WebSocketRoute("/{path:path}", _refuse_socket)


@endpoint.undescribed("GET", "/api/status/")
async def get_status(request: Request) -> Response:
    """The API's own answer, with ``behind_proxy``, and how wrong this machine's clock may be."""
    transport = services_of(request).api.transport
    upstream = await transport.request("GET", "/api/status/", repeatable=False)
    try:
        status = msgspec.convert(read_object(upstream), resources.StatusResource)
    except msgspec.ValidationError:
        raise refusal("it is not a status") from None
    status = replace(status, behind_proxy=True)
    if services_of(request).clock.doubtful > 0:
        status = replace(status, clock_jumped=True)
    ahead = 0 if upstream.date is None else round(runtime.wall() - upstream.date)
    if abs(ahead) >= _CLOCKS_DIFFER:
        status = replace(status, clock_ahead=ahead)
    response = answer(status)
    proof = services_of(request).admission.answer_to(request.headers)
    if proof is not None:
        response.headers[ANSWER_HEADER] = proof
    return response

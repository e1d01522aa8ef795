"""Declarations of endpoints: a decorator at each function makes its route and its documentation.

``endpoint = Endpoints("records")`` at the top of a module, ``@endpoint("GET", path, ...)`` above
each function, which gets the services and the holder of the caller's keys; :func:`routes_of` makes
the routes. A path has one route for all of its methods, so that a missing method gives 405 with
``Allow``, and no other path can match in its place.

An API token may use the endpoints of two lists; all others are refused to tokens. This is decided
by the form of the token alone, before anything is read: its rights are part of the string that the
API knows by its SHA-256, so no answer of the API extends them. The API decides which datasets the
token reaches, and is asked for every schema. Keys, devices and the acceptance of another log are
not for tokens. A token reaches the jobs and uploads that were begun with it. The API decides about
forwarded requests.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Protocol, Required, TypedDict, TypeVar, Unpack

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, WebSocketRoute, request_response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from encrypted_records.client.proxy.keyring import Proof
from encrypted_records.errors import NotAllowed
from encrypted_records.model import credentials
from encrypted_records.proxy.api.json_schema import ID, Part, RequestBody, parameter, path_parameter
from encrypted_records.proxy.api.parameters import collection_named, id_of_slug, only
from encrypted_records.proxy.auth import SAFE_METHODS
from encrypted_records.proxy.http.messages import read_struct
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.mirrored import Mirrored
from encrypted_records.proxy.services import Services, services_of


class _ProvenBody(Protocol):
    proof: Proof | None


Proven = TypeVar("Proven", bound=_ProvenBody)


async def proven(
    request: Request,
    kind: type[Proven],
    read: Callable[[Request, type[Any]], Awaitable[Any]] = read_struct,
) -> tuple[Services, Holder, Proven]:
    """The holder whose keys a request may reveal or change, by the proof in its body, and the body.

    Raises:
        ErsError: as ``read`` and :meth:`Proofs.demand`.
    """
    services = services_of(request)
    await services.caller(request)
    body: Proven = await read(request, kind)
    return services, await services.proofs.demand(request, body.proof), body


# --- endpoints for API tokens ---------------------------------------------------------------------

#: (method, path) of endpoints that change nothing.
FOR_READING = frozenset(
    {
        ("GET", "/api/records/"),
        ("GET", "/api/records/{id}/"),
        ("POST", "/api/records/sealed/"),
        ("POST", "/api/records/decrypt/"),
        ("POST", "/api/records/search/"),
        ("POST", "/api/records/aggregate/"),
        ("POST", "/api/records/explain/"),
        ("POST", "/api/records/why/"),
        ("POST", "/api/records/export/"),
        ("POST", "/api/records/columns/"),
        ("POST", "/api/datasets/{id}/search/"),
        ("GET", "/api/records/changes/"),
        ("GET", "/api/records/status/"),
        ("POST", "/api/readings/detect/"),
        ("POST", "/api/schemas/infer/"),
        ("POST", "/api/schemas/preview/"),
        ("POST", "/api/schemas/estimate/"),
        ("GET", "/api/schemas/{id}/log/"),
        ("GET", "/api/schemas/{id}/reading/"),
        ("GET", "/api/schemas/{id}/erasure/"),
        ("GET", "/api/schemas/{id}/repair/"),
        ("GET", "/api/schemas/{id}/retention/"),
        ("POST", "/api/schemas/{id}/salvage/"),
        ("POST", "/api/schemas/{id}/verify/"),
        ("GET", "/api/jobs/"),
        ("GET", "/api/jobs/{id}/"),
        ("GET", "/api/jobs/{id}/about/"),
        ("GET", "/api/jobs/{id}/bad-rows/"),
        ("GET", "/api/jobs/{id}/reading/"),
        ("GET", "/api/jobs/{id}/records/"),
        ("GET", "/api/jobs/{id}/errors/"),
        ("GET", "/api/openapi.json"),
        ("GET", "/api/status/"),
    }
)
#: Endpoints that store, change or delete records.
FOR_WRITING = frozenset(
    {
        ("POST", "/api/records/ingest/"),
        ("PUT", "/api/records/"),
        ("PUT", "/api/records/{id}/"),
        ("PATCH", "/api/records/{id}/"),
        ("DELETE", "/api/records/{id}/"),
        ("DELETE", "/api/records/"),
        ("POST", "/api/records/delete/"),
        ("POST", "/api/schemas/{id}/merge/"),
        ("POST", "/api/schemas/{id}/erasure/"),
        ("POST", "/api/schemas/{id}/repair/"),
        ("POST", "/api/schemas/{id}/retention/"),
        ("PUT", "/api/schemas/{id}/reading/"),
        ("DELETE", "/api/schemas/{id}/reading/"),
        ("POST", "/api/datasets/{id}/erase/"),
        ("POST", "/api/jobs/upload/"),
        ("DELETE", "/api/jobs/{id}/"),
        ("DELETE", "/api/jobs/{id}/records/"),
    }
)
#: With any method, because the effective method may be in a header.
WRITING_PATHS = frozenset({"/api/files/", "/api/files", "/api/files/{id}/", "/api/files/{id}"})


#: Requests that change nothing outside this proxy.
_OF_THIS_PROXY = frozenset(
    {
        ("POST", "/api/keyring/unlock/"),
        ("POST", "/api/keyring/lock/"),
        ("POST", "/api/keyring/restore/"),
        ("POST", "/api/keyring/backup/"),
        ("POST", "/api/keyring/backup/file/"),
        ("POST", "/api/keyring/backup/confirm/"),
        ("POST", "/api/keyring/passphrase/"),
        ("POST", "/api/devices/"),
        ("POST", "/api/devices/code/"),
        ("DELETE", "/api/devices/{id}/"),
    }
)


def refuse_changes(scope: Scope, path: str) -> None:
    """Refuse a request that changes anything, where the proxy reads from a mirror.

    Args:
        path: of the route, with names in braces.

    Raises:
        NotAllowed: ``read_only_mirror``.
    """
    mirrored: Mirrored | None = scope["app"].state.services.mirrored
    if mirrored is None:
        return
    route = (scope["method"], path)
    reads = scope["method"] in SAFE_METHODS and path not in WRITING_PATHS
    if not reads and route not in FOR_READING and route not in _OF_THIS_PROXY:
        raise mirrored.refuse_change()


def refuse_beyond(scope: Scope, path: str) -> None:
    """Refuse a request with an API token that may not use this endpoint.

    Args:
        path: of the route, with names in braces.

    Raises:
        NotAllowed: ``token_limited``.
    """
    shown = Headers(scope=scope).get("authorization", "")
    token, of_service = credentials.api_token_of(shown), is_service_string(shown)
    if token is None and not of_service:
        return
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    if (method, path) in FOR_READING:
        return
    if (method, path) not in FOR_WRITING and path not in WRITING_PATHS:
        raise NotAllowed(
            f"{'a service' if of_service else 'an API token'} cannot do this",
            code="token_limited",
            hint="log in, and do this as yourself",
        )
    require_writing(token)


def is_service_string(authorization: str) -> bool:
    """Whether an Authorization value is a service's secret key, which has the rights of a writing
    token; the roster limits what it reaches.
    """
    scheme, _, shown = authorization.strip().partition(" ")
    return scheme.lower() == "bearer" and credentials.looks_like_service_key(shown)


def require_writing(token: credentials.BearerToken | None) -> None:
    """
    Raises:
        NotAllowed: ``token_limited``; the token is read-only.
    """
    if token is not None and not token.writes:
        raise NotAllowed(
            "this API token is read-only",
            code="token_limited",
            hint='use a token with the scope "write" (ers token create --scope write), or log in',
        )


# --- declarations ---------------------------------------------------------------------------------

Handler = TypeVar("Handler", bound=Callable[[Request], Awaitable[Response]])
HolderHandler = TypeVar(
    "HolderHandler", bound=Callable[[Request, Services, Holder], Awaitable[Response]]
)
#: Matches all paths without another route, and forwards some of them.
LAST = "/api/{path:path}"
SocketHandler = TypeVar("SocketHandler", bound=Callable[[WebSocket], Awaitable[None]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path in the OpenAPI document.

    ``answers`` has the answers that are not problems, by status; ``problems`` the statuses that few
    other operations have.
    """

    method: str
    path: str
    name: str
    tag: str
    summary: str
    answers: Mapping[int, Part]
    body: RequestBody | None = None
    parameters: tuple[Part, ...] = ()
    problems: tuple[int, ...] = ()


class OperationDescription(TypedDict, total=False):
    """Members of an :class:`Operation`. ``parameters`` are those beside the identifiers in the
    path; ``name`` is the ``operationId`` if it is not the function's name.
    """

    summary: Required[str]
    answers: Required[Mapping[int, Part]]
    name: str
    body: RequestBody | None
    parameters: tuple[Part, ...]
    problems: tuple[int, ...]


@dataclass(slots=True)
class _Path:
    operations: list[Operation] = field(default_factory=list)
    apps: dict[str, ASGIApp] = field(default_factory=dict)
    others: ASGIApp | None = None


class PathRoute(Route):
    """All methods of one path. ``allowed`` is empty if one function takes every method."""

    def __init__(self, path: str, methods: _Path) -> None:
        self.operations = tuple(methods.operations)
        # As everywhere in HTTP, a resource with GET has HEAD.
        head = {"HEAD"} if "GET" in methods.apps else set()
        self.allowed = frozenset() if methods.others else frozenset({*methods.apps, *head})
        super().__init__(path, _ByMethod(path, methods, self.allowed))


class FixedPaths(BaseRoute):
    """The routes of paths without identifiers, found by a table: most requests use these paths, and
    trying all routes in order takes longer than the rest of routing.
    """

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        ours = (route for route in routes if isinstance(route, PathRoute))
        self._by_path = {route.path: route for route in ours if "{" not in route.path}

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        route = self._by_path.get(scope["path"])
        return (Match.NONE, {}) if route is None else route.matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._by_path[scope["path"]]
        scope["route"] = route
        await route.handle(scope, receive, send)


class SocketRoute(WebSocketRoute):
    def __init__(self, operation: Operation, handler: SocketHandler) -> None:
        self.operations = (operation,)
        super().__init__(operation.path, handler)


class _ByMethod:
    """Calls the function for a request's method; API tokens reach only endpoints for tokens."""

    def __init__(self, path: str, methods: _Path, allowed: Iterable[str]) -> None:
        self._path = path
        self._apps, self._other_methods = methods.apps, methods.others
        self._allow = ", ".join(sorted(allowed))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        app = self._apps.get(method) or self._other_methods
        if app is None and method == "HEAD":
            app = self._apps.get("GET")
        if app is None:
            raise HTTPException(405, headers={"Allow": self._allow})
        refuse_changes(scope, self._path)
        if self._path != LAST:
            refuse_beyond(scope, self._path)
            given = scope["path_params"]
            scope["path_params"] = await id_of_slug(HTTPConnection(scope), self._path, given)
        await app(scope, receive, send)


class Endpoints:
    """The endpoints of a module, which share a tag.

    Args:
        id_schema: schema of the identifiers in their paths.
    """

    def __init__(self, tag: str, *, id_schema: Part = ID) -> None:
        self._tag = tag
        self._id = id_schema
        self.paths: dict[str, _Path] = {}
        self.sockets: list[SocketRoute] = []

    def __call__(
        self, method: str, path: str, **described: Unpack[OperationDescription]
    ) -> Callable[[HolderHandler], HolderHandler]:
        """Declare that the decorated function answers ``method`` at ``path`` to a holder of keys. A
        request with a parameter that is not described is refused.
        """
        parameters = described.get("parameters", ())
        known = {part["name"] for part in parameters if part["in"] == "query"}

        def declare(handler: HolderHandler) -> HolderHandler:
            @wraps(handler)
            async def call(request: Request) -> Response:
                services = services_of(request)
                holder = await services.holder(request)
                only(request, known)
                return await handler(request, services, holder)

            self.bare(method, path, **described)(call)
            return handler

        return declare

    def bare(
        self, method: str, path: str, **described: Unpack[OperationDescription]
    ) -> Callable[[Handler], Handler]:
        """Like :meth:`__call__`, for a function that checks itself who sent the request."""

        def declare(handler: Handler) -> Handler:
            at = self._at(path)
            parameters = self._in_path(path) + described.get("parameters", ())
            members: dict[str, Any] = {"name": handler.__name__, **described}
            members |= {"method": method, "path": path, "tag": self._tag, "parameters": parameters}
            at.operations.append(Operation(**members))
            at.apps[method] = request_response(handler)
            return handler

        return declare

    def undescribed(self, method: str, path: str) -> Callable[[Handler], Handler]:
        """Like :meth:`bare`, for an endpoint that the API's document already describes."""

        def declare(handler: Handler) -> Handler:
            self._at(path).apps[method] = request_response(handler)
            return handler

        return declare

    def every_method(self, *paths: str) -> Callable[[Handler], Handler]:
        """Declare that the decorated function takes all methods of these paths, and refuses some
        itself.
        """

        def declare(handler: Handler) -> Handler:
            for path in paths:
                self._at(path).others = request_response(handler)
            return handler

        return declare

    def socket(
        self, path: str, *, summary: str, answers: Mapping[int, Part]
    ) -> Callable[[SocketHandler], SocketHandler]:
        """Declare that the decorated function serves WebSockets at ``path``."""

        def declare(handler: SocketHandler) -> SocketHandler:
            operation = Operation(
                method="GET",
                path=path,
                name=handler.__name__,
                tag=self._tag,
                summary=summary,
                answers=answers,
                parameters=self._in_path(path),
            )
            self.sockets.append(SocketRoute(operation, handler))
            return handler

        return declare

    def _in_path(self, path: str) -> tuple[Part, ...]:
        collection, names = collection_named(path), re.findall(r"\{(\w+)\}", path)
        parts = [parameter("path", name, self._id, required=True) for name in names]
        if collection is not None:
            parts[0] = path_parameter(names[0], collection)
        return tuple(parts)

    def _at(self, path: str) -> _Path:
        return self.paths.setdefault(path, _Path())


def routes_of(*modules: Endpoints) -> list[BaseRoute]:
    """The routes of all these endpoints; fixed paths precede paths with an identifier."""
    merged: dict[str, _Path] = {}
    for module in modules:
        for path, methods in module.paths.items():
            at = merged.setdefault(path, _Path())
            at.operations += methods.operations
            at.apps |= methods.apps
            at.others = at.others or methods.others
    routes = [PathRoute(path, merged[path]) for path in sorted(merged, key=_specific_first)]
    return [*routes, *(socket for module in modules for socket in module.sockets)]


def _specific_first(path: str) -> list[tuple[bool, str]]:
    return [(part.startswith("{"), part) for part in path.split("/")]


def operations_of(routes: Iterable[BaseRoute]) -> list[Operation]:
    """The operations that these routes declare."""
    declared = [route for route in routes if isinstance(route, PathRoute | SocketRoute)]
    return [operation for route in declared for operation in route.operations]

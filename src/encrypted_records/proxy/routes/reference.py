"""/api/openapi.json and /api/docs/ of the proxy: the API's document, and the proxy's endpoints.

The proxy's part is made of its routes: path, methods and the first line of each endpoint's
docstring, so that none can be missing. What bodies look like stands in :data:`BODIES`, the rest in
:mod:`.answered`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from encrypted_records.model import reference
from encrypted_records.model.questions import MAX_LIMIT
from encrypted_records.proxy.answers import answer
from encrypted_records.proxy.parts import parts_of
from encrypted_records.proxy.routes.answered import ANSWERS, PARAMETERS, PROBLEMS, SUMMARIES
from encrypted_records.proxy.routes.forward import ends_here
from encrypted_records.proxy.tus import headers as header
from encrypted_records.proxy.tus import protocol

_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"basic": []}, {"session": []}]
_PROBLEMS = (400, 401, 403, 404, 409, 412, 413, 415, 422, 429, 502, 504)
_OBJECT = {"type": "object"}
_PATH = {"type": "string", "examples": ["/api/schemas/<id>/"]}
_RECORD = {
    "type": "object",
    "required": ["schema", "data"],
    "properties": {"schema": _PATH, "data": _OBJECT},
}
_CHANGE = {
    "type": "object",
    "required": ["data"],
    "properties": {"schema": _PATH, "data": _OBJECT},
}
_BINARY = {"type": "string", "format": "binary"}
#: Endpoints whose body may be left out.
_NEED_NO_BODY = {("POST", "/api/files/"), ("POST", "/api/keyring/backup/")}
_NAMES = {"type": "array", "items": {"type": "string"}}
_CONDITIONS = {
    "schema": _PATH,
    "where": {"type": ["object", "null"], "description": "docs/http-api.md, Search"},
    "filters": {"type": "array", "items": _OBJECT},
}
_SHOWN = {"order_by": _NAMES, "fields": _NAMES}
_PAGED = {
    "limit": {"type": "integer", "minimum": 0, "maximum": MAX_LIMIT},
    "cursor": {"type": ["string", "null"]},
    "count": {"type": "boolean"},
}
_MEASURED = {
    "measures": {"type": "array", "items": _OBJECT},
    "group_by": _NAMES,
    "limit": {"type": "integer", "minimum": 0, "maximum": MAX_LIMIT},
    "order": {"enum": ["value", "-value", "count", "-count"]},
}


def _members(*strings: str, **others: Any) -> dict[str, Any]:
    """An object that must have these strings, and may have the others."""
    properties = {name: {"type": "string"} for name in strings} | others
    return {"type": "object", "required": list(strings), "properties": properties}


#: (method, path) -> media type -> schema of the request's body
BODIES: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("POST", "/api/records/ingest/"): {
        "application/json": {"type": "array", "minItems": 1, "maxItems": 100, "items": _RECORD}
    },
    ("POST", "/api/records/search/"): {
        "application/json": {
            "type": "object",
            "required": ["schema"],
            "properties": {**_CONDITIONS, **_SHOWN, **_PAGED},
        }
    },
    ("POST", "/api/records/export/"): {
        "application/json": {
            "type": "object",
            "required": ["schema"],
            "properties": {**_CONDITIONS, **_SHOWN, "format": {"enum": ["ndjson", "csv"]}},
        }
    },
    ("POST", "/api/records/aggregate/"): {
        "application/json": {
            "type": "object",
            "required": ["schema"],
            "properties": {**_CONDITIONS, **_MEASURED},
        }
    },
    ("POST", "/api/records/explain/"): {
        "application/json": {
            "type": "object",
            "required": ["schema"],
            "properties": {**_CONDITIONS, **_SHOWN, **_PAGED, **_MEASURED},
        }
    },
    ("POST", "/api/records/delete/"): {
        "application/json": {
            "type": "object",
            "required": ["schema"],
            "properties": _CONDITIONS,
        }
    },
    ("PUT", "/api/records/{id}/"): {"application/json": _CHANGE},
    ("PATCH", "/api/records/{id}/"): {"application/json": _CHANGE},
    ("POST", "/api/records/decrypt/"): {
        "application/json": {"oneOf": [_OBJECT, {"type": "array", "items": _OBJECT}]}
    },
    ("POST", "/api/schemas/infer/"): {
        "text/csv": {"type": "string"},
        "application/json": {"type": "array", "items": _OBJECT},
        "application/x-ndjson": {"type": "string"},
    },
    ("POST", "/api/schemas/estimate/"): {
        "application/json": {
            "type": "object",
            "required": ["schema", "records"],
            "properties": {
                "schema": _OBJECT,
                "records": {"type": "integer", "minimum": 1},
                "string_bytes": _OBJECT,
            },
        }
    },
    ("POST", "/api/jobs/upload/"): {
        "text/csv": {"type": "string"},
        "application/json": {"type": "array", "items": _RECORD | {"required": ["data"]}},
        "application/x-ndjson": {"type": "string"},
    },
    ("POST", "/api/files/"): {header.CONTENT_TYPE: _BINARY},
    ("PATCH", "/api/files/{id}/"): {header.CONTENT_TYPE: _BINARY},
    ("POST", "/api/keyring/rotate/"): {},
    ("POST", "/api/keyring/lock/"): {},
    ("POST", "/api/keyring/unlock/"): {"application/json": _members("passphrase")},
    ("POST", "/api/keyring/passphrase/"): {
        "application/json": _members("new", old={"type": ["string", "null"]})
    },
    ("POST", "/api/keyring/backup/"): {"application/json": _members(all={"type": "boolean"})},
    ("POST", "/api/keyring/backup/file/"): {"application/json": _members("passphrase")},
    ("POST", "/api/keyring/backup/confirm/"): {
        "application/json": {"oneOf": [_members("phrase"), _members("file", "passphrase")]}
    },
    ("POST", "/api/keyring/restore/"): {
        "application/json": {
            "oneOf": [
                _members(
                    phrases={"type": "array", "items": {"type": "string"}},
                    replace={"type": "boolean"},
                ),
                _members("file", "passphrase", replace={"type": "boolean"}),
            ]
        }
    },
}


async def openapi(request: Request) -> Response:
    """GET /api/openapi.json: the API's document and this proxy's, as one."""
    return answer(await _document(request))


async def docs(request: Request) -> Response:
    """GET /api/docs/: the same for people."""
    return HTMLResponse(
        reference.page(await _document(request)),
        headers={
            "Cache-Control": "no-store",
            "Content-Security-Policy": reference.CONTENT_SECURITY_POLICY,
            "X-Content-Type-Options": "nosniff",
        },
    )


async def _document(request: Request) -> dict[str, Any]:
    parts = parts_of(request)
    caller = await parts.caller(request)
    found = await parts.api.transport.request("GET", "/api/openapi.json", auth=caller.auth)
    return joined(found.typed(dict[str, Any]), request.app.routes)


def joined(document: dict[str, Any], own: Iterable[BaseRoute]) -> dict[str, Any]:
    """The API's document, without what the proxy does not forward, and with its ``own`` routes."""
    paths = {path: known for path, known in document["paths"].items() if not ends_here(path)}
    for path, method, operation in _operations(own):
        paths.setdefault(path, {})[method] = operation
    parts = document["components"]
    parts["responses"] |= {
        f"Problem{status}": reference.problem_response(status)
        for status in {*_PROBLEMS, *(one for several in PROBLEMS.values() for one in several)}
    }
    info = document["info"] | {
        "title": "Encrypted Records Service: proxy",
        "description": "Takes plaintext and seals it; everything else it hands to the API.",
    }
    return document | {"info": info, "paths": paths}


def _operations(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for route in routes:
        if isinstance(route, WebSocketRoute):
            yield route.path, "get", _operation("GET", route)
        elif isinstance(route, Route) and route.path.startswith("/api/"):
            if "{path:path}" in route.path or route.path == "/api/status/":
                continue  # the API's, which is described there
            for method in _methods(route):
                yield re.sub(r":\w+\}", "}", route.path), method.lower(), _operation(method, route)


def _methods(route: Route) -> list[str]:
    if route.path.startswith("/api/files"):
        # Their function refuses methods by itself; without the final slash they are the same.
        on_upload = "{id}" in route.path
        return list(protocol.allowed(on_upload=on_upload)) if route.path.endswith("/") else []
    return sorted((route.methods or {"GET"}) - {"HEAD", "OPTIONS"})


def _operation(method: str, route: Route | WebSocketRoute) -> dict[str, Any]:
    key = (method, route.path)
    said = (route.endpoint.__doc__ or "").strip().partition("\n")[0]
    problems = sorted((*_PROBLEMS, *PROBLEMS.get(key, ())))
    operation: dict[str, Any] = {
        "summary": SUMMARIES.get(key) or said.partition(": ")[2] or said,
        "security": _SECURITY,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"\{(\w+)", route.path)
        ]
        + list(PARAMETERS.get(key, ())),
        "responses": {
            **{str(status): answered for status, answered in ANSWERS[key].items()},
            **{
                str(status): {"$ref": f"#/components/responses/Problem{status}"}
                for status in problems
            },
        },
    }
    content = BODIES.get(key)
    if content:
        operation["requestBody"] = {
            "required": key not in _NEED_NO_BODY,
            "content": {kind: {"schema": schema} for kind, schema in content.items()},
        }
    return operation


routes = [
    Route("/api/openapi.json", openapi, methods=["GET"]),
    Route("/api/docs/", docs, methods=["GET"]),
]

"""/api/openapi.json of the proxy: its own endpoints, and the API's endpoints that it forwards.

Each endpoint's description is declared at its function (:mod:`.endpoint`). The page for people is
:mod:`encrypted_records.proxy.pages.manual`: nothing under /api/ is HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.http import openapi as reference
from encrypted_records.http.openapi import add_examples
from encrypted_records.model.forwarded import FORWARDED, SIGNED
from encrypted_records.proxy.api.endpoint import Endpoints, Operation, operations_of
from encrypted_records.proxy.api.json_schema import (
    OBJECT,
    PARTS,
    Part,
    json_answer,
    name_in,
    parameter,
    path_parameter,
)
from encrypted_records.proxy.api.parameters import collection_named
from encrypted_records.proxy.api.relay import read_object, refusal
from encrypted_records.proxy.http.messages import answer
from encrypted_records.proxy.services import services_of

_OPENAPI = "application/vnd.oai.openapi+json"
_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"basic": []}, {"session": []}]
#: The proxy's own endpoints that need no credentials.
_PUBLIC = ("/api/openapi.json",)
#: Problem statuses that every operation of the proxy may return.
_PROBLEMS = (400, 401, 403, 404, 408, 409, 412, 413, 415, 422, 429, 502, 503, 504, 507)
#: Statuses that the proxy itself may return for a forwarded request.
_FORWARD_PROBLEMS = (400, 401, 404, 409, 413, 415, 422, 502, 504)

endpoint = Endpoints("reference")


@endpoint.bare(
    "GET",
    "/api/openapi.json",
    summary="Get the OpenAPI document of API and proxy together.",
    answers={200: json_answer(OBJECT)},
)
async def get_openapi_document(request: Request) -> Response:
    services = services_of(request)
    response = await services.api.transport.request("GET", "/api/openapi.json")
    return answer(join(read_object(response, _OPENAPI), operations_of(request.app.routes)))


def join(document: dict[str, Any], operations: Iterable[Operation]) -> dict[str, Any]:
    """The operations of the API's document that the proxy forwards, and the proxy's ``operations``.

    Raises:
        ApiFailed: ``api_answer``: it is not an OpenAPI document.
    """
    try:
        paths = _forwarded_paths(document)
        components = document["components"] | {
            "responses": dict(document["components"]["responses"]),
            "schemas": _as_shown(document["components"]["schemas"]) | PARTS,
        }
        info = document["info"] | {
            "title": "Encrypted Records Service: proxy",
            "description": "Encrypts plaintext records and forwards the API's own requests.",
        }
        tags = {
            tag
            for methods in paths.values()
            for method in methods.values()
            for tag in method["tags"]
        }
        "".join(tags)  # refuses those that are not texts
    except (AttributeError, KeyError, TypeError, ValueError):
        raise refusal("it is not an OpenAPI document") from None
    problems = set(_PROBLEMS)
    described: dict[str, dict[str, Any]] = {}
    for operation in operations:
        methods = described.setdefault(operation.path, {})
        methods[operation.method.lower()] = _describe(operation)
        problems |= set(operation.problems)
        tags.add(operation.tag)
    # The API's operations get examples. No pattern or link of its document is followed here.
    add_examples({"paths": described, "components": {"schemas": PARTS}})
    paths |= {path: paths.get(path, {}) | methods for path, methods in described.items()}
    components["responses"] |= {
        f"Problem{status}": reference.problem_response(status) for status in problems
    }
    more = {"info": info, "paths": paths, "components": components}
    return document | more | {"tags": [{"name": name} for name in sorted(tags)]}


def _as_shown(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The API's schemas as a client of the proxy sees them: with the member that the proxy adds to
    datasets and schemas, and with slugs where it accepts them.
    """
    signed: Part = {
        "type": ["boolean", "null"],
        "readOnly": True,
        "description": "Whether the names were signed; absent if there is no roster.",
    }
    sent = {
        name: part
        | {"properties": {key: _named(member) for key, member in part["properties"].items()}}
        for name, part in parts.items()
        if name.endswith("Request") and "properties" in part
    }
    shown = {
        name: part | {"properties": part["properties"] | {SIGNED: signed}}
        for name, part in parts.items()
        if name in _SHOWN_AS_SIGNED
    }
    return dict(parts) | sent | shown


def _named(member: Part) -> Part:
    """A member of a body for the API; if it names a dataset or schema, the proxy accepts a slug."""
    if "items" in member:
        return member | {"items": _named(member["items"])}
    found = re.search(r"/api/(datasets|schemas)/", member.get("pattern", ""))
    return name_in(found[1]) if found else member


#: The API's schemas of objects that the proxy shows with signed names.
_SHOWN_AS_SIGNED = ("Dataset", "Schema")


def nameless(path: str) -> str:
    """A path with unnamed identifiers: the two documents name them differently."""
    return re.sub(r"\{\w+\}", "{}", path)


#: ``GET /api/status/`` is not forwarded, but its answer has the form of the API's.
_FORWARDED = {(forwarded.method, nameless(forwarded.template)) for forwarded in FORWARDED} | {
    ("GET", "/api/status/"),
}


def _forwarded_paths(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The API's paths that are forwarded."""
    paths: dict[str, dict[str, Any]] = {}
    for path, operations in document["paths"].items():
        kept = {
            method: _forward(path, operation)
            for method, operation in operations.items()
            if (method.upper(), nameless(path)) in _FORWARDED
        }
        if kept:
            paths[path] = kept
    return paths


def _forward(path: str, operation: dict[str, Any]) -> dict[str, Any]:
    """An operation of the API, as a client of the proxy sees it."""
    return operation | {
        "parameters": [
            _with_slug(path, parameter) for parameter in operation.get("parameters", ())
        ],
        "responses": _problem_links(_FORWARD_PROBLEMS) | operation["responses"],
    }


def _with_slug(path: str, described: Part) -> Part:
    """A parameter of the API that accepts a slug in place of a dataset's or schema's id."""
    name, collection = described["name"], collection_named(path)
    if described["in"] == "query" and name in ("dataset", "schema"):
        return parameter(
            "query", name, name_in(f"{name}s"), required=bool(described.get("required"))
        )
    first = re.search(r"\{(\w+)\}", path)
    if collection is not None and first is not None and name == first[1]:
        return path_parameter(name, collection)
    return described


def _problem_links(statuses: Iterable[int]) -> dict[str, Part]:
    return {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in statuses}


def _describe(operation: Operation) -> dict[str, Any]:
    answers = {str(status): answered for status, answered in operation.answers.items()}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "security": [] if operation.path in _PUBLIC else _SECURITY,
        "parameters": list(operation.parameters),
        "responses": answers | _problem_links(sorted((*_PROBLEMS, *operation.problems))),
    }
    if operation.body is not None:
        described["requestBody"] = operation.body.describe()
    return described

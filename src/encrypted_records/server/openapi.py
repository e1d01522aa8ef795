"""What the OpenAPI document cannot find out by itself: credentials, ids, and what goes wrong.

Problem documents come from one place (:mod:`.problems`), whatever the path, so the document gets
them from one place, too: :func:`add_problems`.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.authentication import BaseAuthentication

from encrypted_records.model import reference

#: What may come instead of an answer, by what the operation is like.
_ALWAYS = (400, 413, 503)
_WITH_CREDENTIALS = (401, 403, 429)
_CHANGING = (409,)
#: It is read from a version on, which the log may not reach.
_MANIFEST = "/api/schemas/{schema_id}/manifest/"
_WITH_BODY = (415, 429)
_NAMING_SOMETHING = (404,)
#: Open to everybody, and what is sent may still be refused as credentials.
_TAKING_CREDENTIALS = (
    "/api/accounts/login/",
    "/api/token/",
    "/api/token/refresh/",
    "/api/token/verify/",
)
_METHODS = ("get", "put", "post", "delete", "patch")

#: For view sets: their path parameter is an identifier.
BY_ID = extend_schema(
    parameters=[OpenApiParameter("id", str, OpenApiParameter.PATH, description="22 characters")]
)


_SCHEMES: dict[str, dict[str, Any]] = {
    "Bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "Basic": {"type": "http", "scheme": "basic"},
    "Session": {"type": "apiKey", "in": "cookie", "name": "sessionid"},
    "JobToken": {"type": "http", "scheme": "job"},
}


class Schemes(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # registers itself
    """Names each of our authentication classes and says how it is used."""

    target_class = "rest_framework.authentication.BaseAuthentication"
    match_subclasses = True
    priority = 1

    def __init__(self, target: BaseAuthentication) -> None:
        super().__init__(target)  # type: ignore[no-untyped-call]  # the library is half typed
        self.kind = type(target).__name__
        self.name = self.kind.lower()

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return _SCHEMES[self.kind]


def add_problems(
    result: dict[str, Any], generator: Any, request: Any, public: Any
) -> dict[str, Any]:
    """The library's hook: complete every operation with the problems it may answer with."""
    parts = result.setdefault("components", {})
    parts.setdefault("schemas", {})["Problem"] = reference.PROBLEM
    parts["responses"] = {
        f"Problem{status}": reference.problem_response(status) for status in reference.STATUSES
    }
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            if method in _METHODS:
                _complete(path, method, operation)
    return result


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    parameters = [one for one in operation.get("parameters", []) if _belongs(one, path)]
    statuses = set(_ALWAYS)
    if operation.get("security"):
        statuses |= set(_WITH_CREDENTIALS)
        if method != "get" or path == _MANIFEST:
            statuses |= set(_CHANGING)
    if "requestBody" in operation:
        statuses |= set(_WITH_BODY)
    if parameters:
        statuses |= set(_NAMING_SOMETHING)
    if path == "/api/commits/":
        statuses |= set(_NAMING_SOMETHING)
    if path in _TAKING_CREDENTIALS:
        statuses.add(401)
    operation["parameters"] = parameters
    for status in statuses:
        known = operation["responses"]
        known.setdefault(str(status), {"$ref": f"#/components/responses/Problem{status}"})


def _belongs(parameter: dict[str, Any], path: str) -> bool:
    """Not so the id that a view set declares for all its operations, where the path has none."""
    return parameter["in"] != "path" or f"{{{parameter['name']}}}" in path

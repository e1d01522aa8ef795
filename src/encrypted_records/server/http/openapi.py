"""The OpenAPI document at /api/openapi.json and, for people, at /api/docs/, completed with details
that views do not have: credentials, ids, limits and problems.

Problem documents are made in one place (:mod:`.problems`) for all paths, so they are described in
one place, too: :func:`complete`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from django.http import HttpResponse
from drf_spectacular.extensions import (
    OpenApiAuthenticationExtension,
    OpenApiSerializerExtension,
    OpenApiSerializerFieldExtension,
)
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.utils import OpenApiParameter, extend_schema
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.views import APIView

from encrypted_records.http import openapi as reference
from encrypted_records.http.openapi import add_examples
from encrypted_records.model import ids

#: Statuses of problems, by the kind of operation.
_ALWAYS = (400, 408, 413, 503, 507)
_WITH_CREDENTIALS = (401, 403, 429)
_CHANGING = (409,)
#: Has a parameter ``since``, which may be after the end of the log.
_MANIFEST = "/api/schemas/{schema_id}/manifest/"
_WITH_BODY = (415, 429)
_NAMING_SOMETHING = (404,)
#: Open to everybody, but the body may still be refused as credentials.
_TAKING_CREDENTIALS = (
    "/api/accounts/login/",
    "/api/token/",
    "/api/token/refresh/",
    "/api/token/verify/",
)
#: The minimum of query parameters.
_LEAST = {"limit": 1, "offset": 0}
#: Query parameters that name a resource, and its collection.
_NAMING = {
    "organization": "organizations",
    "dataset": "datasets",
    "schema": "schemas",
    "user": "users",
}
_METHODS = ("get", "put", "post", "delete", "patch")

_ITEMS = {"datasets": "dataset", "schemas": "schema", "organizations": "organization"}
_VERBS = {
    "list": "List all {} that you can reach.",
    "create": "Create a {}.",
    "retrieve": "Read a {}.",
    "update": "Replace the names and descriptions of a {}.",
    "partial_update": "Change some names and descriptions of a {}.",
    "destroy": "Delete a {}.",
}
_SUMMARIES = {
    "accounts_register_create": "Register an account.",
    "accounts_verify_registration_create": "Confirm the address of an account by a link.",
    "accounts_send_reset_password_link_create": "Request a link that resets a password.",
    "accounts_reset_password_create": "Set a new password by a link.",
    "accounts_change_password_create": "Change the caller's password; sessions and tokens end.",
    "accounts_change_email_create": "Have a link sent that gives the caller another address.",
    "accounts_confirm_email_create": "Give an account another address by a link.",
    "accounts_delete_retrieve": "Say what a deletion of the caller's account would do.",
    "accounts_delete_create": "Delete the caller's account; logins and tokens end.",
    "accounts_second_factor_retrieve": "Say whether the caller's logins need a second factor.",
    "accounts_second_factor_create": "Create a key for an authenticator app.",
    "accounts_second_factor_confirm_create": "Require codes of the app for logins from now on.",
    "accounts_second_factor_recovery_codes_create": "Replace all recovery codes.",
    "accounts_second_factor_remove_create": "Stop requiring codes for logins.",
    "csrf_retrieve": "Get a CSRF token for changes by a session.",
    "invitations_list": "List the caller's invitations.",
    "invitations_destroy": "Decline an invitation.",
    "invitations_answer_update": "Answer an invitation, replacing an earlier answer.",
    "organizations_by_slug_retrieve": "Get an organization by its slug.",
    "organizations_answers_retrieve": "List answers to invitations that wait for an owner.",
    "organizations_services_create": "Create a service; it can reach nothing until it is a member.",
    "status_retrieve": "Check that the API answers.",
    "token_create": "Get an access and a refresh token for a password.",
    "token_refresh_create": "Exchange a refresh token for a new pair.",
    "token_verify_create": "Check that a token is valid.",
    "users_retrieve": "Read the caller's account.",
    "users_self_retrieve": "Read the caller's account.",
}

#: For view sets: their path parameter is an identifier.
BY_ID = extend_schema(
    parameters=[OpenApiParameter("id", str, OpenApiParameter.PATH, description="22 characters")]
)


BY_SLUG = OpenApiParameter(
    "slug", {"type": "string", "pattern": f"^{ids.SLUG}$"}, OpenApiParameter.PATH
)


_SCHEMES: dict[str, dict[str, Any]] = {
    "Bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "Basic": {"type": "http", "scheme": "basic"},
    "Session": {"type": "apiKey", "in": "cookie", "name": "sessionid"},
    "JobToken": {"type": "http", "scheme": "job"},
    "ServiceToken": {"type": "http", "scheme": "service"},
}


class Schemes(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # registers itself
    """Describes our authentication classes and how to use them."""

    target_class = "rest_framework.authentication.BaseAuthentication"
    match_subclasses = True
    priority = 1

    def __init__(self, target: BaseAuthentication) -> None:
        super().__init__(target)  # type: ignore[no-untyped-call]  # the library is half typed
        self.kind = type(target).__name__
        self.name = self.kind.lower()

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return _SCHEMES[self.kind]


def reference_to(collection: str) -> dict[str, Any]:
    """The schema of a reference: a path, an absolute URL, or the bare id."""
    return {
        "type": "string",
        "pattern": rf"^((https?://[^/]+)?/api/{collection}/{ids.PATTERN}/|{ids.PATTERN})$",
    }


class References(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # as above
    target_class = "encrypted_records.server.db.fields.ReferenceField"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: str) -> dict[str, Any]:
        return reference_to(self.target.collection)


_structures: dict[str, dict[str, Any]] = {}


def describe(structure: type) -> dict[str, Any]:
    """A link to the JSON Schema of a structure."""
    for name, part in reference.parts_of(structure).items():
        _structures[name.removesuffix("Resource")] = part
    return reference.link_to(structure.__name__.removesuffix("Resource"))


class Structures(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]  # as above
    """Describes answers by their structures. :func:`complete` inserts these, after the hook that
    names the choices of requests.
    """

    target_class = "encrypted_records.server.http.bodies.Shown"
    match_subclasses = True

    def get_name(self, auto_schema: AutoSchema, direction: str) -> str | None:
        if direction == "request":
            return None
        name: str = self.target.structure.__name__
        return name.removesuffix("Resource")

    def get_identity(self, auto_schema: AutoSchema, direction: str) -> Any:
        return type(self.target) if direction == "request" else self.target.structure

    def map_serializer(self, auto_schema: AutoSchema, direction: str) -> Any:
        if direction == "request":
            return auto_schema._map_serializer(  # type: ignore[no-untyped-call]
                self.target, direction, bypass_extensions=True
            )
        describe(self.target.structure)
        return {"type": "object", "additionalProperties": False}


def complete(result: dict[str, Any], generator: Any, request: Any, public: Any) -> dict[str, Any]:
    """The hook of drf-spectacular: add problems and limits to every operation."""
    parts = result.setdefault("components", {})
    parts.setdefault("schemas", {}).update(reference.PARTS | _structures)
    parts["responses"] = {
        f"Problem{status}": reference.problem_response(status) for status in reference.STATUSES
    }
    for part in parts["schemas"].values():
        for member in part.get("properties", {}).values():
            # A member with a default may be omitted, but type generators would require it.
            member.pop("default", None)
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            if method in _METHODS:
                _complete(path, method, operation)
    add_examples(result)
    tags = {tag for operations in result["paths"].values() for tag in _tags(operations)}
    return result | {"tags": [{"name": name} for name in sorted(tags)]}


def _tags(operations: dict[str, Any]) -> Iterator[str]:
    for method, operation in operations.items():
        if method in _METHODS:
            yield from operation["tags"]


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    parameters = [
        _limit(parameter)
        for parameter in operation.get("parameters", [])
        if _belongs(parameter, path)
    ]
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
    operation["summary"] = _summary(operation)
    for status in statuses:
        known = operation["responses"]
        known.setdefault(str(status), {"$ref": f"#/components/responses/Problem{status}"})


def _summary(operation: dict[str, Any]) -> str:
    """A one-line summary: from our tables, else the first paragraph of the description."""
    name = operation["operationId"]
    if name in _SUMMARIES:
        return _SUMMARIES[name]
    collection, _, verb = name.partition("_")
    if collection in _ITEMS and verb in _VERBS:
        return _VERBS[verb].format(_ITEMS[collection])
    return " ".join(operation["description"].partition("\n\n")[0].split())


def _limit(parameter: dict[str, Any]) -> dict[str, Any]:
    """The parameter with the limits of its values, which the library does not know."""
    schema = parameter["schema"]
    if parameter["in"] == "path" and schema.keys().isdisjoint({"format", "pattern"}):
        schema = schema | {"pattern": f"^{ids.PATTERN}$"}
    elif parameter["name"] in _LEAST:
        schema = schema | {"minimum": _LEAST[parameter["name"]]}
    elif parameter["name"] in _NAMING:
        schema = reference_to(_NAMING[parameter["name"]])
    elif parameter["name"] == "id":
        schema = schema | {"items": {"type": "string", "pattern": f"^{ids.PATTERN}$"}}
    return parameter | {"schema": schema}


def _belongs(parameter: dict[str, Any], path: str) -> bool:
    """False for a path parameter that this path lacks: a view set declares its id for all paths."""
    return parameter["in"] != "path" or f"{{{parameter['name']}}}" in path


@cache
def _document() -> Any:
    """The OpenAPI document."""
    made: Any = SchemaGenerator
    return made().get_schema(request=None, public=True)


@cache
def _text() -> bytes:
    """The serialized document, made once: anybody may request it as often as they like."""
    text: bytes = OpenApiJsonRenderer().render(_document(), renderer_context={})
    return text


class OpenApiDocument(APIView):
    """The description of the interface, for everybody. It is the same for all, and depends on no
    data."""

    permission_classes = [AllowAny]
    renderer_classes = SpectacularJSONAPIView.renderer_classes

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        return HttpResponse(_text(), content_type=OpenApiJsonRenderer.media_type)


class Docs(APIView):
    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        response = HttpResponse(
            reference.page(_document()), content_type="text/html; charset=utf-8"
        )
        response["Content-Security-Policy"] = reference.CONTENT_SECURITY_POLICY
        return response

"""What the OpenAPI document cannot find out by itself: how credentials are sent, what an id is."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.authentication import BaseAuthentication

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

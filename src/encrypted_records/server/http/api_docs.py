"""GET /api/openapi.json, and GET /api/docs/: the same document for people."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.http import HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.views import APIView

from encrypted_records.http import openapi_page as reference


@cache
def _document() -> Any:
    """The OpenAPI document."""
    made: Any = SchemaGenerator
    return made().get_schema(request=None, public=True)


@cache
def _text() -> bytes:
    """The document as it is sent, made once: anybody may ask for it as often as they like."""
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

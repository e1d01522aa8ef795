"""GET /api/docs/: the OpenAPI document for people."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from encrypted_records.http import openapi_page as reference


class Docs(APIView):
    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        made: Any = SchemaGenerator
        document = made().get_schema(request=None, public=True)
        response = HttpResponse(reference.page(document), content_type="text/html; charset=utf-8")
        response["Content-Security-Policy"] = reference.CONTENT_SECURITY_POLICY
        return response

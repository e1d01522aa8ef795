"""Lists come in pages: ``limit`` (100, at most 1000) and ``offset``, with paths to go on by."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from rest_framework.pagination import LimitOffsetPagination
from rest_framework.request import Request

from encrypted_records.server.http.parameters import number_of

MAX_LIMIT = 1000


class Paging(LimitOffsetPagination):
    default_limit = 100
    max_limit = MAX_LIMIT

    def get_limit(self, request: Request) -> int:
        return min(number_of(request, "limit", 1) or self.default_limit, MAX_LIMIT)

    def get_offset(self, request: Request) -> int:
        return number_of(request, "offset", 0) or 0

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        response_schema: dict[str, Any] = super().get_paginated_response_schema(schema)
        for name in ("next", "previous"):
            response_schema["properties"][name] |= {"format": "uri-reference"}
            del response_schema["properties"][name]["example"]
        return response_schema

    def get_next_link(self) -> Any:
        return _path(super().get_next_link())

    def get_previous_link(self) -> Any:
        return _path(super().get_previous_link())


def _path(link: str | None) -> str | None:
    """The link without its host: the client knows by which name it reaches us, we do not."""
    return None if link is None else urlsplit(link)._replace(scheme="", netloc="").geturl()

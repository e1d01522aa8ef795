"""Query parameters and body members: parsing and validation.

Lists are paginated: ``limit`` (default 100, at most 1000) and ``offset``, with paths to the next
and previous page.

Texts must be JSON strings. The library's fields would also accept numbers, and store another value.

Unknown members of a body are refused, with their positions: otherwise a misspelt ``descripton``
would be treated as a missing description.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.request import Request

from encrypted_records.errors import BadInput, Flaw
from encrypted_records.model.queries import DEFAULT_LIMIT, MAX_LIMIT

MAX_NUMBER = 2**62


def invalid_parameter(name: str, detail: str) -> BadInput:
    """The error for a query parameter; ``detail`` is what was expected."""
    flaw = Flaw("invalid_parameter", detail, parameter=name)
    return BadInput(f"the parameter {name} is not valid", flaws=(flaw,))


def number_of(request: Request, name: str, least: int) -> int | None:
    """A query parameter that is an integer.

    Raises:
        BadInput: it is not an integer, or less than ``least``.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= MAX_NUMBER:
        return int(text)
    raise invalid_parameter(name, f"expected an integer of at least {least}")


def flag_of(request: Request, name: str, *, default: bool) -> bool:
    """A query parameter that is true or false.

    Raises:
        BadInput: it is neither.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    if text in ("true", "false"):
        return text == "true"
    raise invalid_parameter(name, "expected true or false")


class Paging(LimitOffsetPagination):
    default_limit = DEFAULT_LIMIT
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
    """The link without its host: we do not know by which name the client reaches us."""
    return None if link is None else urlsplit(link)._replace(scheme="", netloc="").geturl()


class TextField(serializers.CharField):
    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        text: str = super().to_internal_value(data)
        return text


class SlugField(serializers.SlugField):
    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        text: str = super().to_internal_value(data)
        return text


# Serializers derive from it. A docstring would be published as the description of each of them.
class KnownMembers(serializers.Serializer[Any]):
    # Read-only members may be sent back, and change nothing.
    def to_internal_value(self, data: Any) -> Any:
        """
        Raises:
            ValidationError: ``unknown_member``, together with other errors.
        """
        unknown = [name for name in data if name not in self.fields] if _is_object(data) else []
        if not unknown:
            return super().to_internal_value(data)
        taken = ", ".join(name for name, field in self.fields.items() if not field.read_only)
        detail = ErrorDetail(f"there is no such member; there are {taken}", code="unknown_member")
        errors: dict[str, Any] = {name: [detail] for name in unknown}
        try:
            super().to_internal_value(data)
        except ValidationError as error:
            if isinstance(error.detail, dict):
                errors |= error.detail
        raise ValidationError(errors)


def _is_object(data: Any) -> bool:
    return isinstance(data, Mapping)

"""Bodies and query parameters: parsing and validation of requests, writing of answers.

Bodies are JSON, and frames of :mod:`encrypted_records.model.wire`. JSON is parsed by the rules of
:mod:`encrypted_records.model.strict_json`, so that two parsers cannot disagree on a request. It is
written with msgspec, which passes :class:`msgspec.Raw` through unchanged: a schema's definition is
sent exactly as it was received.

Texts must be JSON strings. The library's fields would also accept numbers, and store another value.
Unknown members of a body are refused, with their positions: otherwise a misspelt ``descripton``
would be treated as a missing description.

Lists are paginated: ``limit`` (default 100, at most 1000) and ``offset``, with paths to the next
and previous page.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import IO, Any
from urllib.parse import urlsplit

import msgspec
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from encrypted_records.errors import BadInput, ErsError, Flaw, Malformed
from encrypted_records.http.openapi import parts_of
from encrypted_records.model import resources, strict_json, wire
from encrypted_records.model.queries import DEFAULT_LIMIT, MAX_LIMIT
from encrypted_records.model.record_formats import charset_of, require_utf8

_log = logging.getLogger(__name__)


def _plain(value: Any) -> Any:
    # Translated texts and error details are subclasses of str that msgspec does not know.
    return str(value)


def to_json(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=_plain)


class JsonRenderer(BaseRenderer):
    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return b"" if data is None else to_json(data)


class JsonParser(BaseParser):
    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        _require_utf8(parser_context)
        return strict_json.loads(stream.read())


def _require_utf8(context: Mapping[str, Any] | None) -> None:
    """
    Raises:
        Unsupported: the request declares another charset.
    """
    request = (context or {}).get("request")
    if request is not None:
        require_utf8(charset_of(request.headers.get("Content-Type", "")))


class RawDefinitionParser(JsonParser):
    """JSON whose member ``schema`` stays the text that was sent."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        _require_utf8(parser_context)
        body = stream.read()
        parsed = strict_json.loads(body)
        if isinstance(parsed, dict) and "schema" in parsed:
            text = body.removeprefix(b"\xef\xbb\xbf")
            parsed["schema"] = msgspec.json.decode(text, type=dict[str, msgspec.Raw])["schema"]
        return parsed


class Frames:
    """A body of frames, until a view takes it.

    The framework's request contains a reference cycle, so it stays in memory after its answer until
    the next garbage collection. A large body attached to it would stay as long.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body

    def take(self) -> bytes:
        """The body; empty the second time."""
        body, self._body = self._body, b""
        return body


class FramesParser(BaseParser):
    """The body as :class:`Frames`; :mod:`encrypted_records.model.wire` parses them."""

    media_type = wire.MEDIA_TYPE

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        return Frames(stream.read())


class OneFormat(BaseContentNegotiation):
    """Every endpoint has one format, so ``Accept`` decides nothing (RFC 9110, 12.4.1 allows it)."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        sent = request.content_type.partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == sent), None)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        first = next(iter(renderers))
        return first, first.media_type or ""


#: Media types that an operation returns and accepts, for the OpenAPI document.
FRAMES = {(200, wire.MEDIA_TYPE): OpenApiTypes.BINARY}
FRAMES_BODY = {wire.MEDIA_TYPE: OpenApiTypes.BINARY}
#: Ends an answer that failed after it began. The server would close it like a complete answer, and
#: no frame begins with this byte, so every reader refuses it.
BROKEN = b"\x00"
PIECE_BYTES = 64 << 10
#: Bytes of an answer that are made before its status is sent, so that a lost object can be
#: reported.
BEGUN_BYTES = 2 << 20


def body_of(request: Request) -> bytes:
    """The body of a request; it is removed from the request.

    Raises:
        Malformed: there is none.
    """
    frames = request.data
    if not isinstance(frames, Frames):
        raise Malformed("the body is empty", code="malformed_frame")
    return frames.take()


def stream(items: Iterable[msgspec.Struct]) -> StreamingHttpResponse:
    """A stream of frames, which are made while it is sent; its beginning is made before.

    Raises:
        ErsError: an error before ``BEGUN_BYTES`` were made, which can still be reported.
    """
    parts = wire.encode_parts(items)
    begun: list[bytes] = []
    size = 0
    failure: Exception | None = None
    try:
        for part in parts:
            begun.append(part)
            size += len(part)
            if size >= BEGUN_BYTES:
                break
    except ErsError:
        raise
    except Exception as error:  # a bug: log it, because the answer only breaks off
        failure = error
    body = chain(begun, parts if failure is None else _raise(failure))
    return StreamingHttpResponse(_in_pieces(body), content_type=wire.MEDIA_TYPE)


def _raise(error: Exception) -> Iterator[bytes]:
    raise error
    yield b""


def _in_pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces of about ``PIECE_BYTES``: each piece costs the server more than a row."""
    pending: list[bytes] = []
    size = 0
    try:
        for part in parts:
            pending.append(part)
            size += len(part)
            if size >= PIECE_BYTES:
                yield b"".join(pending)
                pending, size = [], 0
        yield b"".join(pending)
    except Exception as error:  # the status was sent; only the body can still show the failure
        _log.error("an answer was interrupted", exc_info=error)
        yield b"".join((*pending, BROKEN))


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


def only(request: Request, *known: str) -> None:
    """Refuse unknown parameters of a list: without a filter it answers another question.

    Raises:
        BadInput: ``unknown_parameter``.
    """
    for name in sorted(request.query_params.keys() - {"limit", "offset", *known}):
        raise BadInput(
            f"the parameters of this list are {', '.join(sorted({'limit', 'offset', *known}))}",
            flaws=(Flaw("unknown_parameter", "there is no such parameter", parameter=name),),
            hint="check the spelling",
        )


class Paging(LimitOffsetPagination):
    default_limit = DEFAULT_LIMIT
    max_limit = MAX_LIMIT

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> Any:
        only(request, *getattr(view, "filters", ()))
        return super().paginate_queryset(queryset, request, view)

    def get_limit(self, request: Request) -> int:
        return min(number_of(request, "limit", 1) or self.default_limit, MAX_LIMIT)

    def get_offset(self, request: Request) -> int:
        return number_of(request, "offset", 0) or 0

    def get_paginated_response(self, data: Any) -> Response:
        return Response(
            resources.ListPage(
                self.count or 0, self.get_next_link(), self.get_previous_link(), list(data)
            )
        )

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        page: dict[str, Any] = parts_of(resources.ListPage)["ListPage"]
        page["properties"]["results"] = schema
        return page

    def get_next_link(self) -> Any:
        return _path_of(super().get_next_link())

    def get_previous_link(self) -> Any:
        return _path_of(super().get_previous_link())


def _path_of(link: str | None) -> str | None:
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


# A docstring of Shown or KnownMembers would be published as that of each derived serializer.


class Shown(serializers.Serializer[Any]):
    #: The structure that ``to_representation`` makes of a row.
    structure: type[msgspec.Struct]

    @property
    def data(self) -> Any:
        return self.to_representation(self.instance)


def answer(structure: type[msgspec.Struct]) -> type[Shown]:
    """The description of an answer with this structure."""
    return type(structure.__name__, (Shown,), {"structure": structure})


class KnownMembers(serializers.Serializer[Any]):
    # Members of answers may be sent back, and change nothing.
    def to_internal_value(self, data: Any) -> Any:
        """
        Raises:
            ValidationError: ``unknown_member``, together with other errors.
        """
        shown = self.structure.__struct_fields__ if isinstance(self, Shown) else ()
        known = {*self.fields, *shown}
        unknown = [name for name in data if name not in known] if _is_object(data) else []
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


def valid(
    kind: type[serializers.Serializer[Any]], request: Request, **context: Any
) -> dict[str, Any]:
    """The body, validated by the serializer.

    Raises:
        ValidationError: the body is invalid.
    """
    sent = kind(data=request.data, context={"request": request, **context})
    sent.is_valid(raise_exception=True)
    return dict(sent.validated_data)


def _is_object(data: Any) -> bool:
    return isinstance(data, Mapping)

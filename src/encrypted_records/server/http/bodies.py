"""Bodies of requests and answers: JSON, and frames of :mod:`encrypted_records.model.wire`.

JSON is parsed by the rules of :mod:`encrypted_records.model.strict_json`, so that two parsers
cannot disagree on a request. It is written with msgspec, which passes :class:`msgspec.Raw` through
unchanged: a schema's definition is sent exactly as it was received.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import IO, Any

import msgspec
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from encrypted_records.errors import ErsError, Malformed
from encrypted_records.model import strict_json, wire
from encrypted_records.model.record_formats import charset_of, require_utf8


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
_log = logging.getLogger(__name__)


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
    whole = chain(begun, parts if failure is None else _raise(failure))
    return StreamingHttpResponse(_whole_or_broken(whole), content_type=wire.MEDIA_TYPE)


def _raise(error: Exception) -> Iterator[bytes]:
    raise error
    yield b""


def _whole_or_broken(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces of about ``PIECE_BYTES``: each piece costs the server more than a row."""
    held: list[bytes] = []
    size = 0
    try:
        for part in parts:
            held.append(part)
            size += len(part)
            if size >= PIECE_BYTES:
                yield b"".join(held)
                held, size = [], 0
        yield b"".join(held)
    except Exception as error:  # the status was sent; only the body can still show the failure
        _log.error("an answer was interrupted", exc_info=error)
        yield b"".join((*held, BROKEN))

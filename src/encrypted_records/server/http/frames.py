"""Bodies of frames, in and out; :mod:`encrypted_records.model.wire` reads and writes them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request

from encrypted_records.errors import ErsError, Malformed
from encrypted_records.model import wire
from encrypted_records.server.http.parsers import Frames

#: What an operation answers with, and what it takes, for the OpenAPI document.
FRAMES = {(200, wire.MEDIA_TYPE): OpenApiTypes.BINARY}
FRAMES_BODY = {wire.MEDIA_TYPE: OpenApiTypes.BINARY}
#: Ends an answer that failed after it began. The server would close it like a whole one, and no
#: frame begins like this, so every reader refuses it.
BROKEN = b"\x00"
PIECE_BYTES = 64 << 10
#: So much of an answer is made before its status is sent: a lost object is then named.
BEGUN_BYTES = 2 << 20
_log = logging.getLogger(__name__)


def body_of(request: Request) -> bytes:
    """The body of a request, which has it no more.

    Raises:
        Malformed: there is none.
    """
    frames = request.data
    if not isinstance(frames, Frames):
        raise Malformed("the body is empty", code="malformed_frame")
    return frames.take()


def stream(items: Iterable[msgspec.Struct]) -> StreamingHttpResponse:
    """An answer of frames, which are made while it is sent; its beginning before that.

    Raises:
        ErsError: what comes to pass before ``BEGUN_BYTES`` are made, and so can still be said.
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
    except Exception as error:  # of ours, and the log is to have it where the answer breaks off
        failure = error
    whole = chain(begun, parts if failure is None else _raise(failure))
    return StreamingHttpResponse(_whole_or_broken(whole), content_type=wire.MEDIA_TYPE)


def _raise(error: Exception) -> Iterator[bytes]:
    raise error
    yield b""


def _whole_or_broken(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces of about ``PIECE_BYTES``: each costs the server more than a row does."""
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
    except Exception as error:  # the status is sent; only the body can still say that it failed
        _log.error("an answer was interrupted", exc_info=error)
        yield b"".join((*held, BROKEN))

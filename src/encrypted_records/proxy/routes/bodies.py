"""Read a request's body, within a limit and as the type it must have."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from encrypted_records.errors import InvalidQuery, TooLarge, Unsupported
from encrypted_records.model import strict_json

MAX_BODY_BYTES = 16 << 20


def media_type(request: Request) -> str:
    """The Content-Type without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(request: Request, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """The whole body.

    Raises:
        TooLarge: more than ``limit`` bytes; no more than that is read.
    """
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise TooLarge(f"a body of more than {limit >> 20} MiB is not taken here")
        parts.append(part)
    return b"".join(parts)


async def read_json(request: Request) -> bytes:
    """The body of a request that says it is JSON.

    Raises:
        Unsupported: it says something else.
        TooLarge: as :func:`read_body`.
    """
    if media_type(request) != "application/json":
        raise Unsupported(
            "this endpoint takes JSON",
            code="unsupported_media_type",
            hint="send Content-Type: application/json",
        )
    return await read_body(request)


async def read_object(request: Request) -> dict[str, Any]:
    """The body as a JSON object.

    Raises:
        InvalidQuery: it is none.
        Malformed: it is not JSON.
        TooLarge, Unsupported: as :func:`read_json`.
    """
    found = strict_json.loads(await read_json(request))
    if not isinstance(found, dict):
        raise InvalidQuery("expected a JSON object")
    return found

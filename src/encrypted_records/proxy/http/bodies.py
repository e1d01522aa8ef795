"""Read a request's body, within a limit and as the type it must have."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from encrypted_records.errors import InvalidQuery, TooLarge, Unsupported
from encrypted_records.model import strict_json
from encrypted_records.model.charsets import charset_of, require_utf8
from encrypted_records.proxy.process.offload import LONG_BYTES, Sent, aside, by_size

Body = TypeVar("Body", bound=msgspec.Struct)

MAX_BODY_BYTES = 16 << 20
#: The most bytes of a body with passphrases, phrases or a keyring file: a thousand versions fit.
MAX_SECRET_BYTES = 256 << 10

T = TypeVar("T")


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
            most = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
            raise TooLarge(f"this body is larger than the limit of {most}")
        parts.append(part)
    return b"".join(parts)


async def read_json(request: Request, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """The body of a request whose media type is JSON.

    Raises:
        Malformed: a text in it holds half of a surrogate pair.
        Unsupported: it has another media type, or declares another charset than UTF-8.
        TooLarge: as :func:`read_body`.
    """
    body = await read_records(request, limit=limit)
    await by_size(len(body), few=True)(strict_json.refuse_halves, body)
    return body


async def read_records(request: Request, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """Records from a body, whose validation names the row and field of a text with half of a
    surrogate pair; see :func:`read_json`.

    Raises:
        Unsupported, TooLarge: as :func:`read_json`.
    """
    if media_type(request) != "application/json":
        raise Unsupported(
            "this endpoint accepts JSON only",
            code="unsupported_media_type",
            hint="send Content-Type: application/json",
        )
    require_utf8(charset_of(request.headers.get("content-type", "")))
    return await read_body(request, limit=limit)


async def while_wanted(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The outcome of ``work``, which is cancelled where the client goes away meanwhile.

    Raises:
        ClientDisconnect: it went.
    """
    working = asyncio.create_task(work)  # noqa: TID251 # ends with its request
    leaving = asyncio.create_task(_until_gone(request))  # noqa: TID251 # ends with its request
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return await working
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def read_struct(request: Request, kind: type[Body]) -> Body:
    """The body as a structure of msgspec's, for bodies that hold secrets: no error repeats any.

    Raises:
        InvalidQuery: it is not that.
        Malformed, TooLarge, Unsupported: as :func:`read_json`.
    """
    try:
        return msgspec.json.decode(await read_json(request, limit=MAX_SECRET_BYTES), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        members = ", ".join(field.name for field in msgspec.structs.fields(kind))
        raise InvalidQuery(
            f"expected an object with: {members}", hint="docs/http-api.md describes the body"
        ) from None


async def read_object(request: Request) -> Sent:
    """The body as a JSON object.

    Raises:
        InvalidQuery: it is not one.
        Malformed: it is not JSON.
        TooLarge: as :func:`read_json`, or more values than a body may hold.
        Unsupported: as :func:`read_json`.
    """
    body = await read_records(request)
    value = await aside(_loads, body) if len(body) > LONG_BYTES else strict_json.loads(body)
    if not isinstance(value, dict):
        raise InvalidQuery("expected a JSON object")
    return Sent(value, len(body))


def _loads(body: bytes) -> Any:
    strict_json.refuse_many(body)
    return strict_json.loads(body)

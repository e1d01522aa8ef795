"""Answers of the proxy: JSON with exact decimals, and problem documents."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from encrypted_records.errors import ErsError, NotAuthenticated
from encrypted_records.http import problem
from encrypted_records.model import json_text
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.ids import reference, to_text
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.auth import credentials_of
from encrypted_records.proxy.process.offload import aside

log = logging.getLogger(__name__)

#: Values of an answer, and their characters, that are written sooner than a thread has begun.
FEW_CELLS, FEW_BYTES = 2000, 256 << 10
PIECE_BYTES = 256 << 10

#: An answer is not stored, and its media type is not guessed.
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
#: The credentials that are accepted, for a 401.
CHALLENGES = (
    ("WWW-Authenticate", 'Basic realm="encrypted-records", charset="UTF-8"'),
    ("WWW-Authenticate", 'Bearer realm="encrypted-records"'),
)


def answer(content: Any, status: int = 200) -> Response:
    """``content`` as JSON; a Decimal becomes a number with all its decimals."""
    return Response(
        json_text.encode(content),
        status,
        headers=_HEADERS,
        media_type="application/json",
    )


def record_json(
    record: PlainRecord,
    schema: bytes,
    definition: SchemaDefinition,
    fields: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """A record as users see it: its fields in the definition's order, or those asked for."""
    return {
        "id": to_text(record.record_id),
        "url": reference("records", record.record_id),
        "schema": reference("schemas", schema),
        "data": {
            name: record.data[name]
            for name in (definition.fields if fields is None else fields)
            if name in record.data
        },
    }


def to_json(content: Any) -> bytes:
    """JSON as :func:`answer` writes it."""
    return json_text.encode(content)


async def records_answer(
    records: Sequence[PlainRecord],
    schema: bytes,
    definition: SchemaDefinition,
    fields: tuple[str, ...] | None = None,
    *,
    head: dict[str, Any],
) -> Response:
    """``head`` and, as its member ``results``, records as :func:`record_json` has them."""
    results = await write_each(
        records,
        len(definition.fields if fields is None else fields),
        lambda record: to_json(record_json(record, schema, definition, fields)),
    )
    return json_list(to_json(head)[:-1] + b',"results":[', results, b"]}")


async def write_each(
    records: Sequence[PlainRecord], fields: int, write: Callable[[PlainRecord], bytes]
) -> list[bytes]:
    """``write`` of each record, of which ``fields`` fields are shown; in a thread where that takes
    long."""
    few = records if len(records) * fields <= FEW_CELLS else ()
    texts = (value for record in few for value in record.data.values() if isinstance(value, str))
    is_quick = len(few) == len(records) and sum(map(len, texts)) <= FEW_BYTES

    def each() -> list[bytes]:
        return [write(record) for record in records]

    return each() if is_quick else await aside(each)


def json_list(begin: bytes, items: Sequence[bytes], end: bytes) -> Response:
    """JSON items with commas between them. A long list is sent in pieces, as the client takes them:
    copying a hundred MiB at once keeps everybody else waiting."""
    parts = [begin, *chain.from_iterable((b",", item) for item in items), end]
    if items:
        del parts[1]
    size = sum(map(len, parts))
    if size <= PIECE_BYTES:
        return Response(b"".join(parts), headers=_HEADERS, media_type="application/json")
    headers = {**_HEADERS, "Content-Length": str(size)}
    return StreamingResponse(pieces(parts), headers=headers, media_type="application/json")


async def pieces(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces of about ``PIECE_BYTES``."""
    gathered = bytearray()
    for part in parts:
        for at in range(0, len(part), PIECE_BYTES):
            gathered += part[at : at + PIECE_BYTES]
            if len(gathered) >= PIECE_BYTES:
                yield bytes(gathered)
                gathered.clear()
    if gathered:
        yield bytes(gathered)


def record_answer(
    record: PlainRecord, schema: bytes, definition: SchemaDefinition, **more: Any
) -> Response:
    """A record, with the ETag that If-Match takes (RFC 9110, section 8.8.3).

    Args:
        more: further members of the answer.
    """
    response = answer(record_json(record, schema, definition) | more)
    response.headers["ETag"] = f'"{record.version}"'
    return response


def problem_answer(document: dict[str, Any], retry_after: int | None = None) -> Response:
    response = Response(
        json_text.encode(document),
        document["status"],
        headers=_HEADERS,
        media_type=problem.MEDIA_TYPE,
    )
    if document["status"] == 401:
        for name, value in CHALLENGES:
            response.headers.append(name, value)
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    return response


async def on_error(request: Request, error: Exception) -> Response:
    """Convert an exception of this package to an answer."""
    assert isinstance(error, ErsError)
    if isinstance(error, NotAuthenticated):
        with suppress(NotAuthenticated):  # it may have come without any
            request.app.state.services.access.forget(credentials_of(request))
    mirrored = request.app.state.services.mirrored
    named: ErsError = error if mirrored is None else mirrored.name_stale(error)
    return problem_answer(problem.of_error(named), named.retry_after)


async def on_http_error(_request: Request, error: Exception) -> Response:
    """Convert an exception of the framework to an answer: no such path, or method."""
    assert isinstance(error, HTTPException)
    codes = {404: "not_found", 405: "method_not_allowed"}
    code = codes.get(error.status_code, "http_error")
    response = problem_answer(
        problem.document(error.status_code, code, problem.title_of(error.status_code).lower())
    )
    response.headers.update(error.headers or {})
    return response


async def on_gone(_request: Request, _error: Exception) -> Response:
    """Finish a request whose client has disconnected. The answer is not sent; it only ends the
    request's line in the log.
    """
    return problem_answer(problem.document(400, "client_gone", "the client disconnected"))


async def on_bug(_request: Request, error: Exception) -> Response:
    """A bug of ours. The log has its type and its lines, not its text, which may quote a record."""
    log.error("unexpected %s", type(error).__name__, exc_info=error)
    return problem_answer(
        problem.document(500, "internal_error", "an unexpected error occurred in the proxy")
    )

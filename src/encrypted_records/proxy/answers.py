"""What the proxy answers with: JSON with exact decimals, and problem documents."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.errors import ErsError, NotAuthenticated
from encrypted_records.model import problem
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.ids import reference, to_text
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.access import credentials_of

log = logging.getLogger(__name__)

_encoder = msgspec.json.Encoder(decimal_format="number")
_CHALLENGES = (
    ("WWW-Authenticate", 'Basic realm="encrypted-records", charset="UTF-8"'),
    ("WWW-Authenticate", 'Bearer realm="encrypted-records"'),
)


def answer(content: Any, status: int = 200) -> Response:
    """``content`` as JSON; a Decimal becomes a number with all its decimals."""
    return Response(
        _encoder.encode(content),
        status,
        headers={"Cache-Control": "no-store"},
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


def record_answer(record: PlainRecord, schema: bytes, definition: SchemaDefinition) -> Response:
    """One record, with the ETag that If-Match takes (RFC 9110, section 8.8.3)."""
    found = answer(record_json(record, schema, definition))
    found.headers["ETag"] = f'"{record.version}"'
    return found


def problem_answer(document: dict[str, Any], retry_after: int | None = None) -> Response:
    response = Response(
        _encoder.encode(document), document["status"], media_type=problem.MEDIA_TYPE
    )
    response.headers["Cache-Control"] = "no-store"
    if document["status"] == 401:
        for name, value in _CHALLENGES:
            response.headers.append(name, value)
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    return response


async def on_error(request: Request, error: Exception) -> Response:
    """One of ours."""
    assert isinstance(error, ErsError)
    if isinstance(error, NotAuthenticated):
        with suppress(NotAuthenticated):  # it may have come without any
            request.app.state.parts.access.forget(credentials_of(request))
    return problem_answer(problem.of_error(error), error.retry_after)


async def on_http_error(_request: Request, error: Exception) -> Response:
    """One of the framework's: no such path, or method."""
    assert isinstance(error, HTTPException)
    codes = {404: "not_found", 405: "method_not_allowed"}
    code = codes.get(error.status_code, "http_error")
    response = problem_answer(
        problem.document(error.status_code, code, problem.title_of(error.status_code).lower())
    )
    response.headers.update(error.headers or {})
    return response


async def on_bug(_request: Request, error: Exception) -> Response:
    """Ours to mend. The log keeps type and place of it: the text may quote a record."""
    log.error("unexpected %s", type(error).__name__, exc_info=error)
    return problem_answer(
        problem.document(500, "internal_error", "something unexpected happened in the proxy")
    )

"""/api/records/export/: every record of a search as NDJSON or CSV, streamed.

An answer that fails after it began is never ended as a whole one is: the connection is closed in
the middle of the chunked body, which every HTTP client reports.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from decimal import Decimal
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Send

from encrypted_records.errors import ErsError, Flaw, InvalidQuery
from encrypted_records.model import problem
from encrypted_records.model.definition import Value
from encrypted_records.model.ids import to_text
from encrypted_records.proxy.answers import record_json
from encrypted_records.proxy.exporting import Export, export
from encrypted_records.proxy.parts import parts_of
from encrypted_records.proxy.routes.bodies import read_object
from encrypted_records.proxy.routes.parameters import schema_of

log = logging.getLogger(__name__)

_encoder = msgspec.json.Encoder(decimal_format="number")
_MEDIA_TYPES = {"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8; header=present"}
#: Members of a search that make no sense for all of its records.
_OF_PAGES = ("limit", "cursor", "count")


class _Stream(StreamingResponse):
    """A body that says of itself whether it is whole.

    Args:
        last_words: what to send, if anything, when the rest cannot be.
    """

    def __init__(
        self,
        content: AsyncIterator[bytes],
        media_type: str,
        last_words: Callable[[ErsError], bytes],
    ) -> None:
        super().__init__(content, media_type=media_type)
        self.headers["Cache-Control"] = "no-store"
        self._last_words = last_words

    async def stream_response(self, send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(head)
        try:
            async for chunk in self.body_iterator:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except ErsError as error:
            log.warning("an export broke off: %s", error.message)
            last = self._last_words(error)
            await send({"type": "http.response.body", "body": last, "more_body": True})
            # Not ended: the server then closes the connection without the last chunk.
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def export_all(request: Request) -> Response:
    """POST /api/records/export/"""
    parts = parts_of(request)
    caller = await parts.caller(request)
    body = await read_object(request)
    form = _form(request, body.pop("format", None))
    for name in _OF_PAGES:
        if name in body:
            detail = "an export has no pages; a search has"
            raise InvalidQuery(detail, flaws=(Flaw("unknown_member", detail, f"/{name}"),))
    schema = schema_of(parts, body.get("schema"))
    found = await export(parts.asker, caller, schema, body)
    if form == "csv":
        return _Stream(_csv(found, schema), _MEDIA_TYPES[form], lambda _: b"")
    return _Stream(_ndjson(found, schema), _MEDIA_TYPES[form], _error_line)


def _form(request: Request, asked: Any) -> str:
    """``ndjson`` or ``csv``, as the body says, or else the header Accept."""
    if asked is None:
        wanted = request.headers.get("accept", "")
        return "csv" if "text/csv" in wanted and "ndjson" not in wanted else "ndjson"
    if not isinstance(asked, str) or asked not in _MEDIA_TYPES:
        detail = f"expected one of {', '.join(_MEDIA_TYPES)}"
        raise InvalidQuery(detail, flaws=(Flaw("type", detail, "/format"),))
    return asked


async def _ndjson(found: Export, schema: bytes) -> AsyncIterator[bytes]:
    async for batch in found.batches:
        yield b"".join(
            _encoder.encode(record_json(record, schema, found.definition, found.fields)) + b"\n"
            for record in batch
        )


def _error_line(error: ErsError) -> bytes:
    return _encoder.encode({"error": problem.of_error(error)}) + b"\n"


async def _csv(found: Export, schema: bytes) -> AsyncIterator[bytes]:
    """In the form that batch uploads take (RFC 4180): the last entry of the header names the
    schema and has no column below it."""
    names = tuple(found.definition.fields) if found.fields is None else found.fields
    yield _line([*names, f"schema_id:{to_text(schema)}"])
    async for batch in found.batches:
        yield b"".join(_row(names, record.data) for record in batch)


def _row(names: tuple[str, ...], data: Mapping[str, Value]) -> bytes:
    cells = [data.get(name) for name in names]
    # Readers skip an empty line; with an empty cell at its end it is a row.
    return _line([*cells, None] if cells == [None] else cells)


def _line(cells: list[Any]) -> bytes:
    return (",".join(map(_cell, cells)) + "\r\n").encode()


def _cell(value: Value) -> str:
    """Not the standard library's: it cannot tell an absent value from an empty string."""
    if value is None:
        return ""
    text = format(value, "f") if isinstance(value, Decimal) else str(value)
    if text and not any(mark in text for mark in '",\r\n'):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


routes = [Route("/api/records/export/", export_all, methods=["POST"])]

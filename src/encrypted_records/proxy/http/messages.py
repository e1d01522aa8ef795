"""HTTP messages of the proxy: bodies of requests, answers, and downloads.

A body is read within a limit and as the type it must have. An answer is JSON with exact decimals,
or a problem document. A download streams records as NDJSON, CSV or Arrow: if it fails after it
began, the connection is closed in the middle of the chunked body, which every HTTP client reports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from encrypted_records import errors
from encrypted_records.client.proxy.records import Record, UpdatedRecord
from encrypted_records.http import problem
from encrypted_records.model import strict_json
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.ids import reference, to_text
from encrypted_records.model.record_formats import Format, charset_of, require_utf8
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.auth import credentials_of
from encrypted_records.proxy.process import LONG_BYTES, Sent, aside, by_size

Body = TypeVar("Body", bound=msgspec.Struct)
T = TypeVar("T")

log = logging.getLogger(__name__)


# --- bodies of requests ---------------------------------------------------------------------------

MAX_BODY_BYTES = 16 << 20
#: Maximum size in bytes of a body with passphrases, phrases or a keyring file: a thousand versions
#: fit.
MAX_SECRET_BYTES = 256 << 10


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
            raise errors.TooLarge(f"this body is larger than the limit of {most}")
        parts.append(part)
    return b"".join(parts)


async def read_json(request: Request, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """The body of a request whose media type is JSON.

    Raises:
        Malformed: a string in it contains half of a surrogate pair.
        Unsupported: it has another media type, or declares a charset other than UTF-8.
        TooLarge: as :func:`read_body`.
    """
    body = await read_records(request, limit=limit)
    await by_size(len(body), few=True)(strict_json.refuse_halves, body)
    return body


async def read_records(request: Request, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """Records from a body. Validation reports the row and field of a string with half of a
    surrogate pair; see :func:`read_json`.

    Raises:
        Unsupported, TooLarge: as :func:`read_json`.
    """
    if media_type(request) != "application/json":
        raise errors.Unsupported(
            "this endpoint accepts JSON only",
            code="unsupported_media_type",
            hint="send Content-Type: application/json",
        )
    require_utf8(charset_of(request.headers.get("content-type", "")))
    return await read_body(request, limit=limit)


async def while_wanted(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The outcome of ``work``, which is cancelled if the client disconnects.

    Raises:
        ClientDisconnect: it disconnected.
    """
    working = asyncio.create_task(work)  # noqa: TID251 # ends with its request
    leaving = asyncio.create_task(_until_disconnect(request))  # noqa: TID251 # ends with its request
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return await working
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _until_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def read_struct(request: Request, kind: type[Body], *, limit: int = MAX_SECRET_BYTES) -> Body:
    """The body as a msgspec structure, for bodies with secrets: no error repeats any.

    Raises:
        InvalidQuery: it does not match the structure.
        Malformed, TooLarge, Unsupported: as :func:`read_json`.
    """
    try:
        return msgspec.json.decode(await read_json(request, limit=limit), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        members = ", ".join(field.name for field in msgspec.structs.fields(kind))
        raise errors.InvalidQuery(
            f"expected an object with: {members}", hint="docs/http-api.md describes the body"
        ) from None


async def read_optional(request: Request, kind: type[Body]) -> Body:
    """Like :func:`read_struct`; a request without a body counts as an empty object."""
    return await read_struct(request, kind) if media_type(request) else kind()


async def read_object(request: Request) -> Sent:
    """The body as a JSON object.

    Raises:
        InvalidQuery: it is not an object.
        Malformed: it is not JSON.
        TooLarge: as :func:`read_json`, or more values than a body may hold.
        Unsupported: as :func:`read_json`.
    """
    body = await read_records(request)
    value = await aside(_loads, body) if len(body) > LONG_BYTES else strict_json.loads(body)
    if not isinstance(value, dict):
        raise errors.InvalidQuery("expected a JSON object")
    return Sent(value, len(body))


def _loads(body: bytes) -> Any:
    strict_json.refuse_many(body)
    return strict_json.loads(body)


# --- answers --------------------------------------------------------------------------------------

#: Values of an answer, and their characters, that are written in less time than a thread takes to
#: start.
FEW_CELLS, FEW_BYTES = 2000, 256 << 10
PIECE_BYTES = 256 << 10

#: An answer is not cached, and its media type is not guessed.
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
#: Accepted credentials, for a 401.
CHALLENGES = (
    ("WWW-Authenticate", 'Basic realm="encrypted-records", charset="UTF-8"'),
    ("WWW-Authenticate", 'Bearer realm="encrypted-records"'),
)


def answer(content: Any, status: int = 200) -> Response:
    """``content`` as JSON; a Decimal becomes a number with all its decimals."""
    return Response(
        strict_json.encode(content),
        status,
        headers=_HEADERS,
        media_type="application/json",
    )


def shown_record(
    record: PlainRecord,
    schema: bytes,
    definition: SchemaDefinition,
    fields: tuple[str, ...] | None = None,
) -> Record:
    """A record as users see it: its fields in the definition's order, or the requested fields."""
    return Record(
        to_text(record.record_id),
        reference("records", record.record_id),
        reference("schemas", schema),
        {
            name: record.data[name]
            for name in (definition.fields if fields is None else fields)
            if name in record.data
        },
    )


def to_json(content: Any) -> bytes:
    """JSON as :func:`answer` writes it."""
    return strict_json.encode(content)


async def records_answer(
    records: Sequence[PlainRecord],
    schema: bytes,
    definition: SchemaDefinition,
    fields: tuple[str, ...] | None = None,
    *,
    page: msgspec.Struct,
) -> Response:
    """``page`` with records as :func:`shown_record` returns them; see :func:`page_answer`."""
    results = await write_each(
        records,
        len(definition.fields if fields is None else fields),
        lambda record: to_json(shown_record(record, schema, definition, fields)),
    )
    return page_answer(page, results)


async def write_each(
    records: Sequence[PlainRecord], fields: int, write: Callable[[PlainRecord], bytes]
) -> list[bytes]:
    """Apply ``write`` to each record, of which ``fields`` fields are shown; in a thread if that
    takes long.
    """
    few = records if len(records) * fields <= FEW_CELLS else ()
    texts = (value for record in few for value in record.data.values() if isinstance(value, str))
    is_quick = len(few) == len(records) and sum(map(len, texts)) <= FEW_BYTES

    def each() -> list[bytes]:
        return [write(record) for record in records]

    return each() if is_quick else await aside(each)


def page_answer(page: msgspec.Struct, results: Sequence[bytes]) -> Response:
    """``page``, whose last member is an empty list, with these items of JSON in the list."""
    return json_list(open_list(page), results, b"]}")


def open_list(page: msgspec.Struct) -> bytes:
    """The JSON of ``page``, whose last member is an empty list, up to the list's items."""
    written = to_json(page)
    assert written.endswith(b"[]}"), f"the last member of {type(page).__name__} is no empty list"
    return written[:-2]


def json_list(begin: bytes, items: Sequence[bytes], end: bytes) -> Response:
    """JSON items separated by commas. A long list is sent in pieces at the client's pace: copying a
    hundred MiB at once would block all other requests.
    """
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
    record: PlainRecord,
    schema: bytes,
    definition: SchemaDefinition,
    rounded: Sequence[str] = (),
) -> Response:
    """A record, with the ETag that If-Match takes (RFC 9110, section 8.8.3).

    Args:
        rounded: the fields whose values were rounded by a change.
    """
    shown = shown_record(record, schema, definition)
    response = answer(UpdatedRecord(shown.id, shown.url, shown.schema, shown.data, tuple(rounded)))
    response.headers["ETag"] = f'"{record.version}"'
    return response


# --- problem documents ----------------------------------------------------------------------------


def problem_answer(document: dict[str, Any], retry_after: int | None = None) -> Response:
    response = Response(
        strict_json.encode(document),
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
    assert isinstance(error, errors.ErsError)
    if isinstance(error, errors.NotAuthenticated):
        with suppress(errors.NotAuthenticated):  # the request may have no credentials
            request.app.state.services.access.forget(credentials_of(request))
    mirrored = request.app.state.services.mirrored
    named: errors.ErsError = error if mirrored is None else mirrored.name_stale(error)
    return problem_answer(problem.of_error(named), named.retry_after)


async def on_http_error(_request: Request, error: Exception) -> Response:
    """Convert an exception of the framework to an answer: no such path, or method."""
    assert isinstance(error, HTTPException)
    codes = {404: "not_found", 405: "method_not_allowed"}
    code = codes.get(error.status_code, "http_error")
    headers = error.headers or {}
    hint = f"this path has {headers['Allow']}" if "Allow" in headers else ""
    response = problem_answer(
        problem.document(
            error.status_code, code, problem.title_of(error.status_code).lower(), hint=hint
        )
    )
    response.headers.update(headers)
    return response


async def on_disconnect(_request: Request, _error: Exception) -> Response:
    """Finish a request whose client has disconnected. The answer is not sent; it only ends the
    request's line in the log.
    """
    return problem_answer(problem.document(400, "client_gone", "the client disconnected"))


async def on_bug(_request: Request, error: Exception) -> Response:
    """A bug in this package. The log has its type and its lines, not its text, which may quote a
    record.
    """
    log.error("unexpected %s", type(error).__name__, exc_info=error)
    return problem_answer(
        problem.document(500, "internal_error", "an unexpected error occurred in the proxy")
    )


# --- downloads ------------------------------------------------------------------------------------

_MEDIA_TYPES = {
    Format.NDJSON: Format.NDJSON.media_type,
    Format.CSV: f"{Format.CSV.media_type}; charset=utf-8; header=present",
}
_NAMES = {kind.value: kind for kind in _MEDIA_TYPES}


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a file. ``safe`` prevents a spreadsheet from running a text as a formula;
    ``names_schema`` ends the CSV header with the schema's id.
    """

    kind: Format
    safe: bool
    names_schema: bool = False

    @property
    def csv(self) -> bool:
        return self.kind is Format.CSV

    def download(self, content: AsyncGenerator[bytes, None]) -> Download:
        """The answer in this form."""
        return Download(content, _MEDIA_TYPES[self.kind], by_line=not self.csv)


def form_of(request: Request, body: dict[str, Any]) -> Form:
    """The form that ``format``, ``safe_cells`` and ``with_schema_id`` request, which are removed
    from the body; otherwise the form in the header Accept.

    Raises:
        InvalidQuery: there is no such form.
    """
    name = body.pop("format", None)
    if name is None:
        wanted = request.headers.get("accept", "")
        name = "csv" if "text/csv" in wanted and "ndjson" not in wanted else "ndjson"
    kind = _NAMES.get(name) if isinstance(name, str) else None
    if kind is None:
        detail = f"expected one of {', '.join(_NAMES)}"
        raise errors.InvalidQuery(detail, flaws=(errors.Flaw("type", detail, "/format"),))
    return Form(kind, _of_csv(body, "safe_cells", kind), _of_csv(body, "with_schema_id", kind))


def _of_csv(body: dict[str, Any], name: str, kind: Format) -> bool:
    value = body.pop(name, False)
    if not isinstance(value, bool) or (value and kind is not Format.CSV):
        detail = "expected true or false; true is for CSV only"
        raise errors.InvalidQuery(detail, flaws=(errors.Flaw("type", detail, f"/{name}"),))
    return value


class Download(StreamingResponse):
    """A body that shows a client whether it is complete.

    A failure of NDJSON has its own line; CSV and Arrow have no room for it.
    """

    def __init__(
        self,
        content: AsyncGenerator[bytes | memoryview, None],
        media_type: str,
        status: int = 200,
        *,
        by_line: bool = False,
    ) -> None:
        """
        Args:
            content: is closed when the answer ends, also if its client has disconnected.
            by_line: whether it is NDJSON.
        """
        super().__init__(content, status, media_type=media_type)
        self._content = content
        self.headers["Cache-Control"] = "no-store"
        self._by_line = by_line

    async def stream_response(self, send: Send) -> None:
        head = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        try:
            async with aclosing(self._content):
                await send(head)
                async for chunk in self._content:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except errors.ErsError as error:
            log.warning("a download was interrupted: %s", error.message)
            last = json_line({"error": problem.of_error(error)}) if self._by_line else b""
            await send({"type": "http.response.body", "body": last, "more_body": True})
            # Without the end of the body, the server closes the connection before the last chunk.
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def json_line(content: Any) -> bytes:
    return strict_json.encode(content) + b"\n"

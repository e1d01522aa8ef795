"""Streams of all results of a search: /api/records/columns/ as Arrow, for analytical engines, and
/api/records/export/ as NDJSON or CSV.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib.util import find_spec

from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.errors import Flaw, InvalidQuery, NotInstalled
from encrypted_records.model import record_formats
from encrypted_records.model.ids import to_text
from encrypted_records.model.queries import MAX_LIMIT
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.api import json_schema as spec
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.parameters import schema_of
from encrypted_records.proxy.api.search import CONDITIONS, OPTIONAL_CONDITIONS, SHOWN
from encrypted_records.proxy.http.messages import (
    Download,
    Form,
    form_of,
    json_line,
    pieces,
    read_object,
    shown_record,
    while_wanted,
    write_each,
)
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import put_first
from encrypted_records.proxy.search.export import Batches, Export, export
from encrypted_records.proxy.services import Services

#: The version of the schema's log that all columns show.
VERSION_HEADER = "X-Log-Version"

_FIRST_RECORDS = {
    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT},
    "offset": {"type": "integer", "minimum": 0, "maximum": MAX_LIMIT},
}

endpoint = Endpoints("records")


@endpoint(
    "POST",
    "/api/records/columns/",
    summary="Export columns of the records that match a condition, as a stream of Arrow.",
    body=spec.json_body(
        spec.object_of(
            CONDITIONS,
            **OPTIONAL_CONDITIONS,
            fields=spec.NAMES,
            order_by=spec.RANKING,
            **_FIRST_RECORDS,
        )
    ),
    answers={
        200: spec.answer_of_kinds(
            {spec.ARROW: spec.BINARY},
            description="A record batch for each part of a segment",
            X_Log_Version=spec.NUMBER,
        )
    },
    problems=(501,),
)
async def read_columns(request: Request, services: Services, caller: Holder) -> Response:
    body = await read_object(request)
    schema = await schema_of(services, caller, body.get("schema"))
    require_arrow()
    from encrypted_records.proxy.search.columns import read_columns as ask  # noqa: PLC0415 - optional, slow to import

    async with services.turns.take(caller.user):
        reading = ask(services.query_runner, caller, schema, body)
        columns = await while_wanted(request, reading)
    pieces = put_first(columns.first, services.turns.each(caller.user, columns.rest))
    download = Download(services.admission.until_revoked(caller, pieces), spec.ARROW)
    download.headers[VERSION_HEADER] = str(columns.version)
    return download


def require_arrow() -> None:
    """
    Raises:
        NotInstalled: the library for Arrow is not installed.
    """
    if find_spec("pyarrow") is None:
        raise NotInstalled(
            "columns are sent as Arrow, and the library that writes it is not installed",
            hint="on the proxy's machine: pip install 'encrypted-records[sql]'",
        )


#: Members of a search that do not apply to all of its records.
_OF_PAGES = ("limit", "offset", "cursor", "count")


@endpoint(
    "POST",
    "/api/records/export/",
    summary="Export every record that matches a condition, streamed as NDJSON or CSV.",
    body=spec.json_body(
        spec.object_of(CONDITIONS, **OPTIONAL_CONDITIONS, **SHOWN, **spec.FILE_FORM)
    ),
    answers={
        200: spec.answer_of_kinds(
            {spec.NDJSON: {}, spec.CSV: {}}, description="Every record that matches"
        )
    },
)
async def export_records(request: Request, services: Services, caller: Holder) -> Response:
    body = await read_object(request)
    form = form_of(request, body)
    for name in _OF_PAGES:
        if name in body:
            detail = "an export has no pages; use a search for pages"
            raise InvalidQuery(detail, flaws=(Flaw("unknown_member", detail, f"/{name}"),))
    schema = await schema_of(services, caller, body.get("schema"))
    async with services.turns.take(caller.user):
        exported = await export(services.query_runner, services.spool, caller, schema, body)
    batches = put_first(exported.first, services.turns.each(caller.user, exported.rest))
    batches = services.admission.until_revoked(caller, batches)
    begun = await while_wanted(request, _begin(batches))
    return form.download(_write(exported, begun, schema, form))


async def _begin(batches: Batches) -> Batches:
    """The batches, from the first records on: a sorted export has fetched every row at that point,
    so that an HTTP status can report most of its errors.
    """
    async for first in batches:
        if first:
            return put_first(first, batches)
    return batches


async def _write(
    exported: Export, batches: Batches, schema: bytes, form: Form
) -> AsyncGenerator[bytes, None]:
    names = tuple(exported.definition.fields) if exported.fields is None else exported.fields

    def line(record: PlainRecord) -> bytes:
        return json_line(shown_record(record, schema, exported.definition, exported.fields))

    columns = record_formats.CsvColumns.of(names, exported.definition.required, safe=form.safe)
    if form.csv:
        yield columns.header(to_text(schema) if form.names_schema else None)
    async with aclosing(batches):
        async for batch in batches:
            if form.csv:
                rows = await write_each(batch, len(names), lambda row: columns.record(row.data))
            else:
                rows = await write_each(batch, len(names), line)
            async for piece in pieces(rows):
                yield piece

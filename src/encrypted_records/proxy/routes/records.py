"""/api/records/: ingest, read and decrypt; :mod:`.questions` and :mod:`.changes` have
the rest.

Plaintext passes here and goes no further: nothing under this path is ever forwarded, except to
read what the API itself answers sealed.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from encrypted_records.client.api import SealedRecord
from encrypted_records.errors import InvalidRecords, TooLarge
from encrypted_records.model.ids import from_text, reference, to_text
from encrypted_records.model.questions import DEFAULT_LIMIT, MAX_LIMIT
from encrypted_records.proxy.answers import answer, record_answer, record_json
from encrypted_records.proxy.current import current, open_sealed
from encrypted_records.proxy.once import HEADER, Once
from encrypted_records.proxy.parts import parts_of
from encrypted_records.proxy.routes.bodies import read_json
from encrypted_records.proxy.routes.forward import forward
from encrypted_records.proxy.routes.parameters import number_of, only, schema_of
from encrypted_records.proxy.schemas import SchemaState

MAX_DECRYPT_RECORDS = 1000


async def ingest(request: Request) -> Response:
    """POST /api/records/ingest/: up to 100 records, all or none, once for an Idempotency-Key."""
    parts = parts_of(request)
    caller = await parts.caller(request)
    body = await read_json(request)
    once = Once.of(request.headers.get(HEADER), body)
    created = await parts.runner.ingest(caller, body, once)
    return answer(
        [
            {
                "id": to_text(one.id),
                "url": reference("records", one.id),
                "schema": reference("schemas", one.schema),
            }
            for one in created
        ],
        201,
    )


async def listing(request: Request) -> Response:
    """GET /api/records/?schema=<id>: opened, or as the API has them with ?sealed=true."""
    parts = parts_of(request)
    caller = await parts.caller(request)
    if _sealed(request):
        return await forward(request)
    only(request, {"schema", "limit", "offset", "sealed"})
    schema = schema_of(parts, request.query_params.get("schema", ""))
    limit = number_of(request, "limit", DEFAULT_LIMIT, least=1, most=MAX_LIMIT)
    offset = number_of(request, "offset", 0, least=0, most=2**31)
    count, found = await parts.search.page(caller, schema, offset=offset, limit=limit)

    def link(start: int) -> str:
        query = f"schema={to_text(schema)}&limit={limit}"
        return f"/api/records/?{query}&offset={start}" if start else f"/api/records/?{query}"

    return answer(
        {
            "count": count,
            "next": link(offset + limit) if offset + limit < count else None,
            "previous": link(max(0, offset - limit)) if offset else None,
            "results": [record_json(record, schema, found.definition) for record in found.records],
        }
    )


async def one(request: Request) -> Response:
    """GET /api/records/<id>/: opened, or as the API has it with ?sealed=true."""
    parts = parts_of(request)
    caller = await parts.caller(request)
    record_id = from_text(request.path_params["id"])
    if _sealed(request):
        return await forward(request)
    only(request, {"sealed"})
    (found,) = await current(parts.api, parts.schemas, caller, [record_id])
    return record_answer(found.record, found.state.id, found.state.definition)


async def decrypt(request: Request) -> Response:
    """POST /api/records/decrypt/: sealed records as the API returns them, one or an array."""
    parts = parts_of(request)
    caller = await parts.caller(request)
    body = await read_json(request)
    try:
        found = msgspec.json.decode(body, type=SealedRecord | list[SealedRecord])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidRecords(
            "expected a sealed record, or an array of them",
            hint="send what GET /api/records/<id>/?sealed=true returns, unchanged",
        ) from None
    several = found if isinstance(found, list) else [found]
    if len(several) > MAX_DECRYPT_RECORDS:
        raise TooLarge(f"at most {MAX_DECRYPT_RECORDS} records are opened at once")
    states: dict[bytes, SchemaState] = {}
    opened = []
    for sealed in several:
        schema = schema_of(parts, sealed.schema)
        if schema not in states:
            states[schema] = await parts.schemas.fresh(caller, schema)
        state = states[schema]
        opened.append(record_json(open_sealed(state, sealed), schema, state.definition))
    return answer(opened if isinstance(found, list) else opened[0])


def _sealed(request: Request) -> bool:
    return request.query_params.get("sealed", "").lower() == "true"


routes = [
    Route("/api/records/ingest/", ingest, methods=["POST"]),
    Route("/api/records/decrypt/", decrypt, methods=["POST"]),
    Route("/api/records/", listing, methods=["GET"]),
    Route("/api/records/{id}/", one, methods=["GET"]),
]

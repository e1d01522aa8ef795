"""/api/records/: ingest, search, read and decrypt.

Plaintext passes here and goes no further: nothing under this path is ever forwarded, except to
read what the API itself answers sealed.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from encrypted_records.client.api import SealedRecord
from encrypted_records.errors import (
    Flaw,
    InvalidQuery,
    InvalidRecords,
    LogBroken,
    TooLarge,
)
from encrypted_records.index.rows import open_row
from encrypted_records.model.ids import from_reference, from_text, reference, to_text
from encrypted_records.model.predicates import DEFAULT_LIMIT, MAX_LIMIT, parse_query
from encrypted_records.model.records import Group, SealedRow
from encrypted_records.proxy.answers import answer, record_json
from encrypted_records.proxy.parts import Parts, parts_of
from encrypted_records.proxy.routes.bodies import read_json, read_object
from encrypted_records.proxy.routes.forward import forward
from encrypted_records.proxy.schemas import SchemaState

MAX_DECRYPT_RECORDS = 1000


async def ingest(request: Request) -> Response:
    """POST /api/records/ingest/: up to 100 records, all or none."""
    parts = parts_of(request)
    caller = await parts.caller(request)
    created = await parts.runner.ingest(caller, await read_json(request))
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


async def search(request: Request) -> Response:
    """POST /api/records/search/"""
    parts = parts_of(request)
    caller = await parts.caller(request)
    body = await read_object(request)
    schema = schema_of(parts, body.get("schema"))
    state = await parts.schemas.fresh(caller, schema)
    query = parse_query(body, state.definition)
    found = await parts.search.ask(caller, state, query)
    return answer(
        {
            "count": found.count,
            "next_cursor": found.next_cursor,
            "results": [
                record_json(record, schema, state.definition, query.fields)
                for record in found.records
            ],
        }
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
    state = await parts.schemas.fresh(caller, schema)
    count, records = await parts.search.page(caller, state, offset=offset, limit=limit)

    def link(start: int) -> str:
        query = f"schema={to_text(schema)}&limit={limit}"
        return f"/api/records/?{query}&offset={start}" if start else f"/api/records/?{query}"

    return answer(
        {
            "count": count,
            "next": link(offset + limit) if offset + limit < count else None,
            "previous": link(max(0, offset - limit)) if offset else None,
            "results": [record_json(record, schema, state.definition) for record in records],
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
    sealed = await parts.api.sealed_record(record_id, caller.auth)
    if sealed.id != to_text(record_id):
        raise LogBroken("the API returned another record than it was asked for")
    state = await parts.schemas.fresh(caller, schema_of(parts, sealed.schema))
    record = _open(state, sealed)
    if not state.ledger.view().is_live(bytes.fromhex(sealed.group), sealed.ordinal):
        raise LogBroken("the API returned a record that the log does not hold")
    return answer(record)


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
        opened.append(_open(states[schema], sealed))
    return answer(opened if isinstance(found, list) else opened[0])


def _open(state: SchemaState, sealed: SealedRecord) -> dict[str, Any]:
    """Open a sealed record with the key that it names, which must be one of the schema's.

    Raises:
        KeyMissing: it is sealed with another key.
        DoesNotOpen: altered, or put together from several.
    """
    try:
        group, key_id = bytes.fromhex(sealed.group), bytes.fromhex(sealed.key_id)
    except ValueError:
        raise InvalidRecords("group and key_id are hexadecimal") from None
    key = state.ledger.keys.named(sealed.key_version, key_id)
    names = Group(group, sealed.key_version, sealed.ordinal + 1, list(sealed.fields))
    row = SealedRow(from_text(sealed.id), sealed.version, list(sealed.fields.values()))
    record = open_row(key, state.definition, names, sealed.ordinal, row)
    return record_json(record, state.id, state.definition)


def schema_of(parts: Parts, wanted: object) -> bytes:
    """The schema that a path, an absolute URL of this proxy, or a bare id names."""
    if isinstance(wanted, str) and "/" not in wanted:
        return from_text(wanted)
    return from_reference(wanted, "schemas", pointer="/schema", own_hosts=parts.own_origins)


def _sealed(request: Request) -> bool:
    return request.query_params.get("sealed", "").lower() == "true"


def only(request: Request, known: set[str]) -> None:
    """Refuse parameters that nobody here reads: a filter that is ignored would mislead."""
    for name in request.query_params:
        if name not in known:
            detail = "there is no such parameter; POST /api/records/search/ takes conditions"
            raise InvalidQuery(detail, flaws=(Flaw("unknown_parameter", detail, f"/{name}"),))


def number_of(request: Request, name: str, default: int, *, least: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdecimal() and least <= int(text) <= most:
        return int(text)
    detail = f"expected an integer from {least} to {most}"
    raise InvalidQuery(detail, flaws=(Flaw("limit", detail, f"/{name}"),))


routes = [
    Route("/api/records/ingest/", ingest, methods=["POST"]),
    Route("/api/records/search/", search, methods=["POST"]),
    Route("/api/records/decrypt/", decrypt, methods=["POST"]),
    Route("/api/records/", listing, methods=["GET"]),
    Route("/api/records/{id}/", one, methods=["GET"]),
]

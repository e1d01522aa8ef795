"""/api/records/: ingest, read and decrypt.

:mod:`.search`, :mod:`.columns` and :mod:`.record_changes` have the other endpoints below it.
Requests here contain plaintext, and are never forwarded. The only requests under this path that are
forwarded request encrypted records.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.client.proxy.records import Record, StoredRecord
from encrypted_records.errors import Flaw, InvalidQuery, InvalidRecords, TooLarge
from encrypted_records.http.openapi import LISTED_RECORD, SEALED_RECORD
from encrypted_records.model import resources, strict_json
from encrypted_records.model.ids import PATTERN, from_text, reference, to_text
from encrypted_records.model.queries import DEFAULT_LIMIT, MAX_LIMIT
from encrypted_records.proxy.api import json_schema as spec
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.forward import forward
from encrypted_records.proxy.api.parameters import (
    id_in_path,
    only,
    page_head,
    page_range,
    requested_schema,
    schema_of,
)
from encrypted_records.proxy.http.messages import (
    answer,
    json_list,
    read_json,
    read_object,
    read_records,
    record_answer,
    records_answer,
    shown_record,
    to_json,
)
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import by_size
from encrypted_records.proxy.search.lookup import look_up, look_up_recent, open_sealed, read_sealed
from encrypted_records.proxy.services import Services, services_of
from encrypted_records.proxy.write.ingest import HEADER, IdempotencyKey

MAX_DECRYPT_RECORDS = 1000
MAX_SEALED_RECORDS = 100
_MAX_INGEST_RECORDS = 100

_RECORD = spec.shape(Record)
#: Members of an answer that a sent record may repeat.
READ_ONLY: dict[str, spec.Part] = {
    "id": spec.ID,
    "url": spec.RECORD_PATH,
    "rounded": spec.NAMES,
    "version": spec.NUMBER,
    "proven": spec.FLAG,
}
#: A record in requests.
NEW_RECORD = spec.named(
    "NewRecord", spec.object_of({"schema": spec.SCHEMA_NAME, "data": spec.OBJECT}, **READ_ONLY)
)
_RECORD_OR_SEALED: spec.Part = {"oneOf": [_RECORD, SEALED_RECORD]}
_LISTED: spec.Part = {"oneOf": [_RECORD, LISTED_RECORD]}
_SEALED_PARAMETER = spec.parameter(
    "query", "sealed", spec.enum_of("true", "false"), "As the API has it"
)
#: A UUID of version 7. Not ``format``: client generators give headers strings, and cannot give
#: UUIDs.
_KEY = {
    "type": "string",
    "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
}
_IDEMPOTENCY_KEY = spec.parameter(
    "header", HEADER, _KEY, "A UUID of version 7, created now; the same one for a repetition"
)

endpoint = Endpoints("records")


@endpoint(
    "POST",
    "/api/records/ingest/",
    summary="Store up to 100 records, all or none, once per Idempotency-Key.",
    parameters=(_IDEMPOTENCY_KEY,),
    body=spec.json_body(spec.array_of(NEW_RECORD, minItems=1, maxItems=_MAX_INGEST_RECORDS)),
    answers={201: spec.json_answer(spec.array_of(spec.shape(StoredRecord)))},
)
async def ingest_records(request: Request, services: Services, caller: Holder) -> Response:
    body = await read_records(request)
    once = IdempotencyKey.of(request.headers.get(HEADER), body)
    created = await services.direct_ingest.ingest(caller, body, once)
    return answer(
        [
            StoredRecord(
                to_text(record.id),
                reference("records", record.id),
                reference("schemas", record.schema),
                tuple(record.rounded),
            )
            for record in created
        ],
        201,
    )


@endpoint.bare(
    "GET",
    "/api/records/",
    summary="List a schema's records, decrypted; with ?sealed=true, as the API has them.",
    parameters=(spec.SCHEMA_PARAMETER, _SEALED_PARAMETER, *spec.PAGING),
    answers={200: spec.json_answer(spec.named("RecordPage", spec.page_of(_LISTED)))},
)
async def list_records(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    if _wants_sealed(request):
        return await forward(request)
    only(request, {"schema", "limit", "offset", "sealed"})
    schema = await requested_schema(request, caller)
    limit, offset = page_range(request, limit=DEFAULT_LIMIT, most=MAX_LIMIT)
    count, page = await services.search.page(caller, schema, offset=offset, limit=limit)
    query = f"schema={to_text(schema)}&"
    head = page_head("/api/records/", query, count, limit=limit, offset=offset)
    return await records_answer(
        page.records, schema, page.definition, page=resources.ListPage(**head, results=[])
    )


@endpoint.bare(
    "GET",
    "/api/records/{id}/",
    summary="Get a record, decrypted; with ?sealed=true, as the API has it.",
    parameters=(_SEALED_PARAMETER,),
    answers={200: spec.json_answer(_RECORD_OR_SEALED, ETag=spec.TEXT)},
)
async def get_record(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    record_id = id_in_path(request)
    if _wants_sealed(request):
        return await forward(request)
    only(request, {"sealed"})
    stored = await look_up_recent(
        services.query_runner, services.schemas, services.rows, caller, record_id
    )
    if stored is None:
        (stored,) = await look_up(services.api, services.schemas, caller, [record_id])
    return record_answer(stored.record, stored.state.id, stored.definition)


@endpoint(
    "POST",
    "/api/records/sealed/",
    summary=(
        "Get up to 100 records as the API has them; records found recently are not named to"
        " the API."
    ),
    body=spec.json_body(
        spec.object_of({"ids": spec.array_of(spec.ID, minItems=1, maxItems=MAX_SEALED_RECORDS)})
    ),
    answers={200: spec.json_answer(spec.array_of(spec.OBJECT))},
)
async def read_sealed_records(request: Request, services: Services, caller: Holder) -> Response:
    body = await read_object(request)
    ids = body.get("ids")
    if not isinstance(ids, list) or not 1 <= len(ids) <= MAX_SEALED_RECORDS or len(body) > 1:
        detail = f"expected ids, an array of 1 to {MAX_SEALED_RECORDS} ids of records"
        raise InvalidQuery(detail, flaws=(Flaw("type", detail, "/ids"),))
    sealed = await read_sealed(
        services.query_runner,
        services.schemas,
        services.rows,
        services.api,
        caller,
        [from_text(str(id_)) for id_ in ids],
    )
    return json_list(b"[", [msgspec.json.encode(record) for record in sealed], b"]")


@endpoint(
    "POST",
    "/api/records/decrypt/",
    summary="Decrypt one or more encrypted records as the API returns them.",
    body=spec.json_body({"oneOf": [_RECORD_OR_SEALED, spec.array_of(_RECORD_OR_SEALED)]}),
    answers={200: spec.json_answer({"oneOf": [_RECORD, spec.array_of(_RECORD)]})},
)
async def decrypt_records(request: Request, services: Services, caller: Holder) -> Response:
    body = await read_json(request)
    try:
        sent = await by_size(len(body))(_sealed_records, body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        opened = await by_size(len(body))(_opened_records, body)
        if opened is not None:
            return json_list(b"", [opened], b"")
        raise InvalidRecords(
            "expected an encrypted record, or an array of them",
            hint="send what GET /api/records/<id>/?sealed=true returns, unchanged",
        ) from None
    several = sent if isinstance(sent, list) else [sent]
    _refuse_too_many(several)
    schemas = [await schema_of(services, caller, sealed.schema) for sealed in several]
    states = {
        schema: await services.schemas.refresh(caller, schema) for schema in dict.fromkeys(schemas)
    }

    # One snapshot per schema for all its records, and not in a thread, because the log changes
    # concurrently.
    seen = {uid: (state.ledger.keys, state.ledger.snapshot()) for uid, state in states.items()}

    def open_all() -> list[bytes]:
        together = ((uid, *seen[uid], record) for uid, record in zip(schemas, several, strict=True))
        return [
            to_json(shown_record(open_sealed(keys, snapshot, record), uid, snapshot.definition))
            for uid, keys, snapshot, record in together
        ]

    results = await by_size(len(body))(open_all)
    return (
        json_list(b"[", results, b"]") if isinstance(sent, list) else json_list(b"", results, b"")
    )


def _sealed_records(body: bytes) -> resources.SealedRecord | list[resources.SealedRecord]:
    return msgspec.json.decode(body, type=resources.SealedRecord | list[resources.SealedRecord])


def _opened_records(body: bytes) -> bytes | None:
    """Records that are plaintext already, unchanged; None for other bodies.

    Raises:
        Malformed: it is not JSON.
        TooLarge: there are more records than one request may decrypt.
    """
    strict_json.refuse_many(body)
    sent = strict_json.loads(body)
    try:
        opened = msgspec.convert(sent, _Opened | list[_Opened])
    except msgspec.ValidationError:
        return None
    several = opened if isinstance(opened, list) else [opened]
    if not several:
        return None
    _refuse_too_many(several)
    return to_json(sent)


class _Opened(msgspec.Struct, forbid_unknown_fields=True):
    """A record as answers have it."""

    id: Annotated[str, Meta(pattern=f"^{PATTERN}\\Z")]
    url: Annotated[str, Meta(pattern=f"^/api/records/{PATTERN}/\\Z")]
    schema: Annotated[str, Meta(pattern=f"^/api/schemas/{PATTERN}/\\Z")]
    data: dict[str, Any]


def _refuse_too_many(records: Sized) -> None:
    if len(records) > MAX_DECRYPT_RECORDS:
        raise TooLarge(f"at most {MAX_DECRYPT_RECORDS} records can be decrypted in one request")


def _wants_sealed(request: Request) -> bool:
    return request.query_params.get("sealed", "").lower() == "true"

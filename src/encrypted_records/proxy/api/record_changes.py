"""/api/records/: change and delete records. Requests contain plaintext, and are never forwarded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.client.proxy.erasure import ErasedData, ErasureCosts
from encrypted_records.client.proxy.records import DeletedCount, UpdatedRecord, UpsertedRecord
from encrypted_records.errors import Flaw, InvalidRecords
from encrypted_records.model import record_formats
from encrypted_records.model.ids import reference, to_text
from encrypted_records.model.strict_json import escape_pointer
from encrypted_records.proxy.api import json_schema as spec
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.erasure import DRY_RUN, costs_of, erased_answer
from encrypted_records.proxy.api.parameters import (
    flag_of,
    id_in_path,
    if_match,
    number_of,
    requested_ids,
    requested_versions,
    schema_of,
)
from encrypted_records.proxy.api.records import NEW_RECORD, READ_ONLY
from encrypted_records.proxy.api.search import CONDITIONS, OPTIONAL_CONDITIONS
from encrypted_records.proxy.http.messages import answer, read_object, read_records, record_answer
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import by_size
from encrypted_records.proxy.services import Services, services_of
from encrypted_records.proxy.write.update import Edit, VersionsById

#: Maximum number of records in a deletion request.
MAX_IDS = 100
#: Maximum number of records that a request stores or replaces.
_MAX_RECORDS = 100
_MANY = 2**31

_IF_MATCH = spec.parameter(
    "header", "If-Match", spec.TEXT, "ETags of the versions that may be changed"
)
_CHANGE = spec.json_body(
    spec.object_of({"data": spec.OBJECT}, schema=spec.SCHEMA_NAME, **READ_ONLY)
)
_ERASE = spec.parameter(
    "query", "erase", spec.FLAG, "Also erase the records, and wait until the bytes are gone"
)
_VERSION = spec.parameter(
    "query",
    "version",
    spec.array_of(spec.NUMBER, maxItems=MAX_IDS),
    "Version of each record that may be deleted, as in its ETag, in the order of the ids",
)
_BY = spec.parameter(
    "query", "by", spec.TEXT, "Fields of a unique set, separated by commas", required=True
)
_CHANGED = {
    200: spec.json_answer(UpdatedRecord, ETag=spec.TEXT),
}
_DELETED = {200: spec.json_answer(DeletedCount)}

endpoint = Endpoints("records")


@endpoint(
    "PUT",
    "/api/records/",
    summary="Store records, or replace those with the same unique values.",
    parameters=(_BY,),
    body=spec.json_body(spec.array_of(NEW_RECORD, minItems=1, maxItems=_MAX_RECORDS)),
    answers={
        200: spec.json_answer(spec.array_of(spec.shape(UpsertedRecord))),
    },
)
async def upsert_records(request: Request, services: Services, caller: Holder) -> Response:
    by = [name.strip() for name in request.query_params.get("by", "").split(",")]
    body = await read_records(request)
    stored = await services.upserter.store(caller, body, by)
    return answer(
        [
            UpsertedRecord(
                to_text(record.id),
                reference("records", record.id),
                reference("schemas", record.schema),
                tuple(record.rounded),
                replaced=record.replaced,
            )
            for record in stored
        ]
    )


@endpoint(
    "PUT",
    "/api/records/{id}/",
    summary="Replace all data of a record.",
    parameters=(_IF_MATCH,),
    body=_CHANGE,
    answers=_CHANGED,
)
async def replace_record(request: Request, services: Services, caller: Holder) -> Response:
    return await _change(request, services, caller, lambda sent: lambda _: sent, keeps=False)


@endpoint(
    "PATCH",
    "/api/records/{id}/",
    summary="Change some fields of a record; null removes a field.",
    parameters=(_IF_MATCH,),
    body=_CHANGE,
    answers=_CHANGED,
)
async def update_record(request: Request, services: Services, caller: Holder) -> Response:
    editing = lambda sent: lambda data: {**data, **sent}  # noqa: E731
    return await _change(request, services, caller, editing, keeps=True)


async def _change(
    request: Request, services: Services, caller: Holder, editing: Any, *, keeps: bool
) -> Response:
    record_id = id_in_path(request)
    versions = if_match(request)
    body = await read_object(request)
    edit: Edit = editing(_data(body, record_id))
    schema = await schema_of(services, caller, body["schema"]) if "schema" in body else None
    changed = await services.changer.change(
        caller,
        record_id,
        edit,
        versions=versions,
        schema=schema,
        keeps=keeps,
        run=by_size(body.size),
    )
    return record_answer(changed.record, changed.schema, changed.definition, changed.rounded)


def _data(body: Mapping[str, Any], record_id: bytes) -> dict[str, Any]:
    data = body.get("data")
    detail = "there is no such member; there are data and schema"
    flaws = [
        Flaw("unknown_member", detail, f"/{escape_pointer(name)}")
        for name in body
        if name not in record_formats.RECORD_MEMBERS
    ]
    wrong = record_formats.misplaced_members(body, to_text(record_id))
    flaws += [Flaw("read_only", reason, f"/{name}") for name, reason in wrong]
    if flaws:
        raise InvalidRecords(
            "the body has members that a change of this record cannot have",
            hint="nothing was changed; leave them out",
            flaws=tuple(flaws),
        )
    if not isinstance(data, dict):
        raise InvalidRecords(
            "expected an object with data and, optionally, schema",
            hint="nothing was changed; docs/http-api.md describes the body",
        )
    return data


@endpoint(
    "DELETE",
    "/api/records/{id}/",
    summary="Delete a record.",
    parameters=(_IF_MATCH, _ERASE, DRY_RUN),
    answers={
        200: spec.json_answer({"oneOf": [spec.shape(ErasedData), spec.shape(ErasureCosts)]}),
        202: spec.json_answer(ErasedData),
        204: spec.empty_answer("The record is deleted"),
    },
)
async def delete_record(request: Request, services: Services, caller: Holder) -> Response:
    record_id = id_in_path(request)
    if _erases(request):
        return await _erase(request, caller, [record_id], {record_id: if_match(request)})
    await services.changer.delete(caller, [record_id], versions={record_id: if_match(request)})
    return Response(status_code=204)


def _erases(request: Request) -> bool:
    """Whether records are erased, or only the cost of erasing is requested."""
    flags = [flag_of(request, name, default=False) for name in ("erase", "dry_run")]
    return any(flags)


async def _erase(
    request: Request, caller: Holder, record_ids: Sequence[bytes], versions: VersionsById
) -> Response:
    """Delete and erase these records, or estimate the cost."""
    eraser = services_of(request).eraser
    if flag_of(request, "dry_run", default=False):
        return answer(costs_of(await eraser.estimate(caller, record_ids)))
    receipts = await eraser.delete(caller, record_ids, versions=versions)
    return erased_answer(receipts, deleted=len(record_ids))


@endpoint(
    "DELETE",
    "/api/records/",
    summary="Delete the records with these ids, all or none.",
    parameters=(
        spec.parameter(
            "query", "id", spec.array_of(spec.ID, minItems=1, maxItems=MAX_IDS), required=True
        ),
        _VERSION,
        _ERASE,
        DRY_RUN,
    ),
    answers={
        200: spec.json_answer(
            {"oneOf": [spec.shape(DeletedCount), spec.shape(ErasedData), spec.shape(ErasureCosts)]}
        ),
        202: spec.json_answer(ErasedData),
    },
)
async def delete_records(request: Request, services: Services, caller: Holder) -> Response:
    named = requested_ids(request, most=MAX_IDS)
    versions = requested_versions(request, named)
    if _erases(request):
        return await _erase(request, caller, named, versions)
    await services.changer.delete(caller, named, versions=versions)
    return answer(DeletedCount(len(named)))


@endpoint(
    "POST",
    "/api/records/delete/",
    summary="Delete every record that matches a condition, given their number.",
    parameters=(spec.parameter("query", "confirm", spec.NUMBER, "Number of matching records"),),
    body=spec.json_body(spec.object_of(CONDITIONS, **OPTIONAL_CONDITIONS)),
    answers=_DELETED,
)
async def delete_matching_records(request: Request, services: Services, caller: Holder) -> Response:
    confirmed = number_of(request, "confirm", -1, least=0, most=_MANY)
    body = await read_object(request)
    schema = await schema_of(services, caller, body.get("schema"))
    deleted = await services.changer.delete_where(caller, schema, body, confirmed)
    return answer(DeletedCount(deleted))

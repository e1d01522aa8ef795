"""/api/records/: change and delete records. Plaintext comes in here and is never forwarded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from encrypted_records.errors import Flaw, InvalidQuery, InvalidRecords
from encrypted_records.model.ids import from_text
from encrypted_records.proxy.answers import answer, record_answer
from encrypted_records.proxy.changer import Edit
from encrypted_records.proxy.parts import parts_of
from encrypted_records.proxy.routes.bodies import read_object
from encrypted_records.proxy.routes.parameters import if_match, number_of, only, schema_of

#: Records that one request may name to be deleted.
MAX_IDS = 100
_MANY = 2**31


async def replace(request: Request) -> Response:
    """PUT /api/records/<id>/: all of a record's data anew."""
    return await _change(request, lambda sent: lambda _: sent)


async def merge(request: Request) -> Response:
    """PATCH /api/records/<id>/: some of a record's fields; null removes one."""
    return await _change(request, lambda sent: lambda data: {**data, **sent})


async def _change(request: Request, editing: Any) -> Response:
    parts = parts_of(request)
    caller = await parts.caller(request)
    only(request, set())
    record_id = from_text(request.path_params["id"])
    versions = if_match(request)
    body = await read_object(request)
    edit: Edit = editing(_data(body))
    schema = schema_of(parts, body["schema"]) if "schema" in body else None
    changed = await parts.changer.change(caller, record_id, edit, versions=versions, schema=schema)
    return record_answer(changed.record, changed.schema, changed.definition)


def _data(body: Mapping[str, Any]) -> dict[str, Any]:
    data = body.get("data")
    if not isinstance(data, dict) or not set(body) <= {"schema", "data"}:
        raise InvalidRecords(
            "expected an object with data, and maybe schema",
            hint="nothing was changed; docs/http-api.md describes the body",
        )
    return data


async def delete(request: Request) -> Response:
    """DELETE /api/records/<id>/"""
    parts = parts_of(request)
    caller = await parts.caller(request)
    only(request, set())
    record_id = from_text(request.path_params["id"])
    await parts.changer.delete(caller, [record_id], versions=if_match(request))
    return Response(status_code=204)


async def delete_named(request: Request) -> Response:
    """DELETE /api/records/?id=<id>&id=<id>: all of them, or none."""
    parts = parts_of(request)
    caller = await parts.caller(request)
    only(request, {"id"})
    named = dict.fromkeys(from_text(text) for text in request.query_params.getlist("id"))
    if not 1 <= len(named) <= MAX_IDS:
        detail = f"name 1 to {MAX_IDS} records: ?id=<id>&id=<id>"
        raise InvalidQuery(detail, flaws=(Flaw("too_many", detail, "/id"),))
    await parts.changer.delete(caller, list(named))
    return answer({"deleted": len(named)})


async def delete_where(request: Request) -> Response:
    """POST /api/records/delete/?confirm=<count>: every record that a condition selects."""
    parts = parts_of(request)
    caller = await parts.caller(request)
    only(request, {"confirm"})
    confirmed = number_of(request, "confirm", -1, least=0, most=_MANY)
    body = await read_object(request)
    schema = schema_of(parts, body.get("schema"))
    deleted = await parts.changer.delete_where(caller, schema, body, confirmed)
    return answer({"deleted": deleted})


routes = [
    Route("/api/records/delete/", delete_where, methods=["POST"]),
    Route("/api/records/", delete_named, methods=["DELETE"]),
    Route("/api/records/{id}/", replace, methods=["PUT"]),
    Route("/api/records/{id}/", merge, methods=["PATCH"]),
    Route("/api/records/{id}/", delete, methods=["DELETE"]),
]

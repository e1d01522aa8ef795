"""/api/datasets/<id>/search/: one condition asked of all schemas of a dataset. Not forwarded."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.http import problem
from encrypted_records.model.ids import reference
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.json_schema import (
    NAMES,
    OBJECT_OR_NULL,
    SCHEMA_PATH,
    TEXT,
    TEXT_OR_NULL,
    array_of,
    json_answer,
    json_body,
    object_of,
)
from encrypted_records.proxy.api.parameters import id_in_path
from encrypted_records.proxy.api.records import RECORD
from encrypted_records.proxy.api.search import OPTIONAL_CONDITIONS
from encrypted_records.proxy.http.messages import (
    json_list,
    read_object,
    record_json,
    to_json,
    write_each,
)
from encrypted_records.proxy.search.dataset_search import (
    MOST_SHOWN,
    SchemaAnswer,
    search_dataset,
)
from encrypted_records.proxy.services import services_of

_FOUND = object_of(
    {
        "schema": SCHEMA_PATH,
        "name": TEXT,
        "slug": TEXT,
        "count": {"type": ["integer", "null"]},
        "missing": NAMES,
        "error": OBJECT_OR_NULL,
        "results": array_of(RECORD),
    }
)

endpoint = Endpoints("records")


@endpoint(
    "POST",
    "/api/datasets/{id}/search/",
    summary="Search each schema of a dataset that has the fields of a condition.",
    body=json_body(
        object_of(
            {},
            **OPTIONAL_CONDITIONS,
            limit={"type": "integer", "minimum": 0, "maximum": MOST_SHOWN},
            cursor=TEXT_OR_NULL,
        )
    ),
    answers={
        200: json_answer(object_of({"next_cursor": TEXT_OR_NULL, "results": array_of(_FOUND)}))
    },
)
async def search_whole_dataset(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    dataset = id_in_path(request)
    body = await read_object(request)
    found = await search_dataset(services.query_runner, caller, dataset, body)
    results = [await _write(schema) for schema in found.schemas]
    return json_list(
        to_json({"next_cursor": found.next_cursor})[:-1] + b',"results":[', results, b"]}"
    )


async def _write(found: SchemaAnswer) -> bytes:
    page = found.page
    head: dict[str, Any] = {
        "schema": reference("schemas", found.id),
        "name": found.name,
        "slug": found.slug,
        "count": None if page is None else page.count,
        "missing": list(found.missing),
        "error": None if found.error is None else problem.of_error(found.error),
    }
    records: list[bytes] = []
    if page is not None:
        definition = page.definition
        records = await write_each(
            page.records,
            len(definition.fields),
            lambda record: to_json(record_json(record, found.id, definition)),
        )
    return to_json(head)[:-1] + b',"results":[' + b",".join(records) + b"]}"

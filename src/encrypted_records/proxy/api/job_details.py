"""/api/jobs/: the list of jobs, what is known of each, its bad rows, and the records it stored."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.errors import Flaw
from encrypted_records.model.ids import to_text
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.jobs import PROGRESS_FIELDS, find, invalid, name_of
from encrypted_records.proxy.api.json_schema import (
    CSV,
    ID,
    JSON,
    NUMBER,
    OBJECT,
    PAGING,
    SCHEMA_NAME,
    TEXT,
    UUID,
    Part,
    answer_of_kinds,
    array_of,
    json_answer,
    object_of,
    one_of,
    page_of,
    parameter,
)
from encrypted_records.proxy.api.parameters import (
    number_of,
    only,
    page_head,
    page_range,
    schema_of,
)
from encrypted_records.proxy.http.messages import answer
from encrypted_records.proxy.jobs.job import StoredJob
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.services import Services, services_of

_FEW_LISTED, _MAX_LISTED = 100, 1000
_MANY = 2**40

_MOMENT: Part = {"type": ["number", "null"], "description": "Seconds since 1970"}
#: The members of a job besides its progress; those about its file come from its sender.
_ABOUT_FIELDS: dict[str, Part] = {
    "job_id": UUID,
    **PROGRESS_FIELDS,
    "work": one_of("store", "reseal"),
    "file": {"type": ["string", "null"]},
    "schemas": array_of(ID),
    "size": NUMBER,
    "bad_rows": NUMBER,
    "replaced": NUMBER,
    "rounded": {
        "type": "object",
        "additionalProperties": NUMBER,
        "description": "By field, the number of values stored with fewer decimals than were sent",
    },
    "packs": NUMBER,
    "packed": NUMBER,
    "waits": {"type": ["string", "null"], "description": "Reason why the job is waiting"},
    "created": _MOMENT,
    "received": _MOMENT,
    "checked": _MOMENT,
    "finished": _MOMENT,
    "undone": _MOMENT,
}
_ABOUT = object_of(_ABOUT_FIELDS, error=TEXT)
_FLAW = object_of(
    {
        "row": {"type": ["integer", "null"]},
        "field": {"type": ["string", "null"]},
        "code": TEXT,
        "detail": TEXT,
    }
)

endpoint = Endpoints("jobs", id_schema=UUID)


@endpoint(
    "GET",
    "/api/jobs/",
    summary="List your jobs, newest first.",
    parameters=(*PAGING, parameter("query", "schema", SCHEMA_NAME, "Jobs for this schema only")),
    answers={200: json_answer(page_of(_ABOUT))},
)
async def list_jobs(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    only(request, {"limit", "offset", "schema"})
    limit, offset = page_range(request, limit=_FEW_LISTED, most=_MAX_LISTED)
    wanted = request.query_params.get("schema")
    schema = None if wanted is None else await schema_of(services, caller, wanted)
    count, jobs = await services.jobs.of_user(caller, schema=schema, offset=offset, limit=limit)
    results = [await _about(services, caller, job) for job in jobs]
    query = "" if schema is None else f"schema={to_text(schema)}&"
    head = page_head("/api/jobs/", query, count, limit=limit, offset=offset)
    return answer({**head, "results": results})


async def _about(services: Services, caller: Holder, job: StoredJob) -> dict[str, Any]:
    note = await services.jobs.note_of(caller, job)
    return {
        "job_id": name_of(job),
        **job.payload(),
        "work": job.options.work,
        "file": note.name if note and note.name else None,
        "schemas": [to_text(schema) for schema in await services.jobs.list_schemas(job)],
        "size": job.size,
        "bad_rows": job.bad_rows,
        "replaced": job.replaced,
        # A job that failed has stored nothing.
        "rounded": {} if job.state == "failed" else dict(job.rounded),
        "packs": job.packs,
        "packed": job.packed,
        "waits": services.jobs.why_waiting(job),
        "created": job.created,
        "received": job.received,
        "checked": job.checked,
        "finished": job.finished,
        "undone": job.undone,
    }


@endpoint(
    "GET",
    "/api/jobs/{id}/about/",
    summary="Show the progress of a job, its file's name, its schemas and its times.",
    answers={200: json_answer(_ABOUT)},
)
async def describe_job(request: Request) -> Response:
    return answer(await _about(*await find(request)))


@endpoint(
    "GET",
    "/api/jobs/{id}/bad-rows/",
    summary="List the first invalid rows of a job, with their cells.",
    answers={
        200: json_answer(
            object_of({"results": array_of(object_of({"row": NUMBER, "data": OBJECT}))})
        )
    },
)
async def list_bad_rows(request: Request) -> Response:
    services, caller, job = await find(request)
    only(request, set())
    rows = await services.jobs.list_examples(caller, job)
    return answer({"results": [{"row": row, "data": data} for row, data in rows]})


@endpoint(
    "GET",
    "/api/jobs/{id}/reading/",
    summary="Show how a job's file was read and how its cells were changed.",
    answers={
        200: json_answer(
            object_of(
                {
                    "reading": OBJECT,
                    "rows": NUMBER,
                    "bad_rows": NUMBER,
                    "rewritten": OBJECT,
                    "absent": OBJECT,
                    "rounded": OBJECT,
                    "short_rows": NUMBER,
                    "valueless_rows": NUMBER,
                    "above": NUMBER,
                    "below": NUMBER,
                    "unread": array_of(OBJECT),
                }
            )
        )
    },
)
async def report_reading(request: Request) -> Response:
    services, caller, job = await find(request)
    only(request, set())
    return answer(await services.jobs.report_reading(caller, job))


@endpoint(
    "GET",
    "/api/jobs/{id}/records/",
    summary="Count the records of a job that are still as the job stored them.",
    answers={200: json_answer(object_of({"count": NUMBER}))},
)
async def count_job_records(request: Request) -> Response:
    services, caller, job = await find(request)
    only(request, set())
    return answer({"count": await services.undo.count(caller, job)})


@endpoint(
    "DELETE",
    "/api/jobs/{id}/records/",
    summary="Delete the records that a job stored, given their number.",
    parameters=(parameter("query", "confirm", NUMBER, "Number of records"),),
    answers={200: json_answer(object_of({"deleted": NUMBER}))},
)
async def delete_job_records(request: Request) -> Response:
    services, caller, job = await find(request)
    only(request, {"confirm"})
    confirmed = number_of(request, "confirm", -1, least=0, most=_MANY)
    return answer({"deleted": await services.undo.delete(caller, job, confirmed)})


@endpoint(
    "GET",
    "/api/jobs/{id}/errors/",
    summary="List the invalid rows of a job, as JSON or CSV.",
    parameters=(*PAGING, parameter("query", "format", one_of("json", "csv"))),
    answers={
        200: answer_of_kinds(
            {JSON: page_of(_FLAW, rows=NUMBER), CSV: {}}, description="The invalid rows"
        )
    },
)
async def list_job_errors(request: Request) -> Response:
    services, caller, job = await find(request)
    only(request, {"limit", "offset", "format"})
    flaws = [_error(error) for error in await services.jobs.errors(caller, job)]
    wanted = request.query_params.get("format")
    if wanted not in (None, "csv", "json"):
        raise invalid("format", "expected csv or json")
    if wanted == "csv" or (wanted is None and request.headers.get("accept") == "text/csv"):
        return _as_csv(flaws)
    limit, offset = page_range(request, limit=_FEW_LISTED, most=_MAX_LISTED)
    path = f"/api/jobs/{name_of(job)}/errors/"
    head = page_head(path, "", len(flaws), limit=limit, offset=offset)
    return answer({"rows": job.bad_rows, **head, "results": flaws[offset : offset + limit]})


def _error(error: Flaw) -> dict[str, Any]:
    return {"row": error.row, "field": error.field, "code": error.code, "detail": error.detail}


def _as_csv(listed: Sequence[dict[str, Any]]) -> Response:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ("row", "field", "code", "detail"))
    writer.writeheader()
    writer.writerows(listed)
    return Response(text.getvalue(), media_type="text/csv", headers={"Cache-Control": "no-store"})

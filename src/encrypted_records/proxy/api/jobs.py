"""/api/jobs/ and /api/ws/jobs/: batch jobs, their live progress, and their list.

A job also has details, its bad rows, and the records it stored.
"""

from __future__ import annotations

import asyncio
import csv
import io
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, cast

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.websockets import WebSocket

from encrypted_records import errors, runtime
from encrypted_records.client.proxy import jobs as structs
from encrypted_records.client.proxy.records import DeletedCount
from encrypted_records.http import problem
from encrypted_records.ingest.reading.recipe import read_recipe
from encrypted_records.ingest.reading.text_table import refused
from encrypted_records.listening.serving import go_on_with
from encrypted_records.model.ids import to_text
from encrypted_records.model.record_formats import (
    MEDIA_TYPES,
    Charset,
    Format,
    charset_of,
    require_utf8,
)
from encrypted_records.proxy.api import json_schema as spec
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.parameters import (
    number_of,
    page_head,
    page_range,
    requested_schema,
    schema_of,
    whole_number,
)
from encrypted_records.proxy.http.messages import answer, media_type, problem_answer
from encrypted_records.proxy.jobs.job import (
    DEFAULT_BATCH,
    MAX_BATCH,
    FileNote,
    JobOptions,
    StoredJob,
)
from encrypted_records.proxy.jobs.service import BatchJobs
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.services import Services, services_of
from encrypted_records.proxy.uploads import tus as header

_BASE64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_PAIR = f"[!-+.-~-]+( {_BASE64})?"
#: Upload-Metadata.
METADATA: spec.Part = {"type": "string", "pattern": f"^({_PAIR}(,{_PAIR})*)?$"}
#: Headers with options of a job.
ORDER_PARAMETERS = (
    spec.parameter(
        "header", "X-Batch-Size", {"type": "integer", "minimum": 1, "maximum": MAX_BATCH}
    ),
    spec.parameter("header", "X-On-Invalid", spec.enum_of("fail", "skip")),
    spec.parameter(
        "header",
        "X-On-Conflict",
        spec.enum_of("fail", "skip", "replace"),
        "Handling of rows whose unique values already exist",
    ),
)
#: The answer of endpoints that begin a job.
JOB_ANSWER = spec.json_answer(
    structs.BegunJob,
    description="The job continues when the client disconnects",
    X_Job_ID=spec.UUID,
    X_Job_Status_URL=spec.TEXT,
    X_Job_Websocket_URL=spec.TEXT,
)

log = logging.getLogger(__name__)

endpoint = Endpoints("jobs", id_schema=spec.UUID)


@endpoint(
    "POST",
    "/api/jobs/upload/",
    summary="Store a body of any size, as a job.",
    parameters=(
        spec.parameter(
            "query", "schema", spec.SCHEMA_NAME, "Schema of records that do not name one"
        ),
        spec.parameter("query", "by", spec.TEXT, "Unique fields that find the record to replace"),
        spec.parameter(
            "header", "Upload-Metadata", METADATA, "The file's name, encoded as for /api/files/"
        ),
        *ORDER_PARAMETERS,
    ),
    body=spec.RequestBody(
        {
            spec.CSV: spec.TEXT,
            spec.JSON: spec.array_of(
                spec.object_of({"data": spec.OBJECT}, schema=spec.SCHEMA_REFERENCE)
            ),
            spec.NDJSON: spec.TEXT,
        }
    ),
    answers={201: JOB_ANSWER},
    problems=(507,),
)
async def create_job(request: Request, services: Services, caller: Holder) -> Response:
    metadata = header.read_metadata(request.headers.get("upload-metadata", ""))
    options, note = await _options(request, caller, metadata), note_of(metadata)
    length = request.headers.get("content-length", "0")
    await runtime.in_thread(services.spool.require_space, int(length) if length.isdecimal() else 0)
    job = await services.jobs.begin(caller, options, note)
    try:
        size = await services.jobs.receive(caller, job, request.stream())
        await services.jobs.accept(caller, job, size, once=options.once)
    except ClientDisconnect:
        lost = errors.Unavailable("the upload was interrupted", code="upload_broken_off", hint="")
        await services.jobs.abandon(job.id, lost)
        raise
    except errors.ErsError as error:
        await services.jobs.abandon(job.id, error)
        if error.reason == "uploaded_before":
            await services.jobs.forget(job.id)
        raise
    return job_answer(job, 201)


def job_answer(job: StoredJob, status: int, content: msgspec.Struct | None = None) -> Response:
    """The answer to a request that began a job: ``content``, or only the job's id."""
    name = name_of_job(job)
    response = answer(content or structs.BegunJob(name), status)
    # Capital letters as documented; headers set through `headers` lose them.
    response.raw_headers += [
        (b"X-Job-ID", name.encode()),
        (b"X-Job-Status-URL", f"/api/jobs/{name}/".encode()),
        (b"X-Job-Websocket-URL", f"/api/ws/jobs/{name}/".encode()),
    ]
    return response


def name_of_job(job: StoredJob) -> str:
    return str(uuid.UUID(bytes=job.id))


async def _options(request: Request, caller: Holder, metadata: Mapping[str, bytes]) -> JobOptions:
    """Options of an upload from its headers and its query.

    Raises:
        Unsupported: the body is neither CSV nor JSON, or in an unsupported charset.
        BadInput: a parameter or header that is not valid.
    """
    kind = Format.of_media_type(media_type(request))
    if kind is None and "reading" in metadata:
        kind = Format.CSV
    if kind is None:
        raise errors.Unsupported(
            "an upload must be CSV or JSON",
            code="unsupported_media_type",
            hint=f"send the file itself, not a form, with Content-Type: {MEDIA_TYPES}",
        )
    charset = charset_of(request.headers.get("content-type", ""))
    by = request.query_params.get("by")
    is_named = "schema" in request.query_params
    return options_of(
        on_conflict=HeaderText.of(request.headers, "X-On-Conflict"),
        by=None if by is None else HeaderText(by, "", "by"),
        on_repeat=HeaderText.optional(text_of(metadata, "on_repeat"), "on_repeat"),
        kind=kind,
        charset=charset,
        named=await requested_schema(request, caller) if is_named else None,
        batch_size=HeaderText.of(request.headers, "X-Batch-Size"),
        on_invalid=HeaderText.of(request.headers, "X-On-Invalid"),
        reading=metadata.get("reading"),
    )


class HeaderText(NamedTuple):
    """A string of a request, and its header. ``key`` is its key in a header with several values, or
    in the query if there is no header.
    """

    text: str
    header: str
    key: str = ""

    @classmethod
    def of(cls, headers: Headers, name: str) -> HeaderText | None:
        text = headers.get(name)
        return None if text is None else cls(text, name)

    @classmethod
    def optional(cls, text: str | None, key: str) -> HeaderText | None:
        return None if text is None else cls(text, "Upload-Metadata", key)

    def refused(self, detail: str) -> errors.BadInput:
        if not self.header:
            return invalid(self.key, detail)
        name = f"{self.key} in {self.header}" if self.key else self.header
        flaw = errors.Flaw("invalid_header", detail, header=self.header)
        return errors.Malformed(f"{name}: {detail}", code="invalid_header", hint="", flaws=(flaw,))


def options_of(
    *,
    kind: Format,
    charset: Charset | None,
    named: bytes | None,
    batch_size: HeaderText | None,
    on_invalid: HeaderText | None,
    on_repeat: HeaderText | None = None,
    on_conflict: HeaderText | None = None,
    by: HeaderText | None = None,
    resumable: bool = False,
    reading: bytes | None = None,
) -> JobOptions:
    """Options from the strings of a request.

    Raises:
        Malformed: ``invalid_header``: an option is not valid.
        Unsupported: ``unsupported_charset``: JSON in another charset than UTF-8.
        InvalidRecords: ``reading``: it is not a valid reading.
    """
    if reading is not None:
        read_recipe(reading)
        kind, charset = Format.CSV, None
        if named is None:
            raise refused(
                "a file that is read by a reading cannot name its schema",
                "name the schema in the request: ?schema=",
            )
    if kind is not Format.CSV:
        require_utf8(charset)
        charset = None
    size = DEFAULT_BATCH
    if batch_size is not None:
        stated = whole_number(batch_size.text)
        if stated is None or not 1 <= stated <= MAX_BATCH:
            raise batch_size.refused(f"expected an integer from 1 to {MAX_BATCH}")
        size = stated
    if on_invalid is not None and on_invalid.text not in ("fail", "skip"):
        raise on_invalid.refused("expected fail or skip")
    if on_repeat is not None and on_repeat.text not in ("allow", "refuse"):
        raise on_repeat.refused("expected allow or refuse")
    if on_conflict is not None and on_conflict.text not in ("fail", "skip", "replace"):
        raise on_conflict.refused("expected fail, skip or replace")
    if by is not None and (on_conflict is None or on_conflict.text != "replace"):
        raise by.refused("can only be used with X-On-Conflict: replace")
    names = tuple(by.text.split(",")) if by is not None else ()
    if not all(names):
        assert by is not None
        raise by.refused("expected names of fields, separated by commas")
    return JobOptions(
        kind=kind,
        named=named,
        batch_size=size,
        skip=on_invalid is not None and on_invalid.text == "skip",
        resumable=resumable,
        charset=charset,
        once=on_repeat is not None and on_repeat.text == "refuse",
        on_conflict=cast(structs.OnConflict | None, on_conflict and on_conflict.text),
        by=names,
        reading=reading,
    )


def text_of(metadata: Mapping[str, bytes], name: str) -> str | None:
    """A value of Upload-Metadata as text; None if it is missing."""
    value = metadata.get(name)
    return None if value is None else value.decode(errors="replace")


def note_of(metadata: Mapping[str, bytes]) -> FileNote:
    """The note on the file in Upload-Metadata."""
    return FileNote.of_texts(*(text_of(metadata, name) for name in ("filename", "changed", "ends")))


def invalid(name: str, detail: str) -> errors.InvalidQuery:
    flaw = errors.Flaw("invalid_parameter", detail, parameter=name)
    return errors.InvalidQuery(f"the parameter {name}: {detail}", flaws=(flaw,), hint="")


@endpoint(
    "GET",
    "/api/jobs/{id}/",
    summary="Show the progress of a job.",
    answers={200: spec.json_answer(structs.JobProgress)},
)
async def get_job(request: Request, services: Services, caller: Holder) -> Response:
    job = await services.jobs.find(caller, request.path_params["id"])
    return answer(job.progress())


@endpoint(
    "DELETE",
    "/api/jobs/{id}/",
    summary="Cancel a job, or remove a finished one from the list.",
    answers={204: spec.empty_answer("The job is cancelled, or removed if it had finished")},
)
async def cancel_job(request: Request, services: Services, caller: Holder) -> Response:
    job = await services.jobs.find(caller, request.path_params["id"])
    await services.jobs.cancel(caller, job)
    return Response(status_code=204)


@endpoint.socket(
    "/api/ws/jobs/{id}/",
    summary=(
        "Follow the progress of a job until it ends; the connection then closes with code 1000."
    ),
    answers={101: spec.empty_answer("Progress messages, as the job changes")},
)
async def watch_job(socket: WebSocket) -> None:
    services = services_of(socket)
    try:
        caller = await services.holder(socket)
        job = await services.jobs.find(caller, socket.path_params["id"])
    except errors.ErsError as error:
        await socket.send_denial_response(problem_answer(problem.of_error(error)))
        return
    await socket.accept()
    when_revoked = partial(services.admission.enrolment.when_revoked, caller.device)
    go_on_with(socket.scope, partial(_tell, services.jobs, job.id, when_revoked))


async def _tell(
    jobs: BatchJobs,
    job: bytes,
    when_revoked: Callable[[Callable[[], object]], Callable[[], None]],
    receive: Receive,
    send: Send,
) -> None:
    """Report a job's progress to a watcher until the job has ended, the watcher has disconnected,
    or the watcher's device is revoked. There may be thousands of watchers, so each uses little
    memory.
    """
    loop = asyncio.get_running_loop()
    telling = asyncio.create_task(_send_progress(jobs, job, send))  # noqa: TID251 # ends with its request
    ends: list[asyncio.Task[None]] = []

    def end() -> None:
        ends.append(asyncio.create_task(_close(send, 1008, "device_unknown")))  # noqa: TID251 # ends with its request

    # Devices are revoked in another thread.
    forget = when_revoked(partial(loop.call_soon_threadsafe, end))
    try:
        # Messages of a watcher are ignored.
        while (await receive())["type"] != "websocket.disconnect":
            pass
    finally:
        forget()
        telling.cancel()
        await asyncio.gather(telling, *ends, return_exceptions=True)


async def _send_progress(jobs: BatchJobs, job: bytes, send: Send) -> None:
    try:
        async for changed in jobs.watch(job):
            text = msgspec.json.encode(changed.progress()).decode()
            await send({"type": "websocket.send", "text": text})
    except OSError:  # the watcher has disconnected
        return
    except errors.ErsError as error:
        await _close(send, 1011, error.reason)
    except Exception as error:
        log.exception("unexpected %s", type(error).__name__)
        await _close(send, 1011)
    else:
        await _close(send, 1000)


async def _close(send: Send, code: int, reason: str = "") -> None:
    with suppress(OSError):  # the watcher has disconnected
        await send({"type": "websocket.close", "code": code, "reason": reason})


# --- lists and details ----------------------------------------------------------------------------

_FEW_LISTED, _MAX_LISTED = 100, 1000
_MANY = 2**40


@endpoint(
    "GET",
    "/api/jobs/",
    summary="List your jobs, newest first.",
    parameters=(
        *spec.PAGING,
        spec.parameter("query", "schema", spec.SCHEMA_NAME, "Jobs for this schema only"),
    ),
    answers={200: spec.json_answer(structs.JobPage)},
)
async def list_jobs(request: Request, services: Services, caller: Holder) -> Response:
    limit, offset = page_range(request, limit=_FEW_LISTED, most=_MAX_LISTED)
    wanted = request.query_params.get("schema")
    schema = None if wanted is None else await schema_of(services, caller, wanted)
    count, jobs = await services.jobs.of_user(caller, schema=schema, offset=offset, limit=limit)
    results = [await _describe(services, caller, job) for job in jobs]
    query = "" if schema is None else f"schema={to_text(schema)}&"
    head = page_head("/api/jobs/", query, count, limit=limit, offset=offset)
    return answer(structs.JobPage(**head, results=results))


async def _describe(services: Services, caller: Holder, job: StoredJob) -> structs.Job:
    note = await services.jobs.note_of(caller, job)
    return structs.Job(
        **msgspec.structs.asdict(job.progress()),
        job_id=name_of_job(job),
        work=job.options.work,
        file=note.name if note and note.name else None,
        schemas=[to_text(schema) for schema in await services.jobs.list_schemas(job)],
        size=job.size,
        bad_rows=job.bad_rows,
        replaced=job.replaced,
        rounded=job.rounded_now,
        packs=job.packs,
        packed=job.packed,
        waits=services.jobs.why_waiting(job) or services.uploads.why_waiting(job),
        created=job.created,
        received=job.received,
        checked=job.checked,
        finished=job.finished,
        undone=job.undone,
    )


@endpoint(
    "GET",
    "/api/jobs/{id}/about/",
    summary="Show the progress of a job, its file's name, its schemas and its times.",
    answers={200: spec.json_answer(structs.Job)},
)
async def describe_job(request: Request, services: Services, caller: Holder) -> Response:
    job = await services.jobs.find(caller, request.path_params["id"])
    return answer(await _describe(services, caller, job))


@endpoint(
    "GET",
    "/api/jobs/{id}/bad-rows/",
    summary="List the first invalid rows of a job, with their cells.",
    answers={200: spec.json_answer(structs.InvalidRows)},
)
async def list_bad_rows(request: Request, services: Services, caller: Holder) -> Response:
    job = await services.jobs.find(caller, request.path_params["id"])
    rows = await services.jobs.list_examples(caller, job)
    return answer(structs.InvalidRows([structs.InvalidRow(row, data) for row, data in rows]))


@endpoint(
    "GET",
    "/api/jobs/{id}/reading/",
    summary="Show how a job's file was read and how its cells were changed.",
    answers={200: spec.json_answer(structs.JobReading)},
)
async def report_reading(request: Request, services: Services, caller: Holder) -> Response:
    job = await services.jobs.find(caller, request.path_params["id"])
    return answer(await services.jobs.report_reading(caller, job))


@endpoint(
    "GET",
    "/api/jobs/{id}/records/",
    summary="Count the records of a job that are still as the job stored them.",
    answers={200: spec.json_answer(structs.UnchangedRecords)},
)
async def count_job_records(request: Request, services: Services, caller: Holder) -> Response:
    job = await services.jobs.find(caller, request.path_params["id"])
    return answer(structs.UnchangedRecords(await services.undo.count(caller, job)))


@endpoint(
    "DELETE",
    "/api/jobs/{id}/records/",
    summary="Delete the records that a job stored, given their number.",
    parameters=(spec.parameter("query", "confirm", spec.NUMBER, "Number of records"),),
    answers={200: spec.json_answer(DeletedCount)},
)
async def delete_job_records(request: Request, services: Services, caller: Holder) -> Response:
    job = await services.jobs.find(caller, request.path_params["id"])
    confirmed = number_of(request, "confirm", -1, least=0, most=_MANY)
    return answer(DeletedCount(await services.undo.delete(caller, job, confirmed)))


@endpoint(
    "GET",
    "/api/jobs/{id}/errors/",
    summary="List the invalid rows of a job, as JSON or CSV.",
    parameters=(*spec.PAGING, spec.parameter("query", "format", spec.enum_of("json", "csv"))),
    answers={
        200: spec.answer_of_kinds(
            {spec.JSON: spec.shape(structs.RowErrorPage), spec.CSV: {}},
            description="The invalid rows",
        )
    },
)
async def list_job_errors(request: Request, services: Services, caller: Holder) -> Response:
    job = await services.jobs.find(caller, request.path_params["id"])
    flaws = [
        structs.RowError(flaw.row, flaw.field, flaw.code, flaw.detail)
        for flaw in await services.jobs.errors(caller, job)
    ]
    wanted = request.query_params.get("format")
    if wanted not in (None, "csv", "json"):
        raise invalid("format", "expected csv or json")
    if wanted == "csv" or (wanted is None and request.headers.get("accept") == "text/csv"):
        return _flaws_csv(flaws)
    limit, offset = page_range(request, limit=_FEW_LISTED, most=_MAX_LISTED)
    path = f"/api/jobs/{name_of_job(job)}/errors/"
    head = page_head(path, "", len(flaws), limit=limit, offset=offset)
    results = flaws[offset : offset + limit]
    return answer(structs.RowErrorPage(**head, results=results, rows=job.bad_rows))


def _flaws_csv(listed: Sequence[structs.RowError]) -> Response:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(structs.RowError.__struct_fields__)
    writer.writerows(map(msgspec.structs.astuple, listed))
    return Response(text.getvalue(), media_type="text/csv", headers={"Cache-Control": "no-store"})

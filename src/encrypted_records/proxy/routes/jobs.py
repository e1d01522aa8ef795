"""/api/jobs/ and /api/ws/jobs/: batch jobs, and their progress as it happens."""

from __future__ import annotations

import asyncio
import csv
import io
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from encrypted_records.errors import (
    ErsError,
    Flaw,
    InvalidQuery,
    Unavailable,
    Unsupported,
)
from encrypted_records.model import problem
from encrypted_records.proxy.answers import answer, problem_answer
from encrypted_records.proxy.batch_jobs import BatchJobs
from encrypted_records.proxy.jobs import DEFAULT_BATCH, MAX_BATCH, Job, Order
from encrypted_records.proxy.parts import parts_of
from encrypted_records.proxy.routes.bodies import media_type
from encrypted_records.proxy.routes.parameters import number_of, only, schema_of

_KINDS = {"text/csv": True, "application/json": False, "application/x-ndjson": False}
_MAX_LISTED = 1000


async def upload(request: Request) -> Response:
    """POST /api/jobs/upload/: a body of any size, as a job."""
    parts = parts_of(request)
    caller = await parts.caller(request)
    order = _order(request)
    length = request.headers.get("content-length", "0")
    await asyncio.to_thread(parts.spool.require_space, int(length) if length.isdecimal() else 0)
    job = await parts.jobs.begin(caller, order)
    try:
        size = await parts.jobs.receive(caller, job, request.stream())
        await parts.jobs.received(caller, job.id, size)
    except ClientDisconnect:
        lost = Unavailable("the upload broke off", code="upload_broken_off", hint="")
        await parts.jobs.abandon(job.id, lost)
        raise
    except ErsError as error:
        await parts.jobs.abandon(job.id, error)
        raise
    name = name_of(job)
    response = answer({"job_id": name}, 201)
    response.headers["X-Job-ID"] = name
    response.headers["X-Job-Status-URL"] = f"/api/jobs/{name}/"
    response.headers["X-Job-Websocket-URL"] = f"/api/ws/jobs/{name}/"
    return response


def name_of(job: Job) -> str:
    return str(uuid.UUID(bytes=job.id))


def _order(request: Request) -> Order:
    """What the headers and the query of an upload ask for.

    Raises:
        Unsupported: the body is neither CSV nor JSON.
        InvalidQuery: a parameter or header that is not valid.
    """
    kind = media_type(request)
    if kind not in _KINDS:
        raise Unsupported(
            "an upload is CSV or JSON",
            code="unsupported_media_type",
            hint=f"send Content-Type: {', '.join(_KINDS)}",
        )
    only(request, {"schema"})
    named = request.query_params.get("schema")
    return order_of(
        csv=_KINDS[kind],
        named=None if named is None else schema_of(parts_of(request), named),
        batch_size=request.headers.get("x-batch-size"),
        on_invalid=request.headers.get("x-on-invalid"),
    )


def order_of(
    *,
    csv: bool,
    named: bytes | None,
    batch_size: str | None,
    on_invalid: str | None,
    resumable: bool = False,
) -> Order:
    """An order from the texts of a request.

    Raises:
        InvalidQuery: one of them is not valid.
    """
    size = str(DEFAULT_BATCH) if batch_size is None else batch_size
    if not (size.isascii() and size.isdecimal() and 1 <= int(size) <= MAX_BATCH):
        raise _invalid("X-Batch-Size", f"expected an integer from 1 to {MAX_BATCH}")
    if on_invalid not in (None, "fail", "skip"):
        raise _invalid("X-On-Invalid", "expected fail or skip")
    return Order(csv, named, int(size), on_invalid == "skip", resumable)


def _invalid(name: str, detail: str) -> InvalidQuery:
    flaw = Flaw("invalid_parameter", detail, field=name)
    return InvalidQuery(f"{name} is not valid: {detail}", flaws=(flaw,), hint="")


async def listing(request: Request) -> Response:
    """GET /api/jobs/: the caller's own, the newest first."""
    parts = parts_of(request)
    caller = await parts.caller(request)
    only(request, {"limit", "offset"})
    limit, offset = _page(request)
    count, jobs = await parts.jobs.of_user(caller.user, offset=offset, limit=limit)
    results = [{"job_id": name_of(job)} | job.payload() for job in jobs]
    return answer(_listed("/api/jobs/", count, offset, limit, results))


def _page(request: Request) -> tuple[int, int]:
    limit = number_of(request, "limit", 100, least=1, most=_MAX_LISTED)
    return limit, number_of(request, "offset", 0, least=0, most=2**31)


def _listed(
    path: str, count: int, offset: int, limit: int, results: Sequence[Any]
) -> dict[str, Any]:
    def link(start: int) -> str:
        return f"{path}?limit={limit}" + (f"&offset={start}" if start else "")

    return {
        "count": count,
        "next": link(offset + limit) if offset + limit < count else None,
        "previous": link(max(0, offset - limit)) if offset else None,
        "results": results,
    }


async def status(request: Request) -> Response:
    """GET /api/jobs/<id>/: the progress payload."""
    return answer((await _found(request))[1].payload())


async def cancel(request: Request) -> Response:
    """DELETE /api/jobs/<id>/: cancel a job, or forget one that has ended."""
    parts = parts_of(request)
    caller = await parts.caller(request)
    job = await parts.jobs.find(caller.user, request.path_params["id"])
    await parts.jobs.cancel(caller, job)
    return Response(status_code=204)


async def errors(request: Request) -> Response:
    """GET /api/jobs/<id>/errors/: the rows that do not fit, as JSON or, if preferred, CSV."""
    jobs, job = await _found(request)
    only(request, {"limit", "offset", "format"})
    flaws = [_flaw(flaw) for flaw in await jobs.flaws(job)]
    wanted = request.query_params.get("format")
    if wanted not in (None, "csv", "json"):
        raise _invalid("format", "expected csv or json")
    if wanted == "csv" or (wanted is None and request.headers.get("accept") == "text/csv"):
        return _as_csv(flaws)
    limit, offset = _page(request)
    path = f"/api/jobs/{name_of(job)}/errors/"
    page = _listed(path, len(flaws), offset, limit, flaws[offset : offset + limit])
    return answer({"rows": job.flawed} | page)


def _flaw(flaw: Flaw) -> dict[str, Any]:
    return {"row": flaw.row, "field": flaw.field, "code": flaw.code, "detail": flaw.detail}


def _as_csv(flaws: Sequence[dict[str, Any]]) -> Response:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ("row", "field", "code", "detail"))
    writer.writeheader()
    writer.writerows(flaws)
    return Response(text.getvalue(), media_type="text/csv", headers={"Cache-Control": "no-store"})


async def _found(request: Request) -> tuple[BatchJobs, Job]:
    """The caller's own job that the path names."""
    parts = parts_of(request)
    caller = await parts.caller(request)
    return parts.jobs, await parts.jobs.find(caller.user, request.path_params["id"])


async def progress(socket: WebSocket) -> None:
    """WebSocket /api/ws/jobs/<id>/: the payload, its changes, the final one; then close 1000."""
    parts = parts_of(socket)
    try:
        caller = await parts.caller(socket)
        job = await parts.jobs.find(caller.user, socket.path_params["id"])
    except ErsError as error:
        await socket.send_denial_response(problem_answer(problem.of_error(error)))
        return
    await socket.accept()
    sending = asyncio.create_task(_send(socket, parts.jobs, job.id))
    gone = asyncio.create_task(_until_gone(socket))
    try:
        await asyncio.wait([sending, gone], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, gone):
            task.cancel()
        await asyncio.gather(sending, gone, return_exceptions=True)


async def _send(socket: WebSocket, jobs: BatchJobs, job: bytes) -> None:
    async for found in jobs.watch(job):
        await socket.send_text(msgspec.json.encode(found.payload()).decode())
    await socket.close(1000)


async def _until_gone(socket: WebSocket) -> None:
    """Whatever a watcher says is not listened to."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


routes = [
    Route("/api/jobs/upload/", upload, methods=["POST"]),
    Route("/api/jobs/", listing, methods=["GET"]),
    Route("/api/jobs/{id}/", status, methods=["GET"]),
    Route("/api/jobs/{id}/", cancel, methods=["DELETE"]),
    Route("/api/jobs/{id}/errors/", errors, methods=["GET"]),
    WebSocketRoute("/api/ws/jobs/{id}/", progress),
]

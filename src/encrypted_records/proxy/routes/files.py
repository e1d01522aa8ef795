"""/api/files/: resumable uploads (TUS 1.0.0).

Every answer of these paths speaks TUS, refusals included. Who the caller is and whether the headers
are right is settled before a byte of body is read.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from encrypted_records.errors import ErsError, VersionRefused
from encrypted_records.model.ids import from_text, to_text
from encrypted_records.proxy import answers
from encrypted_records.proxy.access import READING
from encrypted_records.proxy.jobs import Order
from encrypted_records.proxy.parts import parts_of
from encrypted_records.proxy.routes.jobs import order_of
from encrypted_records.proxy.routes.parameters import schema_of
from encrypted_records.proxy.tus import protocol
from encrypted_records.proxy.tus.protocol import Append, Create, Describe, Show
from encrypted_records.proxy.upload_store import Upload
from encrypted_records.proxy.uploads import kind_of

_METHODS = ["OPTIONS", "POST", "HEAD", "PATCH", "DELETE", "GET", "PUT"]


async def files(request: Request) -> Response:
    """POST /api/files/, and OPTIONS."""
    return await _speaking_tus(request, None)


async def file(request: Request) -> Response:
    """HEAD, PATCH, DELETE /api/files/<id>/, and OPTIONS; with and without the final slash."""
    return await _speaking_tus(request, request.path_params["id"])


async def _speaking_tus(request: Request, upload: str | None) -> Response:
    try:
        response = await _answer(request, upload)
    except HTTPException as error:
        response = await answers.on_http_error(request, error)
    except ErsError as error:
        response = await answers.on_error(request, error)
        if isinstance(error, VersionRefused):
            response.headers.update(protocol.VERSIONS)
    response.headers.update(protocol.ALWAYS)
    return response


async def _answer(request: Request, upload: str | None) -> Response:
    parts = parts_of(request)
    on_upload = upload is not None
    method = protocol.method_of(request.method, request.headers)
    if request.method in READING:
        # What changes something under the name of a reading method is a change to every check.
        request.scope["method"] = method
    caller = await parts.caller(request)
    asked = protocol.read(method, request.headers, on_upload=on_upload)
    if asked is None:
        allowed = ", ".join(protocol.allowed(on_upload=on_upload))
        raise HTTPException(405, headers={"Allow": allowed})
    if isinstance(asked, Describe):
        return Response(status_code=204, headers=protocol.described())
    if isinstance(asked, Create):
        order = _order(request, asked.metadata)
        made = await parts.uploads.create(caller, asked, order, request.stream())
        return Response(status_code=201, headers=_created(request, made))
    assert upload is not None
    identifier = from_text(upload)
    if isinstance(asked, Show):
        shown = protocol.shown(await parts.uploads.show(caller, identifier))
        return Response(status_code=200, headers=shown)
    if isinstance(asked, Append):
        found = await parts.uploads.append(caller, identifier, asked, request.stream())
        return Response(status_code=204, headers=protocol.progress(found.offset, found.due))
    await parts.uploads.terminate(caller, identifier)
    return Response(status_code=204)


def _created(request: Request, upload: Upload) -> dict[str, str]:
    """The headers that answer a creation: addresses of the upload and of its job, all absolute."""
    host = request.headers["host"]
    origin = f"{request.url.scheme}://{host}"
    found = protocol.progress(upload.offset, upload.due)
    found["Location"] = f"{origin}/api/files/{to_text(upload.id)}"
    if upload.has_job:
        job = str(uuid.UUID(bytes=upload.id))
        socket = "wss" if request.url.scheme == "https" else "ws"
        found["X-Job-Id"] = job
        found["X-Job-Status-Url"] = f"{origin}/api/jobs/{job}/"
        found["X-Job-Websocket-Url"] = f"{socket}://{host}/api/ws/jobs/{job}/"
    return found


def _order(request: Request, metadata: Mapping[str, bytes]) -> Order:
    """What is asked of the upload's job: by headers, or by metadata where clients send no others.

    Raises:
        BadInput: something that cannot be.
    """

    def said(name: str) -> str | None:
        value = metadata.get(name)
        return None if value is None else value.decode(errors="replace")

    schema = said("schema")
    return order_of(
        # What the file is not, it is told when its first bytes are there.
        csv=kind_of(metadata) or False,
        named=None if schema is None else schema_of(parts_of(request), schema),
        batch_size=request.headers.get("x-batch-size", said("batch_size")),
        on_invalid=request.headers.get("x-on-invalid", said("on_invalid")),
        resumable=True,
    )


routes = [
    Route("/api/files/", files, methods=_METHODS),
    Route("/api/files", files, methods=_METHODS),
    Route("/api/files/{id}/", file, methods=_METHODS),
    Route("/api/files/{id}", file, methods=_METHODS),
]

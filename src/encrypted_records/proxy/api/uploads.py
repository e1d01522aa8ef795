"""/api/files/: resumable uploads (TUS 1.0.0).

Every answer of these paths has the headers of TUS, including refusals. The caller and the headers
are checked before the body is read.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.errors import ErsError, VersionRefused
from encrypted_records.model.ids import from_path, to_text
from encrypted_records.model.record_formats import Format
from encrypted_records.proxy.api import json_schema as spec
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.jobs import (
    METADATA,
    ORDER_PARAMETERS,
    HeaderText,
    note_of,
    options_of,
    text_of,
)
from encrypted_records.proxy.api.parameters import schema_named
from encrypted_records.proxy.auth import SAFE_METHODS
from encrypted_records.proxy.http import messages as answers
from encrypted_records.proxy.http.sessions import at_of
from encrypted_records.proxy.jobs.job import JobOptions
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.services import services_of
from encrypted_records.proxy.uploads import tus
from encrypted_records.proxy.uploads import tus as header
from encrypted_records.proxy.uploads.store import Upload, charset_of, format_of

_VERSION = spec.enum_of(header.VERSION)
_BYTES = spec.RequestBody({header.CONTENT_TYPE: spec.BINARY})
_RESUMABLE = spec.parameter("header", "Tus-Resumable", _VERSION, required=True)
_LENGTH = spec.parameter("header", "Upload-Length", spec.NUMBER, "Length in bytes")
_DIGEST: spec.Part = {
    "type": "string",
    "pattern": "^(sha256 [A-Za-z0-9+/]{43}=|sha1 [A-Za-z0-9+/]{27}=|md5 [A-Za-z0-9+/]{22}==)$",
}
_PARTS: spec.Part = {"type": "string", "pattern": "^(partial|final;[!-~]+( [!-~]+)*)$"}
_CHECKSUM = spec.parameter(
    "header", "Upload-Checksum", _DIGEST, "Name of an algorithm, and a digest in Base64"
)
_OFFSET = spec.parameter(
    "header", "Upload-Offset", spec.NUMBER, "Offset at which the body begins", required=True
)
_ALWAYS: dict[str, spec.Part] = {"Tus_Resumable": _VERSION}
_REACHED: dict[str, spec.Part] = _ALWAYS | {
    "Upload_Offset": spec.NUMBER,
    "Upload_Expires": spec.TEXT,
}
_CAPABILITIES = {
    204: spec.empty_answer(
        "Versions, extensions and limits",
        **_ALWAYS,
        Tus_Version=spec.TEXT,
        Tus_Extension=spec.TEXT,
        Tus_Max_Size=spec.NUMBER,
        Tus_Checksum_Algorithm=spec.TEXT,
    )
}
_PROBLEMS = (410, 423, 460, 507)

endpoint = Endpoints("files")


@endpoint.bare(
    "OPTIONS",
    "/api/files/",
    name="describe_uploads",
    summary="List versions, extensions and limits of resumable uploads (TUS 1.0.0).",
    answers=_CAPABILITIES,
)
@endpoint.bare(
    "POST",
    "/api/files/",
    name="create_upload",
    summary="Begin a resumable upload, optionally with its first bytes.",
    # The first bytes are not described: client generators drop an operation whose only body has a
    # type that they do not know. Every client can send them by PATCH.
    parameters=(
        _RESUMABLE,
        _LENGTH,
        spec.parameter(
            "header", "Upload-Defer-Length", spec.enum_of(1), "The length is sent later"
        ),
        spec.parameter("header", "Upload-Metadata", METADATA, "Keys, and values in Base64"),
        spec.parameter(
            "header", "Upload-Concat", _PARTS, "partial, or final with the URLs of the parts"
        ),
        _CHECKSUM,
        *ORDER_PARAMETERS,
    ),
    answers={
        201: spec.empty_answer(
            "The upload is created",
            **_REACHED,
            Location=spec.URL,
            X_Job_Id=spec.UUID,
            X_Job_Status_Url=spec.URL,
            X_Job_Websocket_Url=spec.URL,
        )
    },
    problems=_PROBLEMS,
)
@endpoint.every_method("/api/files/", "/api/files")
async def serve_uploads(request: Request) -> Response:
    return await _serve_tus(request, None)


@endpoint.bare(
    "OPTIONS",
    "/api/files/{id}/",
    name="describe_upload",
    summary="List versions, extensions and limits, as for /api/files/.",
    answers=_CAPABILITIES,
)
@endpoint.bare(
    "HEAD",
    "/api/files/{id}/",
    name="get_upload_offset",
    summary="Show the offset and metadata of an upload.",
    parameters=(_RESUMABLE,),
    answers={
        200: spec.empty_answer(
            "The offset and metadata of the upload",
            **_REACHED,
            Upload_Length=spec.NUMBER,
            Upload_Defer_Length=spec.enum_of(1),
            Upload_Metadata=spec.TEXT,
            Upload_Concat=spec.TEXT,
            X_Job_Id=spec.UUID,
        )
    },
    problems=_PROBLEMS,
)
@endpoint.bare(
    "PATCH",
    "/api/files/{id}/",
    name="append_to_upload",
    summary="Append bytes to an upload.",
    parameters=(_RESUMABLE, _OFFSET, _LENGTH, _CHECKSUM),
    body=_BYTES,
    answers={204: spec.empty_answer("Upload-Offset bytes are on disk", **_REACHED)},
    problems=_PROBLEMS,
)
@endpoint.bare(
    "DELETE",
    "/api/files/{id}/",
    name="terminate_upload",
    summary="End an upload and its job.",
    parameters=(_RESUMABLE,),
    answers={204: spec.empty_answer("The upload has ended", **_ALWAYS)},
    problems=_PROBLEMS,
)
@endpoint.every_method("/api/files/{id}/", "/api/files/{id}")
async def serve_upload(request: Request) -> Response:
    return await _serve_tus(request, request.path_params["id"])


async def _serve_tus(request: Request, upload: str | None) -> Response:
    try:
        response = await _answer(request, upload)
    except HTTPException as error:
        response = await answers.on_http_error(request, error)
    except ErsError as error:
        response = await answers.on_error(request, error)
        if isinstance(error, VersionRefused):
            response.headers.update(tus.VERSIONS)
        elif isinstance(error, tus.OffsetMismatch):
            response.headers["Upload-Offset"] = str(error.offset)
    response.headers.update(tus.ALWAYS)
    return response


async def _answer(request: Request, upload: str | None) -> Response:
    services = services_of(request)
    on_upload = upload is not None
    method = tus.method_of(request.method, request.headers)
    if request.method in SAFE_METHODS:
        # A change under the name of a reading method must be a change for every check.
        request.scope["method"] = method
    caller = await services.holder(request)
    tus_request = tus.read(method, request.headers, on_upload=on_upload)
    if tus_request is None:
        allowed = ", ".join(tus.list_methods(on_upload=on_upload))
        raise HTTPException(405, headers={"Allow": allowed})
    if isinstance(tus_request, header.DescribeServer):
        return Response(status_code=204, headers=tus.describe())
    if isinstance(tus_request, header.Create):
        options = await _options(request, caller, tus_request.metadata)
        note = note_of(tus_request.metadata)
        made = await services.uploads.create(caller, tus_request, options, request.stream(), note)
        return Response(status_code=201, headers=_creation_headers(request, made))
    assert upload is not None
    identifier = from_path(upload)
    if isinstance(tus_request, header.Show):
        shown = await services.uploads.show(caller, identifier)
        of_job = {} if shown.kind is header.Kind.PARTIAL else {"X-Job-Id": _job_of(identifier)}
        return Response(status_code=200, headers=tus.show(shown) | of_job)
    if isinstance(tus_request, header.Append):
        reached = await services.uploads.append(caller, identifier, tus_request, request.stream())
        return Response(status_code=204, headers=tus.progress(reached.offset, reached.due))
    await services.uploads.terminate(caller, identifier)
    return Response(status_code=204)


def _creation_headers(request: Request, upload: Upload) -> dict[str, str]:
    """Headers that answer a creation: absolute addresses of the upload and of its job."""
    # The host, with the secret path of a page, because its cookie is sent only there.
    host = request.headers["host"] + at_of(request)
    origin = f"{request.url.scheme}://{host}"
    headers = tus.progress(upload.offset, upload.due)
    headers["Location"] = f"{origin}/api/files/{to_text(upload.id)}"
    if upload.has_job:
        job = _job_of(upload.id)
        socket = "wss" if request.url.scheme == "https" else "ws"
        headers["X-Job-Id"] = job
        headers["X-Job-Status-Url"] = f"{origin}/api/jobs/{job}/"
        headers["X-Job-Websocket-Url"] = f"{socket}://{host}/api/ws/jobs/{job}/"
    return headers


def _job_of(upload: bytes) -> str:
    """The id of an upload's job, which is the upload's id, as a UUID."""
    return str(uuid.UUID(bytes=upload))


async def _options(request: Request, caller: Holder, metadata: Mapping[str, bytes]) -> JobOptions:
    """Options of the upload's job: from headers, or from metadata for clients that cannot send
    other headers.

    Raises:
        BadInput: an option is not valid.
    """

    def read(name: str) -> str | None:
        return text_of(metadata, name)

    def say(name: str) -> HeaderText | None:
        return HeaderText.optional(read(name), name)

    schema, services = read("schema"), services_of(request)
    named = None
    if schema is not None:
        named = await schema_named(services, caller, schema, header="Upload-Metadata")
    headers = request.headers
    return options_of(
        # A wrong type is reported once the first bytes arrive.
        kind=format_of(metadata) or Format.JSON,
        charset=charset_of(metadata),
        named=named,
        batch_size=HeaderText.of(headers, "X-Batch-Size") or say("batch_size"),
        on_invalid=HeaderText.of(headers, "X-On-Invalid") or say("on_invalid"),
        on_repeat=say("on_repeat"),
        on_conflict=HeaderText.of(headers, "X-On-Conflict") or say("on_conflict"),
        by=say("by"),
        reading=metadata.get("reading"),
        resumable=True,
    )

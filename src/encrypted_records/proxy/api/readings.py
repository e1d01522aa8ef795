"""/api/readings/: how a file is read, from its first bytes; nothing is stored or forwarded. And
/api/schemas/<id>/reading/: the reading that is kept for a schema, which the API never sees."""

from __future__ import annotations

import base64
import binascii

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.errors import Malformed
from encrypted_records.http.openapi import DEFINITION
from encrypted_records.ingest.reading.parser import check_fields
from encrypted_records.ingest.reading.recipe import read_recipe
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.json_schema import (
    BINARY,
    FLAG,
    NUMBER,
    OBJECT,
    SCHEMA_NAME,
    TEXT,
    RequestBody,
    array_of,
    empty_answer,
    json_answer,
    json_body,
    object_of,
    parameter,
)
from encrypted_records.proxy.api.parameters import flag_of, id_in_path, only, schema_asked
from encrypted_records.proxy.http.messages import answer, read_body, read_json, while_wanted
from encrypted_records.proxy.saved_questions import no_reading
from encrypted_records.proxy.services import services_of
from encrypted_records.proxy.workers import messages

endpoint = Endpoints("readings")
of_schema = Endpoints("schemas")


@endpoint(
    "POST",
    "/api/readings/detect/",
    summary="Detect how a file is read, from the file or its beginning, and propose a definition.",
    body=RequestBody({"application/octet-stream": BINARY}),
    parameters=(
        parameter("query", "tight", FLAG, "Whether to propose bounds near those of the file"),
        parameter(
            "query",
            "schema",
            SCHEMA_NAME,
            "Schema that is to store the file, by the reading kept for it",
        ),
        parameter("query", "kept", FLAG, "Whether the kept reading is used (default: true)"),
        parameter(
            "header", "X-File-Size", NUMBER, "Size of the file, if the body is only its beginning"
        ),
        parameter("header", "X-Reading", TEXT, "Known parts of the reading, as JSON in Base64"),
    ),
    answers={
        200: json_answer(
            object_of(
                {
                    "reading": OBJECT,
                    "schema": DEFINITION,
                    "sampled": NUMBER,
                    "whole": FLAG,
                    "fields": array_of(OBJECT),
                    "above": array_of(TEXT),
                    "below": array_of(TEXT),
                    "short_rows": NUMBER,
                    "guessed": array_of(TEXT),
                    "words": array_of(TEXT),
                    "notes": array_of(TEXT),
                    "renamed": OBJECT,
                    "kept": FLAG,
                    "differences": array_of(OBJECT),
                }
            )
        )
    },
)
async def detect_reading(request: Request) -> Response:
    services = services_of(request)
    await services.caller(request)
    tight = flag_of(request, "tight", default=False)
    definition = kept = None
    if "schema" in request.query_params:
        holder = await services.holder(request)
        schema = await schema_asked(request, holder)
        state = await services.schemas.load(holder, schema)
        definition = state.definition.canonical
        if flag_of(request, "kept", default=True):
            kept = await services.kept_readings.find(holder, schema)
    said = _said(request.headers.get("x-reading", ""))
    size = request.headers.get("x-file-size")
    if size is not None and not (size.isascii() and size.isdecimal() and len(size) < 19):
        raise Malformed("X-File-Size: expected a number of bytes", code="invalid_header", hint="")
    sample = await read_body(request)
    whole = size is None or int(size) <= len(sample)
    task = messages.DetectTask(sample, whole, said, tight, definition, kept)
    result = await while_wanted(request, services.readers.run(task))
    assert isinstance(result, messages.JsonResult)
    return answer(msgspec.Raw(result.json))


def _said(header: str) -> bytes:
    try:
        return base64.b64decode(header, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed(
            "X-Reading: expected JSON in base64", code="invalid_header", hint=""
        ) from None


_PLACE = "/api/schemas/{id}/reading/"


@of_schema(
    "GET",
    _PLACE,
    summary="Show the reading that is kept for a schema.",
    answers={200: json_answer(OBJECT)},
)
async def get_reading(request: Request) -> Response:
    services = services_of(request)
    holder = await services.holder(request)
    only(request, set())
    schema = id_in_path(request)
    await services.schemas.load(holder, schema)
    kept = await services.kept_readings.find(holder, schema)
    if kept is None:
        raise no_reading()
    return answer(msgspec.Raw(kept))


@of_schema(
    "PUT",
    _PLACE,
    summary="Keep a reading for a schema, replacing the kept one.",
    body=json_body(OBJECT),
    answers={204: empty_answer("The reading is kept")},
)
async def keep_reading(request: Request) -> Response:
    services = services_of(request)
    holder = await services.holder(request)
    only(request, set())
    recipe = read_recipe(await read_json(request))
    schema = id_in_path(request)
    state = await services.schemas.load(holder, schema)
    check_fields(recipe, list(state.definition.fields), sorted(state.definition.required))
    await services.kept_readings.keep(holder, schema, msgspec.json.encode(recipe))
    return Response(status_code=204)


@of_schema(
    "DELETE",
    _PLACE,
    summary="Remove the reading that is kept for a schema.",
    answers={204: empty_answer("The reading is removed")},
)
async def forget_reading(request: Request) -> Response:
    services = services_of(request)
    holder = await services.holder(request)
    only(request, set())
    schema = id_in_path(request)
    await services.schemas.load(holder, schema)
    await services.kept_readings.forget(holder, schema)
    return Response(status_code=204)

"""/api/readings/: how a file is read, from its first bytes. Nothing is stored or forwarded."""

from __future__ import annotations

import base64
import binascii

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.errors import Malformed
from encrypted_records.http.definition_schema import DEFINITION
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.json_schema import (
    BINARY,
    FLAG,
    NUMBER,
    OBJECT,
    TEXT,
    Body,
    array_of,
    json_answer,
    object_of,
    parameter,
)
from encrypted_records.proxy.api.parameters import flag_of
from encrypted_records.proxy.http.bodies import read_body, while_wanted
from encrypted_records.proxy.http.responses import answer
from encrypted_records.proxy.services import services_of
from encrypted_records.proxy.workers import messages

endpoint = Endpoints("readings")


@endpoint(
    "POST",
    "/api/readings/detect/",
    summary="a file or its head in, how it is read and a proposed definition out.",
    body=Body({"application/octet-stream": BINARY}),
    parameters=(
        parameter("query", "tight", FLAG, "whether to propose bounds near those of the file"),
        parameter("header", "X-File-Size", NUMBER, "of the file, where the body is only its head"),
        parameter("header", "X-Reading", TEXT, "what is said of the reading, as JSON in base64"),
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
                    "renamed": OBJECT,
                }
            )
        )
    },
)
async def detect_reading(request: Request) -> Response:
    services = services_of(request)
    await services.caller(request)
    tight = flag_of(request, "tight", default=False)
    said = _said(request.headers.get("x-reading", ""))
    size = request.headers.get("x-file-size")
    if size is not None and not (size.isascii() and size.isdecimal() and len(size) < 19):
        raise Malformed("X-File-Size: expected a number of bytes", code="invalid_header", hint="")
    sample = await read_body(request)
    whole = size is None or int(size) <= len(sample)
    task = messages.DetectTask(sample, whole, said, tight)
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

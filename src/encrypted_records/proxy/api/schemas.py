"""Samples, readings and merges: /api/readings/, and parts of /api/schemas/.

Samples contain real rows. So infer/, preview/ and estimate/ under /api/schemas/ are answered here,
and store and forward nothing. The same applies to /api/readings/, which detects from a file's first
bytes how it is read. The API never sees the reading that is kept for a schema, <id>/reading/.
<id>/merge/ merges segments.
"""

from __future__ import annotations

import base64
import binascii
from base64 import b64decode
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.client.proxy.client import Merge
from encrypted_records.errors import InvalidQuery, Malformed, Unsupported
from encrypted_records.ingest.infer import Wishes
from encrypted_records.ingest.layouts import to_utf8
from encrypted_records.ingest.reading.parser import check_fields
from encrypted_records.ingest.reading.recipe import Recipe, read_recipe, with_names
from encrypted_records.model.record_formats import MEDIA_TYPES, Format, charset_of, require_utf8
from encrypted_records.model.samples import CostEstimate, FileReading, Preview, ProposedSchema
from encrypted_records.proxy.api import json_schema as spec
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.parameters import flag_of, id_in_path, only, requested_schema
from encrypted_records.proxy.http.messages import (
    answer,
    media_type,
    read_body,
    read_json,
    while_wanted,
)
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import aside, by_size
from encrypted_records.proxy.saved_questions import no_reading
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.services import Services, services_of
from encrypted_records.proxy.workers import messages
from encrypted_records.proxy.workers.uploads import answer_of

#: Bytes of a sample or a definition that are processed in less time than a worker process takes to
#: start.
FEW_BYTES = 64 << 10
#: A definition, the lengths of its strings, and a sample.
MAX_ESTIMATE_BYTES = 16 << 20

endpoint = Endpoints("schemas")


@endpoint.bare(
    "POST",
    "/api/schemas/infer/",
    summary="Propose a definition for a CSV or JSON sample.",
    body=spec.RequestBody(
        {
            spec.CSV: spec.TEXT,
            spec.JSON: spec.array_of(spec.OBJECT, minItems=1),
            spec.NDJSON: spec.TEXT,
        }
    ),
    parameters=tuple(
        spec.parameter("query", name, spec.FLAG, f"Whether to propose {what}")
        for name, what in {
            "enum": "lists of values, which the API can read",
            "unique": "that values are unique",
            "required": "that fields are required",
            "tight": "bounds near those of the sample",
        }.items()
    ),
    answers={200: spec.json_answer(ProposedSchema)},
)
async def infer_schema(request: Request) -> Response:
    services = services_of(request)
    await services.caller(request)
    only(request, {"enum", "unique", "required", "tight"})
    kind = Format.of_media_type(media_type(request))
    if kind is None:
        raise Unsupported(
            "a sample must be CSV or JSON",
            code="unsupported_media_type",
            hint=f"send the file itself, not a form, with Content-Type: {MEDIA_TYPES}",
        )
    wishes = Wishes(
        enum=flag_of(request, "enum", default=False),
        unique=flag_of(request, "unique", default=False),
        required=flag_of(request, "required", default=False),
        tight=flag_of(request, "tight", default=False),
    )
    charset = charset_of(request.headers.get("content-type", ""))
    if kind is not Format.CSV:
        require_utf8(charset)
    sample = await read_body(request)
    if charset is not None:
        sample = await by_size(len(sample))(to_utf8, sample, charset)
    task = messages.InferTask(sample, kind, wishes)
    return await _answer(request, services, task, is_small=len(sample) <= FEW_BYTES)


class PreviewRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A sample of a file, and a definition.

    Attributes:
        sample: text; with ``reading``, the first bytes of a file, in Base64.
        rows: number of rows to show (default: 20).
        reading: how the file is read.
        whole: whether the sample is the whole file.
    """

    schema: spec.RawDefinition
    sample: str
    format: Format
    rows: Annotated[int, Meta(ge=0, le=100)] = 20
    reading: Annotated[msgspec.Raw, Meta(extra_json_schema=spec.shape(Recipe))] | UnsetType = UNSET
    whole: bool = True


@endpoint.bare(
    "POST",
    "/api/schemas/preview/",
    summary="Show the first rows of a sample under a definition, and its invalid values.",
    body=spec.json_body(PreviewRequest),
    answers={200: spec.json_answer(Preview)},
)
async def preview_upload(request: Request) -> Response:
    services = services_of(request)
    await services.caller(request)
    try:
        body = await read_json(request)
        parameters = msgspec.json.decode(body, type=PreviewRequest)
        reading = None if parameters.reading is UNSET else bytes(parameters.reading)
        text = parameters.sample
        sample = text.encode() if reading is None else b64decode(text, validate=True)
    except (msgspec.DecodeError, UnicodeError, ValueError):
        raise InvalidQuery(
            "expected schema (a definition), sample (text), format (csv, json or ndjson),"
            " and optionally rows (0 to 100); with reading and whole, sample is bytes in"
            " base64"
        ) from None
    task = messages.PreviewTask(
        bytes(parameters.schema),
        sample,
        parameters.format,
        parameters.rows,
        reading,
        parameters.whole,
    )
    is_small = len(body) <= FEW_BYTES and reading is None
    return await _answer(request, services, task, is_small=is_small)


class SampleText(msgspec.Struct, forbid_unknown_fields=True):
    """Rows of a sample, and their media type."""

    type: Annotated[str, Meta(extra_json_schema={"enum": [kind.media_type for kind in Format]})]
    text: str


class EstimateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A definition and a number of records.

    Attributes:
        string_bytes: typical lengths of strings, by field, in bytes of UTF-8 (default: 12).
        sample: rows like those that are to be stored.
    """

    schema: spec.RawDefinition
    records: Annotated[int, Meta(ge=1, le=10**12)]
    string_bytes: dict[str, Annotated[int, Meta(ge=0, le=1 << 20)]] = {}
    sample: SampleText | None = None


@endpoint.bare(
    "POST",
    "/api/schemas/estimate/",
    summary="Estimate the cost of a number of records under a definition.",
    body=spec.json_body(EstimateRequest),
    answers={200: spec.json_answer(CostEstimate)},
)
async def estimate_schema(request: Request) -> Response:
    services = services_of(request)
    await services.caller(request)
    try:
        body = await read_json(request, limit=MAX_ESTIMATE_BYTES)
        parameters = msgspec.json.decode(body, type=EstimateRequest)
        sample = None if parameters.sample is None else parameters.sample.text.encode()
    except (msgspec.DecodeError, UnicodeError):
        raise InvalidQuery(
            "expected schema (a definition), records (1 to 10**12), and optionally"
            " string_bytes (typical length by field name) and sample (type and text)"
        ) from None
    kind = Format.of_media_type(parameters.sample.type) if parameters.sample else Format.CSV
    if kind is None:
        raise InvalidQuery(
            "a sample must be CSV or JSON", hint=f"its type must be one of {MEDIA_TYPES}"
        )
    definition, lengths = bytes(parameters.schema), parameters.string_bytes
    task = messages.EstimateTask(definition, parameters.records, lengths, sample, kind)
    is_small = len(body) <= FEW_BYTES and sum(lengths.values()) <= FEW_BYTES
    return await _answer(request, services, task, is_small=is_small)


async def _answer(
    request: Request, services: Services, task: messages.SampleTask, *, is_small: bool = False
) -> Response:
    """A worker's answer, whose work ends when the client disconnects; or for a small task this
    process's own.
    """
    if is_small:
        return answer(msgspec.Raw(await aside(answer_of, task)))
    result = await while_wanted(request, services.readers.run(task))
    assert isinstance(result, messages.JsonResult)
    return answer(msgspec.Raw(result.json))


@endpoint(
    "POST",
    "/api/schemas/{id}/merge/",
    summary="Run the next merge of index segments, if one is worthwhile.",
    answers={200: spec.json_answer(Merge)},
)
async def merge_segments(request: Request, services: Services, caller: Holder) -> Response:
    state = await services.schemas.refresh(caller, id_in_path(request))
    merged = await services.merger.merge_next(caller, state)
    return answer(
        Merge(
            merged=merged.inputs if merged else 0,
            records=merged.rows if merged else 0,
            segments=len(state.ledger.snapshot().segments),
            done=merged is None,
        )
    )


# --- readings -------------------------------------------------------------------------------------

reading_endpoint = Endpoints("readings")


@reading_endpoint.bare(
    "POST",
    "/api/readings/detect/",
    summary="Detect how a file is read, from the file or its beginning, and propose a definition.",
    body=spec.RequestBody({"application/octet-stream": spec.BINARY}),
    parameters=(
        spec.parameter(
            "query", "tight", spec.FLAG, "Whether to propose bounds near those of the file"
        ),
        spec.parameter(
            "query",
            "schema",
            spec.SCHEMA_NAME,
            "Schema that is to store the file, by the reading kept for it",
        ),
        spec.parameter(
            "query", "kept", spec.FLAG, "Whether the kept reading is used (default: true)"
        ),
        spec.parameter(
            "header",
            "X-File-Size",
            spec.NUMBER,
            "Size of the file, if the body is only its beginning",
        ),
        spec.parameter(
            "header", "X-Reading", spec.TEXT, "Known parts of the reading, as JSON in Base64"
        ),
    ),
    answers={200: spec.json_answer(FileReading)},
)
async def detect_reading(request: Request) -> Response:
    services = services_of(request)
    await services.caller(request)
    only(request, {"tight", "schema", "kept"})
    tight = flag_of(request, "tight", default=False)
    definition = kept = None
    if "schema" in request.query_params:
        holder = await services.holder(request)
        schema = await requested_schema(request, holder)
        state = await services.schemas.refresh(holder, schema)
        definition = state.definition.canonical
        if flag_of(request, "kept", default=True):
            kept = await _kept_reading(services, holder, state)
    choices = _reading_in(request.headers.get("x-reading", ""))
    size = request.headers.get("x-file-size")
    if size is not None and not (size.isascii() and size.isdecimal() and len(size) < 19):
        raise Malformed("X-File-Size: expected a number of bytes", code="invalid_header", hint="")
    sample = await read_body(request)
    whole = size is None or int(size) <= len(sample)
    task = messages.DetectTask(sample, whole, choices, tight, definition, kept)
    return await _answer(request, services, task)


def _reading_in(header: str) -> bytes:
    try:
        return base64.b64decode(header, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed(
            "X-Reading: expected JSON in base64", code="invalid_header", hint=""
        ) from None


async def _kept_reading(services: Services, holder: Holder, state: SchemaState) -> bytes | None:
    """The reading that is kept for a schema, with the present names of renamed fields."""
    kept = await services.kept_readings.find(holder, state.id)
    history = state.ledger.history
    if kept is None or history is None or not history.renamed:
        return kept
    return msgspec.json.encode(with_names(read_recipe(kept), history.renamed))


_READING_PATH = "/api/schemas/{id}/reading/"


@endpoint(
    "GET",
    _READING_PATH,
    summary="Show the reading that is kept for a schema.",
    answers={200: spec.json_answer(Recipe)},
)
async def get_reading(request: Request, services: Services, holder: Holder) -> Response:
    schema = id_in_path(request)
    kept = await _kept_reading(services, holder, await services.schemas.refresh(holder, schema))
    if kept is None:
        raise no_reading()
    return answer(msgspec.Raw(kept))


@endpoint(
    "PUT",
    _READING_PATH,
    summary="Keep a reading for a schema, replacing the kept one.",
    body=spec.json_body(Recipe),
    answers={204: spec.empty_answer("The reading is kept")},
)
async def keep_reading(request: Request, services: Services, holder: Holder) -> Response:
    recipe = read_recipe(await read_json(request))
    schema = id_in_path(request)
    state = await services.schemas.refresh(holder, schema)
    check_fields(recipe, list(state.definition.fields), sorted(state.definition.required))
    await services.kept_readings.keep(holder, schema, msgspec.json.encode(recipe))
    return Response(status_code=204)


@endpoint(
    "DELETE",
    _READING_PATH,
    summary="Remove the reading that is kept for a schema.",
    answers={204: spec.empty_answer("The reading is removed")},
)
async def forget_reading(request: Request, services: Services, holder: Holder) -> Response:
    schema = id_in_path(request)
    await services.schemas.load(holder, schema)
    await services.kept_readings.forget(holder, schema)
    return Response(status_code=204)

"""Of /api/schemas/ what takes plaintext or keys: infer/, estimate/ and <id>/merge/.

Samples hold real rows, so the first two are answered here and store and forward nothing.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from encrypted_records.errors import InvalidQuery, Unsupported
from encrypted_records.ingest.estimate import Estimate, estimate
from encrypted_records.ingest.infer import Proposal, infer_csv, infer_json
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import from_text
from encrypted_records.proxy.answers import answer
from encrypted_records.proxy.parts import parts_of
from encrypted_records.proxy.routes.bodies import media_type, read_body, read_json

_READERS = {
    "text/csv": infer_csv,
    "application/json": infer_json,
    "application/x-ndjson": infer_json,
}


async def infer(request: Request) -> Response:
    """POST /api/schemas/infer/: a CSV or JSON sample in, a proposed definition out."""
    await parts_of(request).caller(request)
    reader = _READERS.get(media_type(request))
    if reader is None:
        raise Unsupported(
            "a sample is CSV or JSON",
            code="unsupported_media_type",
            hint=f"send Content-Type: {', '.join(_READERS)}",
        )
    return answer(_proposal_json(await asyncio.to_thread(reader, await read_body(request))))


def _proposal_json(proposal: Proposal) -> dict[str, Any]:
    return {
        "schema": proposal.definition,
        "sampled": proposal.sampled,
        "fields": [
            {"name": one.name, "present": one.present, "absent": one.absent, "note": one.note}
            for one in proposal.fields
        ],
    }


class _EstimateRequest(msgspec.Struct, forbid_unknown_fields=True):
    schema: msgspec.Raw
    records: Annotated[int, Meta(ge=1, le=10**12)]
    string_bytes: dict[str, Annotated[int, Meta(ge=0, le=1 << 20)]] = {}


async def estimated(request: Request) -> Response:
    """POST /api/schemas/estimate/: a definition and a number of records in, their cost out."""
    await parts_of(request).caller(request)
    try:
        asked = msgspec.json.decode(await read_json(request), type=_EstimateRequest)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidQuery(
            "expected schema (a definition), records (1 to 10**12), and maybe string_bytes"
            " (typical length by field name)"
        ) from None
    definition = parse_definition(bytes(asked.schema))
    found = await asyncio.to_thread(estimate, definition, asked.records, asked.string_bytes)
    return answer(_estimate_json(found))


def _estimate_json(found: Estimate) -> dict[str, Any]:
    return {
        "records": found.records,
        "bytes_per_record": {
            "sealed": found.row_bytes,
            "index": round(found.index_bytes, 1),
            "total": round(found.row_bytes + found.index_bytes, 1),
        },
        "bytes": found.total_bytes,
        "records_per_second": round(found.rate),
        "seconds": round(found.seconds, 1),
        "fields": [
            {
                "name": one.name,
                "sealed_bytes": one.row_bytes,
                "index_bytes": round(one.index_bytes, 1),
                "reveals": dict(one.reveals),
            }
            for one in found.fields
        ],
    }


async def merge(request: Request) -> Response:
    """POST /api/schemas/<id>/merge/: the next merge of index segments, if one is worth it."""
    parts = parts_of(request)
    caller = await parts.caller(request)
    state = await parts.schemas.fresh(caller, from_text(request.path_params["id"]))
    merged = await parts.merger.once(caller, state)
    return answer(
        {
            "merged": merged.inputs if merged else 0,
            "records": merged.rows if merged else 0,
            "segments": len(state.ledger.view().segments),
            "done": merged is None,
        }
    )


routes = [
    Route("/api/schemas/infer/", infer, methods=["POST"]),
    Route("/api/schemas/estimate/", estimated, methods=["POST"]),
    Route("/api/schemas/{id}/merge/", merge, methods=["POST"]),
]

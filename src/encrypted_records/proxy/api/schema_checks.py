"""Signatures under /api/schemas/<id>/: verify/ and sign/."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.model.media_types import Format
from encrypted_records.model.roster import Placement
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.json_schema import (
    FLAG,
    NAMES,
    NDJSON,
    OBJECT,
    TEXT,
    answer_of_kinds,
    json_answer,
    json_body,
    object_of,
)
from encrypted_records.proxy.api.parameters import id_in_path
from encrypted_records.proxy.http.bodies import read_struct
from encrypted_records.proxy.http.downloads import Form, json_line
from encrypted_records.proxy.http.responses import answer
from encrypted_records.proxy.search.verification import Verified
from encrypted_records.proxy.services import services_of

endpoint = Endpoints("schemas")

_PLACED = object_of({"slug": TEXT, "name": TEXT, "definition": TEXT})


class _Seen(msgspec.Struct, forbid_unknown_fields=True):
    """The state that the caller was shown, and wants to be signed."""

    slug: str
    name: str
    definition: str


class _Signing(msgspec.Struct, forbid_unknown_fields=True):
    dry_run: bool = False
    seen: _Seen | None = None


@endpoint(
    "POST",
    "/api/schemas/{id}/verify/",
    summary="compare all stored rows and pages with what signed commits say of them.",
    answers={200: answer_of_kinds({NDJSON: {}}, description="Places, and a report at the end")},
)
async def verify_schema(request: Request) -> Response:
    services = services_of(request)
    schema = id_in_path(request)
    await services.holder(request)
    steps = services.verifier.verify(lambda: services.holder(request), schema)
    # What refuses the whole is an answer of its own: the first step has read the log.
    first = await anext(steps)
    return Form(Format.NDJSON, safe=False).download(_lines(first, steps))


async def _lines(first: Verified, steps: AsyncIterator[Verified]) -> AsyncGenerator[bytes, None]:
    told = 0
    done = first
    async for done in steps:
        new, told = done.named[told:], len(done.named)
        # An empty line, which readers skip, shows that the work continues.
        yield b"".join(json_line({"altered": place}) for place in new) or b"\n"
    yield json_line({"verify": _report_json(done)})


def _report_json(done: Verified) -> dict[str, Any]:
    return {
        "version": done.head.version,
        "digest": done.head.digest.hex(),
        "groups": done.groups,
        "rows": done.rows,
        "segments": done.segments,
        "pages": done.pages,
        "altered": done.altered,
    }


@endpoint(
    "POST",
    "/api/schemas/{id}/sign/",
    summary="sign the schema as the API shows it; dry_run only says what that changes.",
    body=json_body(object_of({}, dry_run=FLAG, seen=_PLACED)),
    answers={
        200: json_answer(
            object_of(
                {
                    "changes": NAMES,
                    "signed": {"oneOf": [_PLACED, {"type": "null"}]},
                    "shown": OBJECT,
                    "applied": FLAG,
                }
            )
        )
    },
)
async def sign_schema(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    asked = await read_struct(request, _Signing)
    schema = id_in_path(request)
    if asked.dry_run:
        difference = await services.signing.compare(caller, schema)
    else:
        seen = None if asked.seen is None else msgspec.structs.astuple(asked.seen)
        difference = await services.signing.sign(caller, schema, seen)
    signed = difference.signed
    return answer(
        {
            "changes": difference.members,
            "signed": None if signed is None else _placed_json(signed),
            "shown": _placed_json(difference.shown),
            "applied": not asked.dry_run and bool(difference.members),
        }
    )


def _placed_json(placed: Placement) -> dict[str, str]:
    return {"slug": placed.slug, "name": placed.name, "definition": placed.definition.hex()}

"""Changes of a schema under /api/schemas/<id>/: change/ of its definition, also as a plan without
the change, sign/ for its names, and verify/ for all stored data.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.errors import Conflict, Flaw, InvalidQuery
from encrypted_records.http.openapi import DEFINITION
from encrypted_records.model.ids import reference
from encrypted_records.model.record_formats import Format
from encrypted_records.model.roster import Placement
from encrypted_records.model.strict_json import encode
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.forward import sign_change
from encrypted_records.proxy.api.jobs import JOB_ANSWER, job_answer, name_of_job
from encrypted_records.proxy.api.json_schema import (
    FLAG,
    NAMES,
    NDJSON,
    NUMBER,
    OBJECT,
    TEXT,
    UUID,
    Part,
    answer_of_kinds,
    array_of,
    json_answer,
    json_body,
    object_of,
)
from encrypted_records.proxy.api.parameters import id_in_path
from encrypted_records.proxy.http.messages import Form, answer, json_line, read_json, read_struct
from encrypted_records.proxy.jobs.service import target_of
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.search.verification import VerificationCounts
from encrypted_records.proxy.services import services_of
from encrypted_records.proxy.write.definitions import DefinitionPlan, refuse_obstacles

endpoint = Endpoints("schemas")

_PLAN: dict[str, Part] = {
    "changes": array_of(OBJECT),
    "takes": {"enum": ["nothing", "commit", "proof", "reseal"]},
    "possible": FLAG,
    "records": NUMBER,
    "seconds": {"type": "number"},
    "applied": FLAG,
}
_ANSWER = object_of(_PLAN, old_enough=NUMBER)
_BEGUN = object_of({**_PLAN, "job_id": UUID})


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    """``renames``: names of the new definition, and those that these fields have at present;
    ``drops``: names of present fields whose values may be lost; ``replaces``: the definition that
    the new one was made of."""

    schema: msgspec.Raw
    renames: dict[str, str] = {}
    drops: list[str] = []
    replaces: msgspec.Raw = msgspec.Raw()
    dry_run: bool = False


@endpoint(
    "POST",
    "/api/schemas/{id}/change/",
    summary="Change a schema's definition; with dry_run, only show what the change requires.",
    body=json_body(
        object_of(
            {"schema": DEFINITION},
            renames=OBJECT,
            drops=array_of(TEXT),
            replaces=DEFINITION,
            dry_run=FLAG,
        )
    ),
    answers={
        200: json_answer(_ANSWER),
        202: json_answer(
            _BEGUN, description="All records are re-encrypted for the change, as a job"
        ),
    },
)
async def change_schema(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    body = _decode(await read_json(request))
    schema, text = id_in_path(request), bytes(body.schema)
    before = bytes(body.replaces) or None
    plan = await services.definitions.plan(caller, schema, text, body.renames, body.drops, before)
    if body.dry_run:
        if plan.needs_reseal and not plan.obstacles:
            plan = await services.reseals.with_seconds(caller, schema, plan)
        shown = _json_of(plan, applied=False)
        if any(change.code == "retention_changed" for change in plan.changes):
            shown["old_enough"] = await services.retainer.look_ahead(caller, schema, plan.new)
        return answer(msgspec.Raw(encode(shown)))
    if plan.needs_reseal:
        refuse_obstacles(plan)
        job = await services.reseals.begin(caller, schema, target_of(plan))
        begun = {"job_id": name_of_job(job), **_json_of(plan, applied=False)}
        return job_answer(job, 202, begun)
    plan = await services.definitions.change(caller, schema, text, body.renames, before)
    # The API shows the definition that it receives, with titles and descriptions; the log has the
    # rules.
    await _show(request, caller, schema, text)
    return answer(msgspec.Raw(encode(_json_of(plan, applied=True))))


async def _show(request: Request, caller: Holder, schema: bytes, text: bytes) -> None:
    """Let the API show a definition. If the roster has the schema and nothing was ever stored, no
    log has the definition, so the roster has to allow it.

    Raises:
        ErsError: as :meth:`Api.show_definition` and :func:`sign_change`.
    """
    show = partial(services_of(request).api.show_definition, schema, text, caller.auth)
    try:
        await show()
    except Conflict as error:
        if error.reason != "through_a_proxy":
            raise
        body = msgspec.json.encode({"schema": msgspec.Raw(text)})
        signed = await sign_change(request, reference("schemas", schema), body)
        taken = False
        try:
            await show()
            taken = True
        finally:
            await signed.finish(taken=taken)


@endpoint(
    "POST",
    "/api/schemas/{id}/reseal/",
    summary="Re-encrypt all records under the current key and definition, as a job.",
    answers={202: JOB_ANSWER},
)
async def reseal_schema(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    return job_answer(await services.reseals.begin(caller, id_in_path(request)), 202)


def _decode(body: bytes) -> _Body:
    """Raises:
    InvalidQuery: the body is not valid.
    """
    try:
        return msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        detail = (
            "expected schema (a definition), and optionally renames (new names to old),"
            " drops (names), replaces (a definition) and dry_run"
        )
        raise InvalidQuery(detail, flaws=(Flaw("type", detail, ""),)) from None


def _json_of(plan: DefinitionPlan, *, applied: bool) -> dict[str, Any]:
    in_the_way = {obstacle.change: obstacle for obstacle in plan.obstacles}
    changes = []
    for change in plan.changes:
        shown: dict[str, Any] = {
            "field": change.field,
            "code": change.code,
            "detail": change.detail,
            "pointer": change.pointer,
            "takes": change.cost.value,
        }
        if change in in_the_way:
            obstacle = in_the_way[change]
            shown |= {"records": obstacle.records, "where": obstacle.where}
        changes.append(shown)
    return {
        "changes": changes,
        "takes": plan.takes,
        "possible": not plan.obstacles,
        "records": plan.records,
        "seconds": round(plan.seconds, 3),
        "applied": applied,
    }


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
    summary="Compare all stored rows and pages with the signed commits.",
    answers={
        200: answer_of_kinds({NDJSON: {}}, description="Differences, and a report at the end")
    },
)
async def verify_schema(request: Request) -> Response:
    services = services_of(request)
    schema = id_in_path(request)
    await services.holder(request)
    steps = services.verifier.verify(lambda: services.holder(request), schema)
    # A refusal of the whole request gets an HTTP status: the first step has read the log.
    first = await anext(steps)
    return Form(Format.NDJSON, safe=False).download(_lines(first, steps))


async def _lines(
    first: VerificationCounts, steps: AsyncIterator[VerificationCounts]
) -> AsyncGenerator[bytes, None]:
    told = 0
    done = first
    async for done in steps:
        new, told = done.named[told:], len(done.named)
        # An empty line, which readers skip, shows that the work continues.
        yield b"".join(json_line({"altered": place}) for place in new) or b"\n"
    yield json_line({"verify": _report_json(done)})


def _report_json(done: VerificationCounts) -> dict[str, Any]:
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
    summary="Sign the schema as the API shows it; with dry_run, only show what that changes.",
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

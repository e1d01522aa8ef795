"""Changes of a schema under /api/schemas/<id>/: change/ of its definition, also as a plan without
the change, sign/ for its names, and verify/ for all stored data.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.client.proxy.schema_logs import (
    Placed,
    PlannedChange,
    SchemaChange,
    SchemaSigned,
)
from encrypted_records.errors import Conflict
from encrypted_records.model.ids import reference
from encrypted_records.model.record_formats import Format
from encrypted_records.model.roster import Placement
from encrypted_records.proxy.api import json_schema as spec
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.forward import sign_change
from encrypted_records.proxy.api.jobs import JOB_ANSWER, job_answer, name_of_job
from encrypted_records.proxy.api.parameters import id_in_path
from encrypted_records.proxy.http.messages import (
    MAX_BODY_BYTES,
    Form,
    answer,
    json_line,
    read_struct,
)
from encrypted_records.proxy.jobs.service import target_of
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.services import Services, services_of
from encrypted_records.proxy.write.definitions import DefinitionPlan, refuse_obstacles
from encrypted_records.proxy.write.repair import VerificationCounts

endpoint = Endpoints("schemas")


class ChangeWanted(msgspec.Struct, forbid_unknown_fields=True):
    """Another definition of a schema.

    Attributes:
        renames: names of the new definition, and those that these fields have at present.
        drops: names of present fields whose values may be lost.
        replaces: the definition that the new one was made of.
    """

    schema: spec.RawDefinition
    renames: dict[str, str] = {}
    drops: list[str] = []
    replaces: spec.RawDefinition | UnsetType = UNSET
    dry_run: bool = False


@endpoint(
    "POST",
    "/api/schemas/{id}/change/",
    summary="Change a schema's definition; with dry_run, only show what the change requires.",
    body=spec.json_body(ChangeWanted),
    answers={
        200: spec.json_answer(SchemaChange),
        202: spec.json_answer(
            SchemaChange, description="All records are re-encrypted for the change, as a job"
        ),
    },
)
async def change_schema(request: Request, services: Services, caller: Holder) -> Response:
    body = await read_struct(request, ChangeWanted, limit=MAX_BODY_BYTES)
    schema, text = id_in_path(request), bytes(body.schema)
    before = None if body.replaces is UNSET else bytes(body.replaces)
    plan = await services.definitions.plan(caller, schema, text, body.renames, body.drops, before)
    if body.dry_run:
        if plan.needs_reseal and not plan.obstacles:
            plan = await services.reseals.with_seconds(caller, schema, plan)
        going = None
        if any(change.code == "retention_changed" for change in plan.changes):
            going = await services.retainer.look_ahead(caller, schema, plan.new)
        return answer(_shown(plan, old_enough=going))
    if plan.needs_reseal:
        refuse_obstacles(plan)
        job = await services.reseals.begin(caller, schema, target_of(plan))
        return job_answer(job, 202, _shown(plan, job_id=name_of_job(job)))
    plan = await services.definitions.change(caller, schema, text, body.renames, before)
    # The API shows the definition that it receives, with titles and descriptions; the log has the
    # rules.
    await _show(request, caller, schema, text)
    return answer(_shown(plan, applied=True))


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
async def reseal_schema(request: Request, services: Services, caller: Holder) -> Response:
    return job_answer(await services.reseals.begin(caller, id_in_path(request)), 202)


def _shown(
    plan: DefinitionPlan,
    *,
    applied: bool = False,
    old_enough: int | None = None,
    job_id: str | None = None,
) -> SchemaChange:
    in_the_way = {obstacle.change: obstacle for obstacle in plan.obstacles}
    changes = []
    for change in plan.changes:
        obstacle = in_the_way.get(change)
        changes.append(
            PlannedChange(
                change.field,
                change.code,
                change.detail,
                change.pointer,
                change.cost.value,
                UNSET if obstacle is None else obstacle.records,
                UNSET if obstacle is None else obstacle.where,
            )
        )
    return SchemaChange(
        changes=changes,
        takes=plan.takes,
        possible=not plan.obstacles,
        records=plan.records,
        seconds=round(plan.seconds, 3),
        applied=applied,
        old_enough=old_enough,
        job_id=job_id,
    )


class SeenNames(Placed, frozen=True, forbid_unknown_fields=True):
    """The names that the caller was shown, and wants to be signed."""


class SigningWanted(msgspec.Struct, forbid_unknown_fields=True):
    dry_run: bool = False
    seen: SeenNames | None = None


@endpoint(
    "POST",
    "/api/schemas/{id}/verify/",
    summary="Compare all stored rows and pages with the signed commits.",
    answers={
        200: spec.answer_of_kinds(
            {spec.NDJSON: {}}, description="Differences, and a report at the end"
        )
    },
)
async def verify_schema(request: Request, services: Services, _caller: Holder) -> Response:
    schema = id_in_path(request)
    steps = services.verifier.verify(lambda: services.holder(request), schema)
    # A refusal of the whole request gets an HTTP status: the first step has read the log.
    first = await anext(steps)
    return Form(Format.NDJSON, safe=False).download(_lines(first, steps))


async def _lines(
    first: VerificationCounts, steps: AsyncIterator[VerificationCounts]
) -> AsyncGenerator[bytes, None]:
    written = 0
    done = first
    async for done in steps:
        new, written = done.named[written:], len(done.named)
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
    body=spec.json_body(SigningWanted),
    answers={200: spec.json_answer(SchemaSigned)},
)
async def sign_schema(request: Request, services: Services, caller: Holder) -> Response:
    body = await read_struct(request, SigningWanted)
    schema = id_in_path(request)
    if body.dry_run:
        difference = await services.signing.compare(caller, schema)
    else:
        seen = None if body.seen is None else msgspec.structs.astuple(body.seen)
        difference = await services.signing.sign(caller, schema, seen)
    signed = difference.signed
    return answer(
        SchemaSigned(
            changes=difference.members,
            signed=None if signed is None else _placed(signed),
            shown=_placed(difference.shown),
            applied=not body.dry_run and bool(difference.members),
        )
    )


def _placed(placed: Placement) -> Placed:
    return Placed(placed.slug, placed.name, placed.definition.hex())

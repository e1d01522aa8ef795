"""/api/schemas/<id>/retention/: what the definition lets go by now, and letting it go."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.model.retention import Retention
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.json_schema import (
    FLAG,
    NUMBER,
    TEXT,
    Part,
    json_answer,
    object_of,
    parameter,
)
from encrypted_records.proxy.api.parameters import flag_of, id_in_path, only
from encrypted_records.proxy.http.responses import answer
from encrypted_records.proxy.retention.service import Due
from encrypted_records.proxy.services import services_of

endpoint = Endpoints("schemas")

_RULE: Part = {
    "type": ["object", "null"],
    "properties": {"days": NUMBER, "field": TEXT},
    "required": ["days"],
}
_SHARED: dict[str, Part] = {
    "retention": _RULE,
    "before": {"type": ["string", "null"], "format": "date"},
    "version": NUMBER,
    "held": NUMBER,
    "doubt": {"type": ["string", "null"]},
}
_DUE = object_of({**_SHARED, "records": NUMBER})
_RIGHT = parameter(
    "query", "clock_is_right", FLAG, "confirm the clock: delete also what it holds back"
)
_DONE = object_of({**_SHARED, "deleted": NUMBER})


@endpoint(
    "GET",
    "/api/schemas/{id}/retention/",
    summary="how long records stay by the definition, and how many are old enough to go.",
    answers={200: json_answer(_DUE)},
)
async def look_at_retention(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    only(request, set())
    due = await services.retainer.look(caller, id_in_path(request))
    return answer({**_json_of(due), "records": due.records})


@endpoint(
    "POST",
    "/api/schemas/{id}/retention/",
    summary="delete the records that are old enough to go by the definition.",
    parameters=(_RIGHT,),
    answers={200: json_answer(_DONE)},
)
async def carry_out_retention(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    only(request, {"clock_is_right"})
    right = flag_of(request, "clock_is_right", default=False)
    done = await services.retainer.run(caller, id_in_path(request), clock_is_right=right)
    return answer({**_json_of(done), "deleted": done.records})


def _json_of(due: Due) -> dict[str, Any]:
    before = None if due.before is None else due.before.isoformat()
    return {
        "retention": rule_json(due.rule),
        "before": before,
        "version": due.version,
        "held": due.held,
        "doubt": due.doubt,
    }


def rule_json(rule: Retention | None) -> dict[str, Any] | None:
    """The rule as a definition says it."""
    if rule is None:
        return None
    return {"days": rule.days, **({} if rule.field is None else {"field": rule.field})}

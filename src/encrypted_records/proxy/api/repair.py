"""/api/schemas/<id>/repair/: what the API has lost of a schema, and making it whole again."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.json_schema import (
    FLAG,
    NUMBER,
    json_answer,
    object_of,
    parameter,
)
from encrypted_records.proxy.api.parameters import id_in_path, number_of, only
from encrypted_records.proxy.http.responses import answer
from encrypted_records.proxy.services import services_of
from encrypted_records.proxy.write.repair import Loss

_MANY = 2**31
_PATH = "/api/schemas/{id}/repair/"
_LOSS = object_of({"records": NUMBER, "segments": NUMBER, "rows": NUMBER, "done": FLAG})
_CONFIRM = parameter("query", "confirm", NUMBER, "how many lost records may be deleted")

endpoint = Endpoints("schemas")


@endpoint(
    "GET",
    _PATH,
    summary="what the API has lost of a schema: records, and segments of the index.",
    answers={200: json_answer(_LOSS)},
)
async def look_at_loss(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    only(request, set())
    return answer(_as_json(await services.repairer.look(caller, id_in_path(request))))


@endpoint(
    "POST",
    _PATH,
    summary="delete lost records, given their number, or build one segment again from rows.",
    parameters=(_CONFIRM,),
    answers={200: json_answer(_LOSS, description="What was lost before; repeat it until done")},
)
async def repair_schema(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    only(request, {"confirm"})
    confirmed = number_of(request, "confirm", 0, least=0, most=_MANY)
    schema = id_in_path(request)
    return answer(_as_json(await services.repairer.repair_next(caller, schema, confirmed)))


def _as_json(loss: Loss) -> dict[str, Any]:
    return {
        "records": loss.records,
        "segments": loss.segments,
        "rows": loss.rows,
        "done": loss.nothing,
    }

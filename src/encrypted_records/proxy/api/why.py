"""/api/records/why/: why a condition finds nothing."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.model.queries import refuse_unknown
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.json_schema import (
    NUMBER,
    TEXT,
    TEXT_OR_NULL,
    array_of,
    json_answer,
    json_body,
    object_of,
)
from encrypted_records.proxy.api.parameters import schema_of
from encrypted_records.proxy.api.search import CONDITIONS, OPTIONAL_CONDITIONS
from encrypted_records.proxy.http.bodies import read_object
from encrypted_records.proxy.http.responses import answer
from encrypted_records.proxy.search.why import explain_nothing
from encrypted_records.proxy.services import services_of

_NUMBER_OR_NULL = {"type": ["integer", "null"]}
_REASON = object_of(
    {
        "pointer": TEXT,
        "field": TEXT,
        "op": TEXT,
        "count": NUMBER,
        "folded": _NUMBER_OR_NULL,
        "trimmed": _NUMBER_OR_NULL,
        "never": TEXT_OR_NULL,
    }
)

endpoint = Endpoints("records")


@endpoint(
    "POST",
    "/api/records/why/",
    summary="each comparison of a condition alone, and what would have been found.",
    body=json_body(object_of(CONDITIONS, **OPTIONAL_CONDITIONS)),
    answers={
        200: json_answer(
            object_of({"records": NUMBER, "count": NUMBER, "comparisons": array_of(_REASON)})
        )
    },
)
async def explain_why(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    body = await read_object(request)
    refuse_unknown(body, {"schema", "where", "filters"})
    schema = schema_of(services, body.get("schema"))
    reasons = await explain_nothing(services.query_runner, caller, schema, body)
    return answer(
        {
            "records": reasons.records,
            "count": reasons.count,
            "comparisons": [
                {
                    "pointer": comparison.pointer,
                    "field": comparison.field,
                    "op": comparison.op,
                    "count": comparison.count,
                    "folded": comparison.folded,
                    "trimmed": comparison.trimmed,
                    "never": comparison.never,
                }
                for comparison in reasons.comparisons
            ],
        }
    )

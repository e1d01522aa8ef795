"""/api/records/: searches, aggregates and their plans. Nothing here is ever forwarded."""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from encrypted_records.index.aggregate import Group
from encrypted_records.index.view import View
from encrypted_records.model.aggregations import (
    Aggregation,
    Distinct,
    Histogram,
    Measure,
    Percentile,
)
from encrypted_records.proxy import explaining
from encrypted_records.proxy.answers import answer, record_json
from encrypted_records.proxy.parts import parts_of
from encrypted_records.proxy.routes.bodies import read_object
from encrypted_records.proxy.routes.parameters import only, schema_of


async def search(request: Request) -> Response:
    """POST /api/records/search/"""
    parts = parts_of(request)
    caller = await parts.caller(request)
    body = await read_object(request)
    schema = schema_of(parts, body.get("schema"))
    found = await parts.search.ask(caller, schema, body)
    return answer(
        {
            "count": found.count,
            "next_cursor": found.next_cursor,
            "results": [
                record_json(record, schema, found.definition, found.fields)
                for record in found.records
            ],
        }
    )


async def aggregate(request: Request) -> Response:
    """POST /api/records/aggregate/"""
    parts = parts_of(request)
    caller = await parts.caller(request)
    body = await read_object(request)
    schema = schema_of(parts, body.get("schema"))
    measured = await parts.aggregates.ask(caller, schema, body)
    asked, found = measured.asked, measured.found
    if not asked.group_by:
        return answer({"measures": _results(asked, found.groups[0])})
    return answer(
        {
            "total": found.total,
            "groups": [
                {
                    "group": dict(zip(asked.group_by, group.values, strict=True)),
                    "measures": _results(asked, group),
                }
                for group in found.groups
            ],
        }
    )


def _results(asked: Aggregation, group: Group) -> list[dict[str, Any]]:
    together = zip(asked.names, asked.measures, group.results, strict=True)
    return [_result(name, measure, result) for name, measure, result in together]


def _result(name: str, measure: Measure, result: Any) -> dict[str, Any]:
    head: dict[str, Any] = {"op": name}
    if measure.field is not None:
        head["field"] = measure.field
    match measure:
        case Percentile():
            together = zip(measure.asked, result, strict=True)
            head["values"] = [{"p": p, "value": value} for p, value in together]
        case Histogram() | Distinct():
            head |= result
        case _:
            head["value"] = result
    return head


async def status(request: Request) -> Response:
    """GET /api/records/status/?schema=<id>: the state of a schema's index, and of the cache."""
    parts = parts_of(request)
    caller = await parts.caller(request)
    only(request, {"schema"})
    state = await parts.schemas.fresh(
        caller, schema_of(parts, request.query_params.get("schema", ""))
    )
    view = state.ledger.view()
    return answer(
        {
            "version": view.version,
            "records": view.count,
            "dead": sum(len(rows) for rows in view.dead.values()),
            "segments": _segments(view),
            "merge_pending": parts.merger.pending(state),
            "memory": {
                name: {"count": use.count, "bytes": use.bytes}
                for name, use in parts.segments.uses.items()
            },
        }
    )


def _segments(view: View) -> dict[str, int]:
    forms = Counter(segment.form for segment in view.segments)
    return {"live": forms.total(), "mini": forms["mini"], "paged": forms["paged"]}


async def explain(request: Request) -> Response:
    """POST /api/records/explain/: what answering this search or aggregate took."""
    parts = parts_of(request)
    caller = await parts.caller(request)
    body = await read_object(request)
    schema = schema_of(parts, body.get("schema"))
    plan = await explaining.explain(parts.asker, caller, schema, body)
    view, cost = plan.asking.view, plan.asking.cost
    return answer(
        {
            "kind": plan.kind,
            "version": view.version,
            "records": view.count,
            "columns": plan.columns,
            "segments": _segments(view),
            "pages": {"memory": 0, "disk": 0, "api": 0} | cost.pages,
            "rows": {"certain": cost.certain, "unsure": cost.unsure, "opened": cost.rows},
            "requests": cost.requests,
            "stages": [
                {"stage": name, "milliseconds": round(seconds * 1000, 3)}
                for name, seconds in cost.seconds.items()
            ],
        }
    )


routes = [
    Route("/api/records/status/", status, methods=["GET"]),
    Route("/api/records/explain/", explain, methods=["POST"]),
    Route("/api/records/search/", search, methods=["POST"]),
    Route("/api/records/aggregate/", aggregate, methods=["POST"]),
]

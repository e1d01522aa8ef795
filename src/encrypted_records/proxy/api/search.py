"""/api/records/: searches, aggregates and their plans. These requests are never forwarded.

/api/records/why/ explains why a condition finds nothing. /api/datasets/<id>/search/ applies one
condition to all schemas of a dataset.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from encrypted_records import runtime
from encrypted_records.http import problem
from encrypted_records.index.log.history import least_bytes
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.aggregate import GroupResults
from encrypted_records.model.aggregations import (
    Aggregation,
    Distinct,
    Histogram,
    Measure,
    Percentile,
)
from encrypted_records.model.field_types.calendar import PERIODS
from encrypted_records.model.ids import reference
from encrypted_records.model.queries import MAX_LIMIT, MAX_OFFSET, refuse_unknown
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.json_schema import (
    FILTER,
    FLAG,
    MEASURE,
    NAMES,
    NUMBER,
    OBJECT,
    OBJECT_OR_NULL,
    ORDER,
    SCHEMA_NAME,
    SCHEMA_PARAMETER,
    SCHEMA_PATH,
    TEXT,
    TEXT_OR_NULL,
    WHERE,
    array_of,
    json_answer,
    json_body,
    named,
    object_of,
    one_of,
)
from encrypted_records.proxy.api.parameters import id_in_path, only, schema_asked, schema_of
from encrypted_records.proxy.api.records import RECORD
from encrypted_records.proxy.http.messages import (
    answer,
    json_list,
    read_object,
    record_json,
    records_answer,
    to_json,
    write_each,
)
from encrypted_records.proxy.process import aside
from encrypted_records.proxy.search import search as explaining
from encrypted_records.proxy.search.search import (
    MOST_SHOWN,
    SchemaAnswer,
    explain_nothing,
    search_dataset,
)
from encrypted_records.proxy.services import services_of

#: Number of measures of groups beyond which writing takes long: some may be lists.
MANY_MEASURES = 200

#: Required members of each query, followed by the optional members.
CONDITIONS = {"schema": SCHEMA_NAME}
OPTIONAL_CONDITIONS = {
    "where": WHERE,
    "filters": array_of(FILTER),
}
#: The fields that a search shows, and their order.
SHOWN = {"order_by": ORDER, "fields": NAMES}
_LIMIT = {"type": "integer", "minimum": 0, "maximum": MAX_LIMIT}
_OFFSET = {"type": "integer", "minimum": 0, "maximum": MAX_OFFSET}
_PAGED = {"limit": _LIMIT, "offset": _OFFSET, "cursor": TEXT_OR_NULL, "count": FLAG}
_MEASURED = {
    "measures": array_of(MEASURE),
    "group_by": array_of(
        {
            "oneOf": [
                {"type": "string"},
                object_of({"field": {"type": "string"}, "by": one_of(*PERIODS)}),
            ]
        }
    ),
    "limit": _LIMIT,
    "order": one_of("value", "-value", "count", "-count"),
}
#: The age of an answer, where the proxy reads from a mirror.
COPIED = object_of(
    {
        "taken": TEXT_OR_NULL,
        "age": {"type": ["integer", "null"]},
        "newest_commit": TEXT_OR_NULL,
    }
)
_SEGMENTS = object_of({"live": NUMBER, "mini": NUMBER, "paged": NUMBER})

endpoint = Endpoints("records")


@endpoint(
    "POST",
    "/api/records/search/",
    summary="Search the records that match a condition, page by page.",
    body=json_body(object_of(CONDITIONS, **OPTIONAL_CONDITIONS, **SHOWN, **_PAGED)),
    answers={
        200: json_answer(
            named(
                "SearchPage",
                object_of(
                    {
                        "count": {"type": ["integer", "null"]},
                        "next_cursor": TEXT_OR_NULL,
                        "results": array_of(RECORD),
                    },
                    mirror=COPIED,
                ),
            )
        )
    },
)
async def search_records(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    body = await read_object(request)
    schema = await schema_of(services, caller, body.get("schema"))
    outcome = await services.search.ask(caller, schema, body)
    head: dict[str, Any] = {"count": outcome.count, "next_cursor": outcome.next_cursor}
    if services.mirrored is not None:
        head["mirror"] = await services.describe_copy(caller, schema)
    return await records_answer(
        outcome.records, schema, outcome.definition, outcome.fields, head=head
    )


@endpoint(
    "POST",
    "/api/records/aggregate/",
    summary="Measure the records that match a condition, in total or by group.",
    body=json_body(object_of(CONDITIONS, **OPTIONAL_CONDITIONS, **_MEASURED)),
    answers={
        200: json_answer(
            {
                "oneOf": [
                    object_of({"measures": array_of(OBJECT)}),
                    object_of(
                        {
                            "total": NUMBER,
                            "groups": array_of(
                                object_of({"group": OBJECT, "measures": array_of(OBJECT)})
                            ),
                        }
                    ),
                ]
            }
        )
    },
)
async def aggregate_records(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    body = await read_object(request)
    schema = await schema_of(services, caller, body.get("schema"))
    measured = await services.aggregates.ask(caller, schema, body)
    asked, outcome = measured.aggregation, measured.groups

    if not asked.group_by:
        return answer({"measures": _results(asked, outcome.groups[0])})

    def groups() -> list[bytes]:
        named = (
            (dict(zip(asked.group_by, group.values, strict=True)), group)
            for group in outcome.groups
        )
        return [
            to_json({"group": name, "measures": _results(asked, values)}) for name, values in named
        ]

    is_long = len(outcome.groups) * len(asked.measures) > MANY_MEASURES
    results = await aside(groups) if is_long else groups()
    return json_list(b'{"total":%d,"groups":[' % outcome.total, results, b"]}")


def _results(asked: Aggregation, group: GroupResults) -> list[dict[str, Any]]:
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


@endpoint(
    "GET",
    "/api/records/status/",
    summary="Show the state of a schema's index, and of the cache.",
    parameters=(SCHEMA_PARAMETER,),
    answers={
        200: json_answer(
            object_of(
                {
                    "version": NUMBER,
                    "records": NUMBER,
                    "dead": NUMBER,
                    "segments": _SEGMENTS,
                    "merge_pending": FLAG,
                    "memory": OBJECT,
                    "activity": OBJECT,
                }
            )
        )
    },
)
async def get_index_status(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    only(request, {"schema"})
    state = await services.schemas.refresh(caller, await schema_asked(request, caller))
    snapshot = state.ledger.snapshot()
    past = state.ledger.past
    return answer(
        {
            "version": snapshot.version,
            "records": snapshot.count,
            "dead": sum(len(rows) for rows in snapshot.dead.values()),
            "segments": _segments(snapshot),
            "merge_pending": services.merger.pending(state),
            "memory": {
                name: {"count": use.count, "bytes": use.bytes}
                for name, use in services.segments.uses.items()
            },
            "activity": {
                "days": past.days(runtime.wall_ns() // 1_000_000),
                "last": past.last // 1000 or None,
                "bytes": least_bytes(snapshot),
            },
        }
    )


def _segments(snapshot: Snapshot) -> dict[str, int]:
    forms = Counter(segment.form for segment in snapshot.segments)
    return {"live": forms.total(), "mini": forms["mini"], "paged": forms["paged"]}


@endpoint(
    "POST",
    "/api/records/explain/",
    summary="Run a search or an aggregate, and return its cost instead of its result.",
    body=json_body(object_of(CONDITIONS, **OPTIONAL_CONDITIONS, **SHOWN, **(_PAGED | _MEASURED))),
    answers={200: json_answer(OBJECT)},
)
async def explain_query(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    body = await read_object(request)
    schema = await schema_of(services, caller, body.get("schema"))
    plan = await explaining.explain(services.query_runner, caller, schema, body)
    snapshot, stats = plan.context.snapshot, plan.context.stats
    return answer(
        {
            "kind": plan.kind,
            "version": snapshot.version,
            "records": snapshot.count,
            "columns": plan.columns,
            "scan": "column" if plan.scanned else "ranges",
            "scanned": plan.scanned,
            "segments": _segments(snapshot),
            "pages": stats.pages,
            "rows": {"certain": stats.certain, "unsure": stats.unsure, "opened": stats.rows},
            "requests": stats.requests,
            "joins": [
                {
                    "pointer": join.pointer,
                    "schema": reference("schemas", join.schema),
                    "field": join.field,
                    "version": join.version,
                    "rows": join.rows,
                    "values": join.values,
                }
                for join in plan.context.joined
            ],
            "stages": [
                {"stage": name, "milliseconds": round(seconds * 1000, 3)}
                for name, seconds in stats.seconds.items()
            ],
        }
    )


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


@endpoint(
    "POST",
    "/api/records/why/",
    summary="Test each comparison of a condition alone, and propose values that would match.",
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
    schema = await schema_of(services, caller, body.get("schema"))
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


# --- all schemas of a dataset ---------------------------------------------------------------------

_FOUND = object_of(
    {
        "schema": SCHEMA_PATH,
        "name": TEXT,
        "slug": TEXT,
        "count": {"type": ["integer", "null"]},
        "missing": NAMES,
        "error": OBJECT_OR_NULL,
        "results": array_of(RECORD),
    }
)


@endpoint(
    "POST",
    "/api/datasets/{id}/search/",
    summary="Search each schema of a dataset that has the fields of a condition.",
    body=json_body(
        object_of(
            {},
            **OPTIONAL_CONDITIONS,
            limit={"type": "integer", "minimum": 0, "maximum": MOST_SHOWN},
            cursor=TEXT_OR_NULL,
        )
    ),
    answers={
        200: json_answer(object_of({"next_cursor": TEXT_OR_NULL, "results": array_of(_FOUND)}))
    },
)
async def search_whole_dataset(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    dataset = id_in_path(request)
    body = await read_object(request)
    found = await search_dataset(services.query_runner, caller, dataset, body)
    results = [await _write_schema_answer(schema) for schema in found.schemas]
    return json_list(
        to_json({"next_cursor": found.next_cursor})[:-1] + b',"results":[', results, b"]}"
    )


async def _write_schema_answer(found: SchemaAnswer) -> bytes:
    page = found.page
    head: dict[str, Any] = {
        "schema": reference("schemas", found.id),
        "name": found.name,
        "slug": found.slug,
        "count": None if page is None else page.count,
        "missing": list(found.missing),
        "error": None if found.error is None else problem.of_error(found.error),
    }
    records: list[bytes] = []
    if page is not None:
        definition = page.definition
        records = await write_each(
            page.records,
            len(definition.fields),
            lambda record: to_json(record_json(record, found.id, definition)),
        )
    return to_json(head)[:-1] + b',"results":[' + b",".join(records) + b"]}"

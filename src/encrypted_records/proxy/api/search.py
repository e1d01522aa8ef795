"""/api/records/: searches, aggregates and their plans. These requests are never forwarded.

/api/records/why/ explains why a condition finds nothing. /api/datasets/<id>/search/ applies one
condition to all schemas of a dataset.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records import runtime
from encrypted_records.client.proxy import records as structs
from encrypted_records.http import problem
from encrypted_records.index.log.history import least_bytes
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
from encrypted_records.proxy.api import json_schema as spec
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.parameters import id_in_path, requested_schema, schema_of
from encrypted_records.proxy.http.messages import (
    answer,
    open_list,
    page_answer,
    read_object,
    records_answer,
    shown_record,
    to_json,
    write_each,
)
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import aside
from encrypted_records.proxy.search.search import (
    MOST_SHOWN,
    SchemaAnswer,
    count_segments,
    explain,
    explain_nothing,
    search_dataset,
)
from encrypted_records.proxy.services import Services

#: Number of measures of groups beyond which writing takes long: some may be lists.
MANY_MEASURES = 200

#: Required members of each query, followed by the optional members.
CONDITIONS = {"schema": spec.SCHEMA_NAME}
OPTIONAL_CONDITIONS = {
    "where": spec.WHERE,
    "filters": spec.array_of(spec.FILTER),
}
#: The fields that a search shows, and their order.
SHOWN = {"order_by": spec.ORDER, "fields": spec.NAMES}
_LIMIT = {"type": "integer", "minimum": 0, "maximum": MAX_LIMIT}
_OFFSET = {"type": "integer", "minimum": 0, "maximum": MAX_OFFSET}
_PAGED = {"limit": _LIMIT, "offset": _OFFSET, "cursor": spec.TEXT_OR_NULL, "count": spec.FLAG}
_MEASURED = {
    "measures": spec.array_of(spec.MEASURE),
    "group_by": spec.array_of(
        {
            "oneOf": [
                {"type": "string"},
                spec.object_of({"field": {"type": "string"}, "by": spec.enum_of(*PERIODS)}),
            ]
        }
    ),
    "limit": _LIMIT,
    "order": spec.enum_of("value", "-value", "count", "-count"),
}
endpoint = Endpoints("records")


@endpoint(
    "POST",
    "/api/records/search/",
    summary="Search the records that match a condition, page by page.",
    body=spec.json_body(spec.object_of(CONDITIONS, **OPTIONAL_CONDITIONS, **SHOWN, **_PAGED)),
    answers={200: spec.json_answer(structs.SearchPage)},
)
async def search_records(request: Request, services: Services, caller: Holder) -> Response:
    body = await read_object(request)
    schema = await schema_of(services, caller, body.get("schema"))
    outcome = await services.search.ask(caller, schema, body)
    page = structs.SearchPage(
        count=outcome.count,
        next_cursor=outcome.next_cursor,
        mirror=await services.describe_copy(caller, schema),
        results=[],
    )
    return await records_answer(
        outcome.records, schema, outcome.definition, outcome.fields, page=page
    )


@endpoint(
    "POST",
    "/api/records/aggregate/",
    summary="Measure the records that match a condition, in total or by group.",
    body=spec.json_body(spec.object_of(CONDITIONS, **OPTIONAL_CONDITIONS, **_MEASURED)),
    answers={
        200: spec.json_answer(
            {"oneOf": [spec.shape(structs.Aggregate), spec.shape(structs.GroupedAggregate)]}
        )
    },
)
async def aggregate_records(request: Request, services: Services, caller: Holder) -> Response:
    body = await read_object(request)
    schema = await schema_of(services, caller, body.get("schema"))
    measured = await services.aggregates.ask(caller, schema, body)
    aggregation, outcome = measured.aggregation, measured.groups

    if not aggregation.group_by:
        return answer(structs.Aggregate(_results(aggregation, outcome.groups[0])))

    def groups() -> list[bytes]:
        named = (
            (dict(zip(aggregation.group_by, group.values, strict=True)), group)
            for group in outcome.groups
        )
        return [
            to_json(structs.MeasuredGroup(name, _results(aggregation, values)))
            for name, values in named
        ]

    is_long = len(outcome.groups) * len(aggregation.measures) > MANY_MEASURES
    results = await aside(groups) if is_long else groups()
    return page_answer(structs.GroupedAggregate(outcome.total, []), results)


def _results(aggregation: Aggregation, group: GroupResults) -> list[structs.MeasureResult]:
    together = zip(aggregation.names, aggregation.measures, group.results, strict=True)
    return [_result(name, measure, result) for name, measure, result in together]


def _result(name: str, measure: Measure, result: Any) -> structs.MeasureResult:
    field = UNSET if measure.field is None else measure.field
    match measure:
        case Percentile():
            together = zip(measure.written, result, strict=True)
            values = [{"p": p, "value": value} for p, value in together]
            return structs.MeasureResult(op=name, field=field, values=values)
        case Histogram() | Distinct():
            return structs.MeasureResult(op=name, field=field, **result)
    return structs.MeasureResult(op=name, field=field, value=result)


@endpoint(
    "GET",
    "/api/records/status/",
    summary="Show the state of a schema's index, and of the cache.",
    parameters=(spec.SCHEMA_PARAMETER,),
    answers={200: spec.json_answer(structs.IndexStatus)},
)
async def get_index_status(request: Request, services: Services, caller: Holder) -> Response:
    state = await services.schemas.refresh(caller, await requested_schema(request, caller))
    snapshot = state.ledger.snapshot()
    past = state.ledger.past
    return answer(
        structs.IndexStatus(
            version=snapshot.version,
            records=snapshot.count,
            dead=sum(len(rows) for rows in snapshot.dead.values()),
            segments=count_segments(snapshot),
            merge_pending=services.merger.pending(state),
            memory={
                name: structs.MemoryUse(use.count, use.bytes)
                for name, use in services.segments.uses.items()
            },
            activity=structs.IndexActivity(
                days=past.days(runtime.wall_ns() // 1_000_000),
                last=past.last // 1000 or None,
                bytes=least_bytes(snapshot),
            ),
        )
    )


@endpoint(
    "POST",
    "/api/records/explain/",
    summary="Run a search or an aggregate, and return its cost instead of its result.",
    body=spec.json_body(
        spec.object_of(CONDITIONS, **OPTIONAL_CONDITIONS, **SHOWN, **(_PAGED | _MEASURED))
    ),
    answers={200: spec.json_answer(structs.Explanation)},
)
async def explain_query(request: Request, services: Services, caller: Holder) -> Response:
    body = await read_object(request)
    schema = await schema_of(services, caller, body.get("schema"))
    return answer(await explain(services.query_runner, caller, schema, body))


@endpoint(
    "POST",
    "/api/records/why/",
    summary="Count the records that each comparison of a condition finds by itself.",
    body=spec.json_body(spec.object_of(CONDITIONS, **OPTIONAL_CONDITIONS)),
    answers={200: spec.json_answer(structs.Reasons)},
)
async def explain_why(request: Request, services: Services, caller: Holder) -> Response:
    body = await read_object(request)
    refuse_unknown(body, {"schema", "where", "filters"})
    schema = await schema_of(services, caller, body.get("schema"))
    return answer(await explain_nothing(services.query_runner, caller, schema, body))


# --- all schemas of a dataset ---------------------------------------------------------------------


@endpoint(
    "POST",
    "/api/datasets/{id}/search/",
    summary="Search each schema of a dataset that has the fields of a condition.",
    body=spec.json_body(
        spec.object_of(
            {},
            **OPTIONAL_CONDITIONS,
            limit={"type": "integer", "minimum": 0, "maximum": MOST_SHOWN},
            cursor=spec.TEXT_OR_NULL,
        )
    ),
    answers={200: spec.json_answer(structs.FoundInPage)},
)
async def search_whole_dataset(request: Request, services: Services, caller: Holder) -> Response:
    dataset = id_in_path(request)
    body = await read_object(request)
    found = await search_dataset(services.query_runner, caller, dataset, body)
    results = [await _write_schema_answer(schema) for schema in found.schemas]
    return page_answer(structs.FoundInPage(found.next_cursor, []), results)


async def _write_schema_answer(found: SchemaAnswer) -> bytes:
    page = found.page
    head = structs.FoundIn(
        schema=reference("schemas", found.id),
        name=found.name,
        slug=found.slug,
        count=None if page is None else page.count,
        missing=list(found.missing),
        error=None if found.error is None else problem.of_error(found.error),
        results=[],
    )
    records: list[bytes] = []
    if page is not None:
        definition = page.definition
        records = await write_each(
            page.records,
            len(definition.fields),
            lambda record: to_json(shown_record(record, found.id, definition)),
        )
    return open_list(head) + b",".join(records) + b"]}"

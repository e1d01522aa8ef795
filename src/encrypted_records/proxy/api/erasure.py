"""Erasure of schemas, of people's records and of keys, and retention.

/api/schemas/<id>/erasure/ erases a schema, /api/datasets/<id>/erase/ a person's records; deletions
of records that erase return the same JSON about the erased data.

/api/schemas/<id>/retention/ shows the records that the definition's rule deletes now, and deletes
them.

/api/datasets/<id>/forget/ forgets older keys of a dataset once no data is encrypted under them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.client.api import ErasureProgress
from encrypted_records.errors import Flaw, InvalidQuery
from encrypted_records.model.definition import Retention
from encrypted_records.model.ids import reference
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.json_schema import (
    FLAG,
    NAMES,
    NUMBER,
    OBJECT,
    SCHEMA_REFERENCE,
    TEXT,
    Part,
    array_of,
    json_answer,
    json_body,
    object_of,
    parameter,
)
from encrypted_records.proxy.api.parameters import flag_of, id_in_path, number_of, only
from encrypted_records.proxy.http.messages import answer, read_json, read_struct
from encrypted_records.proxy.retention import DueRecords
from encrypted_records.proxy.services import services_of
from encrypted_records.proxy.write.erasure import ErasureCost, ErasureReceipt, IndexLeft, KeysInUse

_MANY = 2**31

endpoint = Endpoints("schemas")

#: The answer of a deletion that erases, or that only estimates its cost.
ERASED = object_of(
    {},
    deleted=NUMBER,
    records=NUMBER,
    counts=array_of(object_of({"schema": SCHEMA_REFERENCE, "records": NUMBER})),
    gone=FLAG,
    schemas=array_of(
        object_of(
            {
                "schema": SCHEMA_REFERENCE,
                "version": NUMBER,
                "log_digest": TEXT,
                "merged_rows": NUMBER,
                "gone": FLAG,
                "left": OBJECT,
            }
        )
    ),
    costs=array_of(object_of({"schema": SCHEMA_REFERENCE, "segments": NUMBER, "rows": NUMBER})),
)
_LOOK = object_of({"api": OBJECT}, index=OBJECT)
_COUNTS = parameter(
    "query", "counts", FLAG, "With false, only show the progress, which costs little"
)
_SUBJECT = object_of({"field": TEXT, "value": {"type": ["string", "number", "boolean"]}})
DRY_RUN = parameter("query", "dry_run", FLAG, "Change nothing; show what the erasure would cost")
_CONFIRM = parameter("query", "confirm", NUMBER, "Number of matching records")


def costs_json(costs: Sequence[ErasureCost]) -> dict[str, Any]:
    return {
        "costs": [
            {
                "schema": reference("schemas", cost.schema),
                "segments": cost.segments,
                "rows": cost.rows,
            }
            for cost in costs
        ]
    }


def erased_answer(more: Mapping[str, Any], receipts: Sequence[ErasureReceipt]) -> Response:
    """200 if everything is erased, otherwise 202. The answer contains no values."""
    shown = erased_json(receipts)
    return answer({**more, **shown}, status=200 if shown["gone"] else 202)


def erased_json(receipts: Sequence[ErasureReceipt]) -> dict[str, Any]:
    """Whether everything is erased, and what is left in each schema."""
    schemas = [
        {
            "schema": reference("schemas", receipt.schema),
            "version": receipt.version,
            "log_digest": receipt.log_digest.hex(),
            "merged_rows": receipt.merged,
            "gone": receipt.gone,
            "left": _left_json(receipt.left),
        }
        for receipt in receipts
    ]
    return {"gone": all(receipt.gone for receipt in receipts), "schemas": schemas}


def _left_json(left: ErasureProgress) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.to_builtins(left)
    return members


def _index_json(index: IndexLeft) -> dict[str, Any]:
    return {"segments": index.segments, "rows": index.rows, "since": index.since}


@endpoint(
    "GET",
    "/api/schemas/{id}/erasure/",
    summary="Show what is left of deleted or changed records, and who still reads it.",
    parameters=(_COUNTS,),
    answers={200: json_answer(_LOOK)},
)
async def look_at_erasure(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    only(request, {"counts"})
    schema = id_in_path(request)
    if not flag_of(request, "counts", default=True):
        return answer({"api": _left_json(await services.eraser.look_briefly(caller, schema))})
    state, index = await services.eraser.look(caller, schema)
    return answer({"api": _left_json(state), "index": _index_json(index)})


@endpoint(
    "POST",
    "/api/schemas/{id}/erasure/",
    summary="Erase everything that was deleted or changed so far, and wait until it is gone.",
    answers={200: json_answer(ERASED), 202: json_answer(ERASED)},
)
async def erase_schema(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    only(request, set())
    return erased_answer({}, await services.eraser.erase(caller, [id_in_path(request)]))


class _Subject(msgspec.Struct, forbid_unknown_fields=True):
    field: str
    value: str | int | float | bool


@endpoint(
    "POST",
    "/api/datasets/{id}/erase/",
    summary="Delete and erase every record of a dataset with a value, given their number.",
    parameters=(_CONFIRM, DRY_RUN),
    body=json_body(_SUBJECT),
    answers={200: json_answer(ERASED), 202: json_answer(ERASED)},
)
async def erase_subject(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    only(request, {"confirm", "dry_run"})
    confirmed = number_of(request, "confirm", -1, least=0, most=_MANY)
    sent = await read_json(request)
    try:
        subject = msgspec.json.decode(sent, type=_Subject)
    except (msgspec.DecodeError, UnicodeDecodeError):
        detail = "expected field (a name) and value"
        raise InvalidQuery(detail, flaws=(Flaw("type", detail, ""),)) from None
    dataset = id_in_path(request)
    if flag_of(request, "dry_run", default=False):
        found = await services.eraser.find_subject(caller, dataset, subject.field, subject.value)
        return answer(_counts_json({schema: rows.count for schema, rows in found.items()}))
    receipt = await services.eraser.erase_subject(
        caller, dataset, subject.field, subject.value, confirmed
    )
    counts = _counts_json(receipt.deleted)
    return erased_answer({"deleted": counts["records"], **counts}, receipt.erased)


def _counts_json(counts: Mapping[bytes, int]) -> dict[str, Any]:
    return {
        "records": sum(counts.values()),
        "counts": [
            {"schema": reference("schemas", schema), "records": count}
            for schema, count in sorted(counts.items())
        ],
    }


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
    "query",
    "clock_is_right",
    FLAG,
    "Confirm the clock: also delete records held back because of it",
)
_DONE = object_of({**_SHARED, "deleted": NUMBER})


@endpoint(
    "GET",
    "/api/schemas/{id}/retention/",
    summary="Show a schema's retention period and how many records have expired.",
    answers={200: json_answer(_DUE)},
)
async def look_at_retention(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    only(request, set())
    due = await services.retainer.look(caller, id_in_path(request))
    return answer({**_due_json(due), "records": due.records})


@endpoint(
    "POST",
    "/api/schemas/{id}/retention/",
    summary="Delete the records that are past their schema's retention period.",
    parameters=(_RIGHT,),
    answers={200: json_answer(_DONE)},
)
async def carry_out_retention(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    only(request, {"clock_is_right"})
    right = flag_of(request, "clock_is_right", default=False)
    done = await services.retainer.run(caller, id_in_path(request), clock_is_right=right)
    return answer({**_due_json(done), "deleted": done.records})


def _due_json(due: DueRecords) -> dict[str, Any]:
    before = None if due.before is None else due.before.isoformat()
    return {
        "retention": rule_json(due.rule),
        "before": before,
        "version": due.version,
        "held": due.held,
        "doubt": due.doubt,
    }


def rule_json(rule: Retention | None) -> dict[str, Any] | None:
    """The rule in the format of a definition."""
    if rule is None:
        return None
    return {"days": rule.days, **({} if rule.field is None else {"field": rule.field})}


# --- older keys of a dataset ----------------------------------------------------------------------

people_endpoint = Endpoints("people")

_KEYS_OF_SCHEMA = object_of({"schema": SCHEMA_REFERENCE, "records": NUMBER, "present": FLAG})
_KEYS = object_of(
    {
        "epoch": NUMBER,
        "oldest": NUMBER,
        "forgotten": FLAG,
        "schemas": array_of(_KEYS_OF_SCHEMA),
        "absent": NAMES,
    },
    erasing=ERASED,
)


class _Forget(msgspec.Struct, forbid_unknown_fields=True):
    dry_run: bool = False


@people_endpoint(
    "POST",
    "/api/datasets/{id}/forget/",
    summary="Delete a dataset's older keys, which no longer encrypt anything.",
    body=json_body(object_of({}, dry_run=FLAG)),
    answers={
        200: json_answer(_KEYS),
        202: json_answer(
            _KEYS, description="The re-encrypted data is not erased yet: repeat the request"
        ),
    },
)
async def forget_keys(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    body, dataset = await read_struct(request, _Forget), id_in_path(request)
    if body.dry_run:
        return answer(_keys_json(await services.older_keys.look(caller, dataset)))
    done = await services.older_keys.forget(caller, dataset)
    shown = _keys_json(done.keys)
    if not done.waits_for:
        return answer(shown)
    return answer(shown | {"erasing": erased_json(done.waits_for)}, status=202)


def _keys_json(keys: KeysInUse) -> dict[str, Any]:
    return {
        "epoch": keys.epoch,
        "oldest": keys.oldest,
        "forgotten": keys.oldest == keys.epoch > 1,
        "schemas": [
            {
                "schema": reference("schemas", schema.schema),
                "records": schema.records,
                "present": schema.present,
            }
            for schema in keys.schemas
        ],
        "absent": [key.name for key in keys.absent],
    }

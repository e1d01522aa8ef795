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

from encrypted_records.client.proxy import erasure as structs
from encrypted_records.model.ids import reference
from encrypted_records.proxy.api import json_schema as spec
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.parameters import flag_of, id_in_path, number_of
from encrypted_records.proxy.http.messages import MAX_BODY_BYTES, answer, read_struct
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.retention import DueRecords
from encrypted_records.proxy.services import Services
from encrypted_records.proxy.write.erasure import ErasureCost, ErasureReceipt, KeysInUse

_MANY = 2**31

endpoint = Endpoints("schemas")

_COUNTS = spec.parameter(
    "query", "counts", spec.FLAG, "With false, only show the progress, which costs little"
)
DRY_RUN = spec.parameter(
    "query", "dry_run", spec.FLAG, "Change nothing; show what the erasure would cost"
)
_CONFIRM = spec.parameter("query", "confirm", spec.NUMBER, "Number of matching records")


def costs_of(costs: Sequence[ErasureCost]) -> structs.ErasureCosts:
    return structs.ErasureCosts(
        [
            structs.SchemaCost(reference("schemas", cost.schema), cost.segments, cost.rows)
            for cost in costs
        ]
    )


def erased_answer(
    receipts: Sequence[ErasureReceipt],
    *,
    deleted: int | None = None,
    found: structs.MatchingCounts | None = None,
) -> Response:
    """200 if everything is erased, otherwise 202. The answer contains no values."""
    receipt = receipt_of(receipts, deleted=deleted, found=found)
    return answer(receipt, status=200 if receipt.gone else 202)


def receipt_of(
    receipts: Sequence[ErasureReceipt],
    *,
    deleted: int | None = None,
    found: structs.MatchingCounts | None = None,
) -> structs.ErasedData:
    """Whether everything is erased, and what is left in each schema."""
    return structs.ErasedData(
        deleted=deleted if found is None else found.records,
        records=None if found is None else found.records,
        counts=None if found is None else found.counts,
        gone=all(receipt.gone for receipt in receipts),
        schemas=[
            structs.SchemaErasure(
                reference("schemas", receipt.schema),
                receipt.version,
                receipt.log_digest.hex(),
                receipt.merged,
                receipt.gone,
                receipt.left,
            )
            for receipt in receipts
        ],
    )


@endpoint(
    "GET",
    "/api/schemas/{id}/erasure/",
    summary="Show what is left of deleted or changed records, and who still reads it.",
    parameters=(_COUNTS,),
    answers={
        200: spec.json_answer(
            {"oneOf": [spec.shape(structs.ErasureLook), spec.shape(structs.ErasureLookBriefly)]}
        )
    },
)
async def look_at_erasure(request: Request, services: Services, caller: Holder) -> Response:
    schema = id_in_path(request)
    if not flag_of(request, "counts", default=True):
        return answer(
            structs.ErasureLookBriefly(await services.eraser.look_briefly(caller, schema))
        )
    return answer(structs.ErasureLook(*await services.eraser.look(caller, schema)))


@endpoint(
    "POST",
    "/api/schemas/{id}/erasure/",
    summary="Erase everything that was deleted or changed so far, and wait until it is gone.",
    answers={200: spec.json_answer(structs.ErasedData), 202: spec.json_answer(structs.ErasedData)},
)
async def erase_schema(request: Request, services: Services, caller: Holder) -> Response:
    return erased_answer(await services.eraser.erase(caller, [id_in_path(request)]))


class SubjectValue(msgspec.Struct, forbid_unknown_fields=True):
    """The value that a person's records have in a field."""

    field: str
    value: str | int | float | bool


@endpoint(
    "POST",
    "/api/datasets/{id}/erase/",
    summary="Delete and erase every record of a dataset with a value, given their number.",
    parameters=(_CONFIRM, DRY_RUN),
    body=spec.json_body(SubjectValue),
    answers={
        200: spec.json_answer(
            {"oneOf": [spec.shape(structs.ErasedData), spec.shape(structs.MatchingCounts)]}
        ),
        202: spec.json_answer(structs.ErasedData),
    },
)
async def erase_subject(request: Request, services: Services, caller: Holder) -> Response:
    confirmed = number_of(request, "confirm", -1, least=0, most=_MANY)
    subject = await read_struct(request, SubjectValue, limit=MAX_BODY_BYTES)
    dataset = id_in_path(request)
    if flag_of(request, "dry_run", default=False):
        found = await services.eraser.find_subject(caller, dataset, subject.field, subject.value)
        return answer(_counts_of({schema: rows.count for schema, rows in found.items()}))
    receipt = await services.eraser.erase_subject(
        caller, dataset, subject.field, subject.value, confirmed
    )
    return erased_answer(receipt.erased, found=_counts_of(receipt.deleted))


def _counts_of(counts: Mapping[bytes, int]) -> structs.MatchingCounts:
    return structs.MatchingCounts(
        sum(counts.values()),
        [
            structs.SchemaCount(reference("schemas", schema), count)
            for schema, count in sorted(counts.items())
        ],
    )


_RIGHT = spec.parameter(
    "query",
    "clock_is_right",
    spec.FLAG,
    "Confirm the clock: also delete records held back because of it",
)


@endpoint(
    "GET",
    "/api/schemas/{id}/retention/",
    summary="Show a schema's retention period and how many records have expired.",
    answers={200: spec.json_answer(structs.ExpiredRecords)},
)
async def look_at_retention(request: Request, services: Services, caller: Holder) -> Response:
    due = await services.retainer.look(caller, id_in_path(request))
    return answer(structs.ExpiredRecords(**_due(due), records=due.records))


@endpoint(
    "POST",
    "/api/schemas/{id}/retention/",
    summary="Delete the records that are past their schema's retention period.",
    parameters=(_RIGHT,),
    answers={200: spec.json_answer(structs.DeletedExpired)},
)
async def carry_out_retention(request: Request, services: Services, caller: Holder) -> Response:
    right = flag_of(request, "clock_is_right", default=False)
    done = await services.retainer.run(caller, id_in_path(request), clock_is_right=right)
    return answer(structs.DeletedExpired(**_due(done), deleted=done.records))


def _due(due: DueRecords) -> dict[str, Any]:
    rule = due.rule
    return {
        "retention": None if rule is None else structs.RetentionRule(rule.days, rule.field),
        "before": None if due.before is None else due.before.isoformat(),
        "version": due.version,
        "held": due.held,
        "doubt": due.doubt,
    }


# --- older keys of a dataset ----------------------------------------------------------------------

people_endpoint = Endpoints("people")


class ForgettingWanted(msgspec.Struct, forbid_unknown_fields=True):
    """Whether to forget older keys, or only to show what they are needed for."""

    dry_run: bool = False


@people_endpoint(
    "POST",
    "/api/datasets/{id}/forget/",
    summary="Delete a dataset's older keys, which no longer encrypt anything.",
    body=spec.json_body(ForgettingWanted),
    answers={
        200: spec.json_answer(structs.KeysOfDataset),
        202: spec.json_answer(
            structs.KeysOfDataset,
            description="The re-encrypted data is not erased yet: repeat the request",
        ),
    },
)
async def forget_keys(request: Request, services: Services, caller: Holder) -> Response:
    body, dataset = await read_struct(request, ForgettingWanted), id_in_path(request)
    if body.dry_run:
        return answer(_keys(await services.older_keys.look(caller, dataset)))
    done = await services.older_keys.forget(caller, dataset)
    if not done.waits_for:
        return answer(_keys(done.keys))
    return answer(_keys(done.keys, receipt_of(done.waits_for)), status=202)


def _keys(keys: KeysInUse, erasing: structs.ErasedData | None = None) -> structs.KeysOfDataset:
    return structs.KeysOfDataset(
        epoch=keys.epoch,
        oldest=keys.oldest,
        forgotten=keys.oldest == keys.epoch > 1,
        schemas=[
            structs.KeysOfSchema(
                reference("schemas", schema.schema), schema.records, schema.present
            )
            for schema in keys.schemas
        ],
        absent=[key.name for key in keys.absent],
        erasing=erasing,
    )

"""/api/datasets/<id>/forget/: let older keys of a dataset go, once nothing is sealed under them."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.model.ids import reference
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.erasure import ERASED, erased_json
from encrypted_records.proxy.api.json_schema import (
    FLAG,
    NAMES,
    NUMBER,
    SCHEMA_REFERENCE,
    array_of,
    json_answer,
    json_body,
    object_of,
)
from encrypted_records.proxy.api.parameters import id_in_path
from encrypted_records.proxy.http.messages import answer, read_struct
from encrypted_records.proxy.services import services_of
from encrypted_records.proxy.write.older_keys import KeysInUse

endpoint = Endpoints("people")

_SCHEMA = object_of({"schema": SCHEMA_REFERENCE, "records": NUMBER, "present": FLAG})
_ANSWER = object_of(
    {
        "epoch": NUMBER,
        "oldest": NUMBER,
        "forgotten": FLAG,
        "schemas": array_of(_SCHEMA),
        "absent": NAMES,
    },
    erasing=ERASED,
)


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    dry_run: bool = False


@endpoint(
    "POST",
    "/api/datasets/{id}/forget/",
    summary="Delete a dataset's older keys, which no longer encrypt anything.",
    body=json_body(object_of({}, dry_run=FLAG)),
    answers={
        200: json_answer(_ANSWER),
        202: json_answer(
            _ANSWER, description="The re-encrypted data is not erased yet: repeat the request"
        ),
    },
)
async def forget_keys(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    body, dataset = await read_struct(request, _Body), id_in_path(request)
    if body.dry_run:
        return answer(_json_of(await services.older_keys.look(caller, dataset)))
    done = await services.older_keys.forget(caller, dataset)
    shown = _json_of(done.keys)
    if not done.waits_for:
        return answer(shown)
    return answer(shown | {"erasing": erased_json(done.waits_for)}, status=202)


def _json_of(keys: KeysInUse) -> dict[str, Any]:
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

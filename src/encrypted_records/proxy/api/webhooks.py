"""/api/webhooks/: have the changes of a schema sent to an address.

For people: an API token neither makes webhooks nor sees them. The secret that signs is in one
answer, once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.model.ids import PATTERN, reference, to_text
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.json_schema import (
    FLAG,
    ID,
    NUMBER,
    SCHEMA_NAME,
    SCHEMA_PATH,
    TEXT,
    TEXT_OR_NULL,
    URL,
    Part,
    array_of,
    empty_answer,
    json_answer,
    json_body,
    named,
    object_of,
    one_of,
)
from encrypted_records.proxy.api.parameters import id_in_path, only, schema_of
from encrypted_records.proxy.feed.webhooks import ShownWebhook
from encrypted_records.proxy.http.messages import answer, read_struct
from encrypted_records.proxy.services import services_of


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    schema: str
    url: str
    token: str
    cursor: str | None = None


class _Resumed(msgspec.Struct, forbid_unknown_fields=True):
    token: str | None = None


_TIME: Part = {"type": ["string", "null"], "format": "date-time"}
_TOKEN: Part = {"type": "string", "pattern": "^ersr1_[A-Za-z0-9_-]{43}$"}
_MEMBERS: dict[str, Part] = {
    "id": ID,
    "url": {"type": "string", "pattern": f"^/api/webhooks/{PATTERN}/$"},
    "schema": SCHEMA_PATH,
    "target": TEXT,
    "status": one_of("active", "stopped"),
    "reason": TEXT,
    "tries": NUMBER,
    "failing_since": _TIME,
    "delivered": _TIME,
    "restarting": FLAG,
    "cursor": TEXT_OR_NULL,
}
_WEBHOOK = named("Webhook", object_of(_MEMBERS))

endpoint = Endpoints("webhooks")


@endpoint(
    "POST",
    "/api/webhooks/",
    summary=(
        "Create a webhook, which sends the changes of a schema to an address; only this"
        " answer contains its secret."
    ),
    body=json_body(
        object_of(
            {"schema": SCHEMA_NAME, "url": URL, "token": _TOKEN},
            cursor=TEXT_OR_NULL
            | {"description": ("now, or a cursor of the changes; null begins with all records")},
        )
    ),
    answers={201: json_answer(named("NewWebhook", object_of(_MEMBERS | {"secret": TEXT})))},
)
async def create_webhook(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    asked = await read_struct(request, _Asked)
    schema = await schema_of(services, caller, asked.schema)
    shown, secret = await services.webhooks.create(
        caller, schema, asked.url, asked.token, asked.cursor
    )
    return answer(_describe(shown) | {"secret": secret}, 201)


@endpoint(
    "GET",
    "/api/webhooks/",
    summary="List your webhooks at this proxy, oldest first.",
    answers={200: json_answer(object_of({"results": array_of(_WEBHOOK)}))},
)
async def list_webhooks(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    only(request, set())
    return answer(
        {"results": [_describe(webhook) for webhook in await services.webhooks.list(caller)]}
    )


@endpoint(
    "GET",
    "/api/webhooks/{id}/",
    summary="Show a webhook and the state of its deliveries.",
    answers={200: json_answer(_WEBHOOK)},
)
async def get_webhook(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    return answer(_describe(await services.webhooks.find(caller, id_in_path(request))))


@endpoint(
    "POST",
    "/api/webhooks/{id}/resume/",
    summary="Resume a webhook from where it was; with a new token, if one is sent.",
    body=json_body(object_of({}, token=_TOKEN)),
    answers={200: json_answer(_WEBHOOK)},
)
async def resume_webhook(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    asked = await read_struct(request, _Resumed)
    shown = await services.webhooks.resume(caller, id_in_path(request), asked.token)
    return answer(_describe(shown))


@endpoint(
    "DELETE",
    "/api/webhooks/{id}/",
    summary="Delete a webhook: nothing more is sent.",
    answers={204: empty_answer("The webhook is deleted")},
)
async def delete_webhook(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    await services.webhooks.delete(caller, id_in_path(request))
    return Response(status_code=204)


def _describe(shown: ShownWebhook) -> dict[str, Any]:
    webhook = shown.webhook
    return {
        "id": to_text(webhook.id),
        "url": reference("webhooks", webhook.id),
        "schema": reference("schemas", webhook.schema),
        "target": shown.url,
        "status": webhook.status,
        "reason": webhook.reason,
        "tries": webhook.tries,
        "failing_since": _time(webhook.failing_since),
        "delivered": _time(webhook.delivered_at),
        "restarting": webhook.restarts,
        "cursor": webhook.cursor,
    }


def _time(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat()

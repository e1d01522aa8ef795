"""/api/records/changes/ and /api/webhooks/: changes of a schema's records.

Changes are JSON or server-sent events, or are sent to an address by a webhook. Webhooks are for
people: an API token can neither make nor see them. The signing secret is shown once, in one answer.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from encrypted_records import runtime
from encrypted_records.client.proxy.changes import Changes, NewWebhook, Webhook, WebhookList
from encrypted_records.errors import ErsError
from encrypted_records.http import problem
from encrypted_records.model.ids import reference, to_text
from encrypted_records.model.queries import DEFAULT_LIMIT, MAX_LIMIT
from encrypted_records.proxy.api import json_schema as spec
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.parameters import (
    id_in_path,
    number_of,
    requested_schema,
    schema_of,
)
from encrypted_records.proxy.feed import FeedCursor, FeedPage, parse_cursor, write_changes
from encrypted_records.proxy.http.messages import (
    answer,
    page_answer,
    read_struct,
    to_json,
    while_wanted,
)
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.services import Services
from encrypted_records.proxy.webhooks import ShownWebhook

EVENTS = "text/event-stream"
#: Maximum seconds that a request waits for changes; below, the seconds between a stream's pings.
MAX_WAIT_SECONDS = 60
PING_SECONDS = 15.0
#: Cursor for a start without earlier records.
NOW = "now"

_WAIT = spec.NUMBER | {"maximum": MAX_WAIT_SECONDS}

endpoint = Endpoints("records")


@endpoint(
    "GET",
    "/api/records/changes/",
    summary=(
        "Follow the changes of a schema's records after a cursor, by waiting for them or as"
        " a stream."
    ),
    parameters=(
        spec.SCHEMA_PARAMETER,
        spec.parameter(
            "query",
            "cursor",
            spec.TEXT,
            "Cursor of an earlier answer, or now; without it, all records",
        ),
        spec.parameter("query", "limit", spec.LIMIT),
        spec.parameter("query", "wait", _WAIT, "Seconds to wait if nothing has changed"),
        spec.parameter(
            "header", "Last-Event-ID", spec.TEXT, "For a stream: the cursor of the last event"
        ),
    ),
    answers={
        200: spec.answer_of_kinds(
            {
                spec.JSON: spec.shape(Changes),
                EVENTS: spec.TEXT,
            },
            description="Changes in their order, and the cursor after them",
        )
    },
    problems=(410,),
)
async def list_changes(request: Request, services: Services, caller: Holder) -> Response:
    schema = await requested_schema(request, caller)
    limit = number_of(request, "limit", DEFAULT_LIMIT, least=1, most=MAX_LIMIT)
    seconds = number_of(request, "wait", 0, least=0, most=MAX_WAIT_SECONDS)
    following = _Following(services, caller, schema, limit)
    is_stream = EVENTS in request.headers.get("accept", "")
    text = request.query_params.get("cursor")
    if is_stream:
        text = request.headers.get("last-event-id") or text
    page = await following.begin(text)
    if request.method == "HEAD":
        is_stream, seconds = False, 0
    if is_stream:
        pages = services.admission.until_revoked(caller, following.pages(page, math.inf))
        return StreamingResponse(
            _events(pages, schema), media_type=EVENTS, headers={"Cache-Control": "no-store"}
        )
    if seconds and not page.changes:
        until = runtime.monotonic() + seconds
        pages = services.admission.until_revoked(caller, following.pages(page, until))
        page = await while_wanted(request, _first_with_changes(page, pages))
    changes = await write_changes(page, schema)
    return page_answer(Changes(str(page.cursor), page.version, page.current, []), changes)


@dataclass
class _Following:
    """Follows a schema's changes, in pages of ``limit``."""

    services: Services
    caller: Holder
    schema: bytes
    limit: int

    def __post_init__(self) -> None:
        self._watch = self.services.feed.watch(self.schema)
        #: the version after which there may be new changes
        self._since = 0

    async def begin(self, cursor: str | None) -> FeedPage:
        """The page after the parsed ``cursor``."""
        if cursor == NOW:
            page = await self.services.feed.begin_now(self.caller, self.schema)
            self._since = page.version
            return page
        return await self._read(None if cursor is None else parse_cursor(cursor))

    async def _read(self, cursor: FeedCursor | None) -> FeedPage:
        # The log of another reader may be longer than this reader's, who must not request it again
        # and again.
        newest = self._watch.newest
        page = await self.services.feed.read(self.caller, self.schema, cursor, self.limit)
        self._since = max(newest, page.version)
        return page

    async def pages(self, page: FeedPage, until: float) -> AsyncGenerator[FeedPage, None]:
        """``page`` and the following pages, until a time. If nothing changes for some seconds, a
        page without changes is returned.
        """
        feed, watch = self.services.feed, self._watch
        while True:
            yield page
            now = runtime.monotonic()
            if now >= until:
                return
            if page.current:
                deadline = min(until, now + PING_SECONDS)
                await feed.wait(self.caller, self.schema, watch, self._since, deadline)
                if watch.newest <= self._since:
                    page = replace(page, changes=[])
                    continue
            page = await self._read(page.cursor)


async def _first_with_changes(begun: FeedPage, pages: AsyncGenerator[FeedPage, None]) -> FeedPage:
    """The first page with changes, or the last page if none has changes."""
    last = begun
    async with aclosing(pages):
        async for last in pages:
            if last.changes:
                break
    return last


async def _events(
    pages: AsyncGenerator[FeedPage, None], schema: bytes
) -> AsyncGenerator[bytes, None]:
    """The pages as server-sent events (WHATWG HTML, section 9.2). The id of each is a cursor."""
    current = -1
    try:
        async with aclosing(pages):
            async for page in pages:
                written = await write_changes(page, schema)
                for change, text in zip(page.changes, written, strict=True):
                    yield _event(change.op, text, str(change.cursor))
                if page.current and page.version > current:
                    current = page.version
                    yield _event("current", to_json({"version": current}), str(page.cursor))
                elif not page.changes:
                    yield b":\n\n"
    except ErsError as error:
        yield _event("error", to_json(problem.of_error(error)))


def _event(name: str, data: bytes, cursor: str = "") -> bytes:
    head = f"event: {name}\n" + (f"id: {cursor}\n" if cursor else "")
    return head.encode() + b"data: " + data + b"\n\n"


# --- webhooks -------------------------------------------------------------------------------------


ReadingToken = Annotated[str, Meta(extra_json_schema={"pattern": "^ersr1_[A-Za-z0-9_-]{43}$"})]


class WebhookWanted(msgspec.Struct, forbid_unknown_fields=True):
    """A webhook to create.

    Attributes:
        cursor: ``now``, or a cursor of the changes; null begins with all records.
    """

    schema: Annotated[str, Meta(extra_json_schema=spec.SCHEMA_NAME)]
    url: Annotated[str, Meta(extra_json_schema=spec.URL)]
    token: ReadingToken
    cursor: str | None = None


class WebhookResumption(msgspec.Struct, forbid_unknown_fields=True):
    """Another token for a webhook that continues, if its own has ended."""

    token: ReadingToken | None = None


webhook_endpoint = Endpoints("webhooks")


@webhook_endpoint(
    "POST",
    "/api/webhooks/",
    summary=(
        "Create a webhook, which sends the changes of a schema to an address; only this"
        " answer contains its secret."
    ),
    body=spec.json_body(WebhookWanted),
    answers={201: spec.json_answer(NewWebhook)},
)
async def create_webhook(request: Request, services: Services, caller: Holder) -> Response:
    body = await read_struct(request, WebhookWanted)
    schema = await schema_of(services, caller, body.schema)
    shown, secret = await services.webhooks.create(
        caller, schema, body.url, body.token, body.cursor
    )
    return answer(NewWebhook(**_members(shown), secret=secret), 201)


@webhook_endpoint(
    "GET",
    "/api/webhooks/",
    summary="List your webhooks at this proxy, oldest first.",
    answers={200: spec.json_answer(WebhookList)},
)
async def list_webhooks(request: Request, services: Services, caller: Holder) -> Response:
    listed = await services.webhooks.list(caller)
    return answer(WebhookList([Webhook(**_members(webhook)) for webhook in listed]))


@webhook_endpoint(
    "GET",
    "/api/webhooks/{id}/",
    summary="Show a webhook and the state of its deliveries.",
    answers={200: spec.json_answer(Webhook)},
)
async def get_webhook(request: Request, services: Services, caller: Holder) -> Response:
    found = await services.webhooks.find(caller, id_in_path(request))
    return answer(Webhook(**_members(found)))


@webhook_endpoint(
    "POST",
    "/api/webhooks/{id}/resume/",
    summary="Resume a webhook from where it was; with a new token, if one is sent.",
    body=spec.json_body(WebhookResumption),
    answers={200: spec.json_answer(Webhook)},
)
async def resume_webhook(request: Request, services: Services, caller: Holder) -> Response:
    body = await read_struct(request, WebhookResumption)
    shown = await services.webhooks.resume(caller, id_in_path(request), body.token)
    return answer(Webhook(**_members(shown)))


@webhook_endpoint(
    "DELETE",
    "/api/webhooks/{id}/",
    summary="Delete a webhook: nothing more is sent.",
    answers={204: spec.empty_answer("The webhook is deleted")},
)
async def delete_webhook(request: Request, services: Services, caller: Holder) -> Response:
    await services.webhooks.delete(caller, id_in_path(request))
    return Response(status_code=204)


def _members(shown: ShownWebhook) -> dict[str, Any]:
    webhook = shown.webhook
    return {
        "id": to_text(webhook.id),
        "url": reference("webhooks", webhook.id),
        "schema": reference("schemas", webhook.schema),
        "target": shown.url,
        "status": webhook.status,
        "reason": webhook.reason,
        "tries": webhook.tries,
        "failing_since": _time_of(webhook.failing_since),
        "delivered": _time_of(webhook.delivered_at),
        "restarting": webhook.restarts,
        "cursor": webhook.cursor,
    }


def _time_of(moment: float | None) -> datetime | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC)

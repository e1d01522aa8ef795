"""/api/records/changes/: what becomes of a schema's records, as JSON or as server-sent events."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from encrypted_records import runtime
from encrypted_records.errors import ErsError
from encrypted_records.http import problem
from encrypted_records.model.queries import DEFAULT_LIMIT, MAX_LIMIT
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.json_schema import (
    FLAG,
    ID,
    JSON,
    LIMIT,
    NUMBER,
    OBJECT,
    RECORD_PATH,
    SCHEMA_PARAMETER,
    SCHEMA_PATH,
    TEXT,
    Part,
    answer_of_kinds,
    array_of,
    named,
    object_of,
    one_of,
    parameter,
)
from encrypted_records.proxy.api.parameters import number_of, only, schema_asked
from encrypted_records.proxy.feed.cursor import FeedCursor, parse_cursor
from encrypted_records.proxy.feed.pages import FeedPage, write_changes
from encrypted_records.proxy.http.messages import json_list, to_json, while_wanted
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.services import Services, services_of

EVENTS = "text/event-stream"
#: Seconds that a request may wait for changes; a stream says after as many that it still does.
MAX_WAIT_SECONDS = 60
PING_SECONDS = 15.0
#: The cursor of those who want no record of before.
NOW = "now"

_CHANGE: Part = named(
    "Change",
    object_of(
        {
            "op": one_of("upsert", "delete"),
            "version": NUMBER,
            "id": ID,
            "url": RECORD_PATH,
            "schema": SCHEMA_PATH,
            "etag": TEXT,
        },
        data=OBJECT,
    ),
)
_WAIT = NUMBER | {"maximum": MAX_WAIT_SECONDS}

endpoint = Endpoints("records")


@endpoint(
    "GET",
    "/api/records/changes/",
    summary=(
        "Follow the changes of a schema's records after a cursor, by waiting for them or as"
        " a stream."
    ),
    parameters=(
        SCHEMA_PARAMETER,
        parameter(
            "query", "cursor", TEXT, "Cursor of an earlier answer, or now; without it, all records"
        ),
        parameter("query", "limit", LIMIT),
        parameter("query", "wait", _WAIT, "Seconds to wait if nothing has changed"),
        parameter("header", "Last-Event-ID", TEXT, "For a stream: the cursor of the last event"),
    ),
    answers={
        200: answer_of_kinds(
            {
                JSON: named(
                    "ChangesPage",
                    object_of(
                        {
                            "cursor": TEXT,
                            "version": NUMBER,
                            "current": FLAG,
                            "results": array_of(_CHANGE),
                        }
                    ),
                ),
                EVENTS: TEXT,
            },
            description="Changes in their order, and the cursor after them",
        )
    },
    problems=(410,),
)
async def list_changes(request: Request) -> Response:
    services = services_of(request)
    caller = await services.holder(request)
    only(request, {"schema", "cursor", "limit", "wait"})
    schema = await schema_asked(request, caller)
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
    head = {"cursor": str(page.cursor), "version": page.version, "current": page.current}
    results = await write_changes(page, schema)
    return json_list(to_json(head)[:-1] + b',"results":[', results, b"]}")


@dataclass
class _Following:
    """A follower of a schema's changes, in pages of ``limit``."""

    services: Services
    caller: Holder
    schema: bytes
    limit: int

    def __post_init__(self) -> None:
        self._watch = self.services.feed.watch(self.schema)
        #: the version beyond which something may be new
        self._since = 0

    async def begin(self, cursor: str | None) -> FeedPage:
        """The page after what ``cursor`` is the text of."""
        if cursor == NOW:
            page = await self.services.feed.begin_now(self.caller, self.schema)
            self._since = page.version
            return page
        return await self._read(None if cursor is None else parse_cursor(cursor))

    async def _read(self, cursor: FeedCursor | None) -> FeedPage:
        # Another's log may be longer than this reader's, who is not to ask for it again and again.
        newest = self._watch.newest
        page = await self.services.feed.read(self.caller, self.schema, cursor, self.limit)
        self._since = max(newest, page.version)
        return page

    async def pages(self, page: FeedPage, until: float) -> AsyncGenerator[FeedPage, None]:
        """``page`` and those after it, up to a time. Where nothing changes for some seconds, one
        comes that has no changes."""
        feed, watch = self.services.feed, self._watch
        while True:
            yield page
            now = runtime.monotonic()
            if now >= until:
                return
            if page.current:
                some = min(until, now + PING_SECONDS)
                await feed.wait(self.caller, self.schema, watch, self._since, some)
                if watch.newest <= self._since:
                    page = replace(page, changes=[])
                    continue
            page = await self._read(page.cursor)


async def _first_with_changes(begun: FeedPage, pages: AsyncGenerator[FeedPage, None]) -> FeedPage:
    """The first of the pages that has changes; the last one where none has."""
    last = begun
    async with aclosing(pages):
        async for last in pages:
            if last.changes:
                break
    return last


async def _events(
    pages: AsyncGenerator[FeedPage, None], schema: bytes
) -> AsyncGenerator[bytes, None]:
    """Server-sent events (WHATWG HTML, section 9.2) of the pages. The id of each is a cursor."""
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

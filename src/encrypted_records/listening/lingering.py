"""Let a refusal reach its client, also one that sends its whole body before it reads.

An answer may be sent before the body is read, for instance where credentials are wrong or the disk
is full. If the connection were closed then, it would be reset under a client that is still sending,
and the answer would be lost. So the rest of the body is read and dropped, within limits. The answer
is sent before that: a client that reads it early need not send the rest.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from encrypted_records.listening import pace

#: The rest of a body is read for so long.
LINGER_SECONDS = 30.0
#: And no longer than this when nothing comes.
SILENT_SECONDS = 2.0


class Lingering:
    """ASGI middleware; streaming passes through it untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        coming = pace.of(scope)
        if coming is None or coming.is_over:
            await self._app(scope, receive, send)
            return
        unread = not _waits_to_be_told(Headers(scope=scope))

        async def receiving() -> Message:
            nonlocal unread
            message = await receive()
            unread = bool(message.get("more_body", False))
            return message

        async def answering(message: Message) -> None:
            is_last = message["type"] == "http.response.body" and not message.get("more_body")
            if coming.is_over or not (is_last and unread):
                await send(message)
                return
            await send({**message, "more_body": True})
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_SECONDS):
                    while unread:
                        await asyncio.wait_for(receiving(), SILENT_SECONDS)
            await send({"type": "http.response.body"})

        await self._app(scope, receiving, answering)


def _waits_to_be_told(headers: Headers) -> bool:
    """Whether nothing comes unless it is asked for."""
    return headers.get("expect", "").lower() == "100-continue"

"""A refusal reaches its client, also one that sends its whole body before it looks for an answer.

An answer may be out before the body is read: credentials, a header, the disk did not fit. To close
the connection then is to reset it under a client that is still sending, and the answer is lost with
it. So the rest of the body is read and thrown away, within bounds. The answer goes out before that:
whoever looks for it early need not send the rest.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: The rest of a body is read for so long.
LINGER_SECONDS = 30.0
#: And no longer than this when nothing comes.
SILENT_SECONDS = 2.0


class Lingering:
    """ASGI middleware; streaming passes through it untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        unread = _is_coming(Headers(scope=scope))

        async def receiving() -> Message:
            nonlocal unread
            message = await receive()
            unread = bool(message.get("more_body", False))
            return message

        async def answering(message: Message) -> None:
            is_last = message["type"] == "http.response.body" and not message.get("more_body")
            if not (is_last and unread):
                await send(message)
                return
            await send({**message, "more_body": True})
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_SECONDS):
                    while unread:
                        await asyncio.wait_for(receiving(), SILENT_SECONDS)
            await send({"type": "http.response.body"})

        await self._app(scope, receiving, answering)


def _is_coming(headers: Headers) -> bool:
    """Whether a body is sent by whoever was not told to."""
    announced = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    return announced and headers.get("expect", "").lower() != "100-continue"

"""Answers to requests that the application leaves unanswered.

uvicorn would answer them itself, with ``500 Internal Server Error`` as plain text: when a stop
cancels the requests under way, when the application fails, and when it returns without an answer.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from encrypted_records.errors import ErsError, Stopping
from encrypted_records.http import problem

#: Seconds until a service that is stopped may be there again.
RETRY_SECONDS = 5
#: Of the status that a request has whose answer a stop prevents.
STOPPED = 503
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

log = logging.getLogger(__name__)


class LastAnswers:
    """ASGI: answers by a problem document where ``app`` gives no answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except asyncio.CancelledError:
            # Only a stop cancels a request. Where an answer has begun, the connection breaks off.
            if started:
                raise
            await _answer(scope, send, _stopping(scope))
        except Exception as error:
            if started:
                raise
            log.exception("unexpected %s", type(error).__name__)
            await _answer(scope, send, _bug())
        else:
            if not started:
                await _answer(scope, send, _bug())


class Refusal:
    """ASGI: answers with one problem document, whatever is asked."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _send_document(scope, send, self._document)


def raw_answer(document: dict[str, Any], retry_after: int | None = None) -> bytes:
    """A whole answer, for a connection on which no application runs."""
    body = msgspec.json.encode(document)
    status = HTTPStatus(document["status"])
    head = [f"HTTP/1.1 {status.value} {status.phrase}"]
    head += [f"{name}: {value}" for name, value in _headers(len(body), retry_after).items()]
    return "\r\n".join([*head, "", ""]).encode() + body


def _headers(size: int, retry_after: int | None) -> dict[str, str]:
    headers = {
        "Content-Type": problem.MEDIA_TYPE,
        "Content-Length": str(size),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Connection": "close",
    }
    return headers if retry_after is None else headers | {"Retry-After": str(retry_after)}


def _stopping(scope: Scope) -> ErsError:
    message = "the service is stopping"
    if scope.get("method", "GET") not in _SAFE:
        message += "; a change may or may not be stored"
    return Stopping(message, retry_after=RETRY_SECONDS)


def _bug() -> ErsError:
    return ErsError("the service has made an error", hint="its log has the details")


async def _answer(scope: Scope, send: Send, error: ErsError) -> None:
    """Nothing happens where the other end is gone: uvicorn drops what is sent to it."""
    await _send_document(scope, send, problem.of_error(error), error.retry_after)


async def _send_document(
    scope: Scope, send: Send, document: dict[str, Any], retry_after: int | None = None
) -> None:
    body = msgspec.json.encode(document)
    named = _headers(len(body), retry_after)
    if "request_id" in scope:
        named["X-Request-ID"] = scope["request_id"]
    headers = [(name.lower().encode(), value.encode()) for name, value in named.items()]
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    await send({"type": f"{kind}.start", "status": document["status"], "headers": headers})
    await send({"type": f"{kind}.body", "body": body, "more_body": False})

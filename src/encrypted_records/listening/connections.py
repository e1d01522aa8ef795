"""uvicorn connections that end when the peer is slow, silent or sends too much.

uvicorn parses requests and runs the application. It limits neither the time for a request to arrive
nor the size of its head; this module does. All reads share one buffer: a new object for every read,
a quarter of a MiB of fresh memory that is copied from once, took a tenth of all processor time of
uploads.

The head of an answer is sent with the beginning of its body. uvicorn writes them separately, and
each write is a packet that wakes the peer up. A body that is not ready does not delay the head: the
held bytes are sent at the end of the event loop's current step.

A refusal reaches its client even if the client sends its whole body before it reads. An answer may
be sent before the body is read, for instance if credentials are wrong or the disk is full. Closing
the connection then would reset it while the client is still sending, and the answer would be lost.
So the rest of the body is read and dropped, within limits. The answer is sent before that: a client
that reads it early need not send the rest.

Requests without an answer from the application get a problem document: when a stop cancels running
requests, when the application fails, and when it returns without an answer. uvicorn would send
``500 Internal Server Error`` as plain text.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import struct
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import msgspec
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from encrypted_records.errors import ErsError, Misdirected, Stopping, TooSlow
from encrypted_records.http import problem
from encrypted_records.listening import pace

if TYPE_CHECKING:
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


#: Seconds until a stopped service may be available again.
RETRY_SECONDS = 5
#: The logged status of a request whose answer a stop prevents.
STOPPED = 503
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

log = logging.getLogger(__name__)


class LastAnswers:
    """ASGI: sends a problem document if ``app`` gives no answer."""

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
            # Only a stop cancels a request. If an answer has begun, the connection breaks off.
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
    """ASGI: answers every request with the same problem document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _send_document(scope, send, self._document)


def raw_answer(document: dict[str, Any], retry_after: int | None = None) -> bytes:
    """A complete HTTP response, for a connection without a running application."""
    body = msgspec.json.encode(document)
    status = HTTPStatus(document["status"])
    head = [f"HTTP/1.1 {status.value} {status.phrase}"]
    head += [f"{name}: {value}" for name, value in _headers(len(body), retry_after).items()]
    return "\r\n".join([*head, "", ""]).encode() + body


class HeaderName(bytes):
    """A header's name, equal to any spelling of it."""

    def lower(self) -> HeaderName:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bytes) and bytes.lower(self) == bytes.lower(other)

    def __hash__(self) -> int:
        return hash(bytes.lower(self))


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
    """Send an error. If the peer is gone, uvicorn drops the answer."""
    await _send_document(scope, send, problem.of_error(error), error.retry_after)


async def _send_document(
    scope: Scope, send: Send, document: dict[str, Any], retry_after: int | None = None
) -> None:
    body = msgspec.json.encode(document)
    named = _headers(len(body), retry_after)
    if "request_id" in scope:
        named["X-Request-ID"] = scope["request_id"]
    headers = [(HeaderName(name.encode()), value.encode()) for name, value in named.items()]
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    await send({"type": f"{kind}.start", "status": document["status"], "headers": headers})
    await send({"type": f"{kind}.body", "body": body, "more_body": False})


#: The host of a target in absolute form (RFC 9112, section 3.2.2).
_AUTHORITY = re.compile(rb"[a-z][a-z0-9+.-]*://([^/?#]*)", re.IGNORECASE)
#: Seconds until a connection is closed if the peer does not read the last answer.
_LAST_WORD_SECONDS = 2.0


_TOO_SLOW = raw_answer(problem.of_error(TooSlow("the request took too long to arrive")))
_HEAD = problem.document(431, "too_large", "the head of the request is too large")
_TOO_LARGE = raw_answer(_HEAD)
_CONTENT_ENCODING = problem.document(
    415,
    "unsupported_encoding",
    "the body has a Content-Encoding, which is not supported here",
    hint="send it without Content-Encoding",
)
_TRANSFER_ENCODING = problem.document(
    501,
    "unsupported_encoding",
    "Transfer-Encoding has codings other than chunked",
    hint="send the body with Content-Length, or with Transfer-Encoding: chunked",
)
_UPGRADE = problem.document(
    400,
    "invalid",
    "a request with a body asks for another protocol, which is not supported",
    hint="send it without Upgrade",
)
_OTHER_HOST = problem.of_error(
    Misdirected("the target of the request names another host than its Host header")
)
_HOST = problem.document(
    400,
    "invalid",
    "the request has no Host header, or more than one",
    hint="send the name and the port of the address, once: Host: localhost:8080",
)
_NO_HANDSHAKE = raw_answer(
    problem.document(400, "invalid", "the request is not a WebSocket handshake")
)
_MALFORMED = raw_answer(
    problem.document(
        400,
        "malformed",
        "the request is not HTTP/1.1, or its method is unknown",
        hint="methods are spelled in capitals: PATCH, not patch",
    )
)


#: The name of a field that asks for another protocol than WebSocket, and the end of a head.
_OTHER_UPGRADE = re.compile(rb"\r\nupgrade(?=:(?![ \t]*websocket[ \t]*\r\n))", re.IGNORECASE)
_HEAD_END = re.compile(rb"\r\n\r\n")


def _ignore_upgrade(data: memoryview) -> None:
    """Rename the field in a head that ``data`` begins with, for the parser, which skips the body of
    such a request. Java's HttpClient asks for HTTP/2 with every first request, and a server may
    ignore that (RFC 9110, section 7.8).
    """
    end = _HEAD_END.search(data)
    for field in _OTHER_UPGRADE.finditer(data, 0, end.end() if end else len(data)):
        data[field.start() + 2 : field.end()] = b"ignored"


class ServerConnection(asyncio.BufferedProtocol):
    """The protocol that the event loop calls, until the connection becomes a WebSocket."""

    def __init__(self, watch: pace.ConnectionWatch, **given: Any) -> None:
        self._http = _Http(watch, **given)
        self._buffer = watch.buffer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._http.connection_made(cast("asyncio.Transport", transport))

    def connection_lost(self, exc: Exception | None) -> None:
        self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        # The buffer is filled and read in the same step of the loop: the parser accepts any buffer,
        # and copies out of it before it returns.
        self._http.take(self._buffer[:nbytes])
        if self._http.is_upgraded:
            # uvloop keeps the first protocol of a connection until the connection ends.
            self._http.fall_apart()
            del self._http

    def eof_received(self) -> None:
        self._http.eof_received()


class _Http(HttpToolsProtocol):
    def __init__(self, watch: pace.ConnectionWatch, **given: Any) -> None:
        super().__init__(**given)
        self._watch = watch
        self._pace: pace.Pace | None = None  # of the body in transit
        self._in_head = False
        self._head_bytes = 0
        self._heads = 0
        #: whether another protocol has taken over the connection
        self.is_upgraded = False

    # --- callbacks of the event loop -------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch.owes_head(self)
        self._watch.make_room(self, len(self.connections))

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.forget(self)
        super().connection_lost(exc)

    def take(self, data: memoryview) -> None:
        if self.transport.is_closing():
            return
        begins = self._is_between_requests
        if begins:
            self._watch.owes_head(self)
            _ignore_upgrade(data)
        # Bytes at the end of another request, or before another head, are not counted.
        head = self._heads + (begins and not self._in_head)
        self.data_received(data)  # type: ignore[arg-type]  # any buffer will do
        if self._in_head and self._heads == head:
            self._head_bytes += len(data)
            if self._head_bytes > self._watch.limits.head_bytes:
                self._watch.forget(self)
                self._leave_with(_TOO_LARGE if self._is_between_requests else b"")
        if self._pace is not None:
            self._watch.owes_body(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch.takes_nothing(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch.takes_again(self)

    # --- callbacks of the parser -----------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self._heads += 1

    def on_header(self, name: bytes, value: bytes) -> None:
        # Fields after a body do not belong to the head (RFC 9110, section 6.5.1).
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._watch.has_head(self)
        self._pace = pace.Pace(self._watch.limits)
        pace.put(cast("dict[str, Any]", self.scope), self._pace)
        before, app = self.cycle, self.app
        refusal = self._refuse_head()
        if refusal is not None:
            # The refusal runs as an application, so it keeps its turn, and the rest of the body is
            # read.
            self.app = Lingering(Refusal(refusal))
        super().on_headers_complete()
        self.app = app
        if self.cycle is not before:
            joining = Joining(self.transport, self.loop)
            self.cycle.transport = cast("asyncio.Transport", joining)
            if self.parser.get_http_version() == "1.0":
                self.cycle.send = Unframed(self.cycle, self.transport)  # type: ignore[method-assign]

    def _refuse_head(self) -> dict[str, Any] | None:
        """The reason for refusing a head, as a problem document. The parser has accepted it, but it
        does not limit sizes, decode targets or check names.
        """
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > (
            self._watch.limits.head_bytes
        ):
            return _HEAD
        hosts: list[bytes] = []
        # The parser would take the body for the next request. A head that begins a read has no
        # upgrade here.
        skips_body = self.parser.should_upgrade()
        for name, value in self.headers:
            if skips_body and name in (b"content-length", b"transfer-encoding") and value != b"0":
                return _UPGRADE
            if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                return _TRANSFER_ENCODING
            if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
                return _CONTENT_ENCODING
            if name == b"host":
                hosts.append(value.strip().lower())
        if len(hosts) > 1 or not (hosts or self.parser.get_http_version() == "1.0"):
            return _HOST
        named = _AUTHORITY.match(self.url)
        return _OTHER_HOST if named and hosts != [named[1].lower()] else None

    def on_body(self, body: bytes) -> None:
        if self._pace is not None:
            self._pace.came(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._pace is not None:
            self._pace.is_over = True
        self._pace = None
        self._watch.has_body(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_between_requests and not self.transport.is_closing():
            self._watch.is_idle(self)

    def send_400_response(self, msg: str) -> None:
        """The parser cannot continue; ``msg`` is uvicorn's text about it."""
        self._watch.forget(self)
        begun = not self._is_between_requests and (self.cycle.response_started or self.pipeline)
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._leave_with(b"" if begun else _MALFORMED)

    def _unsupported_upgrade_warning(self) -> None:
        # The parser has dropped what came behind the head in the same read.
        self.cycle.keep_alive = False

    def handle_websocket_upgrade(self) -> None:
        self._pace = None
        self._watch.forget(self)
        if not self._is_between_requests:
            # The application would go on, with no connection to report that the peer has read its
            # answer.
            self._leave_with(b"")
            return
        refusal = self._refuse_head()
        if refusal is not None:
            self._leave_with(raw_answer(refusal))
            return
        super().handle_websocket_upgrade()
        self.is_upgraded = True
        sockets = cast("WebSocketsSansIOProtocol", self.transport.get_protocol())
        if not sockets.handshake_initiated:
            # uvicorn leaves a head that it cannot read, such as one with a body: the connection
            # would stay open forever, and prevent the server from ending.
            sockets.close_sent = True
            self._leave_with(_NO_HANDSHAKE)

    def fall_apart(self) -> None:
        """Break reference cycles, so that everything is freed at once."""
        self.parser = self.cycle = None  # type: ignore[assignment]  # nothing comes any more

    # --- called by the watch ---------------------------------------------------------------

    @property
    def is_known(self) -> bool:
        return self._pace is not None and self._pace.is_known

    def has_lapsed(self, seconds: float) -> bool:
        # While we do not read, or have not asked the peer to continue, the peer is not at fault.
        ours = self.flow.read_paused or (
            self.cycle is not None and self.cycle.waiting_for_100_continue
        )
        return self._pace is not None and not ours and self._pace.has_lapsed(seconds)

    def count_unsent(self) -> int:
        return self.transport.get_write_buffer_size()

    def let_go(self) -> None:
        if self.transport.is_closing():
            waits_for_answer = False
        elif self._is_between_requests:
            waits_for_answer = self._in_head
        else:
            waits_for_answer = not (self.cycle.response_started or self.pipeline)
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._leave_with(_TOO_SLOW if waits_for_answer else b"")

    @property
    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _leave_with(self, last_word: bytes) -> None:
        """Close the connection; no last word inside an answer, or to a peer that does not read."""
        if not last_word or self.flow.write_paused:
            self.transport.abort()
            return
        self.transport.write(last_word)
        self.transport.close()
        self.loop.call_later(_LAST_WORD_SECONDS, self.transport.abort)


class Joining:
    """The target of one answer: the part of a transport that uvicorn's answers use.

    Args:
        transport: of the connection; it writes immediately.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._unsent = b""
        self._flushing: asyncio.Handle | None = None
        self._has_begun = False

    def write(self, data: bytes) -> None:
        if self._has_begun:
            self._transport.write(data)
        elif self._unsent:
            self._begin([self._unsent, data])
        else:
            self._unsent = data
            self._flushing = self._loop.call_soon(self._flush)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._unsent and not self._transport.is_closing():
            self._begin([self._unsent])

    def _begin(self, parts: list[bytes]) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
        self._has_begun, self._unsent, self._flushing = True, b"", None
        self._transport.writelines(parts)


#: For SO_LINGER: a close that resets the connection, and one that does not.
_RESETTING, _ORDERLY = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)


class Unframed:
    """Sends the answer to an HTTP/1.0 request. Without Content-Length it ends with the connection,
    because HTTP/1.0 knows no chunks (RFC 9112, section 6.1); then an answer that breaks off resets
    the connection, so that it does not look complete.
    """

    def __init__(self, cycle: RequestResponseCycle, transport: asyncio.Transport) -> None:
        self._cycle = cycle
        self._send: Any = cycle.send
        self._socket = transport.get_extra_info("socket")
        self._ends_with_connection = False

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            if b"content-length" not in dict(message["headers"]):
                self._ends_with_connection = True
                self._cycle.chunked_encoding = False
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETTING)
        elif self._ends_with_connection:
            self._cycle.expected_content_length = len(message.get("body", b""))
            if not message.get("more_body"):
                await self._send({**message, "more_body": True})
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ORDERLY)
                message = {"type": "http.response.body"}
        await self._send(message)


#: Maximum seconds for reading the rest of a body.
LINGER_SECONDS = 30.0
#: Maximum seconds without any bytes of it.
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
        unread = not _expects_continue(Headers(scope=scope))

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


def _expects_continue(headers: Headers) -> bool:
    """Whether the client waits for ``100 Continue`` before it sends the body."""
    return headers.get("expect", "").lower() == "100-continue"

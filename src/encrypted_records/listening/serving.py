"""A server of either side: from a bound port until it is told to stop.

Header names are sent in their documented spelling: ``X-Job-ID``, not ``x-job-id``. HTTP ignores
case (RFC 9110, section 5.1), but ``grep X-Job-ID`` and case-sensitive maps do not. Frameworks pass
names in lower case, and uvicorn writes the lower case of each name. So this module creates names
that compare as uvicorn expects, and return themselves as their lower case.

A long-lived WebSocket takes little memory. A mostly idle socket would keep the objects of its
handshake, and a frame of each layer of the application, 30 KiB in all. So an application may
return after it has accepted a socket, and pass on the function that continues
(:func:`go_on_with`); only that function stays.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache, partial
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from encrypted_records.errors import Startup
from encrypted_records.listening.binding import CannotListen, bound
from encrypted_records.listening.connections import HeaderName, LastAnswers, ServerConnection
from encrypted_records.listening.pace import CHECK_INTERVAL, ConnectionWatch, ServerLimits

#: Called like an ASGI application, for a socket that was accepted.
Rest = Callable[[Receive, Send], Awaitable[None]]

_REST = "ers.rest"
#: Keys of the scope that uvicorn may still log for a socket.
_KEPT = ("type", "client", "path", "raw_path", "root_path", "query_string")


def go_on_with(scope: Scope, continuation: Rest) -> None:
    """Run ``continuation`` after the application has returned; the socket is closed at its end."""
    scope[_REST].append(continuation)


class GoingOn:
    """ASGI: the outermost layer; when the continuation runs, all layers of the application are
    gone.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A list, because layers in between pass on copies of the scope.
        rests: list[Rest] = []
        scope[_REST] = rests
        await self._app(scope, receive, send)
        if rests:
            kept = {name: scope[name] for name in _KEPT if name in scope}
            scope.clear()
            scope.update(kept)
            await rests[0](receive, send)


#: Descriptors to request, and how many of them are not for connections.
_DESCRIPTORS, _OTHER_DESCRIPTORS = 1 << 16, 512
#: uvicorn's ticks per second, and those between two checks of the connections.
_TICKS = 10
_CHECK_TICKS = int(CHECK_INTERVAL * _TICKS)


_log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """uvicorn's server with limits for its connections; it exits with 0 after a stop signal.

    Args:
        stop_seconds: time for running requests to finish after a stop signal.
        closed: called for each connection that is closed as too slow (:class:`ConnectionWatch`).
        sockets: the protocol of WebSockets, if any.
        more: further settings of uvicorn. Headers of front servers about a peer are trusted only if
            a setting says so.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: ServerLimits,
        *,
        stop_seconds: int,
        closed: Callable[[str], None] = lambda _reason: None,
        sockets: type[asyncio.Protocol] | None = None,
        **more: Any,
    ) -> None:
        self.watch = ConnectionWatch(limits, closed)
        super().__init__(
            uvicorn.Config(
                GoingOn(Spelling(LastAnswers(app))),
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=limits.idle_seconds,
                headers=[("Keep-Alive", f"timeout={limits.idle_seconds}")],
                timeout_graceful_shutdown=stop_seconds,
                http=partial(ServerConnection, self.watch),  # type: ignore[arg-type]  # called like one
                ws=sockets or "none",
                # Messages of jobs are short, and a compressor needs buffers for each socket.
                ws_per_message_deflate=False,
                # Not "auto", which would serve an application even if it fails to start.
                **{"proxy_headers": False, "lifespan": "on", **more},
            )
        )

    async def on_tick(self, counter: int) -> bool:
        if counter % _CHECK_TICKS == 0:
            try:
                self.watch.look()
            except Exception as error:  # a fault of one connection must not end the server
                _log.error("unexpected %s", type(error).__name__, exc_info=error)
        ends = await super().on_tick(counter)
        named = self.server_state.default_headers  # Date and Keep-Alive
        self.server_state.default_headers = [(spell(name), value) for name, value in named]
        return ends

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until SIGTERM or SIGINT, which only a process's main thread receives."""
        # uvicorn logs exceptions with their text, which may quote received data.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        with self._ending_on_signal():
            super().run(sockets)

    @contextmanager
    def _ending_on_signal(self) -> Iterator[None]:
        """Ignore the signal that uvicorn raises again after its end."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread gets signals
            return

        def end(_number: int, _frame: FrameType | None) -> None:
            self.should_exit = True

        before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def listening(host: str, port: int, flag: str) -> Iterator[list[socket.socket]]:
    """Listening sockets for a host; see :func:`binding.bound`.

    Raises:
        Startup: an address cannot be bound; the hint names the flag that chooses another port.
    """
    with ExitStack() as stack:
        try:
            sockets = stack.enter_context(bound(host, port))
        except CannotListen as error:
            raise Startup(
                f"cannot listen on {error.host} port {port}:"
                f" {(error.strerror or 'it fails').lower()}",
                hint=f"stop the program that uses the port, or choose another port with {flag}",
            ) from None
        yield sockets


def settle() -> None:
    """Exclude all loaded objects from garbage collection before a server runs.

    Each full collection would scan them again: some 100,000 objects, 40 ms of processor time, in
    which no request is answered.
    """
    gc.collect()
    gc.freeze()


def room_for_connections(wanted: int) -> int:
    """The number of connections that this process can hold, at most ``wanted``.

    The limit of descriptors is raised as far as possible.
    """
    soft = _raise_limit()
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(min(wanted, soft - _OTHER_DESCRIPTORS), 64)


def require_descriptors(least: int) -> None:
    """Raise the limit of descriptors, and check that there are enough.

    Raises:
        Startup: there are fewer than ``least``.
    """
    soft = _raise_limit()
    if soft != resource.RLIM_INFINITY and soft < least:
        raise Startup(
            f"this process may have {soft} files and connections open, and needs {least}",
            hint=f"raise the limit: ulimit -n {least}, or LimitNOFILE= of its systemd unit",
        )


def _raise_limit() -> int:
    """The limit of descriptors, raised as far as the system grants."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        # macOS reports limits that it then does not grant.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    return soft


_STARTS = frozenset({"http.response.start", "websocket.http.response.start"})
#: Names with other capitals than the first letter of each word.
_OTHERS = {
    name.lower(): name
    for name in (
        b"ETag",
        b"WWW-Authenticate",
        b"X-ERS-Answer",
        b"X-ERS-Mirror",
        b"X-Request-ID",
    )
}


_CLOSE = HeaderName(b"Connection"), b"close"


@lru_cache(1024)
def spell(name: bytes) -> bytes:
    """The name in its usual spelling; a name with capitals is left unchanged."""
    if not name.islower():
        return HeaderName(name)
    return HeaderName(_OTHERS.get(name) or name.title())


class Spelling:
    """ASGI: the outermost layer, so nothing changes a header after it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answering(message: Message) -> None:
            if message["type"] in _STARTS:
                headers = [(spell(name), value) for name, value in message.get("headers", ())]
                if _CLOSE in scope["headers"] and _CLOSE not in headers:
                    headers.append(_CLOSE)  # uvicorn would add it in small letters
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, answering)

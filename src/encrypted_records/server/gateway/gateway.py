"""The gateway between the asynchronous server and Django's synchronous threads.

A thread gets a request when it has arrived completely, and is free again when it has made the
answer. So slow senders and slow readers cost bounded memory (:mod:`.admission`) but no thread. The
server limits the time for a body (:mod:`encrypted_records.listening`).

Up to ``SMALL_BYTES`` of a body are accepted from any sender. Before more is read, the request is
passed to its view without the body: the view checks credentials first, and refuses the request if
it would refuse it anyway. The rest is received only if the view reads the body; then the view is
called again. For a while, bodies with the same credentials are received directly; the view still
checks the credentials each time.

A thread writes its answer piece by piece and never waits, while the network reads it at its own
speed. Unread pieces are kept in memory while there is room, otherwise in a file, in order. A slow
or absent reader occupies no thread.
"""

from __future__ import annotations

import asyncio
import hmac
import io
import logging
import os
import secrets
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import IO, Any
from urllib.parse import unquote_to_bytes
from wsgiref.types import WSGIApplication

import msgspec
from starlette.types import Receive, Scope, Send

from encrypted_records import logs
from encrypted_records.errors import ErsError, Overloaded, TooLarge
from encrypted_records.http import problem
from encrypted_records.listening import pace
from encrypted_records.server.gateway import admission
from encrypted_records.server.gateway.admission import SENDER, RequestPlaces, overloaded

#: How long credentials stay known, in seconds, and how many are remembered.
KNOWN_SECONDS = 60.0
MOST_KNOWN = 10_000
#: The most remembered credentials of one sender: a sender who invents cookies beside a valid token
#: evicts no credentials of others.
MOST_OF_ONE = 100
#: An answer starts to be sent once this many bytes are there, before the rest is made.
EARLY_BYTES = 1 << 20
_CREDENTIALS = frozenset({b"authorization", b"cookie"})
_log = logging.getLogger("encrypted_records.request")


class _BodyWanted(BaseException):
    """The view needs a body that has not been received. A BaseException, so that no handler on the
    way catches it.
    """


class _SenderGone(Exception):
    """The sender of the request has disconnected."""


#: Bytes read at once, approximately.
_PIECE_BYTES = 256 << 10


class AnswerNotRead(Exception):
    """The answer is no longer read, or cannot be finished."""


class Passing:
    """One answer: one thread writes it, and one coroutine of ``loop`` reads it."""

    def __init__(self, room: admission.Room, loop: asyncio.AbstractEventLoop) -> None:
        self._room = room
        self._loop = loop
        self._lock = threading.Lock()
        #: Pieces, each with whether it is counted. Pieces in the file came after these.
        self._memory: deque[tuple[bytes, bool]] = deque()
        self._file: IO[bytes] | None = None
        self._read = self._written = 0  # offsets in the file
        self._is_writing = False
        self.size = 0
        self.is_whole = False
        self._is_broken = self._is_closed = self._is_left = self._is_awaited = False
        self._more = asyncio.Event()

    # --- the thread's ----------------------------------------------------------------------

    def put(self, piece: bytes) -> None:
        """
        Raises:
            AnswerNotRead: it is of no use.
            Overloaded: there is no room for it.
        """
        with self._lock:
            if self._is_closed or self._is_left:
                raise AnswerNotRead
            self.size += len(piece)
            kept = self._written == 0 and self._keep(piece)
            if not kept:
                if not self._room.disk.take(len(piece)):
                    raise Overloaded(
                        "there is no memory for the answer at the moment", retry_after=2
                    )
                self._is_writing = True
                offset = self._written
        if not kept:
            self._write(piece, offset)
        self._tell()

    def _keep(self, piece: bytes) -> bool:
        counted = self.size > admission.SMALL_BYTES
        if counted and not self._room.memory.take(len(piece)):
            return False
        self._memory.append((piece, counted))
        return True

    def _write(self, piece: bytes, offset: int) -> None:
        """Write into the file; meanwhile other threads may use the other state."""
        if self._file is None:
            self._file = self._room.file()
        left = memoryview(piece)
        try:
            while left:
                done = os.pwrite(self._file.fileno(), left, offset)
                offset, left = offset + done, left[done:]
        finally:
            with self._lock:
                self._room.disk.give_back(len(left))
                self._is_writing = False
                self._written = offset
                if self._is_closed:
                    self._drop_file()

    def end(self, *, broken: bool = False) -> None:
        """End the answer; ``broken`` means that a part is missing."""
        with self._lock:
            self.is_whole, self._is_broken = not broken, broken
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            awaited, self._is_awaited = self._is_awaited, False
        if awaited:
            self._loop.call_soon_threadsafe(self._more.set)

    # --- the coroutine's -------------------------------------------------------------------

    async def take(self) -> bytes:
        """The next piece; empty at the end.

        Raises:
            AnswerNotRead: the answer is incomplete, or it was discarded.
        """
        while True:
            with self._lock:
                if self._is_left:
                    raise AnswerNotRead
                if self._memory:
                    return self._from_memory()
                lies_in_file = self._read < self._written
                if not lies_in_file:
                    if self.is_whole:
                        return b""
                    if self._is_broken:
                        raise AnswerNotRead
                    self._more.clear()
                    self._is_awaited = True
            if lies_in_file:
                return await asyncio.to_thread(self._from_file)
            await self._more.wait()

    @property
    def is_taken(self) -> bool:
        """Whether the whole answer was read."""
        return self.is_whole and not self._memory and self._read == self._written

    def _from_memory(self) -> bytes:
        pieces, size, counted = [], 0, 0
        while self._memory and size < _PIECE_BYTES:
            piece, is_counted = self._memory.popleft()
            pieces.append(piece)
            size += len(piece)
            counted += len(piece) if is_counted else 0
        self._room.memory.give_back(counted)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _from_file(self) -> bytes:
        assert self._file is not None
        count = min(_PIECE_BYTES, self._written - self._read)
        piece = os.pread(self._file.fileno(), count, self._read)
        with self._lock:
            self._read += len(piece)
            if self._read == self._written and not self._is_writing:
                self._room.disk.give_back(self._written)
                self._file.truncate(0)
                self._read = self._written = 0
        return piece

    def leave(self) -> None:
        """Discard the rest of the answer: it is neither made nor read any more."""
        with self._lock:
            self._is_left = True
        self._more.set()

    def close(self) -> None:
        """Discard the unread pieces. Closing twice is harmless."""
        with self._lock:
            self._is_closed = True
            counted = sum(len(piece) for piece, is_counted in self._memory if is_counted)
            self._room.memory.give_back(counted)
            self._memory.clear()
            if not self._is_writing:
                self._drop_file()

    def _drop_file(self) -> None:
        self._room.disk.give_back(self._written)
        self._read = self._written = 0
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(frozen=True, slots=True)
class _GatewayAnswer:
    """``body`` is the whole answer if it is small."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes | Passing

    def close(self) -> None:
        if isinstance(self.body, Passing):
            self.body.close()


class Gateway:
    """A WSGI application as an ASGI application.

    Args:
        observe: called for each answer that the gateway itself makes: method, status, and seconds.
    """

    def __init__(
        self,
        application: WSGIApplication,
        room: admission.Room,
        places: RequestPlaces,
        observe: Callable[[str, int, float], None],
    ) -> None:
        self._application = application
        self._room = room
        self._places = places
        self._observe = observe
        self._secret = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, float] = OrderedDict()
        #: the sender of each known credential by its digest, the newest last; and the digests by
        #: sender
        self._senders: OrderedDict[bytes, bytes] = OrderedDict()
        self._names: dict[bytes, OrderedDict[bytes, None]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        try:
            answer = await self._answer(scope, receive)
        except _SenderGone:
            return
        except ErsError as error:
            answer = self._refusal(scope, error, time.perf_counter() - began)
        except Exception as error:  # Django handles its own errors
            _log.error("unexpected %s", type(error).__name__, exc_info=error)
            bug = ErsError("an internal error occurred", hint="its log has the details")
            answer = self._refusal(scope, bug, time.perf_counter() - began)
        try:
            await _send(answer, receive, send)
        finally:
            answer.close()

    async def _answer(self, scope: Scope, receive: Receive) -> _GatewayAnswer:
        """
        Raises:
            Overloaded: the request cannot be answered now.
            _SenderGone: the client has disconnected.
        """
        environ = _environ(scope)
        if not admission.is_to_be_read(environ):
            return await self._ask(scope, environ, io.BytesIO())
        body = admission.HeldBody(self._room, on_disk=admission.are_sealed(scope["path"]))
        try:
            early = await self._receive(scope, receive, body, environ)
            return early or await self._ask_with(scope, environ, body)
        finally:
            body.close()

    async def _ask_with(
        self, scope: Scope, environ: dict[str, Any], body: admission.HeldBody
    ) -> _GatewayAnswer:
        """Django's answer to a request whose body is complete. A large request first waits for
        memory, and occupies no thread while it waits.

        Raises:
            Overloaded: the request cannot be answered now.
        """
        async with AsyncExitStack() as turn:
            if body.size > admission.LARGE_BYTES:
                # No more of one sender's requests have a turn than it may have threads: its
                # requests that wait for a thread keep no other sender from a turn.
                size = max(body.size, -(-self._room.turns.room // self._places.most_per_sender))
                taken = self._room.turns.take(self._sender(self._name(scope)), size)
                try:
                    async with asyncio.timeout(self._places.wait_seconds):
                        await turn.enter_async_context(taken)
                except TimeoutError:
                    raise overloaded() from None
            return await self._ask(scope, environ, body.rewind())

    async def _receive(
        self, scope: Scope, receive: Receive, body: admission.HeldBody, environ: dict[str, Any]
    ) -> _GatewayAnswer | None:
        """Receive the body; returns an answer if the request is answered without it."""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _SenderGone
            more = message.get("more_body", False)
            piece: bytes = message.get("body", b"")
            if more and body.size + len(piece) > admission.SMALL_BYTES:
                early = await self._refuse_early(scope, environ)
                if early is not None:
                    return early
            if body.is_in_file:
                await asyncio.to_thread(body.write, piece)
            else:
                body.write(piece)
        return None

    async def _refuse_early(self, scope: Scope, environ: dict[str, Any]) -> _GatewayAnswer | None:
        """The answer to a caller whose body is not wanted. None for other callers, who get more
        time for the body.

        Raises:
            TooLarge: a large body without credentials.
        """
        name = self._name(scope)
        if name is None or self._known.get(name, 0.0) < time.monotonic():
            try:
                return await self._ask(scope, environ, _NotHere())
            except _BodyWanted:
                if name is None:
                    raise TooLarge(
                        f"without credentials, a body has at most {admission.SMALL_BYTES} bytes"
                    ) from None
            self._known[name] = time.monotonic() + KNOWN_SECONDS
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        pace.know(scope)
        return None

    def _name(self, scope: Scope) -> bytes | None:
        """A digest that identifies the credentials of a request; the credentials are not kept."""
        credentials = [value for name, value in scope["headers"] if name in _CREDENTIALS]
        return hmac.digest(self._secret, b"\0".join(credentials), "sha256") if credentials else None

    async def _ask(self, scope: Scope, environ: dict[str, Any], body: IO[bytes]) -> _GatewayAnswer:
        """Django's answer. Of a long answer, this is the beginning, while the thread goes on.

        Raises:
            Overloaded: the request cannot be answered now.
            _BodyWanted: the view read a body that is :class:`_NotHere`.
        """
        environ["wsgi.input"] = body
        run = partial(self._run, asyncio.get_running_loop(), environ)
        name = self._name(scope)
        try:
            answer: _GatewayAnswer = await self._places.run(run, self._sender(name))
        finally:
            # Also for a caller who is only checked, before the body is here.
            found = environ.get(SENDER)
            if name is not None and found is not None:
                self._remember(name, found.encode())
        if name is not None and found is None and answer.status == 401 and name in self._senders:
            # A caller with revoked credentials must not take turns of their owner.
            self._forget(name)
        return answer

    def _sender(self, name: bytes | None) -> bytes:
        """The sender whose turn a request takes. All unknown senders share a queue, because
        credentials can be made up.
        """
        return b"" if name is None else self._senders.get(name, b"")

    def _remember(self, name: bytes, sender: bytes) -> None:
        """Remember which sender these credentials belong to."""
        if self._senders.get(name, sender) != sender:
            self._forget(name)
        self._senders[name] = sender
        self._senders.move_to_end(name)
        names = self._names.setdefault(sender, OrderedDict())
        names[name] = None
        names.move_to_end(name)
        if len(names) > MOST_OF_ONE:
            self._forget(next(iter(names)))
        elif len(self._senders) > MOST_KNOWN:
            self._forget(next(iter(self._senders)))

    def _forget(self, name: bytes) -> None:
        sender = self._senders.pop(name)
        names = self._names[sender]
        del names[name]
        if not names:
            del self._names[sender]

    def _run(
        self,
        loop: asyncio.AbstractEventLoop,
        environ: dict[str, Any],
        begin: Callable[[_GatewayAnswer], None],
    ) -> _GatewayAnswer:
        """Run a request in a thread; see :meth:`_ask`."""
        started: list[tuple[str, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]], _failed: Any = None) -> Any:
            started.append((status, headers))

        result = self._application(environ, start)
        try:
            body = self._pass_on(loop, result, lambda body: begin(_answer_of(started, body)))
        finally:
            if hasattr(result, "close"):
                result.close()
        return _answer_of(started, body)

    def _pass_on(
        self,
        loop: asyncio.AbstractEventLoop,
        pieces: Iterable[bytes],
        begin: Callable[[Passing], None],
    ) -> bytes | Passing:
        small: list[bytes] = []
        size = 0
        remaining = iter(pieces)
        for piece in remaining:
            small.append(piece)
            size += len(piece)
            if size > admission.SMALL_BYTES:
                break
        else:
            return b"".join(small)
        passing = Passing(self._room, loop)
        begun = False
        try:
            for piece in chain(small, remaining):
                passing.put(piece)
                if passing.size > EARLY_BYTES and not begun:
                    begun = True
                    begin(passing)
        except BaseException:
            if begun:
                passing.end(broken=True)
            else:
                passing.close()
            raise
        passing.end()
        return passing

    def _refusal(self, scope: Scope, error: ErsError, seconds: float) -> _GatewayAnswer:
        """An answer without Django, if no thread is available."""
        document = problem.of_error(error)
        status = document["status"]
        self._observe(scope["method"], status, seconds)
        sent = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        name = logs.take_id(sent)
        token = logs.request_id.set(name)
        # repr: the caller chose the path, and it must not break the line
        _log.info("%s %r %s (%s)", scope["method"], scope["path"], status, error.reason)
        logs.request_id.reset(token)
        headers = [
            ("Content-Type", problem.MEDIA_TYPE),
            ("Cache-Control", "no-store"),
            ("X-Request-ID", name),
        ]
        if error.retry_after is not None:
            headers.append(("Retry-After", str(error.retry_after)))
        return _GatewayAnswer(status, headers, msgspec.json.encode(document))


class _NotHere(io.BytesIO):
    """Stands in for a body that was not received; Django reads through these two methods."""

    def read(self, _size: int | None = -1) -> bytes:
        raise _BodyWanted

    def readline(self, _size: int | None = -1) -> bytes:
        raise _BodyWanted


def _answer_of(
    started: list[tuple[str, list[tuple[str, str]]]], body: bytes | Passing
) -> _GatewayAnswer:
    status, headers = started[-1]
    return _GatewayAnswer(int(status[:3]), headers, body)


async def _send(answer: _GatewayAnswer, receive: Receive, send: Send) -> None:
    """
    Raises:
        AnswerNotRead: after a part of the answer. Closing the connection tells the client that
            it is incomplete.
    """
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    body = answer.body
    size = body.size if isinstance(body, Passing) and body.is_whole else None
    if isinstance(body, bytes):
        size = len(body)
    if size is not None and not any(name.lower() == b"content-length" for name, _ in headers):
        headers.append((b"content-length", str(size).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if isinstance(body, bytes):
        await send({"type": "http.response.body", "body": body})
        return
    watching = asyncio.create_task(_watch_for_the_end(body, receive))
    try:
        more = True
        while more:
            piece = await body.take()
            more = bool(piece) and not body.is_taken
            await send({"type": "http.response.body", "body": piece, "more_body": more})
    finally:
        watching.cancel()


async def _watch_for_the_end(body: Passing, receive: Receive) -> None:
    """Watch for a disconnect: the server silently discards data for a closed connection, so it has
    to be polled.
    """
    while (await receive())["type"] != "http.disconnect":
        pass
    body.leave()


def _environ(scope: Scope) -> dict[str, Any]:
    """The head of a request as WSGI's environ (PEP 3333)."""
    host, port = scope["server"] or ("", 0)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(scope["raw_path"]).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "REMOTE_ADDR": scope["client"][0] if scope["client"] else "",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in scope["headers"]:
        if b"_" in name:
            continue  # X_Forwarded_For must not pass for X-Forwarded-For
        key = name.decode("latin-1").upper().replace("-", "_")
        if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            key = f"HTTP_{key}"
        text = value.decode("latin-1")
        # Values of a repeated header are joined; cookies are joined by a different separator.
        mark = "; " if key == "HTTP_COOKIE" else ","
        environ[key] = f"{environ[key]}{mark}{text}" if key in environ else text
    return environ

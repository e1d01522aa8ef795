"""HTTP connections to one host. Errors of the HTTP library become errors of this package.

A request is retried only if its caller declares that this is safe (``repeatable``): reads, and
writes with an id by which the server recognises a repetition. All tries of a request share one
deadline, which is extended while bytes are transferred (:class:`.messages.Patience`).

Requests and streams use separate connection pools, so that a slow reader of a stream does not delay
requests.

Requests wait for each other, for instance for the same token exchange. When the first of them times
out, the next would wait as long again, and the last for minutes. Therefore each request that began
before the outage was known fails at once. A later request tries again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from encrypted_records import logs, runtime
from encrypted_records.client.limits import Timing
from encrypted_records.client.messages import (
    CHUNK_BYTES,
    Body,
    Closing,
    Patience,
    Request,
    Response,
    Whole,
    note_request,
)
from encrypted_records.errors import (
    ApiFailed,
    ApiTimeout,
    ApiUnreachable,
    ErsError,
    Malformed,
    time_of,
)
from encrypted_records.http import problem
from encrypted_records.model.record_formats import Format

# Imported where a request needs it: it takes a third of a second, and the help and the completion
# of commands send none.
if TYPE_CHECKING:
    import aiohttp

#: Arrival time of the request on whose behalf this code runs, on the monotonic clock; infinite if
#: nobody waits.
came_in: ContextVar[float] = ContextVar("came_in", default=float("inf"))

#: Seconds for which an observed outage counts.
FRESH_SECONDS = 5.0


#: Bytes of an answer among which its last line is looked for, if it breaks off.
_LAST_LINE_BYTES = 64 << 10


class _LastLine(msgspec.Struct):
    """The last line of NDJSON that breaks off; ``error`` is a problem document."""

    error: msgspec.Raw


class _Status(msgspec.Struct):
    status: int = 502


class Outage:
    """The outage of a server, as observed by one event loop."""

    def __init__(self) -> None:
        self._heard = 0.0
        self._failed = 0.0
        self._error: ApiUnreachable | ApiTimeout | None = None

    @property
    def has_answered(self) -> bool:
        return self._heard > 0

    def heard(self) -> None:
        """The server has answered."""
        self._heard = runtime.monotonic()
        self._error = None

    def note_failure(self, error: ApiUnreachable | ApiTimeout, began: float) -> None:
        """Note that a request that began at ``began`` got no answer."""
        if self._heard < began:
            self._failed = runtime.monotonic()
            self._error = error

    def refuse(self) -> None:
        """
        Raises:
            ApiUnreachable, ApiTimeout: another request has just failed this way, and the waiting
                request arrived before that.
        """
        fresh = runtime.monotonic() - self._failed < FRESH_SECONDS
        if self._error is not None and fresh and came_in.get() < self._failed:
            error = self._error
            raise type(error)(error.message, code=error.reason, hint=error.hint)


log = logging.getLogger(__name__)

#: The client for whom the request is made, for X-Forwarded-For; empty for requests of our own.
forwarded_for: ContextVar[str] = ContextVar("forwarded_for", default="")

#: Called before a request is repeated, with the server's address and the pause in seconds. For
#: programs whose user waits.
on_retry: ContextVar[Callable[[str, float], None] | None] = ContextVar("on_retry", default=None)

CONNECT_SECONDS = 5.0
#: Maximum seconds of a stream without a connection, and of an answer without data.
POOL_SECONDS = 20.0
ANSWER_SECONDS = 120.0
#: Connections for requests; more would not be faster, and would take capacity from other clients.
CONNECTIONS = 32
#: Connections for streams, most of which are idle.
STREAMS = 128
#: Limit of the system's send buffer, so that we notice whether the receiver reads a body.
UNSEEN_BYTES = 256 << 10
#: Bytes of all answers that are being received: more than a thousand of the largest records. An
#: answer may always have its share.
MAX_ANSWER_BYTES = 1 << 30
#: Longest JSON that is handed on, in bytes: longer lists come in several answers.
MAX_JSON_BYTES = 64 << 20
#: Maximum pause that a server may request.
MOST_RETRY_SECONDS = 5
_TRANSIENT = frozenset({502, 503, 504})

#: In the context of a trace: the request sends no credentials.
BARE = "bare"


@dataclass(eq=False, slots=True)
class Renewal:
    """Supplies another Authorization value for a refused one, or None, during the request on whose
    behalf others are made.
    """

    renew: Callable[[str], Awaitable[str | None]] | None = field(repr=False, default=None)


renewal: ContextVar[Renewal | None] = ContextVar("renewal", default=None)

#: Returns an Authorization value; called for each request, because the value may expire.
Authorization = Callable[[], Awaitable[str]]

T = TypeVar("T")
_STANDARD = Timing()


async def _renewed(auth: str | None) -> str | None:
    known = renewal.get()
    if auth is None or known is None or known.renew is None:
        return None
    return await known.renew(auth)


def _timeout(
    *, waiting: float | None = None, silent_seconds: float | None = None
) -> aiohttp.ClientTimeout:
    """No total limit, but limits for connecting, for waiting until a connection of the pool is
    free, and for pauses."""
    import aiohttp  # noqa: PLC0415

    return aiohttp.ClientTimeout(
        total=None, connect=waiting, sock_connect=CONNECT_SECONDS, sock_read=silent_seconds
    )


class Transport(Closing):
    """Requests to ``base_url``.

    Args:
        base_url: scheme, host and port, no path.
        auth: the value of the Authorization header, a function that returns it, or None.
        headers: sent with every request.
        timing: time limits.
    """

    #: The error for a failed connection; a subclass may know which server is missing.
    unreachable: ClassVar[type[ApiUnreachable]] = ApiUnreachable
    connections: ClassVar[int] = CONNECTIONS
    #: Whether streams have a separate connection pool.
    streams_apart: ClassVar[bool] = True
    streams: ClassVar[int] = STREAMS
    #: Longest answer to a request that is not a stream, in bytes; None for a trusted server. An
    #: untrusted API may send answers without an end, which are held in memory.
    longest_answer: ClassVar[int | None] = MAX_ANSWER_BYTES

    def __init__(
        self,
        base_url: str,
        *,
        auth: str | Authorization | None = None,
        headers: Mapping[str, str] | None = None,
        timing: Timing = _STANDARD,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.auth = auth
        self.headers = dict(headers or {})
        self.timing = timing
        self._outage = Outage()
        #: bytes of the answers that are being received
        self._received = 0
        self._pools: dict[str, aiohttp.ClientSession] = {}

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.close()

    def abandon(self) -> None:
        """Forget the connections without closing them."""
        for pool in self._pools.values():
            pool.detach()
        self._pools.clear()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The pool for streams and for forwarded requests."""
        return self._pool("streams", self.streams)

    def _pool(self, name: str, connections: int) -> aiohttp.ClientSession:
        """A pool, opened on first use, because it belongs to the running event loop."""
        name = name if self.streams_apart else ""
        if name not in self._pools:
            import aiohttp  # noqa: PLC0415

            self._pools[name] = aiohttp.ClientSession(
                auto_decompress=False,
                # An answer repeats an upload's metadata, which includes the reading of a wide file.
                max_field_size=64 << 10,
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(
                    limit=connections,
                    keepalive_timeout=self.timing.idle_seconds,
                    socket_factory=_socket,
                ),
                timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS),
                trace_configs=self.traces(),
            )
        return self._pools[name]

    def traces(self) -> list[aiohttp.TraceConfig]:
        """Traces of the pools; none by default."""
        return []

    async def prepare(self, path: str) -> Mapping[str, str]:
        """Prepare for a request to ``path``; returns headers for it.

        Does nothing by default.
        """
        return {}

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        data: Body = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        auth: str | None = None,
        bare: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 - handed to the library as is
        repeatable: bool | None = None,
    ) -> Response:
        """Send one request and read the whole answer.

        Args:
            auth: an Authorization value for this request instead of the transport's.
            bare: send no credentials, and prepare nothing.
            timeout: maximum seconds without data, instead of the usual.
            repeatable: whether a failed attempt may be repeated; by default, GET is repeatable. A
                stream never is.

        Raises:
            ErsError: the class for the answer's problem document or status.
            ApiUnreachable, ApiTimeout: no answer, after all attempts.
        """
        more = dict(headers or {})
        if json is not None:
            data = msgspec.json.encode(json)
            more.setdefault("Content-Type", "application/json")
        if isinstance(data, Whole):
            more["Content-Length"] = str(len(data))
        if not isinstance(data, Whole | None):
            send = partial(self._stream, method, path, data, params)
            return (await self.send_prepared(path, send, more, auth)).check()
        again = method == "GET" if repeatable is None else repeatable
        began = runtime.monotonic()
        patience = Patience(timeout or self.timing.silent_seconds, self.timing.least_rate)
        request = Request(method, path, data, more, params, patience, auth, bare)
        try:
            self._outage.refuse()
            async with patience:
                pauses = self.timing.pauses if again else ()
                response = await self._until_answered(request, pauses)
                # A request with refused credentials was not carried out.
                if response.status == 401 and (other := await _renewed(auth)) is not None:
                    response = await self._until_answered(replace(request, auth=other), pauses)
        except TimeoutError:
            if request.refusals:
                return request.refusals[-1].check()  # says more than that no other came in time
            error = self._no_answer()
            self._outage.note_failure(error, began)
            raise error from None
        except (ApiUnreachable, ApiTimeout) as error:
            self._outage.note_failure(error, began)
            raise
        return request.conclude(response)

    async def _until_answered(self, request: Request, pauses: Sequence[float]) -> Response:
        """
        Raises:
            TimeoutError: the time limit is reached.
            ApiUnreachable, ApiTimeout: all tries failed.
        """

        async def send(ready: Mapping[str, str]) -> Response:
            return await self.attempt(replace(request, headers=ready))

        waits = list(pauses)
        restart = self.timing.restart_seconds if pauses else 0.0
        while True:
            try:
                if request.bare:
                    response = await send(self._plain(request.headers))
                else:
                    response = await self.send_prepared(
                        request.path, send, request.headers, request.auth
                    )
            except (ApiUnreachable, ApiTimeout) as error:
                if not waits and restart and self._outage.has_answered:
                    waits, restart = [restart], 0.0
                if not waits:
                    raise
                request.silences.append(error)
                reason, wait = error.reason, waits.pop(0)
            else:
                if response.status not in _TRANSIENT or not waits:
                    return response
                request.refusals.append(response)
                reason = str(response.status)
                wait = max(waits.pop(0), min(response.retry_after or 0, MOST_RETRY_SECONDS))
            log.warning("%s %s failed (%s), trying again", request.method, request.path, reason)
            if tell := on_retry.get():
                tell(self.base_url, wait)
            await runtime.sleep(wait)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        silent_seconds: float = ANSWER_SECONDS,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send one request and yield its answer's bytes as they arrive; it is never repeated.

        Args:
            silent_seconds: maximum seconds without data.

        Raises:
            ErsError: as :meth:`request`, also if the answer breaks off.
        """

        async def send(ready: Mapping[str, str]) -> aiohttp.ClientResponse:
            with self._ours():
                return await self.session.request(
                    method,
                    self.base_url + path,
                    data=data,
                    headers=ready,
                    allow_redirects=False,
                    timeout=_timeout(waiting=POOL_SECONDS, silent_seconds=silent_seconds),
                )

        answer = await self.send_prepared(path, send, headers)
        async with answer:
            if answer.status >= 300:
                with self._ours():
                    body = await answer.read()
                Response(answer.status, answer.headers, body).check()
            yield self._chunks(answer)

    async def open(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], data: bytes | None
    ) -> aiohttp.ClientResponse:
        """Forward a request with only these headers; returns the answer as a stream, whatever its
        status. The caller closes it. Nothing is retried.

        Args:
            target: path and query, percent-encoded as sent.

        Raises:
            TimeoutError, aiohttp.ClientError, OSError: no answer.
        """
        from yarl import URL  # noqa: PLC0415

        return await self.session.request(
            method,
            URL(self.base_url + target, encoded=True),
            headers=headers,
            data=data,
            allow_redirects=False,
            skip_auto_headers=("Accept", "Content-Type", "User-Agent"),
            # A forwarded body may take as long as it likes, but not pause for longer than this.
            timeout=_timeout(silent_seconds=ANSWER_SECONDS),
        )

    async def messages(self, path: str) -> AsyncIterator[str]:
        """Open a WebSocket and yield its text messages until the other side closes it.

        Raises:
            Unavailable: it cannot be opened, or broke.
        """

        async def send(ready: Mapping[str, str]) -> aiohttp.ClientWebSocketResponse:
            with self._ours():
                return await self.session.ws_connect(
                    self.base_url + path, headers=ready, heartbeat=30
                )

        import aiohttp  # noqa: PLC0415

        opened = await self.send_prepared(path, send)
        async with opened:
            while True:
                with self._ours():
                    message = await opened.receive()
                if message.type is not aiohttp.WSMsgType.TEXT:
                    return
                yield message.data

    async def _chunks(self, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        end, has_lines = b"", Format.of_media_type(answer.content_type) is Format.NDJSON
        try:
            # Only reading is inside the block, so that errors of the caller's code stay unchanged.
            with self._ours():
                async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                    if has_lines:
                        end = (end + chunk)[-_LAST_LINE_BYTES:]
                    yield chunk
        except self.unreachable:
            raise self._broken(answer, end) from None

    def _broken(self, answer: aiohttp.ClientResponse, end: bytes) -> ErsError:
        """The error for an answer that broke off after it had begun. Its last line, of which these
        are the last bytes, may be the reason."""
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            line = end.rstrip(b"\n").rpartition(b"\n")[2]
            reason = bytes(msgspec.json.decode(line, type=_LastLine).error)
            if problem.is_named(reason):
                status = msgspec.json.decode(reason, type=_Status).status
                return problem.to_error(status, reason)
        named = answer.headers.get("X-Request-ID")
        where = f" at request {named}" if named else ""
        return self.unreachable(
            f"the answer of {self.base_url} broke off before its end",
            hint=f"its beginning is not the whole; try again, or see the service's log{where}",
        )

    def _plain(self, more: Mapping[str, str]) -> dict[str, str]:
        """The headers of a request without credentials."""
        # Bodies are mostly ciphertext, which does not compress.
        sent = {"Accept-Encoding": "identity", **self.headers, **more}
        if logs.request_id.get() != logs.NO_REQUEST:
            sent.setdefault("X-Request-ID", logs.request_id.get())
        return sent

    async def send_prepared(
        self,
        path: str,
        send: Callable[[Mapping[str, str]], Awaitable[T]],
        more: Mapping[str, str] | None = None,
        auth: str | None = None,
    ) -> T:
        """The result of ``send``, called with the headers for a request to ``path``, after
        preparing for it.
        """
        sent = self._plain({**await self.prepare(path), **(more or {})})
        credentials = auth or (await self.auth() if callable(self.auth) else self.auth)
        if credentials is not None:
            sent["Authorization"] = credentials
        return await send(sent)

    async def attempt(self, request: Request) -> Response:
        """Send a request once; returns its answer, whatever its status."""
        with self._ours():
            async with self._pool("requests", self.connections).request(
                request.method,
                self.base_url + request.path,
                data=request.body(),
                headers=request.headers,
                params=request.params,
                allow_redirects=False,
                timeout=_timeout(),  # Patience limits the rest
                trace_request_ctx=BARE if request.bare else None,
            ) as answer:
                self._outage.heard()
                body = await self._read(answer, request.patience)
                size = 0 if request.data is None else len(request.data)
                note_request(request.method, request.path, size, len(body), answer.status)
                return Response(
                    answer.status, answer.headers, body, self.longest_answer is not None
                )

    async def _read(self, answer: aiohttp.ClientResponse, patience: Patience) -> bytes:
        """
        Raises:
            ApiFailed: the answer, or all that are being received, are too large.
        """
        body, most = bytearray(), self.longest_answer or math.inf
        try:
            async for part in answer.content.iter_any():
                patience.note(len(part))
                body += part
                self._received += len(part)
                if len(body) > most:
                    raise ApiFailed("the API's answer has no end")
                if self._received > most and len(body) > most / CONNECTIONS:
                    raise ApiFailed("the API's answers take too much memory together")
        finally:
            self._received -= len(body)
        return bytes(body)

    async def _stream(
        self,
        method: str,
        path: str,
        data: AsyncIterable[bytes],
        params: Mapping[str, str] | None,
        ready: Mapping[str, str],
    ) -> Response:
        """Send what comes piece by piece, once; the answer, whatever its status."""
        with self._ours():
            async with (
                asyncio.timeout(None) as untaken,
                self.session.request(
                    method,
                    self.base_url + path,
                    data=self._while_taken(data, untaken),
                    headers=ready,
                    params=params,
                    allow_redirects=False,
                    timeout=_timeout(waiting=POOL_SECONDS, silent_seconds=ANSWER_SECONDS),
                ) as answer,
            ):
                return Response(answer.status, answer.headers, await answer.read())

    async def _while_taken(
        self, data: AsyncIterable[bytes], untaken: asyncio.Timeout
    ) -> AsyncIterator[bytes]:
        """Pass on ``data``, as long as each piece is sent in time; the source of ``data`` may take
        any time.

        The library has a timeout for answers, but none for a receiver that does not read.
        """
        now = asyncio.get_running_loop().time
        timing = self.timing
        async for piece in data:
            untaken.reschedule(now() + timing.silent_seconds + len(piece) / timing.least_rate)
            yield piece
            untaken.reschedule(None)

    def _no_answer(self) -> ApiTimeout:
        return ApiTimeout(f"{self.base_url} gave no answer in time")

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """Convert failures of the connection in the block to errors of this package."""
        import aiohttp  # noqa: PLC0415

        try:
            yield
        except TimeoutError:
            raise self._no_answer() from None
        except aiohttp.InvalidURL:
            raise Malformed(f"{self.base_url} is not the URL of a service") from None
        except (aiohttp.ClientError, OSError) as error:
            raise self.no_connection(error) from None

    def no_connection(self, error: Exception) -> ApiUnreachable:
        """The error for a connection that failed."""
        import aiohttp  # noqa: PLC0415

        if not isinstance(error, aiohttp.ClientConnectorCertificateError):
            return self.unreachable(f"no connection to {self.base_url}, or it broke off")
        why = getattr(error.certificate_error, "verify_message", "it is not valid")
        return self.unreachable(
            f"the certificate of {self.base_url} was refused: {why}",
            hint=f"check it, and this machine's clock, which is at {time_of(runtime.wall())}",
        )


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNSEEN_BYTES)
    return made

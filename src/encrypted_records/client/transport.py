"""One HTTP connection pool towards one host; foreign failures leave it as ours.

A request is repeated only where its caller says that repeating is safe (``repeatable``): reads,
and writes that carry an id under which the other side recognises them.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Self

import aiohttp
import msgspec

from encrypted_records import logs
from encrypted_records.errors import ApiFailed, ApiTimeout, ApiUnreachable, Malformed
from encrypted_records.model import problem

log = logging.getLogger(__name__)

#: Whom the request is made for, as X-Forwarded-For says it; empty where it is for ourselves.
forwarded_for: ContextVar[str] = ContextVar("forwarded_for", default="")

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 120.0
#: Pauses before each repetition of a repeatable request.
BACKOFF_SECONDS = (0.1, 0.5, 2.0)
_TRANSIENT = frozenset({502, 503, 504})

#: A stream may take as long as it likes, but not pause for longer than an answer may take.
_STREAMING = aiohttp.ClientTimeout(
    total=None, sock_connect=CONNECT_SECONDS, sock_read=ANSWER_SECONDS
)
_CHUNK_BYTES = 1 << 18

#: A stream can be sent once: a request with one is never repeated.
Body = bytes | AsyncIterable[bytes] | None
#: Gives an Authorization value; asked for each request, since what it gives may expire.
Authorization = Callable[[], Awaitable[str]]


class Closing(ABC):
    """Closed when the block that it is entered for ends."""

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            ApiFailed: it is none.
        """
        return self.typed(Any)

    def typed(self, kind: Any) -> Any:
        """The body as JSON of type ``kind`` (anything msgspec converts to).

        Raises:
            ApiFailed: it is not.
        """
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ApiFailed("the answer was not the JSON that was expected") from None


class Transport(Closing):
    """Requests to ``base_url``.

    Args:
        base_url: scheme, host and port, no path.
        auth: the value of the Authorization header, what gives it, or None.
    """

    #: What no connection is called; a subclass may know more of what is missing.
    unreachable: ClassVar[type[ApiUnreachable]] = ApiUnreachable
    #: For how many seconds a connection is kept that nothing is asked on.
    idle_seconds: ClassVar[float] = 15.0

    def __init__(self, base_url: str, *, auth: str | Authorization | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self.auth = auth
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The pool, opened on first use since it belongs to the running event loop."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(keepalive_timeout=self.idle_seconds),
                timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS),
            )
        return self._session

    async def prepare(self, path: str) -> None:
        """What has to be done before anything is sent to ``path``: here nothing."""

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
        timeout: float | None = None,  # noqa: ASYNC109 - handed to the library as is
        repeatable: bool | None = None,
    ) -> Response:
        """Send one request and read the whole answer.

        Args:
            auth: an Authorization value for this request instead of the transport's own.
            timeout: seconds for the whole exchange.
            repeatable: whether a failed attempt may be sent again; GET is unless told otherwise,
                and a stream never.

        Raises:
            ErsError: the class that the answer's problem document or status stands for.
            ApiUnreachable, ApiTimeout: no answer, after all attempts.
        """
        await self.prepare(path)
        sent = await self._headers(headers, auth)
        if json is not None:
            data = msgspec.json.encode(json)
            sent.setdefault("Content-Type", "application/json")
        again = method == "GET" if repeatable is None else repeatable
        pauses = list(BACKOFF_SECONDS) if again and isinstance(data, bytes | None) else []
        while True:
            try:
                response = await self._once(method, path, data, sent, params, timeout)
            except (ApiUnreachable, ApiTimeout) as error:
                if not pauses:
                    raise
                reason = error.reason
            else:
                if response.status not in _TRANSIENT or not pauses:
                    return self._checked(response)
                reason = str(response.status)
            log.warning("%s %s failed (%s), trying again", method, path, reason)
            await asyncio.sleep(pauses.pop(0))

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send one request and yield its answer's bytes as they come; nothing is repeated.

        Raises:
            ErsError: as :meth:`request`, also where the answer breaks off.
        """
        await self.prepare(path)
        sent = await self._headers(headers, None)
        with self._ours():
            answer = await self.session.request(
                method,
                self.base_url + path,
                data=data,
                headers=sent,
                allow_redirects=False,
                timeout=_STREAMING,
            )
        async with answer:
            if answer.status >= 400:
                with self._ours():
                    body = await answer.read()
                self._checked(Response(answer.status, answer.headers, body))
            yield self._chunks(answer)

    async def messages(self, path: str) -> AsyncIterator[str]:
        """Open a WebSocket and yield its text messages until the other side closes it.

        Raises:
            Unavailable: it cannot be opened, or broke.
        """
        await self.prepare(path)
        sent = await self._headers(None, None)
        with self._ours():
            socket = await self.session.ws_connect(self.base_url + path, headers=sent, heartbeat=30)
        async with socket:
            while True:
                with self._ours():
                    message = await socket.receive()
                if message.type is not aiohttp.WSMsgType.TEXT:
                    return
                yield message.data

    async def _chunks(self, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        # Only reading is inside: what the caller does with a chunk fails under its own name.
        with self._ours():
            async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
                yield chunk

    async def _headers(self, more: Mapping[str, str] | None, auth: str | None) -> dict[str, str]:
        # Bodies are mostly ciphertext; compressing them would only cost time.
        sent = {"Accept-Encoding": "identity", **(more or {})}
        if logs.request_id.get() != logs.NO_REQUEST:
            sent.setdefault("X-Request-ID", logs.request_id.get())
        credentials = auth or (await self.auth() if callable(self.auth) else self.auth)
        if credentials is not None:
            sent["Authorization"] = credentials
        return sent

    async def _once(
        self,
        method: str,
        path: str,
        data: Body,
        headers: Mapping[str, str],
        params: Mapping[str, str] | None,
        seconds: float | None,
    ) -> Response:
        options: dict[str, Any] = {}
        if seconds is not None:
            options["timeout"] = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        elif not isinstance(data, bytes | None):
            options["timeout"] = _STREAMING
        with self._ours():
            async with self.session.request(
                method,
                self.base_url + path,
                data=data,
                headers=headers,
                params=params,
                allow_redirects=False,
                **options,
            ) as answer:
                return Response(answer.status, answer.headers, await answer.read())

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """Failures of the connection leave the block as errors of ours."""
        try:
            yield
        except TimeoutError:
            raise ApiTimeout(f"{self.base_url} gave no answer in time") from None
        except aiohttp.InvalidURL:
            raise Malformed(f"{self.base_url} is no URL of a service") from None
        except (aiohttp.ClientError, ConnectionError, OSError):
            raise self.unreachable(f"no connection to {self.base_url}, or it broke off") from None

    @staticmethod
    def _checked(response: Response) -> Response:
        if response.status < 400:
            return response
        wait = response.headers.get("Retry-After", "")
        raise problem.to_error(
            response.status, response.body, int(wait) if wait.isdecimal() else None
        )

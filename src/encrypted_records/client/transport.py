"""One HTTP connection pool towards one host; foreign failures leave it as ours.

A request is repeated only where its caller says that repeating is safe (``repeatable``): reads,
and writes that carry an id under which the other side recognises them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from encrypted_records import logs
from encrypted_records.errors import ApiFailed, ApiTimeout, ApiUnreachable, Malformed
from encrypted_records.model import problem

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 120.0
#: Pauses before each repetition of a repeatable request.
BACKOFF_SECONDS = (0.1, 0.5, 2.0)
_TRANSIENT = frozenset({502, 503, 504})

Body = bytes | AsyncIterable[bytes] | None


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


class Transport:
    """Requests to ``base_url``.

    Args:
        base_url: scheme, host and port, no path.
        auth: the value of the Authorization header, or None.
    """

    def __init__(self, base_url: str, *, auth: str | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self.auth = auth
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

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
                timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS),
            )
        return self._session

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        data: bytes | None = None,
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
            repeatable: whether a failed attempt may be sent again; GET is unless told otherwise.

        Raises:
            ErsError: the class that the answer's problem document or status stands for.
            ApiUnreachable, ApiTimeout: no answer, after all attempts.
        """
        # Bodies are mostly ciphertext; compressing them would only cost time.
        sent = {"Accept-Encoding": "identity", **(headers or {})}
        if logs.request_id.get() != logs.NO_REQUEST:
            sent.setdefault("X-Request-ID", logs.request_id.get())
        credentials = auth or self.auth
        if credentials is not None:
            sent["Authorization"] = credentials
        if json is not None:
            data = msgspec.json.encode(json)
            sent.setdefault("Content-Type", "application/json")
        pauses = (
            list(BACKOFF_SECONDS) if repeatable or (repeatable is None and method == "GET") else []
        )
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

    async def _once(
        self,
        method: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        params: Mapping[str, str] | None,
        seconds: float | None,
    ) -> Response:
        options: dict[str, Any] = {}
        if seconds is not None:
            options["timeout"] = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        try:
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
        except TimeoutError:
            raise ApiTimeout(f"{self.base_url} gave no answer in time") from None
        except aiohttp.InvalidURL:
            raise Malformed(f"{self.base_url} is no URL of a service") from None
        except (aiohttp.ClientError, ConnectionError, OSError):
            raise ApiUnreachable(f"no connection to {self.base_url}, or it broke off") from None

    @staticmethod
    def _checked(response: Response) -> Response:
        if response.status < 400:
            return response
        wait = response.headers.get("Retry-After", "")
        raise problem.to_error(
            response.status, response.body, int(wait) if wait.isdecimal() else None
        )

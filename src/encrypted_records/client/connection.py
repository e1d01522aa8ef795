"""What every part of the proxy's client stands on: one transport, and JSON with exact numbers."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

import msgspec

from encrypted_records.client.transport import Authorization, Closing, Transport
from encrypted_records.errors import ApiFailed, Malformed, NoProxy, ProxyUnreachable
from encrypted_records.model import strict_json

T = TypeVar("T")

_encoder = msgspec.json.Encoder(decimal_format="number")
#: Things asked for in one request of a list that says nothing else.
_PAGE = 1000
#: What goes there is plaintext or keys, which an API must never see.
_FOR_PROXIES_ALONE = (
    "/api/records/",
    "/api/jobs/",
    "/api/files/",
    "/api/keyring/",
    "/api/schemas/infer/",
    "/api/schemas/estimate/",
)


def basic(email: str, password: str) -> str:
    """The Authorization value of Basic credentials (RFC 7617, UTF-8)."""
    return "Basic " + base64.b64encode(f"{email}:{password}".encode()).decode()


class ProxyTransport(Transport):
    """Requests to a proxy. That one answers is made sure of before anything secret is sent."""

    unreachable = ProxyUnreachable
    #: Less than the five of uvicorn. While a command waits for an answer on the terminal, nobody
    #: sees the proxy close the connection, and what is sent on it next may not be sent again.
    idle_seconds = 3.0

    def __init__(self, base_url: str, *, auth: str | Authorization | None = None) -> None:
        super().__init__(base_url, auth=auth)
        self._is_proxy = False

    async def prepare(self, path: str) -> None:
        """Ask once who answers, where only a proxy may have what is sent to ``path``.

        Raises:
            NoProxy: somebody else does, such as an API.
        """
        if self._is_proxy or not path.startswith(_FOR_PROXIES_ALONE):
            return
        answer = (await self.request("GET", "/api/status/")).json()
        if not (isinstance(answer, dict) and answer.get("behind_proxy") is True):
            raise NoProxy(f"{self.base_url} is no proxy")
        self._is_proxy = True


class Connection(Closing):
    """A proxy at ``proxy_url``, used by one account or by none.

    Args:
        email, password: who asks, by Basic credentials.
        auth: what gives an Authorization value instead, such as one of a token.
    """

    def __init__(
        self,
        proxy_url: str,
        *,
        email: str | None = None,
        password: str | None = None,
        auth: Authorization | None = None,
    ) -> None:
        known = basic(email, password) if email is not None and password is not None else None
        self._transport = ProxyTransport(proxy_url, auth=auth or known)

    async def close(self) -> None:
        await self._transport.close()

    async def _ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
    ) -> Any:
        """Send JSON whose numbers are exact, and read the answer alike; None where it is empty."""
        sent = dict(headers or {})
        if body is not None:
            sent["Content-Type"] = "application/json"
        answer = await self._transport.request(
            method,
            path,
            data=None if body is None else encoded(body),
            headers=sent,
            params=params,
            repeatable=repeatable,
        )
        if not answer.body:
            return None
        try:
            return strict_json.loads(answer.body)
        except Malformed:
            raise ApiFailed("the answer was not the JSON that was expected") from None

    async def _listed(self, path: str | None, **filters: str) -> AsyncIterator[Mapping[str, Any]]:
        """What a list holds, page after page."""
        params: Mapping[str, str] | None = {"limit": str(_PAGE), **filters}
        while path is not None:
            page = await self._ask("GET", path, params=params)
            try:
                results, path = page["results"], page["next"]
            except (KeyError, TypeError):
                raise ApiFailed("the list is not of the expected form") from None
            params = None  # the link holds them
            for one in results:
                yield one


def encoded(body: Any) -> bytes:
    """``body`` as JSON whose numbers are exact."""
    return _encoder.encode(body)


def typed(found: Any, kind: type[T]) -> T:
    """``found`` as ``kind``.

    Raises:
        ApiFailed: it is not.
    """
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError:
        raise ApiFailed("the answer was not the JSON that was expected") from None

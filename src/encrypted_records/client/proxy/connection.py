"""The shared base of all parts of the proxy's client: one transport, and JSON with exact
numbers."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

import msgspec

from encrypted_records.client.limits import STANDARD, ClientLimits
from encrypted_records.client.messages import Closing
from encrypted_records.client.proxy.plain_values import STORABLE, plain
from encrypted_records.client.proxy.transport import Device, ProxyTransport, device_of, explain
from encrypted_records.client.transport import Authorization
from encrypted_records.errors import ApiFailed, BadInput, Malformed
from encrypted_records.model import strict_json
from encrypted_records.model.credentials import DeviceSecret, looks_like_service_key

T = TypeVar("T")


def basic(email: str, password: str) -> str:
    """The Authorization value of Basic credentials (RFC 7617, UTF-8)."""
    return "Basic " + base64.b64encode(f"{email}:{password}".encode()).decode()


class Connection(Closing):
    """A proxy at ``proxy_url``, used by one account or by none.

    Args:
        email, password: who asks, by Basic credentials.
        token: an API token instead, as ``ers token create NAME`` prints it; or the string of a
            service, as ``ers service create NAME`` does, which nothing but a proxy is sent.
        auth: what gives an Authorization value instead of both.
        headers: sent with every request.
        device: the secret of one that the proxy has taken in, or a :func:`.transport.new_device`.
        door: what this machine's user has of a proxy that is the same user's.
        own: whether to tell nothing to what does not know the door.
        limits: how much is sent and asked for at once, and how long it waits.
    """

    def __init__(
        self,
        proxy_url: str,
        *,
        email: str | None = None,
        password: str | None = None,
        token: str | None = None,
        auth: Authorization | None = None,
        headers: Mapping[str, str] | None = None,
        device: Device | str | None = None,
        door: DeviceSecret | None = None,
        own: bool = False,
        limits: ClientLimits = STANDARD,
    ) -> None:
        self.limits = limits
        known = basic(email, password) if email is not None and password is not None else None
        if token is not None:
            known = f"Bearer {token.strip()}"
        service = token is not None and looks_like_service_key(token)
        self._transport = ProxyTransport(
            proxy_url,
            auth=auth or known,
            headers=headers,
            device=device_of(device) if isinstance(device, str) else device,
            door=door,
            own=own,
            service=service,
            timing=limits.timing,
        )

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
        data = None if body is None else encode(body)
        answer = await self._transport.request(
            method, path, data=data, headers=sent, params=params, repeatable=repeatable
        )
        if not answer.body:
            return None
        try:
            return strict_json.loads(answer.body)
        except Malformed:
            raise ApiFailed("the answer was not the JSON that was expected") from None

    async def _list(self, path: str | None, **filters: str) -> AsyncIterator[Mapping[str, Any]]:
        """Items of a list, fetched page by page."""
        params: Mapping[str, str] | None = {"limit": str(self.limits.listed), **filters}
        while path is not None:
            page = await self._ask("GET", path, params=params)
            try:
                results, path = page["results"], page["next"]
            except (KeyError, TypeError):
                raise ApiFailed("the list is not of the expected form") from None
            params = None  # the link holds them
            for result in results:
                yield result


def encode(body: Any) -> bytes:
    """``body`` as JSON whose numbers are exact, with values of Python as :mod:`.plain_values` says.

    Raises:
        BadInput: it holds what JSON cannot say. Its place and its kind are named, never its value.
    """
    try:
        return encode_plain(plain(body))
    except BadInput as error:
        explain(error)
        raise


def encode_plain(body: Any) -> bytes:
    """Encode plain values like :func:`encode`.

    Raises:
        BadInput: as for :func:`encode`, without the position of the value.
    """
    try:
        return strict_json.encode(body)
    except UnicodeEncodeError:
        raise BadInput("a text contains half of a surrogate pair", hint=STORABLE) from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        # The library says "Encoding objects of type pandas.Timestamp is unsupported".
        kind = re.search(r"objects of type ([\w.]+)", str(error))
        what = f"a {kind[1].rpartition('.')[2]}" if kind else "a value of this kind"
        raise BadInput(f"{what} cannot be sent as JSON", hint=STORABLE) from None


def convert(value: Any, kind: type[T]) -> T:
    """``value`` as ``kind``.

    Raises:
        ApiFailed: it is not.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise ApiFailed("the answer was not the JSON that was expected") from None

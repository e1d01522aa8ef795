"""Requests to a proxy. Before it sends a secret, it checks that a proxy answers, and which one.

- Plaintext and keys are sent only to a server that identifies itself as a proxy.
- A client with a registered device first sends a challenge about it. A program that took the
  proxy's port cannot answer, and receives only the challenge.
- It repeats the challenge on every new connection, because another program may listen now.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from encrypted_records import errors, runtime
from encrypted_records.client.limits import PROXY_TIMING, Timing
from encrypted_records.client.messages import Request, Response
from encrypted_records.client.transport import BARE, Authorization, Transport
from encrypted_records.model import credentials
from encrypted_records.model.credentials import DeviceSecret

if TYPE_CHECKING:
    import aiohttp

#: Requests to these paths contain plaintext or keys, which an API must never see.
_FOR_PROXIES_ALONE = (
    "/api/records/",
    "/api/jobs/",
    "/api/files/",
    "/api/keyring/",
    "/api/devices/",
    "/api/schemas/infer/",
    "/api/schemas/estimate/",
)
#: Requests for which the door matters: they return or change keys, grant rights, or make the proxy
#: trust the API once.
_THROUGH_THE_DOOR = re.compile(
    r"/api/(keyring|devices)/"
    r"|/api/(organizations|datasets)/[^/]+/(people|recover|rollback|services)/"
    r"|/api/schemas/[^/]+/accept-log/"
)
_STATUS = "/api/status/"
#: Seconds of difference up to which two clocks count as equal.
_CLOCKS_AGREE = 2.0
#: Maximum flaws of an error that a traceback shows.
_FLAWS_NOTED = 5
#: More connections than the pool of one client opens at a time.
_MOST_CONNECTIONS = 200

T = TypeVar("T")
_Error = TypeVar("_Error", bound=errors.ErsError)


class _NewConnection(Exception):
    """A request would use a new connection, whose peer has not been verified."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device that a client shows to its proxy.

    Attributes:
        secret: never printed by ``repr``; programs store its ``text``.
        new: whether it is not registered at a proxy yet, so that no proxy can be recognised by it.
    """

    secret: DeviceSecret
    new: bool = False


def new_device() -> Device:
    """A device that no proxy knows yet."""
    return Device(credentials.generate_device_secret(), new=True)


def device_of(text: str) -> Device:
    """The device with the secret of a registered device.

    Raises:
        BadInput: it is not a device secret.
    """
    secret = credentials.parse_device_secret(text)
    if secret is None:
        raise errors.BadInput(
            "this is not a device secret",
            hint="take what ers device create printed: ersd1_, 8 characters, _, 43 characters",
        )
    return Device(secret)


class ProxyTransport(Transport):
    """Requests to a proxy.

    Args:
        device: shown with every request, after the proxy has proved that it knows the device. A
            ``new`` device is shown without proof.
        door: the secret of a proxy of this machine's user; shown to a proxy that knows it, for
            requests that need it.
        requires_door: whether to send requests only to a proxy that knows the door.
        service: whether the credential is a service's string, which only a proxy may get.
    """

    unreachable = errors.ProxyUnreachable
    connections = 100
    longest_answer = None  # a proxy is trusted, and answers with long lists of records
    # The challenge and the stream have to use the same connection.
    streams_apart = False

    def __init__(
        self,
        base_url: str,
        *,
        auth: str | Authorization | None = None,
        headers: Mapping[str, str] | None = None,
        device: Device | None = None,
        door: DeviceSecret | None = None,
        requires_door: bool = False,
        service: bool = False,
        timing: Timing = PROXY_TIMING,
    ) -> None:
        require_address(base_url)
        super().__init__(by_address(base_url), auth=auth, headers=headers, timing=timing)
        self.device = device
        self._door = door
        self._requires_door = requires_door
        #: the credential contains keys, so only a proxy may see it
        self._is_service = service
        self._is_proxy = False
        self._closed = False
        #: the event loop of the connections; None before the first
        self._loop: asyncio.AbstractEventLoop | None = None
        #: for the device and the door: whether the proxy knows them; None before the challenge
        self._known: dict[str, bool] = {}
        #: whether the next connection may be a new one: the last server keeps none open
        self._closes = False
        self._asking = asyncio.Lock()
        #: seconds by which the proxy's clock is ahead of this machine's; None before it answers
        self._ahead: float | None = None

    def begin_anew(self) -> ProxyTransport:
        """The same transport without a connection; this one's are abandoned, not closed."""
        self.abandon()
        return ProxyTransport(
            self.base_url,
            auth=self.auth,
            headers=self.headers,
            device=self.device,
            door=self._door,
            requires_door=self._requires_door,
            service=self._is_service,
            timing=self.timing,
        )

    def _pool(self, name: str, connections: int) -> aiohttp.ClientSession:
        """
        Raises:
            ClientClosed: it was closed, or belongs to another event loop; nothing is sent.
        """
        if self._closed:
            raise errors.ClientClosed("this client is closed")
        running = asyncio.get_running_loop()
        self._loop = self._loop or running
        if self._loop is not running:
            raise errors.ClientClosed(
                "this client belongs to another event loop, such as that of an earlier"
                " asyncio.run()",
                hint="nothing was sent; make a client in each event loop, or use the synchronous"
                " Client, which works in all of them",
            )
        return super()._pool(name, connections)

    async def close(self) -> None:
        self._closed = True
        await super().close()

    async def request(self, *args: Any, **options: Any) -> Response:
        try:
            return await super().request(*args, **options)
        except errors.ErsError as error:
            error.hint = _hint_for_programs(error)
            explain(error)
            raise

    async def attempt(self, request: Request) -> Response:
        response = await super().attempt(request)
        if response.date is not None:
            self._ahead = response.date - runtime.wall()
        return response

    async def proxy_time(self) -> float:
        """The proxy's time, to about a second: this machine's clock may be wrong. This machine's
        time if no answer has stated another.
        """
        if self._ahead is None:
            await self.prepare(_FOR_PROXIES_ALONE[0])
        # Dates are whole seconds, and slightly in the past.
        ahead = self._ahead or 0.0
        return runtime.wall() + (ahead if abs(ahead) > _CLOCKS_AGREE else 0.0)

    # --- before a request -------------------------------------------------------------------

    async def prepare(self, path: str) -> Mapping[str, str]:
        """Verify the server; returns the device and door headers, if they are needed.

        Raises:
            ApiFailed: ``path`` leads to another server than this proxy.
            NotThisProxy: the server does not know the device.
            NoProxy: requests to ``path`` are only for proxies, and this server is not a proxy.
        """
        if not path.startswith("/"):
            # It would be appended to the host's name; a list's next page can contain anything.
            raise errors.ApiFailed("the answer refers to something that is not a path")
        async with self._asking:
            await self._meet()
            by_door = _THROUGH_THE_DOOR.match(path) and await self._knows_door()
            alone = path.startswith(_FOR_PROXIES_ALONE) or self._is_service
            if alone and not self._is_proxy:
                await self._ask_status({})
                if not self._is_proxy:
                    raise errors.NoProxy(f"{self.base_url} is not a proxy")
        shown: dict[str, str] = {}
        if self.device is not None and self._is_proxy:
            shown[credentials.DEVICE_HEADER] = self.device.secret.text
        if self._door is not None and by_door:
            shown[credentials.DOOR_HEADER] = self._door.text
        return shown

    async def _meet(self) -> None:
        """
        Raises:
            NotThisProxy: the server does not know the device, and is not a proxy of this user.
        """
        device = self.device
        if device is not None and not self._requires_door:
            if await self._knows(device.secret) or device.new or await self._knows_door():
                return
            raise errors.NotThisProxy(
                f"the program that answers at {self.base_url} does not know your device"
            )
        if self._requires_door and not await self._knows_door():
            raise errors.NotThisProxy(
                f"the program that answers at {self.base_url} is not the proxy that was started",
                hint="nothing was sent: another program took its port; try again",
            )

    async def _knows_door(self) -> bool:
        return self._door is not None and await self._knows(self._door)

    async def _knows(self, secret: DeviceSecret) -> bool:
        known = self._known.get(secret.id)
        if known is None:
            known = self._known[secret.id] = await self.challenge(secret)
        return known

    async def challenge(self, secret: DeviceSecret) -> bool:
        """Whether the server knows a secret."""
        nonce = runtime.random_text(24)
        host = urlsplit(self.base_url).netloc.rpartition("@")[2]
        headers = {credentials.CHALLENGE_HEADER: f"{secret.id}.{nonce}", "Host": host}
        answer = (await self._ask_status(headers)).get(credentials.ANSWER_HEADER, "")
        expected = credentials.challenge_answer(secret.digest, nonce, host)
        return hmac.compare_digest(answer.encode(), expected.encode())

    async def _ask_status(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """The headers of the answer, which show whether it comes from a proxy; empty for other
        answers.

        Raises:
            Unavailable: no answer, or a forwarded failure of the API.
        """
        self._is_proxy = False
        try:
            answer = await self.request("GET", _STATUS, headers=headers, bare=True)
        except errors.Unavailable:
            raise
        except errors.ErsError:
            return {}
        self._closes = answer.headers.get("Connection", "").lower() == "close"
        with suppress(errors.ApiFailed):
            members = answer.json()
            self._is_proxy = isinstance(members, dict) and members.get("behind_proxy") is True
        return answer.headers

    # --- sending ----------------------------------------------------------------------------

    def traces(self) -> list[aiohttp.TraceConfig]:
        """A trace that stops requests before they open a connection."""
        import aiohttp  # noqa: PLC0415 # as Transport does

        tracing = aiohttp.TraceConfig()
        tracing.on_connection_create_start.append(self._before_connecting)
        return [tracing]

    async def _before_connecting(
        self, _session: aiohttp.ClientSession, context: SimpleNamespace, _params: Any
    ) -> None:
        if getattr(context, "trace_request_ctx", None) == BARE or not any(self._known.values()):
            return
        if self._closes:
            self._closes = False
            return
        raise _NewConnection

    async def send_prepared(
        self,
        path: str,
        send: Callable[[Mapping[str, str]], Awaitable[T]],
        more: Mapping[str, str] | None = None,
        auth: str | None = None,
    ) -> T:
        """Send a request like any transport, on a connection whose peer was verified.

        Raises:
            ProxyUnreachable: connections close before the server answers the challenge.
        """
        for _ in range(_MOST_CONNECTIONS):
            try:
                return await super().send_prepared(path, send, more, auth)
            except _NewConnection:
                self._known.clear()  # the challenge opens a connection for the request
        raise errors.ProxyUnreachable(f"the connections to {self.base_url} keep breaking off")

    # --- about the device -------------------------------------------------------------------

    def show(self, device: Device | None) -> None:
        """Use this device from now on, or none."""
        self.device = device
        self._known.clear()

    async def has_device(self) -> bool:
        """Whether the proxy says now that it knows the device."""
        if self.device is None:
            return False
        async with self._asking:
            self._known.pop(self.device.secret.id, None)
            return await self._knows(self.device.secret)

    async def has_door(self) -> bool:
        """Whether this is a proxy of this machine's user, whose door is known here."""
        async with self._asking:
            return await self._knows_door()


#: By code: hints for programs, where the response names requests and headers.
CREDENTIAL_HINTS = {
    "not_authenticated": "give the client an email and a password, or a token",
    "bad_token": "give the client a valid token, or an email and a password",
}


#: The same for other errors.
_PROGRAM_HINTS = {
    "confirm_count": "nothing was deleted; confirm this number instead, if it is right",
}


def _hint_for_programs(error: errors.ErsError) -> str:
    if error.reason in CREDENTIAL_HINTS:
        return CREDENTIAL_HINTS[error.reason]
    if "Retry-After" in error.hint:
        wait = error.retry_after
        return "try again shortly" if wait is None else f"try again in {wait} seconds"
    return _PROGRAM_HINTS.get(error.reason, error.hint)


def explain(error: _Error) -> _Error:
    """The error with a note of the faults, their positions and the hint: a notebook shows only the
    traceback.
    """
    if getattr(error, "__notes__", None):
        return error  # of a nested request
    for flaw in error.flaws[:_FLAWS_NOTED]:
        where = flaw.field or flaw.pointer or ""
        row = "" if flaw.row is None else f"row {flaw.row}{', ' if where else ''}"
        error.add_note(f"  {row}{where}: {flaw.detail}")
    if len(error.flaws) > _FLAWS_NOTED:
        error.add_note(f"  and {len(error.flaws) - _FLAWS_NOTED} more, in its flaws")
    if error.hint:
        error.add_note(f"hint: {error.hint}")
    return error


def require_address(url: str) -> None:
    """
    Raises:
        InvalidSetting: it cannot be the address of a proxy.
    """
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise explain(
            errors.InvalidSetting(
                "this is not the address of a proxy", hint="such as http://127.0.0.1:8080"
            )
        )


def by_address(url: str) -> str:
    """``localhost`` as the IPv4 address that a proxy listens on. The name also means [::1], and on
    its port another user's program could relay requests to the proxy, including the challenge.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or (parts.hostname or "").lower() != "localhost":
        return url
    port = "" if parts.port is None else f":{parts.port}"
    return urlunsplit(parts._replace(netloc=f"127.0.0.1{port}"))

"""The devices at a proxy that may use the user's keyring, and how further ones are enrolled.

No value that holds a secret prints it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from encrypted_records.client.proxy.connection import Connection, convert
from encrypted_records.client.proxy.transport import Device, device_of, new_device
from encrypted_records.model.credentials import DEVICE_HEADER


class Proof(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """A fresh proof that the user is asking: one of the three.

    Attributes:
        password: of the account.
        code: of the account's second factor, beside the password, where it has one.
        passphrase: of the keyring, where it has one of its user's own.
        phrase: the words of the keyring's newest version, which stand for everything else.
    """

    password: str | None = None
    code: str | None = None
    passphrase: str | None = None
    phrase: str | None = None

    def __repr__(self) -> str:
        return "<proof>"


class KnownKeyring(msgspec.Struct, frozen=True):
    """The public part of a keyring, before it is unlocked.

    Attributes:
        made: when, in seconds since 1970.
        fingerprint: of its newest version, in hexadecimal.
        passphrase: whether it is under one of its user's own.
    """

    made: int
    fingerprint: str
    passphrase: bool


class DeviceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A device that was taken in.

    Attributes:
        way: how it showed that it may.
        created, used: seconds since 1970; ``used`` to the day.
        this: whether the request came from it.
    """

    id: str
    name: str
    way: str
    created: int
    used: int
    this: bool


class OwnDevice(DeviceInfo, frozen=True, kw_only=True):
    """A device with its secret, ``device``, which no one can ask for again."""

    device: str

    def __repr__(self) -> str:
        return f"<device {self.id}>"


class DeviceEvent(msgspec.Struct, frozen=True):
    """An event that happened ``count`` times on the day of ``at``, in seconds since 1970."""

    at: int
    kind: str
    device: str | None
    detail: str | None
    count: int


class Devices(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Devices that may use the user's keyring at a proxy.

    Attributes:
        user: the id of the account.
        level: ``api`` where credentials suffice, ``device`` where a device is needed as well.
        enrolled: whether the device of this client is taken in.
        keyring: None before there is one.
        count: how many devices there are.
        devices, events: None where this client may not see them.
        exposed: whether others can reach a proxy that works at level ``api``.
    """

    user: str
    level: str
    enrolled: bool
    keyring: KnownKeyring | None
    count: int
    exposed: bool
    devices: list[DeviceInfo] | None = None
    events: list[DeviceEvent] | None = None


class Code(msgspec.Struct, frozen=True):
    """A code that registers one device, once, within the next ``seconds``."""

    code: str
    seconds: int

    def __repr__(self) -> str:
        return "<code>"


class DeviceCalls(Connection):
    async def devices(self) -> Devices:
        return convert(await self._ask("GET", "/api/devices/"), Devices)

    async def add_device(
        self,
        name: str = "",
        *,
        code: str | None = None,
        passphrase: str | None = None,
        phrase: str | None = None,
    ) -> OwnDevice:
        """Register this client's device; a device is made if it has none.

        The client shows it from then on. Keep its secret: ``device=`` of the next client.

        Args:
            code: one that a device made which was taken in; or
            passphrase: the keyring's own; or
            phrase: the words of its newest version. On the machine of the proxy ``ers`` needs none.
        """
        device = self._transport.device or new_device()
        ways = {"code": code, "passphrase": passphrase, "phrase": phrase}
        body = {"name": name} | {way: shown for way, shown in ways.items() if shown is not None}
        headers = {DEVICE_HEADER: device.secret.text}
        answer = await self._ask("POST", "/api/devices/", body, headers=headers)
        self._transport.show(Device(device.secret))
        return convert({**_members(answer), "device": device.secret.text}, OwnDevice)

    async def create_device(self, name: str, *, proof: Proof | None = None) -> OwnDevice:
        """A further device, for another program."""
        body = {"name": name, "create": True, **proof_member(proof)}
        return convert(await self._ask("POST", "/api/devices/", body), OwnDevice)

    async def device_code(self, *, user: str | None = None, proof: Proof | None = None) -> Code:
        """Make a code that registers one more device.

        Args:
            user: the id of another user, whose keyring the code is for; only for the local user.
        """
        body = ({} if user is None else {"user": user}) | proof_member(proof)
        return convert(await self._ask("POST", "/api/devices/code/", body), Code)

    async def revoke_device(self, device_id: str, *, proof: Proof | None = None) -> None:
        """Revoke a device; the client's own device needs no proof."""
        path = f"/api/devices/{quote(device_id, safe='')}/"
        await self._ask("DELETE", path, proof_member(proof))

    # --- about the device of this client ----------------------------------------------------

    @property
    def device(self) -> Device | None:
        return self._transport.device

    def show_device(self, device: Device | str | None) -> None:
        """Show this device from now on, or none."""
        self._transport.show(device_of(device) if isinstance(device, str) else device)

    async def is_known(self) -> bool:
        """Whether the proxy says now that it knows the client's device."""
        return await self._transport.has_device()

    async def has_door(self) -> bool:
        """Whether the door that the client was given is this proxy's."""
        return await self._transport.has_door()


def proof_member(proof: Proof | None) -> dict[str, Any]:
    """The member of a body that holds the proof, where there is one."""
    return {} if proof is None else {"proof": msgspec.to_builtins(proof)}


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

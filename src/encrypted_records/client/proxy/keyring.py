"""The user's keyring at the proxy, and the devices that may use it.

These requests carry keys. Objects with secrets do not print them, and nothing is stored here.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from encrypted_records.client.proxy.connection import Connection
from encrypted_records.client.proxy.transport import Device, device_of, new_device
from encrypted_records.model.credentials import DEVICE_HEADER


class Proof(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """A fresh proof that the user is asking: a password, a passphrase or a phrase.

    Attributes:
        password: password of the account.
        code: code of the account's second factor, beside the password, where it has one.
        passphrase: passphrase of the keyring, where it has one of its user's own.
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
        made: time at which it was made, in seconds since 1970.
        fingerprint: fingerprint of its newest version, in hexadecimal.
        passphrase: whether it is under a passphrase of its user.
    """

    made: int
    fingerprint: str
    passphrase: bool


class DeviceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A registered device.

    Attributes:
        way: the proof by which it was registered.
        created, used: times in seconds since 1970; ``used`` to the day.
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
        enrolled: whether the device of this client is registered.
        keyring: the user's keyring; None before there is one.
        count: number of devices.
        devices, events: absent where this client may not see them.
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
        return (await self._ask("GET", "/api/devices/")).convert(Devices)

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
            code: a code from a registered device; or
            passphrase: the keyring's passphrase; or
            phrase: the words of its newest version. On the proxy's machine ``ers`` needs none of
                them.
        """
        device = self._transport.device or new_device()
        ways = {"code": code, "passphrase": passphrase, "phrase": phrase}
        body = {"name": name} | {way: shown for way, shown in ways.items() if shown is not None}
        headers = {DEVICE_HEADER: device.secret.text}
        answer = await self._ask("POST", "/api/devices/", body, headers=headers)
        self._transport.show(Device(device.secret))
        info = msgspec.structs.asdict(answer.convert(DeviceInfo))
        return OwnDevice(**info, device=device.secret.text)

    async def create_device(self, name: str, *, proof: Proof | None = None) -> OwnDevice:
        """Create a further device, for another program."""
        body = {"name": name, "create": True, **proof_member(proof)}
        return (await self._ask("POST", "/api/devices/", body)).convert(OwnDevice)

    async def device_code(self, *, user: str | None = None, proof: Proof | None = None) -> Code:
        """Create a code that registers one more device.

        Args:
            user: the id of another user, whose keyring the code is for; only for the local user.
        """
        body = ({} if user is None else {"user": user}) | proof_member(proof)
        return (await self._ask("POST", "/api/devices/code/", body)).convert(Code)

    async def revoke_device(self, device_id: str, *, proof: Proof | None = None) -> None:
        """Revoke a device; the client's own device needs no proof."""
        path = f"/api/devices/{quote(device_id, safe='')}/"
        await self._ask("DELETE", path, proof_member(proof))

    # --- about the device of this client ----------------------------------------------------

    @property
    def device(self) -> Device | None:
        return self._transport.device

    def show_device(self, device: Device | str | None) -> None:
        """Use this device from now on, or none."""
        self._transport.show(device_of(device) if isinstance(device, str) else device)

    async def is_known(self) -> bool:
        """Whether the proxy says now that it knows the client's device."""
        return await self._transport.has_device()

    async def has_door(self) -> bool:
        """Whether the client's door belongs to this proxy."""
        return await self._transport.has_door()


def proof_member(proof: Proof | None) -> dict[str, Any]:
    """The member of a body with the proof, if there is one."""
    return {} if proof is None else {"proof": msgspec.to_builtins(proof)}


class KeyVersion(msgspec.Struct, frozen=True):
    """A root key of a keyring.

    Attributes:
        created: time in seconds since 1970; 0 if unknown.
        backup_confirmed: whether a backup of it was confirmed.
    """

    version: int
    created: int
    fingerprint: str
    backup_confirmed: bool


class KeyringInfo(msgspec.Struct, frozen=True):
    """The public part of a keyring.

    Attributes:
        restore_tried: time at which its backup was last restored or tried, in seconds since 1970;
            None if it never was.
    """

    fingerprint: str
    versions: list[KeyVersion]
    wrapping: str
    backup_confirmed: bool
    restore_tried: int | None


class SealedSchema(msgspec.Struct, frozen=True):
    """A schema that has records, the versions that they are sealed under, and whether the keys are
    in this keyring."""

    url: str
    name: str
    first_key_version: int
    key_version: int
    key_id: str
    held: bool


class Phrase(msgspec.Struct, frozen=True):
    """The recovery phrase of one version. It is the key: it belongs on paper, and nowhere else."""

    version: int
    phrase: str

    def __repr__(self) -> str:
        return f"<phrase of version {self.version}>"


class Unlocked(KeyringInfo, frozen=True, kw_only=True, omit_defaults=True):
    """A keyring that was unlocked.

    Attributes:
        device: the secret of a device that was made for a client that has none; it alone has the
            keyring unlocked.
    """

    device: str | None = None

    def __repr__(self) -> str:
        return f"<keyring {self.fingerprint}>"


class ChangedPassphrase(msgspec.Struct, frozen=True):
    """A change of a keyring's passphrase.

    Attributes:
        left: number of files of replaced keyrings that do not open and stay as they are.
    """

    wrapping: str
    left: int


class KeyringCalls(DeviceCalls):
    """Requests that return or change keys need a proof, unless the client has the proxy's door."""

    async def keyring(self) -> KeyringInfo:
        return (await self._ask("GET", "/api/keyring/")).convert(KeyringInfo)

    async def sealed_schemas(self) -> list[SealedSchema]:
        """The schemas with records that the user can access."""
        return (await self._ask("GET", "/api/keyring/schemas/")).convert(list[SealedSchema])

    async def backup_phrases(
        self, *, all_versions: bool = False, proof: Proof | None = None
    ) -> list[Phrase]:
        """The recovery phrases of the versions without a confirmed backup, or of all."""
        body = {"all": all_versions, **proof_member(proof)}
        return (await self._ask("POST", "/api/keyring/backup/", body)).convert(list[Phrase])

    async def backup_file(self, passphrase: str, *, proof: Proof | None = None) -> bytes:
        """A file with all versions, sealed with ``passphrase``."""
        path = "/api/keyring/backup/file/"
        body = {"passphrase": passphrase, **proof_member(proof)}
        return (await self._transport.request("POST", path, json=body)).body

    async def confirm_backup(self, phrase: str) -> None:
        """Record at the proxy that its user has the phrase."""
        await self._ask("POST", "/api/keyring/backup/confirm/", {"phrase": phrase})

    async def confirm_backup_file(self, file: bytes, passphrase: str) -> None:
        """Record at the proxy that its user has a backup file, after verifying that the file
        opens.
        """
        body = {"file": _base64(file), "passphrase": passphrase}
        await self._ask("POST", "/api/keyring/backup/confirm/", body)

    async def try_backup(self, phrases: Sequence[str]) -> KeyringInfo:
        """Test whether the phrases would restore the proxy's keyring; no key changes."""
        body = {"phrases": list(phrases), "dry_run": True}
        return (await self._ask("POST", "/api/keyring/restore/", body)).convert(KeyringInfo)

    async def try_backup_file(self, file: bytes, passphrase: str) -> KeyringInfo:
        """Test the same with a file from :meth:`backup_file`."""
        body = {"file": _base64(file), "passphrase": passphrase, "dry_run": True}
        return (await self._ask("POST", "/api/keyring/restore/", body)).convert(KeyringInfo)

    async def restore_keyring(
        self,
        phrases: Sequence[str],
        *,
        replace: bool = False,
        older_keys: bool = False,
        proof: Proof | None = None,
    ) -> KeyringInfo:
        """Restore this user's keyring at the proxy from its recovery phrases, one for each version.

        Over a mirror the client needs only a device (``new_device()``): the proxy finds the user in
        the signed rosters.

        Args:
            replace: whether a keyring with other keys may be replaced.
            older_keys: whether to accept organizations that know the user by an older version; only
                safe if no other person can have the older phrases.
            proof: needed if the proxy already has a keyring.
        """
        more = {"replace": replace, "older_keys": older_keys}
        body = {"phrases": list(phrases), **more, **proof_member(proof)}
        return (await self._ask("POST", "/api/keyring/restore/", body)).convert(KeyringInfo)

    async def rotate_keyring(self, *, proof: Proof | None = None) -> KeyringInfo:
        """Add a key version, which seals new data from now on."""
        answer = await self._ask("POST", "/api/keyring/rotate/", proof_member(proof))
        return answer.convert(KeyringInfo)

    async def restore_keyring_file(
        self,
        file: bytes,
        passphrase: str,
        *,
        replace: bool = False,
        older_keys: bool = False,
        proof: Proof | None = None,
    ) -> KeyringInfo:
        """Restore a keyring like :meth:`restore_keyring`, from the file that :meth:`backup_file`
        returned.
        """
        sealed = {"file": _base64(file), "passphrase": passphrase}
        more = {"replace": replace, "older_keys": older_keys}
        body = {**sealed, **more, **proof_member(proof)}
        return (await self._ask("POST", "/api/keyring/restore/", body)).convert(KeyringInfo)

    async def unlock_keyring(self, passphrase: str) -> Unlocked:
        """Unlock a keyring with its user's passphrase for the client's device, until it is locked,
        the device is idle for long, or the proxy ends.

        The passphrase registers the device. A client without a device gets one, and uses it from
        then on.
        """
        body = {"passphrase": passphrase}
        unlocked = (await self._ask("POST", "/api/keyring/unlock/", body)).convert(Unlocked)
        if unlocked.device is not None:
            self.show_device(unlocked.device)
        return unlocked

    async def lock_keyring(self) -> None:
        """Lock an unlocked keyring at the proxy."""
        await self._ask("POST", "/api/keyring/lock/")

    async def change_passphrase(
        self, new: str, *, old: str | None, proof: Proof | None = None
    ) -> int:
        """Encrypt the keyring under ``new``.

        Args:
            old: the present passphrase, if there is one; it is also a proof.

        Returns:
            The number of files of replaced keyrings that do not open and so stay unchanged.
        """
        body = {"new": new, "old": old, **proof_member(proof)}
        answer = await self._ask("POST", "/api/keyring/passphrase/", body)
        return answer.convert(ChangedPassphrase).left


def _base64(file: bytes) -> str:
    return base64.b64encode(file).decode()

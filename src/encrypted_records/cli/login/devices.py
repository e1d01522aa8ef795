"""Device secrets of this machine's user, one for each proxy and account.

A device belongs to one keyring, so each account at a proxy has its own device. The device is kept
after ``ers logout``: it identifies the machine that sends a request, not the user. Secrets are
stored in the keychain of the operating system or, if there is none, in a file that only its owner
can read.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from encrypted_records.cli.login.keychain import system_keychain
from encrypted_records.cli.settings import APP
from encrypted_records.cli.state_file import StateFile
from encrypted_records.client.proxy.transport import Device
from encrypted_records.errors import InvalidSetting
from encrypted_records.model import credentials

VARIABLE = "ERS_DEVICE"
_PREFIX = "ersd1_"
_MOST_CHARACTERS = 1000


class KeptDevice(msgspec.Struct, frozen=True):
    """A device as recorded in the file.

    Attributes:
        new: whether the device has not yet been registered at a proxy, as far as is known.
        secret: None if the secret is in the keychain.
    """

    new: bool
    secret: str | None = None

    def __repr__(self) -> str:
        return "<device>"


class KeptDevices:
    """The devices that this machine's user has at proxies.

    An address is a proxy's URL, or of an inline proxy its data folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.file = StateFile("devices", KeptDevice, folder)

    def find(self, address: str, email: str) -> Device | None:
        """The device of an account at a proxy, if one is kept.

        Raises:
            InvalidSetting: the place where it is kept cannot be read.
        """
        kept = self.file.read().get(_key(address, email))
        if kept is None:
            return None
        text = kept.secret
        if text is None:
            with system_keychain() as keychain:
                text = keychain.get_password(APP, _entry(address, email)) if keychain else None
        secret = credentials.parse_device_secret(text or "")
        return None if secret is None else Device(secret, new=kept.new)

    def keep(self, address: str, email: str, device: Device) -> str:
        """Store a device instead of an earlier one; where, in words."""
        with system_keychain() as keychain:
            if keychain is not None:
                keychain.set_password(APP, _entry(address, email), device.secret.text)
                self.file.put(_key(address, email), KeptDevice(device.new))
                return "the keychain"
        self.file.put(_key(address, email), KeptDevice(device.new, device.secret.text))
        return str(self.file.path)

    def rename(self, address: str, email: str, new: str) -> None:
        """Keep the device of an account, if there is one, under the account's new address."""
        device = self.find(address, email)
        if device is not None:
            self.keep(address, new, device)
            if _key(address, new) != _key(address, email):
                self.forget(address, email)

    def forget(self, address: str, email: str) -> None:
        kept = self.file.read().get(_key(address, email))
        self.file.put(_key(address, email), None)
        if kept is not None and kept.secret is None:
            with system_keychain() as keychain:
                name = _entry(address, email)
                if keychain is not None and keychain.get_password(APP, name) is not None:
                    keychain.delete_password(APP, name)


def _key(address: str, email: str) -> str:
    return f"{address} {email.lower()}"


def _entry(address: str, email: str) -> str:
    return f"device {_key(address, email)}"


def read_device() -> Device | None:
    """The device that ``ERS_DEVICE`` names, by its secret or by a file that holds it.

    Raises:
        InvalidSetting: it is neither.
    """
    told = os.environ.get(VARIABLE)
    if not told:
        return None
    text = told
    with suppress(OSError, ValueError):
        # What looks like a secret is not a path, and no error names it.
        if _PREFIX not in told:
            with Path(told).expanduser().open(encoding="ascii") as file:
                text = file.read(_MOST_CHARACTERS)
    secret = credentials.parse_device_secret(text.strip())
    if secret is None:
        raise InvalidSetting(
            f"{VARIABLE} is neither a device secret nor a file with one",
            hint="set it to the output of ers device create, or to the path of a file with it",
        )
    return Device(secret)

"""The secrets of this machine's user: a device for each proxy and account, and a pair of tokens for
each address.

Both are stored in the keychain of the operating system or, if there is none, in a file that only
its owner can read.

A device belongs to one keyring, so each account at a proxy has its own device. The device is kept
after ``ers logout``: it identifies the machine that sends a request, not the user.

Tokens are those of logins made by ``ers login``. A refresh token works once, and its reuse ends the
login. Therefore a command that refreshes a login holds a lock until the new pair is stored, so that
commands may run in parallel.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from encrypted_records.cli.settings import APP
from encrypted_records.cli.state_file import StateFile
from encrypted_records.client.proxy.transport import Device
from encrypted_records.errors import InvalidSetting, NotAllowed, NotAuthenticated
from encrypted_records.model import credentials
from encrypted_records.model.credentials import token_expiry, token_lifetime
from encrypted_records.model.resources import Tokens


@contextmanager
def system_keychain() -> Iterator[Any]:
    """The system's keychain; None if it is missing or fails, for example on a machine without a
    desktop, or in a locked session.
    """
    import keyring  # noqa: PLC0415 - slow to import, and often not needed
    from keyring.backends import fail, null  # noqa: PLC0415
    from keyring.errors import KeyringError  # noqa: PLC0415

    backend = keyring.get_keyring()
    with suppress(KeyringError):
        yield None if isinstance(backend, fail.Keyring | null.Keyring) else backend


DEVICE_VARIABLE = "ERS_DEVICE"
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
    """The devices of this machine's user at proxies.

    An address is a proxy's URL; for an inline proxy, its data folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.file = StateFile("devices", KeptDevice, folder)

    def find(self, address: str, email: str) -> Device | None:
        """The device of an account at a proxy, if one is kept.

        Raises:
            InvalidSetting: the storage cannot be read.
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
        """Store a device, replacing an earlier one; returns a description of the storage."""
        with system_keychain() as keychain:
            if keychain is not None:
                keychain.set_password(APP, _entry(address, email), device.secret.text)
                self.file.put(_key(address, email), KeptDevice(device.new))
                return "the keychain"
        self.file.put(_key(address, email), KeptDevice(device.new, device.secret.text))
        return str(self.file.path)

    def rename(self, address: str, email: str, new: str) -> None:
        """Move an account's device, if there is one, to the account's new address."""
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
    """The device from ``ERS_DEVICE``, which contains its secret or the path of a file with it.

    Raises:
        InvalidSetting: it is neither.
    """
    given = os.environ.get(DEVICE_VARIABLE)
    if not given:
        return None
    text = given
    with suppress(OSError, ValueError):
        # A text that looks like a secret is not a path, and no error repeats it.
        if _PREFIX not in given:
            with Path(given).expanduser().open(encoding="ascii") as file:
                text = file.read(_MOST_CHARACTERS)
    secret = credentials.parse_device_secret(text.strip())
    if secret is None:
        raise InvalidSetting(
            f"{DEVICE_VARIABLE} is neither a device secret nor a file with one",
            hint="set it to the output of ers device create, or to the path of a file with it",
        )
    return Device(secret)


#: An access token is replaced this long before its expiry, because a request may take long.
EARLY_SECONDS = 60.0


class KeptLogin(msgspec.Struct, frozen=True):
    """``kept`` is the time when the tokens arrived, by this machine's clock, in seconds since 1970;
    0 for tokens that an earlier version stored.
    """

    email: str
    tokens: Tokens
    kept: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether the access token stays valid for a while. Its lifetime is by its issuer's clock,
        its age by this machine's clock, which may differ by days.
        """
        good, now = token_lifetime(self.tokens.access), time.time()
        if self.kept and good:
            return 0 <= now - self.kept < good - EARLY_SECONDS
        return token_expiry(self.tokens.access) - now >= EARLY_SECONDS


#: Exchanges a refresh token for a new pair.
Trade = Callable[[str], Awaitable[Tokens]]


class Logins:
    """The logins of this machine's user, by address: a proxy's URL, or an API's."""

    def __init__(self, folder: Path | None = None) -> None:
        self.file = StateFile("logins", KeptLogin, folder)
        self._one_at_a_time = asyncio.Lock()

    def find(self, address: str) -> KeptLogin | None:
        """The login for an address, if there is one.

        Raises:
            InvalidSetting: the storage cannot be read.
        """
        login = self.file.read().get(address)
        if login is not None:
            return login
        text = None
        with system_keychain() as keychain:
            text = keychain.get_password(APP, address) if keychain else None
        if text is None:
            return None
        try:
            return msgspec.json.decode(text, type=KeptLogin)
        except msgspec.DecodeError:
            return None  # of another program, or another version: log in again

    async def keep(self, address: str, login: KeptLogin) -> str:
        """Store a login, replacing an earlier one; returns a description of the storage."""
        async with self._lock():
            return self._store(address, login)

    async def forget(self, address: str) -> None:
        async with self._lock():
            self._remove(address)

    async def authorization(self, address: str, trade: Trade) -> str:
        """An Authorization value that stays valid for a while, refreshed if necessary.

        Raises:
            NotAuthenticated: there is no login, or the service has ended it.
        """
        login = self._present(address)
        if not login.is_good:
            async with self._lock():
                # Another command may have refreshed it while this one waited for the lock.
                login = self._present(address)
                if not login.is_good:
                    login = await self._trade(address, login, trade)
        return f"Bearer {login.tokens.access}"

    def _present(self, address: str) -> KeptLogin:
        login = self.find(address)
        if login is None:
            raise NotAuthenticated(f"you are not logged in at {address}", hint="run: ers login")
        return login

    async def _trade(self, address: str, login: KeptLogin, trade: Trade) -> KeptLogin:
        try:
            tokens = await trade(login.tokens.refresh)
        except NotAllowed as error:
            if error.reason != "read_only_mirror":
                raise
            # A mirror neither renews nor requires a login: the device identifies the user.
            return login
        except NotAuthenticated:
            self._remove(address)
            raise NotAuthenticated(
                f"your login at {address} has ended", code="bad_token", hint="run: ers login"
            ) from None
        new = KeptLogin(login.email, tokens, time.time())
        self._store(address, new)
        return new

    @asynccontextmanager
    async def _lock(self) -> AsyncIterator[None]:
        """Exclude other tasks of this process and other processes."""
        async with self._one_at_a_time:
            with self.file.lock_file("trade") as lock:
                await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
                yield

    def _store(self, address: str, login: KeptLogin) -> str:
        text = msgspec.json.encode(login).decode()
        with system_keychain() as keychain:
            if keychain is not None:
                keychain.set_password(APP, address, text)
                self.file.put(address, None)
                return "the keychain"
        self.file.put(address, login)
        return str(self.file.path)

    def _remove(self, address: str) -> None:
        self.file.put(address, None)
        with system_keychain() as keychain:
            if keychain is not None and keychain.get_password(APP, address) is not None:
                keychain.delete_password(APP, address)

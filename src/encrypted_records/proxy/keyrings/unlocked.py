"""Keyrings that users have unlocked, with which passphrase, and on which devices."""

from __future__ import annotations

import threading
from collections.abc import Callable

from encrypted_records import runtime
from encrypted_records.crypto.recovery import Passphrase
from encrypted_records.proxy.keyrings.holder import Holder

#: A keyring that was unlocked stays so for a device that uses it within this time, where nothing
#: else is set.
UNLOCKED_SECONDS = 12 * 3600.0


class Unlocked:
    """In memory only. Safe to use from several threads, and never blocks for long."""

    def __init__(
        self, clock: Callable[[], float] = runtime.monotonic, seconds: float = UNLOCKED_SECONDS
    ) -> None:
        self._clock = clock
        self.seconds = seconds
        self._lock = threading.Lock()
        self._given: dict[bytes, Passphrase] = {}
        #: by user: the devices, and when each used the keyring last
        self._devices: dict[bytes, dict[str, float]] = {}

    def __contains__(self, user: bytes) -> bool:
        return user in self._given

    def users(self) -> list[bytes]:
        with self._lock:
            return list(self._given)

    def passphrase(self, user: bytes) -> Passphrase | None:
        return self._given.get(user)

    def add(self, user: bytes, passphrase: Passphrase, device: str | None) -> None:
        """Enter a passphrase, and the device on which it was typed."""
        with self._lock:
            self._given[user] = passphrase
            devices = self._devices.setdefault(user, {})
            if device is not None:
                devices[device] = self._clock()

    def drop(self, user: bytes) -> None:
        with self._lock:
            self._drop(user)

    def drop_device(self, user: bytes, device: str) -> None:
        with self._lock:
            self._devices.get(user, {}).pop(device, None)

    def drop_unused(self, user: bytes) -> bool:
        """Forget devices that have not used the keyring for long, and with the last one the
        passphrase; whether it was that."""
        with self._lock:
            before = self._clock() - self.seconds
            devices = self._devices.get(user, {})
            for device in [one for one, used in devices.items() if used < before]:
                del devices[device]
            if devices or user not in self._given:
                return False
            self._drop(user)
            return True

    def admits(self, holder: Holder) -> bool:
        """Whether the holder's device unlocked the keyring; it counts as used now."""
        with self._lock:
            devices = self._devices.get(holder.user, {})
            if holder.device not in devices:
                return False
            devices[holder.device] = self._clock()
            return True

    def _drop(self, user: bytes) -> None:
        self._given.pop(user, None)
        self._devices.pop(user, None)

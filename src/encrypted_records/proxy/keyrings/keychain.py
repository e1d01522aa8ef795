"""Keys in the operating system's keychain.

Many machines have no keychain: servers, containers, sessions without a desktop. In that case, and
if the keychain fails or waits for a user who is absent, the result is None, and the next kind of
secret encrypts keyrings.
"""

from __future__ import annotations

import binascii
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from encrypted_records import runtime
from encrypted_records.crypto.recovery import KeychainKey
from encrypted_records.proxy.disk import write_once

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

log = logging.getLogger(__name__)


T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T:
    """The result of ``work``, which runs in a separate thread.

    Raises:
        TimeoutError: it takes longer. The thread continues, and its result is dropped.
        Exception: as ``work`` does.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    # The interpreter would wait for a pool's thread at exit.
    thread = threading.Thread(target=run, name="keys", daemon=True)  # noqa: TID251
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError
    return results[0]


_APP = "encrypted-records keyrings"
_KEY_BYTES = 32
#: Time limit in seconds: a user at the machine may be asked to unlock the keychain; without a user,
#: the start continues.
WAIT_SECONDS = 30.0
#: Minimum priority of a backend that the library recommends; plain files have less.
_RECOMMENDED = 1


def keychain_key(
    name_file: Path, *, may_make: bool, seconds: float = WAIT_SECONDS
) -> KeychainKey | None:
    """The key of this data folder, made now if there is none and ``may_make``.

    Args:
        name_file: file with the key's name in the keychain; made with the key.
        seconds: time limit.
    """
    if not (name_file.exists() or may_make):
        return None
    kept = KeychainSecret(name_file, seconds)
    secret = kept.recall()
    if secret is None and not name_file.exists():
        made = runtime.random_bytes(_KEY_BYTES)
        if kept.keep(made):
            log.info("keyrings are protected by a key in the keychain")
            secret = made
        else:
            # If another process was first, its key counts.
            secret = kept.recall()
    return None if secret is None else KeychainKey(secret)


@dataclass(frozen=True, slots=True)
class KeychainSecret:
    """A secret of 32 bytes in the keychain.

    Args:
        name_file: file with the secret's name in the keychain.
        seconds: time limit of the keychain.
    """

    name_file: Path
    seconds: float = WAIT_SECONDS

    def recall(self) -> bytes | None:
        """The secret; None if none is kept, or no keychain answers."""
        if not self.name_file.exists():
            return None
        return self._ask(self._read)

    def keep(self, secret: bytes) -> bool:
        """Replace the kept secret; returns whether a keychain has the new secret."""
        return self._ask(lambda backend: self._write(backend, secret)) is not None

    def forget(self) -> None:
        """Delete the kept secret. If no keychain answers, the log says what is left there."""
        if self.name_file.exists():
            if self._ask(self._delete) is None:
                log.warning(
                    "no keychain has deleted the entry %s: delete it there, among the"
                    " entries of %s",
                    self.name_file.name,
                    _APP,
                )
            self.name_file.unlink(missing_ok=True)

    def _ask(self, work: Callable[[KeyringBackend], bytes | None]) -> bytes | None:
        """The result of ``work``; None if no keychain answers, or it fails."""
        if not _may_exist():
            return None

        def run() -> bytes | None:
            import keyring  # noqa: PLC0415 - slow to import, and often not needed

            backend = keyring.get_keyring()
            return work(backend) if backend.priority >= _RECOMMENDED else None

        try:
            # A keychain can wait for a person forever, and its library has no time limit.
            return within(self.seconds, run)
        except Exception as error:
            # Backends raise arbitrary exceptions of their platform.
            log.debug("no keychain: %s", type(error).__name__)
            return None

    def _read(self, backend: KeyringBackend) -> bytes | None:
        return _key(backend.get_password(_APP, self.name_file.read_text("ascii")))

    def _write(self, backend: KeyringBackend, secret: bytes) -> bytes | None:
        is_new = not self.name_file.exists()
        name = runtime.random_hex(16) if is_new else self.name_file.read_text("ascii")
        backend.set_password(_APP, name, secret.hex())
        # A keychain that does not store the secret would make every keyring unreadable.
        if _key(backend.get_password(_APP, name)) != secret:
            return None
        if is_new and not write_once(self.name_file, name.encode()):
            # Another process was first. No name file would refer to this secret, so it would never
            # be deleted.
            backend.delete_password(_APP, name)
            return None
        return secret

    def _delete(self, backend: KeyringBackend) -> bytes:
        with suppress(FileNotFoundError):
            backend.delete_password(_APP, self.name_file.read_text("ascii"))
        return b""


def _may_exist() -> bool:
    """Whether the import is worthwhile: on Linux, keychains are reached over the session's
    D-Bus.
    """
    if sys.platform != "linux":
        return True
    return any(os.environ.get(n) for n in ("DBUS_SESSION_BUS_ADDRESS", "PYTHON_KEYRING_BACKEND"))


def _key(text: str | None) -> bytes | None:
    try:
        secret = binascii.unhexlify(text or "")
    except ValueError:
        return None
    return secret if len(secret) == _KEY_BYTES else None

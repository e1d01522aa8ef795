"""A wrapping key in the operating system's keychain.

Many machines have none: servers, containers, sessions without a desktop. There, and where the one
there is fails or asks its user something that nobody answers, the answer is "none", and the next
secret in the order seals keyrings.
"""

from __future__ import annotations

import binascii
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from encrypted_records import runtime
from encrypted_records.crypto.recovery import KeychainKey
from encrypted_records.proxy.disk.atomic_files import write_once

log = logging.getLogger(__name__)

_APP = "encrypted-records keyrings"
_KEY_BYTES = 32
#: A user at the machine may be asked to unlock the keychain; without one, the start continues.
WAIT_SECONDS = 30.0
#: What the library calls a backend that can be recommended; below are plain files.
_RECOMMENDED = 1


def keychain_key(
    name_file: Path, *, may_make: bool, seconds: float = WAIT_SECONDS
) -> KeychainKey | None:
    """The key of this data folder, made now where there is none and ``may_make``.

    Args:
        name_file: holds the name under which the keychain keeps it; made with the key.
        seconds: for which it is waited for.
    """
    if not (name_file.exists() or may_make) or not _may_exist():
        return None
    kept: list[bytes] = []

    def ask() -> None:
        secret = _ask(name_file, may_make=may_make)
        if secret is not None:
            kept.append(secret)

    # A keychain can wait for a person without end, and its library knows no time limit.
    asking = threading.Thread(target=ask, name="keychain", daemon=True)  # noqa: TID251
    asking.start()
    asking.join(seconds)
    return KeychainKey(kept[0]) if kept else None


def _may_exist() -> bool:
    """Whether it is worth the import: on Linux keychains are reached over the session's bus."""
    if sys.platform != "linux":
        return True
    return any(os.environ.get(n) for n in ("DBUS_SESSION_BUS_ADDRESS", "PYTHON_KEYRING_BACKEND"))


def _ask(name_file: Path, *, may_make: bool) -> bytes | None:
    import keyring  # noqa: PLC0415 - slow to import, and often not needed

    try:
        backend = keyring.get_keyring()
        if backend.priority < _RECOMMENDED:
            return None
        if not name_file.exists():
            return _make(name_file, backend.set_password, backend.get_password)
        return _key(backend.get_password(_APP, name_file.read_text("ascii")))
    except Exception as error:
        # Backends raise whatever their platform does.
        log.debug("no keychain: %s", type(error).__name__)
        return None


def _make(
    name_file: Path,
    keep: Callable[[str, str, str], None],
    kept: Callable[[str, str], str | None],
) -> bytes | None:
    name, secret = runtime.random_hex(16), runtime.random_bytes(_KEY_BYTES)
    keep(_APP, name, secret.hex())
    # A keychain that forgets would take every keyring with it.
    if _key(kept(_APP, name)) != secret or not write_once(name_file, name.encode()):
        return None
    log.info("keyrings are sealed with a key in the keychain")
    return secret


def _key(text: str | None) -> bytes | None:
    try:
        secret = binascii.unhexlify(text or "")
    except ValueError:
        return None
    return secret if len(secret) == _KEY_BYTES else None

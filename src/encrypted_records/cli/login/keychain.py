"""The keychain of the operating system, for what commands keep between runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def system_keychain() -> Iterator[Any]:
    """The system's keychain; None where it is missing, or where it fails: on a machine without a
    desktop, in a session that is locked."""
    import keyring  # noqa: PLC0415 - slow to import, and often not needed
    from keyring.backends import fail, null  # noqa: PLC0415
    from keyring.errors import KeyringError  # noqa: PLC0415

    backend = keyring.get_keyring()
    with suppress(KeyringError):
        yield None if isinstance(backend, fail.Keyring | null.Keyring) else backend

"""Root keys whose owners have confirmed a backup.

A file per user, with a fingerprint in hexadecimal on each line. Fingerprints say nothing else of a
key, so this may be read by anyone; losing it costs a reminder.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from encrypted_records.crypto.keys import Keyring, RootKey
from encrypted_records.model import ids
from encrypted_records.proxy.disk import atomic_files as durable


class Backups:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(mode=0o700, exist_ok=True)

    def confirm(self, user: bytes, roots: Iterable[RootKey]) -> None:
        """Remember that the user has a backup of these keys."""
        confirmed = self._read_confirmed(user) | {root.fingerprint.hex() for root in roots}
        durable.replace(self._path(user), "\n".join(sorted(confirmed)).encode())

    def missing(self, user: bytes, keyring: Keyring) -> list[int]:
        """The versions that the user has not shown to have a backup of, in ascending order."""
        confirmed = self._read_confirmed(user)
        return [
            version
            for version, root in sorted(keyring.roots.items())
            if root.fingerprint.hex() not in confirmed
        ]

    def knows(self, user: bytes) -> bool:
        """Whether the user ever showed a backup, and so had a keyring here."""
        return self._path(user).exists()

    def _read_confirmed(self, user: bytes) -> set[str]:
        try:
            return set(self._path(user).read_text("ascii").split())
        except FileNotFoundError:
            return set()

    def _path(self, user: bytes) -> Path:
        return self._folder / ids.to_text(user)

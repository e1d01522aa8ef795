"""A keychain for tests behind the seam of the ``keyring`` library: a JSON file.

It stands for the keychains of desktops, which a test machine has not. ``ERS_TEST_KEYCHAIN`` names
the file; where there is none of that name yet, the keychain is locked and fails as a real one does.
Without the variable there is none: ``keyring`` keeps the backend that it found first, also after
the test that named it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, NoKeyringError


class FileKeychain(KeyringBackend):
    priority: float = 1

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # it has no types

    def _read(self) -> tuple[Path, dict[str, str]]:
        if (named := os.environ.get("ERS_TEST_KEYCHAIN")) is None:
            raise NoKeyringError
        file = Path(named)
        if not file.exists():
            raise KeyringLocked
        return file, json.loads(file.read_text())

    def get_password(self, service: str, username: str) -> str | None:
        return self._read()[1].get(f"{service} {username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        file, found = self._read()
        file.write_text(json.dumps({**found, f"{service} {username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        file, found = self._read()
        del found[f"{service} {username}"]
        file.write_text(json.dumps(found))

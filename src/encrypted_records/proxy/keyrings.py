"""Users' keyrings on this machine: made at first use, stored sealed, never replaced.

Files are written whole: to a temporary name, synced, then linked to their own name, which fails
where that name is taken. A keyring file that does not open is an error that names it. Making a
new keyring in its place would leave its owner with records that nobody can read.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from pathlib import Path

from encrypted_records.crypto.keys import Keyring
from encrypted_records.crypto.recovery import MachineKey, unwrap, wrap
from encrypted_records.errors import Closed, DoesNotOpen, Startup, Unsupported
from encrypted_records.model import ids

log = logging.getLogger(__name__)

_KEY_BYTES = 32


class Keyrings:
    def __init__(self, folder: Path) -> None:
        """Keep keyrings in ``folder``, and beside them the machine key that seals them.

        Raises:
            Startup: the machine key cannot be read or made, or is damaged.
        """
        self._folder = folder / "keyrings"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._machine_key = MachineKey(_machine_key(folder / "machine.key", self._folder))
        self._open: dict[bytes, Keyring] = {}

    def of(self, user: bytes) -> Keyring:
        """The user's keyring, made now if there is none.

        Raises:
            Closed: the file is damaged, of another machine, or of a newer version.
        """
        keyring = self._open.get(user)
        if keyring is None:
            keyring = self._load_or_make(user)
            self._open[user] = keyring
        return keyring

    def _load_or_make(self, user: bytes) -> Keyring:
        path = self._folder / f"{ids.to_text(user)}.keyring"
        if not path.exists():
            made = Keyring.generate(created=int(time.time()))
            if write_once(path, wrap(made, self._machine_key, user)):
                log.info("made a keyring: %s", path.name)
        try:
            return unwrap(path.read_bytes(), self._machine_key, user)
        except (DoesNotOpen, Unsupported) as error:
            raise Closed(
                f"keyring {path.name}: {error.message}", code="keyring_damaged", hint=error.hint
            ) from None


def _machine_key(path: Path, keyrings: Path) -> bytes:
    if not path.exists():
        if any(keyrings.iterdir()):
            raise Startup(
                f"the machine key {path} is missing, but there are keyrings sealed under it",
                hint="restore it from the same backup as the keyrings",
            )
        if write_once(path, secrets.token_bytes(_KEY_BYTES)):
            log.warning(
                "keyrings are sealed under %s: whoever can read this folder can read the records",
                path,
            )
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise Startup(
            f"the machine key {path} is damaged", hint="restore it from a backup of this folder"
        )
    return key


def write_once(path: Path, content: bytes) -> bool:
    """Create ``path`` (0600) durably unless it exists; whether it was this call that did."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
    finally:
        temporary.unlink()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True

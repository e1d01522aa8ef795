"""Users' keyrings on this machine: made at first use, stored sealed, never silently replaced.

A keyring file that does not open is an error that names it. Making a new keyring in its place
would leave its owner with records that nobody can read. For the same reason whatever takes the
place of a keyring file leaves the old one beside it.

New files are sealed with the passphrase where one is configured, else with the machine key. Files
under the machine key are sealed anew, the kept ones too, once there is a passphrase: as long as
one of them remains, whoever reads the folder needs no passphrase.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.keys import Keyring
from encrypted_records.crypto.recovery import MachineKey, Passphrase, unwrap, wrap, wrapping_of
from encrypted_records.errors import (
    Closed,
    Conflict,
    DoesNotOpen,
    ErsError,
    NotFound,
    Startup,
    Unsupported,
)
from encrypted_records.model import ids
from encrypted_records.proxy import durable
from encrypted_records.proxy.backups import Backups
from encrypted_records.proxy.unlocking import machine_key

log = logging.getLogger(__name__)

_WRAPPINGS = {fmt.WRAP_MACHINE_KEY: "machine_key", fmt.WRAP_PASSPHRASE: "passphrase"}

_UNLOCK = (
    "set ERS_KEYRING_PASSPHRASE_FILE or ERS_KEYRING_PASSPHRASE to what it was sealed with and start"
    " the proxy again"
)


class Keyrings:
    """Safe to use from several threads; opening a keyring may take a third of a second."""

    def __init__(self, folder: Path, passphrase: Passphrase | None = None) -> None:
        """Keep keyrings in ``folder``, and beside them the machine key that may seal them.

        Raises:
            Startup: the machine key is needed and cannot be read or made, or is damaged.
        """
        self._folder = folder / "keyrings"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.backups = Backups(folder / "backups")
        self._passphrase = passphrase
        self._machine_key = self._needed_machine_key(folder / "machine.key")
        self._open: dict[bytes, Keyring] = {}
        # One at a time: Argon2id takes much memory, and files are read before they are replaced.
        self._lock = threading.Lock()

    def of(self, user: bytes) -> Keyring:
        """The user's keyring, made now if there is none.

        Raises:
            Closed: the file is damaged, of another machine, of a newer version, or locked.
        """
        keyring = self._open.get(user)
        if keyring is not None:
            return keyring
        with self._lock:
            return self._opened(user) or self._made(user)

    def existing(self, user: bytes) -> Keyring | None:
        """The user's keyring, or None where there is none.

        Raises:
            Closed: as :meth:`of`.
        """
        with self._lock:
            return self._opened(user)

    def rotate(self, user: bytes) -> Keyring:
        """Add a version to the user's keyring, which seals from now on.

        The new file takes the place of the old one in one step, so that whatever interrupts this
        leaves one of the two.

        Raises:
            NotFound: there is no keyring to rotate.
            Closed: as :meth:`of`.
        """
        with self._lock:
            present = self._opened(user)
            if present is None:
                raise no_keyring()
            rotated = present.rotated(created=int(time.time()))
            self._replace(user, rotated)
            log.info("keyring %s now has version %d", self._path(user).name, rotated.newest)
            return rotated

    def restore(self, user: bytes, keyring: Keyring, *, replace: bool) -> None:
        """Make ``keyring``, which came from a backup, the user's.

        Args:
            replace: whether it may take the place of one that has other keys. One that has all
                keys of the present one may always. What is replaced is kept.

        Raises:
            Conflict: there is one with other keys, and it is not to be replaced.
        """
        path = self._path(user)
        with self._lock:
            if durable.write_once(path, wrap(keyring, self._wrapper, user)):
                self._open[user] = keyring
            elif replace or self._is_part_of(user, keyring):
                self._replace(user, keyring)
            else:
                raise Conflict(
                    "you have another keyring here already",
                    code="keyring_exists",
                    hint="its file is kept if you repeat this with replace",
                )
        self.backups.confirm(user, keyring.roots.values())

    def _is_part_of(self, user: bytes, keyring: Keyring) -> bool:
        """Whether ``keyring`` has every key of the user's present one."""
        try:
            present = self._opened(user)
        except Closed:
            return False
        assert present is not None
        found = {version: root.fingerprint for version, root in keyring.roots.items()}
        return all(
            found.get(version) == root.fingerprint for version, root in present.roots.items()
        )

    def _replace(self, user: bytes, keyring: Keyring) -> None:
        path = self._path(user)
        # Should this fail half way, the next question reads what is on disk.
        self._open.pop(user, None)
        kept = durable.replace_and_keep(path, wrap(keyring, self._wrapper, user))
        log.warning("keyring %s was replaced; it is kept as %s", path.name, kept.name)
        self._open[user] = keyring
        if self._passphrase is not None:
            self._seal_kept(path, self._passphrase, user)

    def wrapping_name(self, user: bytes) -> str:
        """How the user's keyring, which exists, is sealed."""
        path = self._path(user)
        try:
            return _WRAPPINGS[wrapping_of(path.read_bytes())]
        except (FileNotFoundError, Unsupported):
            raise _damaged(
                path, "its file is gone or damaged", "back it up before the proxy ends"
            ) from None

    def _opened(self, user: bytes) -> Keyring | None:
        if user in self._open:
            return self._open[user]
        path = self._path(user)
        try:
            file = path.read_bytes()
        except FileNotFoundError:
            kept = durable.kept_of(path)
            if kept:
                raise _damaged(
                    path, f"it is missing, but there is {kept[-1].name}", "put the file back"
                ) from None
            return None
        keyring = self._unwrap(path, file, user)
        if self._passphrase is not None:
            if _under_machine_key(file):
                durable.replace_and_keep(path, wrap(keyring, self._passphrase, user))
                self._unwrap(path, path.read_bytes(), user)
                log.info("keyring %s is now sealed with the passphrase", path.name)
            self._seal_kept(path, self._passphrase, user)
        self._open[user] = keyring
        return keyring

    def _made(self, user: bytes) -> Keyring:
        path = self._path(user)
        made = Keyring.generate(created=int(time.time()))
        if durable.write_once(path, wrap(made, self._wrapper, user)):
            log.info("made a keyring: %s", path.name)
        # Read back: another process may have been first.
        keyring = self._open[user] = self._unwrap(path, path.read_bytes(), user)
        return keyring

    def _seal_kept(self, path: Path, passphrase: Passphrase, user: bytes) -> None:
        for kept in durable.kept_of(path):
            file = kept.read_bytes()
            if not _under_machine_key(file):
                continue
            try:
                keyring = self._unwrap(kept, file, user)
            except ErsError:
                log.warning("%s does not open and is left as it is", kept.name)
            else:
                durable.replace(kept, wrap(keyring, passphrase, user))

    def _unwrap(self, path: Path, file: bytes, user: bytes) -> Keyring:
        try:
            if wrapping_of(file) == fmt.WRAP_MACHINE_KEY:
                if self._machine_key is None:
                    raise DoesNotOpen(
                        "the machine key that it is sealed under is not here",
                        hint="restore machine.key from the same backup",
                    )
                return unwrap(file, self._machine_key, user)
            if self._passphrase is None:
                raise Closed(
                    f"keyring {path.name} is sealed with a passphrase, and none is configured",
                    code="keyring_locked",
                    hint=_UNLOCK,
                )
            try:
                return unwrap(file, self._passphrase, user)
            except DoesNotOpen as error:
                raise Closed(
                    f"keyring {path.name}: {error.message}", code="keyring_locked", hint=_UNLOCK
                ) from None
        except (DoesNotOpen, Unsupported) as error:
            raise _damaged(path, error.message, error.hint) from None

    @property
    def _wrapper(self) -> Passphrase | MachineKey:
        wrapper = self._passphrase or self._machine_key
        assert wrapper is not None
        return wrapper

    def _path(self, user: bytes) -> Path:
        return self._folder / f"{ids.to_text(user)}.keyring"

    def _needed_machine_key(self, path: Path) -> MachineKey | None:
        """The machine key; None where a passphrase is configured and the key does not exist."""
        depends = any(
            _under_machine_key(keyring.read_bytes()) for keyring in self._folder.glob("*.keyring")
        )
        if depends and not path.exists():
            raise Startup(
                f"the machine key {path} is missing, but there are keyrings sealed under it",
                hint="restore it from the same backup as the keyrings",
            )
        return machine_key(path, may_make=self._passphrase is None)


def _under_machine_key(file: bytes) -> bool:
    try:
        return wrapping_of(file) == fmt.WRAP_MACHINE_KEY
    except Unsupported:
        return False


def _damaged(path: Path, message: str, hint: str) -> Closed:
    return Closed(f"keyring {path.name}: {message}", code="keyring_damaged", hint=hint)


def no_keyring() -> NotFound:
    return NotFound(
        "you have no keyring here yet",
        code="no_keyring",
        hint="it is made with the first records that are stored, or restored from a backup",
    )

"""Users' keyrings on this machine: made at first use, stored sealed, never silently replaced.

A keyring file that does not open is an error that names it. Making a new keyring in its place
would leave its owner with records that nobody can read. For the same reason whatever takes the
place of a keyring leaves the old one beside it.

New files are sealed with the first of the secrets that are configured, or with a passphrase that
the user gave for their own. Files under a secret that comes later in the order are sealed anew, the
kept ones too: as long as one of them remains, whoever has the later secret needs no other.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.keys import Keyring
from encrypted_records.crypto.recovery import Passphrase, Wrapper, unwrap, wrap, wrapping_of
from encrypted_records.errors import (
    Closed,
    Conflict,
    DoesNotOpen,
    ErsError,
    NotFound,
    OutOfSpace,
    Startup,
    Unavailable,
    Unsupported,
)
from encrypted_records.model import ids
from encrypted_records.proxy import durable
from encrypted_records.proxy.attempts import Attempts
from encrypted_records.proxy.backups import Backups
from encrypted_records.proxy.unlocking import machine_key

log = logging.getLogger(__name__)

_NAMES = {
    fmt.WRAP_MACHINE_KEY: "machine_key",
    fmt.WRAP_PASSPHRASE: "passphrase",
    fmt.WRAP_KEYCHAIN: "keychain",
    fmt.WRAP_TRANSIT: "vault",
}
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_UNLOCK = (
    "unlock it with ers keyring unlock or on the proxy's page /keyring/; or set"
    " ERS_KEYRING_PASSPHRASE_FILE or ERS_KEYRING_PASSPHRASE to what it was sealed with and start"
    " the proxy again"
)
#: What to do where the secret of a wrapping is not here.
_NOT_HERE = {
    fmt.WRAP_KEYCHAIN: "unlock the keychain that it was sealed with and start the proxy again",
    fmt.WRAP_TRANSIT: "set ERS_VAULT_ADDR and the variables beside it and start the proxy again",
}


class Keyrings:
    """Safe to use from several threads; opening a keyring may take a third of a second."""

    def __init__(self, folder: Path, *secrets: Wrapper, attempts: Attempts | None = None) -> None:
        """Keep keyrings in ``folder``.

        Args:
            secrets: what seals them, the preferred one first. Where there is none, a machine key
                that is kept in ``folder`` does.

        Raises:
            Startup: the machine key is needed and cannot be read or made, or is damaged.
        """
        self._folder = folder / "keyrings"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.backups = Backups(folder / "backups")
        #: by wrapping, the preferred one first
        self._secrets: dict[int, Wrapper] = {one.wrapping: one for one in secrets}
        self._add_machine_key(folder / "machine.key")
        #: of users who unlocked their keyrings themselves, or gave them a passphrase
        self._given: dict[bytes, Passphrase] = {}
        self._attempts = attempts or Attempts()
        self._open: dict[bytes, Keyring] = {}
        # One at a time: Argon2id takes much memory, and files are read before they are replaced.
        self._lock = threading.Lock()

    def of(self, user: bytes) -> Keyring:
        """The user's keyring, made now if there is none.

        Raises:
            Closed: the file is damaged, of another machine, of a newer version, or locked.
            Unavailable: it has to be written, and the disk is full or fails.
        """
        keyring = self._open.get(user)
        if keyring is not None:
            return keyring
        with self._lock, _disk():
            return self._opened(user) or self._made(user)

    def existing(self, user: bytes) -> Keyring | None:
        """The user's keyring, or None where there is none.

        Raises:
            Closed, Unavailable: as :meth:`of`.
        """
        with self._lock, _disk():
            return self._opened(user)

    def unlock(self, user: bytes, passphrase: Passphrase) -> Keyring:
        """Open the user's keyring with ``passphrase``, for as long as this process runs.

        One that opens by itself is only opened.

        Raises:
            NotFound: there is none.
            Throttled: too soon after a wrong passphrase.
            Closed: as :meth:`of`; ``keyring_locked`` also for a wrong passphrase.
        """
        with self._lock, _disk():
            path, file = self._file(user)
            if user not in self._open and _wrapping(file) == fmt.WRAP_PASSPHRASE:
                self._open[user] = self._tried(path, file, user, passphrase)
                self._given[user] = passphrase
            keyring = self._opened(user)
            assert keyring is not None
            return keyring

    def lock(self, user: bytes) -> None:
        """Forget a keyring that was unlocked here.

        Raises:
            Conflict: ``keyring_not_lockable``; it would open again by itself.
        """
        with self._lock:
            if user not in self._given:
                raise Conflict(
                    "the keyring opens by what this proxy was started with",
                    code="keyring_not_lockable",
                    hint="give it a passphrase with ers keyring passphrase; or end the proxy",
                )
            del self._given[user]
            self._open.pop(user, None)

    def change_passphrase(self, user: bytes, old: Passphrase | None, new: Passphrase) -> int:
        """Seal the user's keyring under ``new``, and what was kept of it; records stay as they are.

        What was kept is sealed anew first. So whatever interrupts this leaves the keyring under
        the old passphrase, which can then be changed again.

        Args:
            old: what it is sealed with; needed where that is a passphrase.

        Returns:
            How many kept files stay under what they were sealed with, since that is not here.

        Raises:
            NotFound, Throttled, Closed: as :meth:`unlock`.
            Unavailable: the disk is full or fails.
        """
        with self._lock, _disk():
            path, file = self._file(user)
            if _wrapping(file) == fmt.WRAP_PASSPHRASE:
                if old is None:
                    raise Closed(
                        "the present passphrase is needed to change it", code="keyring_locked"
                    )
                keyring = self._tried(path, file, user, old)
            else:
                keyring = self._unwrap(path, file, user)
            left = self._seal_kept(path, new, user, old)
            # The replaced file is not kept: it would open with the old passphrase.
            durable.replace(path, wrap(keyring, new, user))
            self._given[user] = new
            self._open[user] = keyring
            log.info("keyring %s has a new passphrase", path.name)
            return left

    def rotate(self, user: bytes) -> Keyring:
        """Add a version to the user's keyring, which seals from now on.

        The new file takes the place of the old one in one step, so that whatever interrupts this
        leaves one of the two.

        Raises:
            NotFound: there is no keyring to rotate.
            Closed, Unavailable: as :meth:`of`.
        """
        with self._lock, _disk():
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
            Unavailable: the disk is full or fails.
        """
        with self._lock, _disk():
            if durable.write_once(self._path(user), wrap(keyring, self._wrapper(user), user)):
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

    def wrapping_name(self, user: bytes) -> str:
        """How the user's keyring, which exists, is sealed."""
        path = self._path(user)
        try:
            return _NAMES[wrapping_of(path.read_bytes())]
        except (FileNotFoundError, Unsupported):
            raise _damaged(
                path, "its file is gone or damaged", "back it up before the proxy ends"
            ) from None

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
        kept = durable.replace_and_keep(path, wrap(keyring, self._wrapper(user), user))
        log.warning("keyring %s was replaced; it is kept as %s", path.name, kept.name)
        self._open[user] = keyring
        self._seal_later_ones(path, user)

    def _opened(self, user: bytes) -> Keyring | None:
        if user in self._open:
            return self._open[user]
        try:
            path, file = self._file(user)
        except NotFound:
            return None
        keyring = self._unwrap(path, file, user)
        wrapper = self._wrapper(user)
        if self._comes_later(file, user):
            durable.replace_and_keep(path, wrap(keyring, wrapper, user))
            self._unwrap(path, path.read_bytes(), user)
            log.info("keyring %s is now sealed with: %s", path.name, _NAMES[wrapper.wrapping])
        self._seal_later_ones(path, user)
        self._open[user] = keyring
        return keyring

    def _made(self, user: bytes) -> Keyring:
        path = self._path(user)
        made = Keyring.generate(created=int(time.time()))
        if durable.write_once(path, wrap(made, self._wrapper(user), user)):
            log.info("made a keyring: %s", path.name)
        # Read back: another process may have been first.
        keyring = self._open[user] = self._unwrap(path, path.read_bytes(), user)
        return keyring

    def _seal_later_ones(self, path: Path, user: bytes) -> None:
        """Seal what was kept under a later secret with the preferred one."""
        if any(self._comes_later(kept.read_bytes(), user) for kept in durable.kept_of(path)):
            self._seal_kept(path, self._wrapper(user), user, None, later_alone=True)

    def _seal_kept(
        self,
        path: Path,
        wrapper: Wrapper,
        user: bytes,
        old: Passphrase | None,
        *,
        later_alone: bool = False,
    ) -> int:
        """Seal what was kept of ``path`` under ``wrapper``; how many files do not open for that."""
        left = 0
        for kept in durable.kept_of(path):
            file = kept.read_bytes()
            if later_alone and not self._comes_later(file, user):
                continue
            try:
                keyring = self._unwrap(kept, file, user, old)
            except ErsError:
                left += not _opens(file, wrapper, user)
                log.warning("%s does not open and is left as it is", kept.name)
            else:
                durable.replace(kept, wrap(keyring, wrapper, user))
        return left

    def _comes_later(self, file: bytes, user: bytes) -> bool:
        """Whether the file is under a secret that is less preferred than what seals new ones."""
        order = list(self._secrets)
        wrapping, present = _wrapping(file), self._wrapper(user).wrapping
        if wrapping not in order:
            return False
        return present not in order or order.index(wrapping) > order.index(present)

    def _tried(self, path: Path, file: bytes, user: bytes, passphrase: Passphrase) -> Keyring:
        """Open a file with a passphrase that somebody typed."""
        self._attempts.check(user)
        try:
            keyring = self._unwrap(path, file, user, passphrase)
        except Closed as error:
            if error.reason == "keyring_locked":
                self._attempts.wrong(user)
            raise
        self._attempts.right(user)
        return keyring

    def _unwrap(
        self, path: Path, file: bytes, user: bytes, passphrase: Passphrase | None = None
    ) -> Keyring:
        """Open a keyring file.

        Args:
            passphrase: to use in the place of the one that is configured or was given.
        """
        try:
            wrapping = wrapping_of(file)
            wrapper = self._secrets.get(wrapping)
            if wrapping == fmt.WRAP_PASSPHRASE:
                wrapper = passphrase or self._given.get(user) or wrapper
            if wrapper is None and wrapping == fmt.WRAP_MACHINE_KEY:
                raise DoesNotOpen(
                    "the machine key that it is sealed under is not here",
                    hint="restore machine.key from the same backup",
                )
            if wrapper is None:
                raise _locked(path, wrapping)
            try:
                return unwrap(file, wrapper, user)
            except DoesNotOpen as error:
                if wrapping != fmt.WRAP_PASSPHRASE:
                    raise
                raise Closed(
                    f"keyring {path.name}: {error.message}", code="keyring_locked", hint=_UNLOCK
                ) from None
        except (DoesNotOpen, Unsupported) as error:
            raise _damaged(path, error.message, error.hint) from None

    def _wrapper(self, user: bytes) -> Wrapper:
        """What seals the user's files from now on."""
        return self._given.get(user) or next(iter(self._secrets.values()))

    def _file(self, user: bytes) -> tuple[Path, bytes]:
        """Where the user's keyring is, and the file.

        Raises:
            NotFound: there is none.
            Closed: there was one.
        """
        path = self._path(user)
        try:
            return path, path.read_bytes()
        except FileNotFoundError:
            kept = durable.kept_of(path)
            if kept:
                raise _damaged(
                    path, f"it is missing, but there is {kept[-1].name}", "put the file back"
                ) from None
            raise no_keyring() from None

    def _path(self, user: bytes) -> Path:
        return self._folder / f"{ids.to_text(user)}.keyring"

    def _add_machine_key(self, path: Path) -> None:
        """Take up the machine key: always where there is one, made where nothing else seals."""
        files = [keyring.read_bytes() for keyring in self._folder.glob("*.keyring")]
        if not path.exists() and any(_wrapping(file) == fmt.WRAP_MACHINE_KEY for file in files):
            raise Startup(
                f"the machine key {path} is missing, but there are keyrings sealed under it",
                hint="restore it from the same backup as the keyrings",
            )
        key = machine_key(path, may_make=not self._secrets)
        if key is not None:
            self._secrets[key.wrapping] = key


def no_keyring() -> NotFound:
    return NotFound(
        "you have no keyring here yet",
        code="no_keyring",
        hint="it is made with the first records that are stored, or restored from a backup",
    )


@contextmanager
def _disk() -> Iterator[None]:
    """Name what the disk refuses. Files are written whole or not at all, so nothing is lost."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise OutOfSpace("the disk is full: the keyring is as it was before") from None
        raise Unavailable(
            f"the disk fails under the keyring: {(error.strerror or 'it fails').lower()}",
            code="keyring_disk",
            hint="look at the disk that holds the proxy's data folder",
        ) from None


def _wrapping(file: bytes) -> int | None:
    try:
        return wrapping_of(file)
    except Unsupported:
        return None


def _opens(file: bytes, wrapper: Wrapper, user: bytes) -> bool:
    try:
        unwrap(file, wrapper, user)
    except (DoesNotOpen, Unsupported):
        return False
    return True


def _locked(path: Path, wrapping: int) -> Closed:
    if wrapping == fmt.WRAP_PASSPHRASE:
        message, hint = "is sealed with a passphrase, and none is configured", _UNLOCK
    else:
        name = _NAMES[wrapping].replace("_", " ")
        message, hint = f"is sealed with a {name} that is not here", _NOT_HERE[wrapping]
    return Closed(f"keyring {path.name} {message}", code="keyring_locked", hint=hint)


def _damaged(path: Path, message: str, hint: str) -> Closed:
    return Closed(f"keyring {path.name}: {message}", code="keyring_damaged", hint=hint)

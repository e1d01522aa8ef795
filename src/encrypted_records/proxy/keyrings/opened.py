"""Opened keyrings in memory, and the operations on them that need the lock.

A keyring opens only for a :class:`~.holder.Holder`. A file that cannot be opened, or is missing, is
an error that names the file, and no new keyring is made instead: its owner would have unreadable
records.

Confirmed backups: root keys whose owners have confirmed a backup.

One file for each user, with a hexadecimal fingerprint on each line. Fingerprints reveal nothing
else about a key, so the file is not secret; losing it costs only a reminder.

Keyrings of services: kept only in memory, made from the secret key that a request brings.

Accepted work continues with the keyring of the request that began it. After a restart it waits for
the next request of the service.

Unlocked keyrings, with their passphrases and devices.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

from encrypted_records import runtime
from encrypted_records.crypto.keys import Keyring, RootKey
from encrypted_records.crypto.recovery import Passphrase, Wrapper
from encrypted_records.errors import Closed, NotAllowed, NotFound
from encrypted_records.model import ids
from encrypted_records.proxy import disk as durable
from encrypted_records.proxy.keyrings import files
from encrypted_records.proxy.keyrings.enrolment import Enrolment, unknown_device
from encrypted_records.proxy.keyrings.files import KeyringFiles
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.policy import Attempts, Level

log = logging.getLogger(__name__)


class OpenKeyrings:
    """All methods but :meth:`check_unlocked`, :meth:`at_hand` and :meth:`close_unused` need the
    lock held."""

    def __init__(
        self,
        folder: Path,
        *secrets: Wrapper,
        enrolment: Enrolment,
        attempts: Attempts | None,
        clock: Callable[[], float],
        unlocked_seconds: float,
    ) -> None:
        self.files = KeyringFiles(folder, *secrets)
        self.enrolment = enrolment
        self.backups = Backups(folder / "backups")
        self.unlocked = UnlockedKeyrings(clock, unlocked_seconds)
        #: whether the keyring of a user is under a passphrase of the user's own, where known
        self.own: dict[bytes, bool] = {}
        self.attempts = attempts or Attempts()
        self.open: dict[bytes, Keyring] = {}
        self.services = ServiceKeyrings()
        # One at a time: Argon2id takes much memory, and files are read before they are replaced.
        self.lock = threading.Lock()

    def at_hand(self, holder: Holder) -> Keyring | None:
        """The holder's keyring, if no passphrase is needed to open it.

        Raises:
            Closed: ``keyring_locked``.
        """
        of_service = self.services.of(holder)
        if of_service is not None:
            return of_service
        self.check_unlocked(holder)
        return None if holder.newcomer is not None else self.open.get(holder.user)

    def check_unlocked(self, holder: Holder) -> None:
        """Refuse a holder whose keyring others have unlocked, and this device has not.

        The event loop calls this, so it waits for no lock.

        Raises:
            Closed: ``keyring_locked``.
        """
        user = holder.user
        if user not in self.unlocked:
            return
        self.close_unused(user)
        if not holder.accepted and not self.unlocked.admits(holder):
            raise files.locked(self.files.path(user))

    def open_for(self, holder: Holder) -> Keyring | None:
        """The keyring where this holder may use it; see :meth:`_opened`."""
        self.check_unlocked(holder)
        keyring = self.open_file(holder.user)
        if (
            keyring is not None
            and holder.newcomer is not None
            and self.enrolment.policy.level is Level.DEVICE
            and self.enrolment.owner_of(holder.newcomer) != holder.user
        ):
            # It was made for another device since this request was looked at.
            raise unknown_device()
        return keyring

    def close_unused(self, user: bytes) -> bool:
        """Close a keyring that was unlocked, when no device is left that may use it; whether it
        was."""
        closes = self.unlocked.drop_unused(user)
        if closes:
            self.open.pop(user, None)
        return closes

    def close(self, user: bytes) -> None:
        self.unlocked.drop(user)
        self.open.pop(user, None)

    def check_own(self, user: bytes) -> bool:
        try:
            _, file = self.files.read(user)
        except (NotFound, Closed):
            return False
        self.own[user] = self.files.is_own(file, user)
        return self.own[user]

    def has_others(self, user: bytes) -> bool:
        return any(other != user for other in self.files.users())

    def replace(self, user: bytes, keyring: Keyring, given: Passphrase | None) -> None:
        # Should this fail half way, the next question reads what is on disk.
        self.open.pop(user, None)
        self.files.replace(user, keyring, given)
        self.own.pop(user, None)
        self.open[user] = keyring
        self.enrolment.remember_key(user, keyring.roots[keyring.newest])
        self.files.seal_kept_later(self.files.path(user), user, given)

    def open_file(self, user: bytes) -> Keyring | None:
        if user in self.open:
            return self.open[user]
        try:
            path, file = self.files.read(user)
        except NotFound:
            return None
        given = self.unlocked.passphrase(user)
        keyring = self.files.open(path, file, user, given)
        self.files.seal_later(path, file, user, keyring, given)
        self.open[user] = keyring
        self.enrolment.remember_key(user, keyring.roots[keyring.newest])
        return keyring

    def make(self, holder: Holder) -> Keyring:
        user = holder.user
        path = self.files.path(user)
        known = self.enrolment.keyring(user) is not None or self.backups.knows(user)
        if holder.accepted and not known:
            raise Closed(
                "the keyring is not here; the keyring of a service is here only while"
                " the service uses this proxy",
                code="keyring_locked",
                hint="the work continues with the service's next request",
            )
        if known:
            # With a new one instead, its records could not be read, and it could not come back.
            raise files.damaged(
                path,
                "it is missing, although it existed",
                "put the file back, or restore the keyring here: ers keyring restore",
            )
        if holder.token is not None and not holder.token.writes:
            raise NotAllowed(
                "this user has no keyring here, and a read-only API token cannot create one",
                code="token_limited",
                hint="restore the keyring here as yourself: ers keyring restore",
            )
        self.enrolment.admit_new(holder, others=self.has_others(user))
        self.enrolment.take_in_newcomer(holder, "made")
        made = Keyring.generate(created=int(runtime.wall()))
        given = self.unlocked.passphrase(user)
        if self.files.create(user, made, given):
            log.info("created a keyring: %s", path.name)
        # Read back: another process may have been first.
        keyring = self.open[user] = self.files.open(path, path.read_bytes(), user, given)
        self.own.pop(user, None)
        self.enrolment.remember_key(user, keyring.roots[keyring.newest])
        return keyring

    def try_passphrase(
        self, path: Path, file: bytes, user: bytes, passphrase: Passphrase, counted: bytes
    ) -> Keyring:
        """Open a file with a passphrase typed by a user."""
        name = user + counted
        self.attempts.check(name)
        try:
            keyring = self.files.open(path, file, user, passphrase)
        except Closed as error:
            if error.reason == "keyring_locked":
                self.attempts.wrong(name)
            raise
        self.attempts.right(name)
        return keyring


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


#: Services whose keyrings stay in memory.
_KEPT = 256


class ServiceKeyrings:
    """Safe to use from several threads: each step is one operation on a dictionary."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Keyring] = OrderedDict()

    def of(self, holder: Holder) -> Keyring | None:
        """The keyring of a service that shows its string, or whose work was accepted here; None
        for everybody else."""
        service = holder.service
        if service is None:
            return self._known.get(holder.user) if holder.accepted else None
        known = self._known.get(service.id)
        if known is None or known.roots[1].export() != service.secret:
            known = self._known[service.id] = Keyring({1: RootKey(service.secret)})
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return known


#: A keyring that was unlocked stays so for a device that uses it within this time, where nothing
#: else is set.
UNLOCKED_SECONDS = 12 * 3600.0


class UnlockedKeyrings:
    """The unlocked keyrings, only in memory. Thread-safe, and never blocks for long."""

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
            for device in [device for device, used in devices.items() if used < before]:
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

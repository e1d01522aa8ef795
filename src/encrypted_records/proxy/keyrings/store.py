"""Users' keyrings on this machine: made at first use, stored encrypted, never silently replaced.

- A keyring opens only for a :class:`~.holder.Holder`. A file that cannot be opened, or is missing,
  is an error that names the file, and no new keyring is made instead: its owner would have
  unreadable records.
- A keyring under its user's own passphrase opens for the devices on which that passphrase was
  typed, until they lock it, do not use it for some hours, or the proxy ends.
- A changed keyring (another passphrase, a further version, a restored backup) leaves its old file
  in the same folder. Only a new passphrase keeps no old file, because that would still open with
  the old passphrase.
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from encrypted_records import runtime
from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.keys import Keyring, RootKey
from encrypted_records.crypto.recovery import Passphrase, Wrapper, root_of, wrapping_of
from encrypted_records.errors import BadInput, Closed, Conflict, NotAllowed, NotFound, Unsupported
from encrypted_records.model import ids
from encrypted_records.proxy import disk as durable
from encrypted_records.proxy.keyrings import files
from encrypted_records.proxy.keyrings.devices import Enrolment, unknown_device
from encrypted_records.proxy.keyrings.holder import Attempts, Holder, Level
from encrypted_records.proxy.process import Recent

log = logging.getLogger(__name__)


class OpenKeyrings:
    """The keyrings in memory. All methods but :meth:`check_unlocked`, :meth:`at_hand` and
    :meth:`close_unused` need the lock held.
    """

    def __init__(
        self,
        folder: Path,
        *secrets: Wrapper,
        enrolment: Enrolment,
        attempts: Attempts | None,
        clock: Callable[[], float],
        unlocked_seconds: float,
    ) -> None:
        self.files = files.KeyringFiles(folder, *secrets)
        self.enrolment = enrolment
        self.backups = Backups(folder / "backups")
        self.unlocked = UnlockedKeyrings(clock, unlocked_seconds)
        #: whether a user's keyring is under the user's own passphrase, where known
        self.has_own_passphrase: dict[bytes, bool] = {}
        self.attempts = attempts or Attempts()
        self.open: dict[bytes, Keyring] = {}
        self.services = ServiceKeyrings()
        # One caller at a time: Argon2id takes much memory, and files are read before they are
        # replaced.
        self.lock = threading.Lock()

    def at_hand(self, holder: Holder) -> Keyring | None:
        """The holder's keyring, if it opens without a passphrase.

        Raises:
            Closed: ``keyring_locked``.
        """
        of_service = self.services.of(holder)
        if of_service is not None:
            return of_service
        self.check_unlocked(holder)
        return None if holder.newcomer is not None else self.open.get(holder.user)

    def check_unlocked(self, holder: Holder) -> None:
        """Refuse a holder whose keyring other devices have unlocked, but this device has not.

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
        """The keyring, if this holder may use it."""
        self.check_unlocked(holder)
        keyring = self.open_file(holder.user)
        if (
            keyring is not None
            and holder.newcomer is not None
            and self.enrolment.policy.level is Level.DEVICE
            and self.enrolment.owner_of(holder.newcomer) != holder.user
        ):
            # Another device has made it since this request was checked.
            raise unknown_device()
        return keyring

    def close_unused(self, user: bytes) -> bool:
        """Close an unlocked keyring when no device may use it any more; returns whether it was
        closed.
        """
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
        self.has_own_passphrase[user] = self.files.is_own(file, user)
        return self.has_own_passphrase[user]

    def has_others(self, user: bytes) -> bool:
        return any(other != user for other in self.files.users())

    def replace(self, user: bytes, keyring: Keyring, given: Passphrase | None) -> None:
        # If this fails half way, the next call reads the file on disk.
        self.open.pop(user, None)
        self.files.replace(user, keyring, given)
        self.has_own_passphrase.pop(user, None)
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
            # With a new keyring instead, the user could not read existing records or restore the
            # old keyring.
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
        self.enrolment.register_newcomer(holder, "made")
        made = Keyring.generate(created=int(runtime.wall()))
        given = self.unlocked.passphrase(user)
        if self.files.create(user, made, given):
            log.info("created a keyring: %s", path.name)
        # Read back: another process may have been first.
        keyring = self.open[user] = self.files.open(path, path.read_bytes(), user, given)
        self.has_own_passphrase.pop(user, None)
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
        """Record that the user has a backup of these keys."""
        confirmed = self._read_confirmed(user) | {root.fingerprint.hex() for root in roots}
        durable.replace(self._path(user), "\n".join(sorted(confirmed)).encode())

    def missing(self, user: bytes, keyring: Keyring) -> list[int]:
        """The versions without a confirmed backup, in ascending order."""
        confirmed = self._read_confirmed(user)
        return [
            version
            for version, root in sorted(keyring.roots.items())
            if root.fingerprint.hex() not in confirmed
        ]

    def knows(self, user: bytes) -> bool:
        """Whether the user ever confirmed a backup, and so had a keyring here."""
        return self._path(user).exists()

    def _read_confirmed(self, user: bytes) -> set[str]:
        try:
            return set(self._path(user).read_text("ascii").split())
        except FileNotFoundError:
            return set()

    def _path(self, user: bytes) -> Path:
        return self._folder / ids.to_text(user)


#: Services whose keyrings stay in memory.
_KEPT_SERVICES = 256


class ServiceKeyrings:
    """Safe to use from several threads: each step is one operation on a dictionary."""

    def __init__(self) -> None:
        self._known: Recent[bytes, Keyring] = Recent(_KEPT_SERVICES)

    def of(self, holder: Holder) -> Keyring | None:
        """The keyring of a service that authenticates with its secret key, or whose work was
        accepted here; None for all other holders.
        """
        service = holder.service
        if service is None:
            return self._known.get(holder.user) if holder.accepted else None
        known = self._known.get(service.id)
        if known is None or known.roots[1].export() != service.secret:
            known = self._known[service.id] = Keyring({1: RootKey(service.secret)})
        return known


#: Default time without use after which a device loses access to an unlocked keyring, in seconds.
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
        #: by user: the devices, and the time of each device's last use
        self._devices: dict[bytes, dict[str, float]] = {}

    def __contains__(self, user: bytes) -> bool:
        return user in self._given

    def users(self) -> list[bytes]:
        with self._lock:
            return list(self._given)

    def passphrase(self, user: bytes) -> Passphrase | None:
        return self._given.get(user)

    def add(self, user: bytes, passphrase: Passphrase, device: str | None) -> None:
        """Add a passphrase and the device on which it was typed."""
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
        """Remove devices that have not used the keyring for long, and with the last device the
        passphrase; returns whether the passphrase was removed.
        """
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
        """Whether the holder's device unlocked the keyring; this counts as a use."""
        with self._lock:
            devices = self._devices.get(holder.user, {})
            if holder.device not in devices:
                return False
            devices[holder.device] = self._clock()
            return True

    def _drop(self, user: bytes) -> None:
        self._given.pop(user, None)
        self._devices.pop(user, None)


class Keyrings:
    """Safe to use from several threads; opening a keyring may take a third of a second.

    Args:
        folder: the proxy's folder.
        secrets: wrappers of keyrings (:class:`files.KeyringFiles`, which documents the errors).
        enrolment: decides whether a keyring may be made, and enrols its device.
        unlocked_seconds: time without use after which an unlocked keyring locks automatically.
    """

    def __init__(
        self,
        folder: Path,
        *secrets: Wrapper,
        enrolment: Enrolment,
        attempts: Attempts | None = None,
        clock: Callable[[], float] = runtime.monotonic,
        unlocked_seconds: float = UNLOCKED_SECONDS,
    ) -> None:
        self._core = OpenKeyrings(
            folder,
            *secrets,
            enrolment=enrolment,
            attempts=attempts,
            clock=clock,
            unlocked_seconds=unlocked_seconds,
        )
        self.unlocked_seconds = unlocked_seconds
        self.backups = self._core.backups
        self.changes = KeyringChanges(self._core)

    # --- for holders ------------------------------------------------------------------------

    def of(self, holder: Holder) -> Keyring:
        """The holder's keyring, made now if there is none.

        Raises:
            Closed: the file is damaged, missing, of another machine, of a newer version, or locked.
            NotAllowed, NotAuthenticated, Throttled: no keyring may be made for this holder.
            Unavailable: it has to be written, and the disk is full or fails.
        """
        keyring = self._core.at_hand(holder)
        if keyring is not None:
            return keyring
        with self._core.lock, files.keyring_disk_errors():
            return self._core.open_for(holder) or self._core.make(holder)

    def existing(self, holder: Holder) -> Keyring | None:
        """The holder's keyring; None if there is none.

        Raises:
            Closed, NotAuthenticated, Unavailable: as :meth:`of`.
        """
        keyring = self._core.at_hand(holder)
        if keyring is not None:
            return keyring
        with self._core.lock, files.keyring_disk_errors():
            return self._core.open_for(holder)

    def check_unlocked(self, holder: Holder) -> None:
        """Refuse a holder whose keyring other devices have unlocked, but this device has not.

        The event loop calls this, so it waits for no lock.

        Raises:
            Closed: ``keyring_locked``.
        """
        self._core.check_unlocked(holder)

    def close_unused(self) -> list[bytes]:
        """Lock keyrings that no device has used for long; returns their users."""
        return [user for user in self._core.unlocked.users() if self._core.close_unused(user)]

    def lock(self, holder: Holder) -> None:
        """Lock a keyring on all devices.

        Raises:
            Conflict: ``keyring_not_lockable``; it would open again without being unlocked.
        """
        with self._core.lock:
            if holder.user not in self._core.unlocked and not self._core.check_own(holder.user):
                raise Conflict(
                    "the keyring is unlocked by the key or passphrase of the running proxy",
                    code="keyring_not_lockable",
                    hint=(
                        "give it its own passphrase with ers keyring passphrase; or stop the proxy"
                    ),
                )
            self._core.close(holder.user)

    # --- by proof of a passphrase or words --------------------------------------------------

    def unlock(
        self, user: bytes, passphrase: Passphrase, *, device: str, counted: bytes
    ) -> Keyring:
        """Open the user's keyring, which is under the user's own passphrase, on a device.

        Args:
            counted: name under which wrong passphrases are counted.

        Raises:
            NotFound: there is none.
            Throttled: too soon after a wrong passphrase.
            Closed: as :meth:`of`; ``keyring_locked`` also for a wrong passphrase.
        """
        with self._core.lock, files.keyring_disk_errors():
            path, file = self._core.files.read(user)
            keyring = self._core.try_passphrase(path, file, user, passphrase, counted)
            self._core.unlocked.add(user, passphrase, device)
            self._core.enrolment.remember_key(user, keyring.roots[keyring.newest])
            return self._core.open.setdefault(user, keyring)

    def check_passphrase(self, user: bytes, passphrase: Passphrase, *, counted: bytes) -> None:
        """
        Raises:
            NotFound, Throttled, Closed: as :meth:`unlock`; or the passphrase is wrong.
        """
        with self._core.lock, files.keyring_disk_errors():
            path, file = self._core.files.read(user)
            self._core.try_passphrase(path, file, user, passphrase, counted)

    def knows_words(self, user: bytes, phrase: str) -> bool:
        """Whether these are the words of the newest version of the user's keyring."""
        known = self._core.enrolment.keyring(user)
        try:
            shown = root_of(phrase, created=0).verifier
        except BadInput:
            return False
        return known is not None and hmac.compare_digest(shown, known.verifier)

    def user_of_words(self, phrase: str) -> bytes | None:
        """The user whose keyring's newest version has these words; None if there is no such
        user.
        """
        users = self._core.enrolment.users()
        return next((user for user in users if self.knows_words(user, phrase)), None)

    def dismiss(self, user: bytes, device: str) -> None:
        """Remove the unlocked state of a revoked device."""
        with self._core.lock:
            self._core.unlocked.drop_device(user, device)
            self._core.close_unused(user)

    # --- about keyrings ---------------------------------------------------------------------

    def has(self, user: bytes) -> bool:
        """Whether the user has a keyring here, or had a keyring that is missing now."""
        return (
            user in self._core.open
            or self._core.files.path(user).exists()
            or self._core.enrolment.keyring(user) is not None
            or self.backups.knows(user)
        )

    def is_open(self, user: bytes) -> bool:
        """Whether the user's keyring is in memory; it may be unlocked for other devices only."""
        return user in self._core.open

    def is_for_another(self, user: bytes) -> bool:
        """Whether this proxy serves a single user, and ``user``, who has no keyring here, is not
        that user.
        """
        return (
            self._core.enrolment.policy.lone
            and not self.is_here(user)
            and self._core.has_others(user)
        )

    def is_here(self, user: bytes) -> bool:
        """Whether the user's keyring file is here."""
        return self._core.files.path(user).exists()

    def is_own(self, user: bytes) -> bool:
        """Whether the user's keyring is under the user's own passphrase, not the operator's.

        It takes a third of a second if the operator's passphrase has to be tried.
        """
        with self._core.lock, files.keyring_disk_errors():
            known = self._core.has_own_passphrase.get(user)
            return self._core.check_own(user) if known is None else known

    def own_if_known(self, user: bytes) -> bool | None:
        """Whether the keyring is under the user's own passphrase, if that is known without reading
        the file; otherwise None. See :meth:`is_own`.
        """
        return self._core.has_own_passphrase.get(user)

    def wrapping_name(self, user: bytes) -> str:
        """The name of the wrapping of the user's keyring, which exists."""
        path = self._core.files.path(user)
        try:
            return files.NAMES[wrapping_of(path.read_bytes())]
        except (FileNotFoundError, Unsupported):
            raise files.damaged(
                path, "its file is missing or damaged", "back it up before the proxy ends"
            ) from None


class KeyringChanges:
    def __init__(self, keyrings: OpenKeyrings) -> None:
        self._keyrings = keyrings

    def change_passphrase(self, holder: Holder, old: Passphrase | None, new: Passphrase) -> int:
        """Encrypt the holder's keyring and its kept files under ``new``; records do not change. It
        is then unlocked on the holder's device only.

        Args:
            old: the current secret; needed if it is a passphrase.

        Returns:
            The number of kept files that stay under their secret, because it is missing.

        Raises:
            NotFound, Throttled, Closed: as :meth:`unlock`.
            Unavailable: the disk is full or fails.
        """
        user = holder.user
        with self._keyrings.lock, files.keyring_disk_errors():
            path, file = self._keyrings.files.read(user)
            if files.wrapping(file) == fmt.WRAP_PASSPHRASE:
                if old is None:
                    raise Closed(
                        "the current passphrase is needed to change it", code="keyring_locked"
                    )
                keyring = self._keyrings.try_passphrase(
                    path, file, user, old, (holder.device or "").encode()
                )
            else:
                keyring = self._keyrings.files.open(path, file, user, None)
            left = self._keyrings.files.seal_under(path, user, keyring, old, new)
            self._keyrings.has_own_passphrase.pop(user, None)
            self._keyrings.unlocked.drop(user)
            self._keyrings.unlocked.add(user, new, holder.device)
            self._keyrings.open[user] = keyring
            log.info("keyring %s has a new passphrase", path.name)
            return left

    def rotate(self, holder: Holder) -> Keyring:
        """Add a version to the holder's keyring, which encrypts from now on.

        The new file replaces the old file atomically: an interruption leaves one of the two.

        Raises:
            NotFound: there is no keyring to rotate.
            Closed, Unavailable: as :meth:`of`.
        """
        with self._keyrings.lock, files.keyring_disk_errors():
            present = self._keyrings.open_for(holder)
            if present is None:
                raise files.no_keyring()
            rotated = present.rotate(created=int(runtime.wall()))
            self._keyrings.replace(
                holder.user, rotated, self._keyrings.unlocked.passphrase(holder.user)
            )
            name = self._keyrings.files.path(holder.user).name
            log.info("keyring %s now has version %d", name, rotated.newest)
            return rotated

    def restore(
        self, holder: Holder, keyring: Keyring, *, replace: bool, by_words: bool = False
    ) -> None:
        """Make ``keyring``, which came from a backup, the holder's.

        It stays under its user's own passphrase if that was typed on the holder's device. Otherwise
        the passphrase counts as lost, as it does for a user who shows words instead: the keyring is
        encrypted with the configured secret, and no device has it unlocked any more.

        Args:
            by_words: whether the holder has shown the words of the current keyring, instead of its
                passphrase.
            replace: whether it may replace a keyring with other keys. A keyring with all keys of
                the current keyring may always replace it. The replaced file is kept.

        Raises:
            Conflict: there is a keyring with other keys, and ``replace`` is false.
            NotAllowed, NotAuthenticated, Throttled: no keyring may be made for this holder.
            Unavailable: the disk is full or fails.
        """
        user = holder.user
        with self._keyrings.lock, files.keyring_disk_errors():
            if not self._keyrings.files.path(user).exists():
                self._keyrings.enrolment.admit_new(holder, others=self._keyrings.has_others(user))
                self._keyrings.enrolment.register_newcomer(holder, "restored")
            is_known = not by_words and self._keyrings.unlocked.admits(holder)
            given = self._keyrings.unlocked.passphrase(user) if is_known else None
            if self._keyrings.files.create(user, keyring, given):
                self._keyrings.has_own_passphrase.pop(user, None)
                self._keyrings.open[user] = keyring
                self._keyrings.enrolment.remember_key(user, keyring.roots[keyring.newest])
            elif replace or self._is_part_of(user, keyring):
                self._keyrings.enrolment.register_newcomer(holder, "restored")
                self._keyrings.replace(user, keyring, given)
            else:
                raise Conflict(
                    "you already have another keyring here",
                    code="keyring_exists",
                    hint="to replace it, repeat this with replace; its file is kept",
                )
            if given is None:
                self._keyrings.unlocked.drop(user)
            self._keyrings.backups.confirm(user, keyring.roots.values())

    def _is_part_of(self, user: bytes, keyring: Keyring) -> bool:
        """Whether ``keyring`` has every key of the user's current keyring."""
        try:
            present = self._keyrings.open_file(user)
        except Closed:
            return False
        assert present is not None
        fingerprints = {version: root.fingerprint for version, root in keyring.roots.items()}
        return all(
            fingerprints.get(version) == root.fingerprint for version, root in present.roots.items()
        )

"""Users' keyrings on this machine: made at first use, stored encrypted, never silently replaced.

- A keyring opens for a :class:`~.holder.Holder` alone (:mod:`.opened`).
- A keyring that is changed leaves its old file beside the new one.
- A keyring under a passphrase of its user's own opens for the devices on which that passphrase was
  typed, until they lock it, do not use it for some hours, or the proxy ends.

Changes of a keyring: another passphrase, a further version, one from a backup.

The old file of a keyring is kept beside the new one. Only a new passphrase keeps no old file, since
that would still open with the old passphrase.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable
from pathlib import Path

from encrypted_records import runtime
from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.keys import Keyring
from encrypted_records.crypto.recovery import Passphrase, Wrapper, root_of, wrapping_of
from encrypted_records.errors import BadInput, Closed, Conflict, Unsupported
from encrypted_records.proxy.keyrings import files
from encrypted_records.proxy.keyrings.enrolment import Enrolment
from encrypted_records.proxy.keyrings.files import keyring_disk_errors
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.opened import UNLOCKED_SECONDS, OpenKeyrings
from encrypted_records.proxy.keyrings.policy import Attempts


class Keyrings:
    """Safe to use from several threads; opening a keyring may take a third of a second.

    Args:
        folder: the proxy's own.
        secrets: what seals keyrings (:class:`KeyringFiles`, which says what it raises).
        enrolment: decides whether a keyring may be made, and enrols its device.
        unlocked_seconds: without use, after which a keyring that was unlocked locks by itself.
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

    # --- for those who may ------------------------------------------------------------------

    def of(self, holder: Holder) -> Keyring:
        """The holder's keyring, made now if there is none.

        Raises:
            Closed: the file is damaged, missing, of another machine, of a newer version, or locked.
            NotAllowed, NotAuthenticated, Throttled: none may be made for this holder.
            Unavailable: it has to be written, and the disk is full or fails.
        """
        keyring = self._core.at_hand(holder)
        if keyring is not None:
            return keyring
        with self._core.lock, keyring_disk_errors():
            return self._core.open_for(holder) or self._core.make(holder)

    def existing(self, holder: Holder) -> Keyring | None:
        """The holder's keyring, or None where there is none.

        Raises:
            Closed, NotAuthenticated, Unavailable: as :meth:`of`.
        """
        keyring = self._core.at_hand(holder)
        if keyring is not None:
            return keyring
        with self._core.lock, keyring_disk_errors():
            return self._core.open_for(holder)

    def check_unlocked(self, holder: Holder) -> None:
        """Refuse a holder whose keyring others have unlocked, and this device has not.

        The event loop calls this, so it waits for no lock.

        Raises:
            Closed: ``keyring_locked``.
        """
        self._core.check_unlocked(holder)

    def close_unused(self) -> list[bytes]:
        """Lock what no device has used for long; whose keyrings these were."""
        return [user for user in self._core.unlocked.users() if self._core.close_unused(user)]

    def lock(self, holder: Holder) -> None:
        """Forget a keyring that was unlocked here, on whichever devices.

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

    # --- for those who show what they know --------------------------------------------------

    def unlock(
        self, user: bytes, passphrase: Passphrase, *, device: str, counted: bytes
    ) -> Keyring:
        """Open the user's keyring, which is under a passphrase of the user's own, on a device.

        Args:
            counted: what wrong passphrases are counted under.

        Raises:
            NotFound: there is none.
            Throttled: too soon after a wrong passphrase.
            Closed: as :meth:`of`; ``keyring_locked`` also for a wrong passphrase.
        """
        with self._core.lock, keyring_disk_errors():
            path, file = self._core.files.read(user)
            keyring = self._core.try_passphrase(path, file, user, passphrase, counted)
            self._core.unlocked.add(user, passphrase, device)
            self._core.enrolment.remember_key(user, keyring.roots[keyring.newest])
            return self._core.open.setdefault(user, keyring)

    def check_passphrase(self, user: bytes, passphrase: Passphrase, *, counted: bytes) -> None:
        """
        Raises:
            NotFound, Throttled, Closed: as :meth:`unlock`; it is not the passphrase.
        """
        with self._core.lock, keyring_disk_errors():
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
        """The user whose keyring's newest version has these words; None without one."""
        users = self._core.enrolment.users()
        return next((user for user in users if self.knows_words(user, phrase)), None)

    def dismiss(self, user: bytes, device: str) -> None:
        """Forget that a device, which was revoked, has unlocked the keyring."""
        with self._core.lock:
            self._core.unlocked.drop_device(user, device)
            self._core.close_unused(user)

    # --- about keyrings ---------------------------------------------------------------------

    def has(self, user: bytes) -> bool:
        """Whether there is a keyring of this user's, or was one that is only missing."""
        return (
            user in self._core.open
            or self._core.files.path(user).exists()
            or self._core.enrolment.keyring(user) is not None
            or self.backups.knows(user)
        )

    def is_open(self, user: bytes) -> bool:
        """Whether the user's keyring is in memory; it may be unlocked for other devices alone."""
        return user in self._core.open

    def is_for_another(self, user: bytes) -> bool:
        """Whether this proxy is for one user, who is another one; of a user without a keyring
        here."""
        return (
            self._core.enrolment.policy.lone
            and not self.is_here(user)
            and self._core.has_others(user)
        )

    def is_here(self, user: bytes) -> bool:
        """Whether the file of this user's keyring is here."""
        return self._core.files.path(user).exists()

    def is_own(self, user: bytes) -> bool:
        """Whether the user's keyring is under a passphrase of the user's own, not the operator's.

        It takes a third of a second where the operator's passphrase has to be tried.
        """
        with self._core.lock, keyring_disk_errors():
            known = self._core.own.get(user)
            return self._core.check_own(user) if known is None else known

    def own_if_known(self, user: bytes) -> bool | None:
        """Whether the keyring is the user's own, where no look at the file is needed; None
        elsewhere. See :meth:`is_own`.
        """
        return self._core.own.get(user)

    def wrapping_name(self, user: bytes) -> str:
        """The name of the wrapping of the user's keyring, which exists."""
        path = self._core.files.path(user)
        try:
            return files.NAMES[wrapping_of(path.read_bytes())]
        except (FileNotFoundError, Unsupported):
            raise files.damaged(
                path, "its file is missing or damaged", "back it up before the proxy ends"
            ) from None


log = logging.getLogger(__name__)


class KeyringChanges:
    def __init__(self, keyrings: OpenKeyrings) -> None:
        self._keyrings = keyrings

    def change_passphrase(self, holder: Holder, old: Passphrase | None, new: Passphrase) -> int:
        """Seal the holder's keyring under ``new``, and what was kept of it; records stay as they
        are. It is unlocked on the holder's device then, and on no other.

        Args:
            old: what it is sealed with; needed where that is a passphrase.

        Returns:
            How many kept files stay under what they were sealed with, since that is not here.

        Raises:
            NotFound, Throttled, Closed: as :meth:`unlock`.
            Unavailable: the disk is full or fails.
        """
        user = holder.user
        with self._keyrings.lock, keyring_disk_errors():
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
            self._keyrings.own.pop(user, None)
            self._keyrings.unlocked.drop(user)
            self._keyrings.unlocked.add(user, new, holder.device)
            self._keyrings.open[user] = keyring
            log.info("keyring %s has a new passphrase", path.name)
            return left

    def rotate(self, holder: Holder) -> Keyring:
        """Add a version to the holder's keyring, which seals from now on.

        The new file replaces the old one in one step: an interruption leaves one of the two.

        Raises:
            NotFound: there is no keyring to rotate.
            Closed, Unavailable: as :meth:`of`.
        """
        with self._keyrings.lock, keyring_disk_errors():
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
        encrypted with what the proxy was started with, and no device has it unlocked any more.

        Args:
            by_words: whether the holder has shown the words of the present keyring, instead of its
                passphrase.
            replace: whether it may replace one that has other keys. One that has all keys of the
                present one may always. What is replaced is kept.

        Raises:
            Conflict: there is one with other keys, and it is not to be replaced.
            NotAllowed, NotAuthenticated, Throttled: none may be made for this holder.
            Unavailable: the disk is full or fails.
        """
        user = holder.user
        with self._keyrings.lock, keyring_disk_errors():
            if not self._keyrings.files.path(user).exists():
                self._keyrings.enrolment.admit_new(holder, others=self._keyrings.has_others(user))
                self._keyrings.enrolment.take_in_newcomer(holder, "restored")
            is_known = not by_words and self._keyrings.unlocked.admits(holder)
            given = self._keyrings.unlocked.passphrase(user) if is_known else None
            if self._keyrings.files.create(user, keyring, given):
                self._keyrings.own.pop(user, None)
                self._keyrings.open[user] = keyring
                self._keyrings.enrolment.remember_key(user, keyring.roots[keyring.newest])
            elif replace or self._is_part_of(user, keyring):
                self._keyrings.enrolment.take_in_newcomer(holder, "restored")
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
        """Whether ``keyring`` has every key of the user's present one."""
        try:
            present = self._keyrings.open_file(user)
        except Closed:
            return False
        assert present is not None
        fingerprints = {version: root.fingerprint for version, root in keyring.roots.items()}
        return all(
            fingerprints.get(version) == root.fingerprint for version, root in present.roots.items()
        )

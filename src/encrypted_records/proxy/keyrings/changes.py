"""Changes of a keyring: another passphrase, a further version, one from a backup.

The old file of a keyring is kept beside the new one. Only a new passphrase keeps no old file, since
that would still open with the old passphrase.
"""

from __future__ import annotations

import logging

from encrypted_records import runtime
from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.keys import Keyring
from encrypted_records.crypto.recovery import Passphrase
from encrypted_records.errors import Closed, Conflict
from encrypted_records.proxy.keyrings import files
from encrypted_records.proxy.keyrings.files import keyring_disk_errors
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.opened import OpenKeyrings

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
                        "the present passphrase is needed to change it", code="keyring_locked"
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
                    "you have another keyring here already",
                    code="keyring_exists",
                    hint="its file is kept if you repeat this with replace",
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

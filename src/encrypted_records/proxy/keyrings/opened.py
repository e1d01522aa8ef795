"""Keyrings in memory, and the operations on them that need the lock.

A keyring opens for a :class:`~.holder.Holder` alone. A file that does not open, or is missing, is
an error that names it, and no new keyring is made instead: its owner would have records that nobody
can read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from encrypted_records import runtime
from encrypted_records.crypto.keys import Keyring
from encrypted_records.crypto.recovery import Passphrase, Wrapper
from encrypted_records.errors import Closed, NotAllowed, NotFound
from encrypted_records.proxy.keyrings import files
from encrypted_records.proxy.keyrings.backoff import Attempts
from encrypted_records.proxy.keyrings.backups import Backups
from encrypted_records.proxy.keyrings.enrolment import Enrolment, unknown_device
from encrypted_records.proxy.keyrings.files import KeyringFiles
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.policy import Level
from encrypted_records.proxy.keyrings.services import ServiceKeyrings
from encrypted_records.proxy.keyrings.unlocked import Unlocked

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
        self.unlocked = Unlocked(clock, unlocked_seconds)
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
        return any(one != user for one in self.files.users())

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
                "the keyring is not here; a service's is only while the service uses this proxy",
                code="keyring_locked",
                hint="its work goes on when the service comes again",
            )
        if known:
            # With a new one instead, its records could not be read, and it could not come back.
            raise files.damaged(
                path,
                "it is missing, and there was one",
                "put the file back, or bring the keyring here: ers keyring restore",
            )
        if holder.token is not None and not holder.token.writes:
            raise NotAllowed(
                "this user has no keyring here, and an API token that only reads makes none",
                code="token_limited",
                hint="bring the keyring here as yourself: ers keyring restore",
            )
        self.enrolment.admit_new(holder, others=self.has_others(user))
        self.enrolment.take_in_newcomer(holder, "made")
        made = Keyring.generate(created=int(runtime.wall()))
        given = self.unlocked.passphrase(user)
        if self.files.create(user, made, given):
            log.info("made a keyring: %s", path.name)
        # Read back: another process may have been first.
        keyring = self.open[user] = self.files.open(path, path.read_bytes(), user, given)
        self.own.pop(user, None)
        self.enrolment.remember_key(user, keyring.roots[keyring.newest])
        return keyring

    def try_passphrase(
        self, path: Path, file: bytes, user: bytes, passphrase: Passphrase, counted: bytes
    ) -> Keyring:
        """Open a file with a passphrase that somebody typed."""
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

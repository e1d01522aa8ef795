"""The devices of each keyring: registered, used, revoked, and stored in ``access.sqlite3``.

A device belongs to one keyring. A device of another user's keyring is treated as unknown, so an API
that confuses two users can neither read from, nor encrypt into, the other user's keys.

The file has, for each keyring, its devices, the fingerprint of its newest version, and its events.
Only the SHA-256 of a device's secret is stored, and nothing in the file opens a keyring. If the
file is lost, each user must be enrolled again; a user who can write it can also read the keyrings
in the same folder.
"""

from __future__ import annotations

import asyncio
import hmac
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from encrypted_records import runtime
from encrypted_records.crypto.keys import RootKey
from encrypted_records.errors import Conflict, NotAllowed, NotAuthenticated, NotFound, Throttled
from encrypted_records.model.credentials import DOOR, DeviceSecret
from encrypted_records.proxy.disk import Database
from encrypted_records.proxy.keyrings.holder import Holder, Level, Policy

_TABLES = """
CREATE TABLE IF NOT EXISTS device (
    id TEXT PRIMARY KEY,
    user BLOB NOT NULL,
    digest BLOB NOT NULL,
    name TEXT NOT NULL,
    way TEXT NOT NULL,
    created INTEGER NOT NULL,
    used INTEGER NOT NULL,
    revoked INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS keyring (
    user BLOB PRIMARY KEY,
    made INTEGER NOT NULL,
    fingerprint BLOB NOT NULL,
    verifier BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS event (
    number INTEGER PRIMARY KEY,
    user BLOB NOT NULL,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    device TEXT NOT NULL,
    detail TEXT NOT NULL,
    count INTEGER NOT NULL DEFAULT 1
);
CREATE INDEX IF NOT EXISTS event_by_user ON event (user, number);
"""
#: Maximum number of events that are kept per keyring.
_MAX_EVENTS = 1000
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """A registered device; times are in seconds since 1970, ``used`` to the day."""

    id: str
    user: bytes
    digest: bytes = field(repr=False)
    name: str
    way: str
    created: int
    used: int
    revoked: bool


def _device(
    id: str,  # noqa: A002 - as the column is called
    user: bytes,
    digest: bytes,
    name: str,
    way: str,
    created: int,
    used: int,
    revoked: int,
) -> DeviceRecord:
    return DeviceRecord(id, user, digest, name, way, created, used, bool(revoked))


@dataclass(frozen=True, slots=True)
class KeyringRecord:
    """Facts about a user's keyring that are known without opening it.

    ``fingerprint`` and ``verifier`` are those of the newest version's root key.
    """

    made: int
    fingerprint: bytes
    verifier: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Event:
    """A keyring's event, which occurred ``count`` times on the day of ``at``."""

    at: int
    kind: str
    device: str
    detail: str
    count: int


class AccessStore:
    """Safe to use from several threads.

    Every method raises OutOfSpace where the disk is full, and Unavailable
    (``access_store_failed``) where the file fails otherwise.
    """

    def __init__(self, path: Path) -> None:
        """
        Raises:
            Startup: the file is damaged, or cannot be opened.
        """
        self._database = Database(
            path,
            _TABLES,
            # An unknown device is refused.
            code="access_store_failed",
            message="the registered devices cannot be read or written",
            loss="all devices are then unknown, including revoked ones, and must be registered"
            " again; no key and no record is lost",
        )

    def devices(self) -> list[DeviceRecord]:
        """All devices, including revoked devices; raises as every method here."""
        rows = self._database.rows(
            "SELECT id, user, digest, name, way, created, used, revoked FROM device"
        )
        return [_device(*row) for row in rows]

    def put_device(self, device: DeviceRecord) -> None:
        self._database.run(
            "INSERT OR REPLACE INTO device VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *(device.id, device.user, device.digest, device.name, device.way),
            *(device.created, device.used, device.revoked),
        )

    def delete_device(self, device_id: str) -> None:
        self._database.run("DELETE FROM device WHERE id = ?", device_id)

    def keyrings(self) -> dict[bytes, KeyringRecord]:
        """All keyrings, by user."""
        rows = self._database.rows("SELECT user, made, fingerprint, verifier FROM keyring")
        return {user: KeyringRecord(*record) for user, *record in rows}

    def put_keyring(self, user: bytes, keyring: KeyringRecord) -> None:
        self._database.run(
            "INSERT INTO keyring VALUES (?, ?, ?, ?) ON CONFLICT (user) DO UPDATE"
            " SET fingerprint = excluded.fingerprint, verifier = excluded.verifier",
            *(user, keyring.made, keyring.fingerprint, keyring.verifier),
        )

    def note(self, user: bytes, event: Event) -> None:
        """Record an event; a repeated event of the same kind, device and detail on the same day
        increases its count.
        """
        with self._database.asking() as database:
            counted = database.execute(
                "UPDATE event SET count = count + 1 WHERE user = ? AND kind = 'refused' AND"
                " kind = ? AND device = ? AND detail = ? AND at / ? = ? / ?",
                (user, event.kind, event.device, event.detail, _DAY, event.at, _DAY),
            ).rowcount
            if counted:
                return
            database.execute(
                "INSERT INTO event (user, at, kind, device, detail) VALUES (?, ?, ?, ?, ?)",
                (user, event.at, event.kind, event.device, event.detail),
            )
            database.execute(
                "DELETE FROM event WHERE user = ? AND number <= (SELECT number FROM event"
                " WHERE user = ? ORDER BY number DESC LIMIT 1 OFFSET ?)",
                (user, user, _MAX_EVENTS),
            )

    def events(self, user: bytes) -> list[Event]:
        """Events of the user's keyring, the newest first."""
        rows = self._database.rows(
            "SELECT at, kind, device, detail, count FROM event WHERE user = ? ORDER BY number DESC",
            user,
        )
        return [Event(*row) for row in rows]

    def last(self, user: bytes, kind: str, detail: str) -> int | None:
        """The time of the last event of this kind and detail."""
        row = self._database.row(
            "SELECT max(at) FROM event WHERE user = ? AND kind = ? AND detail = ?",
            *(user, kind, detail),
        )
        found: int | None = row[0]
        return found

    def close(self) -> None:
        self._database.close()


#: Maximum number of devices per keyring, and seconds without use after which a device is removed
#: when another is registered.
_MAX_DEVICES = 50
_UNUSED_SECONDS = 180 * 86_400
#: Keyrings that may be made from one address per hour, at level ``device``.
NEW_KEYRINGS = 10
_NEW_SECONDS = 3600
_MAX_NAME = 60
#: The event that a backup was restored or compared; its detail is the keyring's fingerprint.
RESTORE_TRIED = "restore_tried"


class Enrolment:
    """Safe to use from several threads; watches belong to the event loop.

    Args:
        clock: seconds since 1970.
    """

    def __init__(
        self, store: AccessStore, policy: Policy, clock: Callable[[], float] = runtime.wall
    ) -> None:
        self._store = store
        self._clock = clock
        #: the latest time that is not in doubt, by which unused devices are removed
        self.certain_now = clock
        self.policy = policy
        self._lock = threading.RLock()
        self._devices = {device.id: device for device in store.devices()}
        self._keyrings = store.keyrings()
        self._made_from: defaultdict[str, deque[float]] = defaultdict(deque)
        self._watches: defaultdict[str, set[Callable[[], object]]] = defaultdict(set)

    # --- looking ----------------------------------------------------------------------------

    def owner_of(self, device: DeviceSecret) -> bytes | None:
        """The owner of this device; None where this proxy does not know it.

        Raises:
            NotAuthenticated: ``device_unknown``; the id is known but the secret is wrong, or the
                device was revoked.
        """
        known = self._devices.get(device.id)
        if known is None and device.id != DOOR:
            return None
        if known is None or known.revoked or not hmac.compare_digest(known.digest, device.digest):
            raise unknown_device()
        return known.user

    def digest_of(self, device_id: str) -> bytes | None:
        """The SHA-256 of a device's secret, also of a revoked device."""
        known = self._devices.get(device_id)
        return None if known is None else known.digest

    def devices(self, user: bytes) -> list[DeviceRecord]:
        """The user's devices that are not revoked, in order of registration.

        After a restart, devices of the same second have any order.
        """
        devices = [
            device
            for device in self._devices.values()
            if device.user == user and not device.revoked
        ]
        return sorted(devices, key=lambda device: device.created)

    def keyring(self, user: bytes) -> KeyringRecord | None:
        return self._keyrings.get(user)

    def users(self) -> list[bytes]:
        """The users who have, or had, a keyring here."""
        return list(self._keyrings)

    def events(self, user: bytes) -> list[Event]:
        return sorted(
            [*self._store.events(user), *self._store.events(b"")], key=lambda event: -event.at
        )

    def last_tried(self, user: bytes, fingerprint: str) -> int | None:
        """When a backup of the keyring with this fingerprint was last restored or compared, in
        seconds since 1970.
        """
        return self._store.last(user, RESTORE_TRIED, fingerprint)

    # --- changing ---------------------------------------------------------------------------

    def use(self, device_id: str) -> None:
        """Record that a device was used today."""
        today = int(self._clock()) // _DAY * _DAY
        device = self._devices[device_id]
        if device.used < today:
            with self._lock, suppress(KeyError):
                used = replace(self._devices[device_id], used=today)
                self._store.put_device(used)
                self._devices[device_id] = used

    def register(self, user: bytes, device: DeviceSecret, way: str, name: str = "") -> DeviceRecord:
        """Register a device of the user; a registered device stays as it is.

        Args:
            way: how the right was proven: ``made``, ``restored``, ``code``, ``passphrase``,
                ``words``, ``door`` or ``device``.

        Raises:
            NotAuthenticated: ``device_unknown``; the device belongs to another user, or was
                revoked.
            Conflict: ``too_many_devices``.
        """
        with self._lock:
            owner = self.owner_of(device)
            if owner == user:
                return self._devices[device.id]
            if owner is not None:
                raise unknown_device()
            self._drop_unused(user)
            if len(self.devices(user)) >= _MAX_DEVICES:
                raise Conflict(
                    f"a keyring has at most {_MAX_DEVICES} devices",
                    code="too_many_devices",
                    hint="revoke one that is no longer used: ers device revoke",
                )
            now = int(self._clock())
            named = name.strip()[:_MAX_NAME] or f"device {device.id}"
            made = DeviceRecord(
                device.id, user, device.digest, named, way, now, now // _DAY * _DAY, False
            )
            self._store.put_device(made)
            self._devices[device.id] = made
            self.note(user, "taken_in", device.id, way)
            return made

    def revoke(self, user: bytes, device_id: str) -> None:
        """Revoke a device: it is refused from the next request on, and its streams are closed.

        Raises:
            NotFound: the user has no such device.
        """
        with self._lock:
            device = self._devices.get(device_id)
            if device is None or device.user != user or device.revoked:
                raise NotFound("you have no such device here", hint="list them: ers device list")
            ended = replace(device, revoked=True)
            self._store.put_device(ended)
            self._devices[device_id] = ended
            self.note(user, "revoked", device_id)
        for tell in self._watches.pop(device_id, set()):
            tell()

    def _drop_unused(self, user: bytes) -> None:
        before = self.certain_now() - _UNUSED_SECONDS
        for device in [device for device in self._devices.values() if device.user == user]:
            if device.used < before:
                self._store.delete_device(device.id)
                del self._devices[device.id]

    def note(self, user: bytes, kind: str, device: str | None = None, detail: str = "") -> None:
        """Record an event of the user's keyring."""
        self._store.note(user, Event(int(self._clock()), kind, device or "", detail, 1))

    # --- keyrings ---------------------------------------------------------------------------

    def admit_new(self, holder: Holder, *, others: bool) -> None:
        """Check whether a keyring may be made for this user; called under the lock of the keyring
        files.

        Args:
            others: whether another user has a keyring here.

        Raises:
            NotAllowed: ``another_user``; this proxy serves a single user.
            NotAuthenticated: ``device_unknown``; the device was registered by another user
                meanwhile.
            Throttled: too many keyrings were made from that address.
        """
        if self.policy.lone and others:
            raise another_user()
        if holder.newcomer is not None and self.owner_of(holder.newcomer) is not None:
            raise unknown_device()
        if self.policy.level is Level.DEVICE and holder.address:
            now = runtime.monotonic()
            with self._lock:
                made = self._made_from[holder.address]
                while made and made[0] < now - _NEW_SECONDS:
                    made.popleft()
                if len(made) >= NEW_KEYRINGS:
                    wait = int(made[0] + _NEW_SECONDS - now) + 1
                    raise Throttled("too many new keyrings from this address", retry_after=wait)
                made.append(now)

    def register_newcomer(self, holder: Holder, way: str) -> None:
        """Register the device of a request for which a keyring is made or restored.

        This happens before the file is written: a keyring without a device would be inaccessible to
        its owner, a device without a keyring is harmless.
        """
        if holder.newcomer is not None:
            self.register(holder.user, holder.newcomer, way)

    def remember_key(self, user: bytes, newest: RootKey) -> None:
        """Record the identification of the newest version of the user's keyring."""
        with self._lock:
            before = self._keyrings.get(user)
            if before is not None and before.verifier == newest.verifier:
                return
            made = int(self._clock()) if before is None else before.made
            record = KeyringRecord(made, newest.fingerprint, newest.verifier)
            self._store.put_keyring(user, record)
            self._keyrings[user] = record

    # --- streams ----------------------------------------------------------------------------

    @contextmanager
    def watch(self, device_id: str | None) -> Iterator[asyncio.Event]:
        """An event that is set when the device is revoked; without a device it is never set."""
        event = asyncio.Event()
        forget = self.when_revoked(device_id, event.set)
        try:
            yield event
        finally:
            forget()

    def when_revoked(self, device_id: str | None, tell: Callable[[], object]) -> Callable[[], None]:
        """Register a function to be called when the device is revoked, in the thread of the
        revocation; returns a function that unregisters it.
        """
        if device_id is None:
            return lambda: None
        watches = self._watches[device_id]
        watches.add(tell)
        return lambda: watches.discard(tell)

    def close(self) -> None:
        self._store.close()


def unknown_device() -> NotAuthenticated:
    return NotAuthenticated(
        "the device of this request is not one of yours here",
        code="device_unknown",
        hint="register it: ers device add, or the page /device/",
    )


def needed_device() -> NotAuthenticated:
    return NotAuthenticated(
        "this request needs a device that is registered here",
        code="device_needed",
        hint="ers device add registers this machine; a browser opens the page /device/; curl"
        " sends the header X-ERS-Device with the output of ers device create",
    )


def another_user() -> NotAllowed:
    return NotAllowed(
        "this proxy is for one user, and another user has a keyring here",
        code="another_user",
        hint="start it with --access device, so that each request must come from a registered"
        " device of its user; or with --access api, if you also run the API and trust it",
    )

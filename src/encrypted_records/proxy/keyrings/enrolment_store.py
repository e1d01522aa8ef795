"""Devices that this proxy remembers: ``access.sqlite3`` in its folder.

For each keyring: its devices, the fingerprint of its newest version, and its events. Only the
SHA-256 of a device's secret is kept. Nothing in it opens a keyring. If the file is lost, each user
must be enrolled again; a user who can write it can read the keyrings beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from encrypted_records.proxy.disk import Database

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
#: Events that are kept of each keyring.
MAX_EVENTS = 1000
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """A device that was taken in; times are in seconds since 1970, ``used`` to the day."""

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
    """An event of a keyring, which occurred ``count`` times on the day of ``at``."""

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
            # An unknown device is not let in.
            code="access_store_failed",
            message="the registered devices cannot be read or written",
            loss="all devices are then unknown, including revoked ones, and must be registered"
            " again; no key and no record is lost",
        )

    def devices(self) -> list[DeviceRecord]:
        """All devices, revoked ones too; raises as every method here."""
        with self._database.asking() as database:
            rows = database.execute(
                "SELECT id, user, digest, name, way, created, used, revoked FROM device"
            ).fetchall()
        return [_device(*row) for row in rows]

    def put_device(self, device: DeviceRecord) -> None:
        with self._database.asking() as database:
            database.execute(
                "INSERT OR REPLACE INTO device VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (device.id, device.user, device.digest, device.name, device.way, device.created,
                 device.used, device.revoked),
            )  # fmt: skip

    def delete_device(self, device_id: str) -> None:
        with self._database.asking() as database:
            database.execute("DELETE FROM device WHERE id = ?", (device_id,))

    def keyrings(self) -> dict[bytes, KeyringRecord]:
        """All keyrings, by user."""
        with self._database.asking() as database:
            rows = database.execute(
                "SELECT user, made, fingerprint, verifier FROM keyring"
            ).fetchall()
        return {user: KeyringRecord(*record) for user, *record in rows}

    def put_keyring(self, user: bytes, keyring: KeyringRecord) -> None:
        with self._database.asking() as database:
            database.execute(
                "INSERT INTO keyring VALUES (?, ?, ?, ?) ON CONFLICT (user) DO UPDATE"
                " SET fingerprint = excluded.fingerprint, verifier = excluded.verifier",
                (user, keyring.made, keyring.fingerprint, keyring.verifier),
            )

    def note(self, user: bytes, event: Event) -> None:
        """Enter an event; one of the same kind, device and detail on the same day is counted."""
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
                (user, user, MAX_EVENTS),
            )

    def events(self, user: bytes) -> list[Event]:
        """Events of the user's keyring, the newest first."""
        with self._database.asking() as database:
            rows = database.execute(
                "SELECT at, kind, device, detail, count FROM event WHERE user = ?"
                " ORDER BY number DESC",
                (user,),
            ).fetchall()
        return [Event(*row) for row in rows]

    def last(self, user: bytes, kind: str, detail: str) -> int | None:
        """When an event of this kind and detail occurred last."""
        with self._database.asking() as database:
            row = database.execute(
                "SELECT max(at) FROM event WHERE user = ? AND kind = ? AND detail = ?",
                (user, kind, detail),
            ).fetchone()
        found: int | None = row[0]
        return found

    def close(self) -> None:
        self._database.close()

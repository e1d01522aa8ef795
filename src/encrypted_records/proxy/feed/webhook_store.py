"""Webhooks on disk: ``webhooks.sqlite3`` in the proxy's folder.

Where they go, their secrets and tokens are sealed under the user's keyring (docs/SPEC.md, section
16). The file says whose they are, of which schema, and how far each has come.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from encrypted_records.crypto.keys import Keyring
from encrypted_records.errors import BadInput
from encrypted_records.proxy.disk import Database
from encrypted_records.proxy.saved_questions import open_kept, pad, seal_kept

_TABLE = """
CREATE TABLE IF NOT EXISTS webhook (
    id BLOB PRIMARY KEY,
    user BLOB NOT NULL,
    schema BLOB NOT NULL,
    sealed BLOB NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    cursor TEXT,
    restarts INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    failing_since REAL,
    delivered_at REAL
) WITHOUT ROWID;
"""
_COLUMNS = (
    "id, user, schema, sealed, status, reason, cursor, restarts, tries, failing_since, delivered_at"
)
#: Of one user.
MOST_WEBHOOKS = 20
#: Follows the schema's id in the authenticated place.
_PLACE = b"webhook"


class Status(StrEnum):
    ACTIVE = "active"
    STOPPED = "stopped"


class WebhookTarget(msgspec.Struct, frozen=True, array_like=True):
    """The address and credentials of a webhook. None of it may be printed.

    Attributes:
        token: the API token for reading.
        secret: the key that signs deliveries.
        device: the id of the device that made the webhook; None if no device did.
    """

    url: str
    token: str
    secret: bytes
    device: str | None

    def __repr__(self) -> str:
        return "<Target>"


@dataclass(frozen=True, slots=True)
class StoredWebhook:
    """
    Attributes:
        reason: the code of the last error; why it is stopped, where it is.
        cursor: behind what was delivered; None where every record is due.
        restarts: whether the next delivery says that the consumer has to begin again.
        tries: how often the present delivery failed, and since when (seconds since 1970).
        delivered_at: when the last delivery was taken.
    """

    id: bytes
    user: bytes
    schema: bytes
    sealed: bytes
    status: Status = Status.ACTIVE
    reason: str = ""
    cursor: str | None = None
    restarts: bool = False
    tries: int = 0
    failing_since: float | None = None
    delivered_at: float | None = None

    def open(self, keyring: Keyring) -> WebhookTarget:
        """
        Raises:
            DoesNotOpen, KeyMissing: it was altered, or another keyring has sealed it.
        """
        plain = open_kept(keyring, self.id, self.sealed, self.schema + _PLACE)
        return msgspec.msgpack.decode(plain, type=WebhookTarget)


def seal_target(keyring: Keyring, identifier: bytes, schema: bytes, target: WebhookTarget) -> bytes:
    padded = pad(msgspec.msgpack.encode(target))
    return seal_kept(keyring, identifier, padded, schema + _PLACE)


class WebhookStore:
    """Safe to use from several threads; every change is on disk when its call returns.

    Every method raises OutOfSpace where the disk is full, and Unavailable (``proxy_store_failed``)
    where the file fails otherwise.
    """

    def __init__(self, path: Path) -> None:
        """
        Raises:
            Startup: the file is damaged, or cannot be opened.
        """
        self._database = Database(
            path,
            _TABLE,
            code="proxy_store_failed",
            message="webhooks cannot be read or written",
            loss="webhooks are then gone; create them again",
        )

    def add(self, webhook: StoredWebhook) -> None:
        """
        Raises:
            BadInput: the user has too many already.
        """
        with self._database.writing() as database:
            query = "SELECT count(*) FROM webhook WHERE user = ?"
            (count,) = database.execute(query, (webhook.user,)).fetchone()
            if count >= MOST_WEBHOOKS:
                raise BadInput(
                    f"you have {MOST_WEBHOOKS} webhooks, which is the limit",
                    hint="delete one first",
                )
            _put(database, webhook)

    def get(self, identifier: bytes) -> StoredWebhook | None:
        with self._database.asking() as database:
            query = f"SELECT {_COLUMNS} FROM webhook WHERE id = ?"  # noqa: S608
            row = database.execute(query, (identifier,)).fetchone()
        return None if row is None else _read(row)

    def list(self, user: bytes | None = None) -> list[StoredWebhook]:
        """The webhooks of a user, or of all users, the oldest first."""
        query = f"SELECT {_COLUMNS} FROM webhook WHERE ? IS NULL OR user = ? ORDER BY id"  # noqa: S608
        with self._database.asking() as database:
            return [_read(row) for row in database.execute(query, (user, user))]

    def update(self, webhook: StoredWebhook) -> bool:
        """Keep what it is now; False where it was deleted meanwhile."""
        with self._database.writing() as database:
            query = "SELECT 1 FROM webhook WHERE id = ?"
            if database.execute(query, (webhook.id,)).fetchone() is None:
                return False
            _put(database, webhook)
            return True

    def delete(self, identifier: bytes) -> None:
        with self._database.asking() as database:
            database.execute("DELETE FROM webhook WHERE id = ?", (identifier,))

    def close(self) -> None:
        self._database.close()


def _put(database: sqlite3.Connection, webhook: StoredWebhook) -> None:
    database.execute(
        f"INSERT OR REPLACE INTO webhook ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (
            *(webhook.id, webhook.user, webhook.schema, webhook.sealed),
            *(webhook.status, webhook.reason, webhook.cursor, webhook.restarts, webhook.tries),
            *(webhook.failing_since, webhook.delivered_at),
        ),
    )


def _read(row: Sequence[Any]) -> StoredWebhook:
    identifier, user, schema, sealed, status, reason, cursor, restarts, *rest = row
    return StoredWebhook(
        *(bytes(identifier), bytes(user), bytes(schema), bytes(sealed)),
        *(Status(status), reason, cursor, bool(restarts), *rest),
    )

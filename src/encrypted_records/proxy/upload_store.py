"""What the proxy knows of resumable uploads, in SQLite; their bytes are in the spool.

What the sender said of an upload (its file's name, its type) is kept sealed. An upload that has
ended stays listed for a while, so that its address can say so.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from sqlite3 import Connection

from encrypted_records.proxy import databases
from encrypted_records.proxy.tus.headers import Kind

_TABLE = """
CREATE TABLE IF NOT EXISTS upload (
    id BLOB PRIMARY KEY,
    owner BLOB NOT NULL,
    kind TEXT NOT NULL,
    length INTEGER,
    offset INTEGER NOT NULL,
    state TEXT NOT NULL,
    expires REAL NOT NULL,
    note BLOB NOT NULL
) WITHOUT ROWID
"""
_COLUMNS = "id, owner, kind, length, offset, state, expires, note"


class State(Enum):
    """``VERIFYING``: bytes beyond the offset belong to a checksum that was not compared yet."""

    OPEN = "open"
    VERIFYING = "verifying"
    EXPIRED = "expired"
    TERMINATED = "terminated"

    @property
    def has_ended(self) -> bool:
        return self in (State.EXPIRED, State.TERMINATED)


@dataclass(frozen=True, slots=True)
class Upload:
    """One upload.

    ``id`` is also that of the job that its bytes are for; partial ones have none. ``offset`` is
    what was acknowledged last, ``expires`` in seconds since 1970, ``note`` sealed (docs/SPEC.md,
    section 11, kind 3).
    """

    id: bytes
    owner: bytes
    kind: Kind
    length: int | None
    offset: int
    expires: float
    note: bytes
    state: State = State.OPEN

    @property
    def is_complete(self) -> bool:
        return self.offset == self.length

    @property
    def has_job(self) -> bool:
        return self.kind is not Kind.PARTIAL

    @property
    def may_expire(self) -> bool:
        """Whether it has not ended and its bytes are not a job's."""
        return not self.state.has_ended and not (self.has_job and self.is_complete)

    @property
    def due(self) -> float | None:
        """When it expires, in seconds since 1970, if it does."""
        return self.expires if self.may_expire else None


class UploadStore:
    """Safe to use from several threads; every change is on disk when its call returns.

    Every method raises OutOfSpace where the disk is full, and Unavailable (``proxy_store_failed``)
    where the file fails otherwise.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._database = databases.opened(path, _TABLE)

    @contextmanager
    def _asking(self) -> Iterator[Connection]:
        message = "what this proxy knows of uploads cannot be read or written"
        with self._lock, databases.named_errors("proxy_store_failed", message):
            yield self._database

    def put(self, upload: Upload) -> None:
        """Enter a new upload, or what is new of a known one."""
        with self._asking() as database:
            database.execute(
                f"INSERT OR REPLACE INTO upload ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our own names
                (
                    upload.id,
                    upload.owner,
                    upload.kind.value,
                    upload.length,
                    upload.offset,
                    upload.state.value,
                    upload.expires,
                    upload.note,
                ),
            )

    def get(self, upload: bytes) -> Upload | None:
        found = self._select("WHERE id = ?", upload)
        return found[0] if found else None

    def expired(self, now: float) -> list[Upload]:
        """Those whose time is over, ended ones among them."""
        return self._select("WHERE expires < ?", now)

    def owed(self) -> int:
        """How many bytes have been announced and not sent yet."""
        with self._asking() as database:
            (owed,) = database.execute(
                "SELECT coalesce(sum(length - offset), 0) FROM upload"
                " WHERE length IS NOT NULL AND state IN ('open', 'verifying')"
            ).fetchone()
        return int(owed)

    def forget(self, upload: bytes) -> None:
        with self._asking() as database:
            database.execute("DELETE FROM upload WHERE id = ?", (upload,))

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _select(self, where: str, *values: object) -> list[Upload]:
        with self._asking() as database:
            rows = database.execute(
                f"SELECT {_COLUMNS} FROM upload {where}",  # noqa: S608 - our own names
                values,
            ).fetchall()
        return [
            Upload(identifier, owner, Kind(kind), length, offset, expires, note, State(state))
            for identifier, owner, kind, length, offset, state, expires, note in rows
        ]

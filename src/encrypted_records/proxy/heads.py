"""The newest log version this machine has seen of each schema, kept across restarts.

An API that answers with less has lost or withheld data; remembering is what makes that an error
and not a shorter answer.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from encrypted_records.index.ledger import Head

_TABLE = """
CREATE TABLE IF NOT EXISTS head (
    schema BLOB PRIMARY KEY,
    version INTEGER NOT NULL,
    digest BLOB NOT NULL
) WITHOUT ROWID
"""
# A slower thread must not put an older head over a newer one.
_REMEMBER = """
INSERT INTO head (schema, version, digest) VALUES (?, ?, ?)
ON CONFLICT (schema) DO UPDATE SET version = excluded.version, digest = excluded.digest
WHERE excluded.version > head.version
"""


class Heads:
    """Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        path.chmod(0o600)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(_TABLE)

    def get(self, schema: bytes) -> Head | None:
        with self._lock:
            row = self._database.execute(
                "SELECT version, digest FROM head WHERE schema = ?", (schema,)
            ).fetchone()
        return None if row is None else Head(row[0], row[1])

    def remember(self, schema: bytes, head: Head) -> None:
        """Durable when it returns."""
        with self._lock:
            self._database.execute(_REMEMBER, (schema, head.version, head.digest))

    def close(self) -> None:
        with self._lock:
            self._database.close()

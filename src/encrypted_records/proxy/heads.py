"""The newest log version this machine has seen of each schema, kept across restarts.

An API that answers with less has lost or withheld data; remembering is what makes that an error
and not a shorter answer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection

from encrypted_records.index.ledger import Head
from encrypted_records.proxy import databases

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
        self._database = databases.opened(path, _TABLE)

    @contextmanager
    def _asking(self) -> Iterator[Connection]:
        """
        Raises:
            OutOfSpace: the disk is full.
            Unavailable: ``proxy_store_failed``; what cannot be remembered must not be trusted.
        """
        message = "what this proxy has seen of schemas' logs cannot be read or written"
        with self._lock, databases.named_errors("proxy_store_failed", message):
            yield self._database

    def get(self, schema: bytes) -> Head | None:
        """Raises as :meth:`remember`."""
        with self._asking() as database:
            row = database.execute(
                "SELECT version, digest FROM head WHERE schema = ?", (schema,)
            ).fetchone()
        return None if row is None else Head(row[0], row[1])

    def remember(self, schema: bytes, head: Head) -> None:
        """Durable when it returns.

        Raises:
            OutOfSpace, Unavailable: the disk does not take it.
        """
        with self._asking() as database:
            database.execute(_REMEMBER, (schema, head.version, head.digest))

    def close(self) -> None:
        with self._lock:
            self._database.close()

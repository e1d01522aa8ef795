"""SQLite files of a proxy, changed by another connection, as another process would."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def change(path: Path, statement: str) -> int:
    """Run one statement; how many rows it changed."""
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as database:
        return database.execute(statement).rowcount


def have_read_again(path: Path) -> None:
    """Move all to the file itself, and have open connections forget what they know of it."""
    change(path, "PRAGMA user_version = 1")
    change(path, "PRAGMA wal_checkpoint(TRUNCATE)")

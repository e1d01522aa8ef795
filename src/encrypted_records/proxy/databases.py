"""The proxy's own SQLite files: what is written is on disk, and what goes wrong has a name."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from encrypted_records.errors import OutOfSpace, Unavailable


def opened(path: Path, tables: str) -> sqlite3.Connection:
    """A database for its owner's eyes; every change outside a transaction is one of its own.

    Whoever uses it from several threads holds a lock.
    """
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    path.chmod(0o600)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.executescript(tables)
    return database


@contextmanager
def named_errors(code: str, message: str) -> Iterator[None]:
    """
    Raises:
        OutOfSpace: the disk is full.
        Unavailable: of this code; the file fails otherwise.
    """
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
            raise OutOfSpace("the disk is full") from None
        raise Unavailable(
            message, code=code, hint="look at the disk that holds the proxy's data folder"
        ) from error

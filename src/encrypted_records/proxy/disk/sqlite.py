"""The proxy's own SQLite files: what is written is on disk, and each error has a name.

A file is checked when it is opened: a damaged page may hide rows as well as spoil them, and rows
that are silently missing are worse than a proxy that does not start.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from encrypted_records.errors import ErsError, Startup
from encrypted_records.proxy.disk.errors import DATA_FOLDER_HINT, error_of, is_full, reason_of

log = logging.getLogger(__name__)

T = TypeVar("T")

#: The most pages that SQLite allows.
MOST_PAGES = (1 << 32) - 2

#: Beginnings of SQLite's names for a file that is not what it wrote.
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")


class Database:
    """One SQLite file, readable only by its owner. Thread-safe."""

    def __init__(
        self,
        path: Path,
        tables: str,
        *,
        code: str,
        message: str,
        loss: str,
        later: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        most_pages: int = MOST_PAGES,
    ) -> None:
        """Open the file, or make it.

        Args:
            tables: SQL that makes what is not there yet.
            later: columns that files of earlier versions lack: their types, by table and name.
            code, message: of the error for a file that fails later on.
            loss: what a proxy loses with this file, in a few words.
            most_pages: of 4 KiB; a file that needs more is refused as a full disk is.

        Raises:
            Startup: the file is damaged, or cannot be opened.
        """
        self._path = path
        self._code, self._message = code, message
        self._lock = threading.Lock()
        try:
            self._database = _open(path, tables, later)
            self._database.execute(f"PRAGMA max_page_count = {most_pages:d}")
        except sqlite3.Error as error:
            raise _refusal(path, error, loss) from None

    @contextmanager
    def asking(self) -> Iterator[sqlite3.Connection]:
        """The database for one thread; every change outside a transaction is one of its own.

        Raises:
            OutOfSpace: the disk is full.
            Unavailable: the file fails otherwise; the log has its name, and the reason.
        """
        with self._lock:
            try:
                yield self._database
            except sqlite3.Error as error:
                raise self._name_error(error) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The same, for one transaction.

        Raises:
            OutOfSpace, Unavailable: as :meth:`asking`; nothing of it was stored.
        """
        with self.asking() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                # This is where a full disk shows, and then the transaction is still open.
                database.execute("COMMIT")
            except BaseException:
                # SQLite may have done so itself.
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise

    def _name_error(self, error: sqlite3.Error) -> ErsError:
        log.error("%s fails: %s", self._path, reason_of(error))
        hint = f"{DATA_FOLDER_HINT}; the proxy's log names the file"
        return error_of(error, self._message, code=self._code, hint=hint)

    def close(self) -> None:
        with self._lock:
            self._database.close()


def _open(path: Path, tables: str, later: Mapping[str, Mapping[str, str]]) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        path.chmod(0o600)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError  # what it says quotes the file
        # By itself each table is a transaction, which waits for the disk.
        database.executescript(f"BEGIN; {tables}; COMMIT")
        for table, columns in later.items():
            there = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
            for name, kind in columns.items():
                if name not in there:
                    database.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
    except BaseException:
        # Closing may try to write what could not be read.
        with suppress(sqlite3.Error):
            database.close()
        raise
    return database


class CacheDatabase:
    """A file that may be lost, for its owner's eyes. Safe to use from several threads.

    An error counts as having nothing; a damaged file is replaced by an empty one.
    """

    def __init__(self, path: Path, tables: str) -> None:
        """
        Raises:
            OSError: the folder cannot be written.
            Startup: the file cannot be made otherwise.
        """
        self._path, self._tables = path, tables
        self._lock = threading.Lock()
        try:
            self._database = _open_cache(path, tables)
        except sqlite3.DatabaseError:
            self._database = self._restart()

    def _guard(self, work: Callable[[], T], otherwise: T) -> T:
        with self._lock:
            try:
                return work()
            except sqlite3.Error as error:
                name = reason_of(error)
                log.warning("the cache %s cannot be used: %s", self._path.name, name)
                if name.startswith(_DAMAGED):
                    with suppress(sqlite3.Error, OSError, Startup):
                        self._database.close()
                        self._database = self._restart()
                return otherwise

    def empty_log(self) -> None:
        """Checkpoint and truncate the write-ahead log, so that it does not contain deleted data."""
        self._guard(
            lambda: self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone(), None
        )

    def _restart(self) -> sqlite3.Connection:
        log.warning("the cache %s was damaged and is replaced by an empty one", self._path.name)
        for name in (self._path.name, f"{self._path.name}-wal", f"{self._path.name}-shm"):
            self._path.with_name(name).unlink(missing_ok=True)
        try:
            return _open_cache(self._path, self._tables)
        except sqlite3.Error as error:
            raise _refusal(self._path, error, "") from None

    def close(self) -> None:
        with self._lock:
            self._database.close()


def _open_cache(path: Path, tables: str) -> sqlite3.Connection:
    path.touch(mode=0o600)
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        # After a power cut the newest of it may be missing, never half there.
        database.execute("PRAGMA synchronous = NORMAL")
        # Deleted data must not stay in free pages.
        database.execute("PRAGMA secure_delete = ON")
        database.executescript(tables)
    except sqlite3.DatabaseError:
        database.close()
        raise
    return database


def _refusal(path: Path, error: sqlite3.Error, loss: str) -> Startup:
    name = reason_of(error)
    if is_full(error):
        return Startup(
            f"the disk that holds {path} is full", hint="free some space there, then start again"
        )
    if name.startswith(_DAMAGED) or type(error) is sqlite3.DatabaseError:
        return Startup(
            f"{path} is damaged",
            hint=f"delete it, together with {path.name}-wal and {path.name}-shm, if you can"
            f" accept this: {loss}",
        )
    return Startup(
        f"cannot open {path}: {name}",
        hint="let this user read and write there, and check the disk that holds it",
    )

"""Blocks and pages of a store of objects that is far away, kept on the disk of an API's machine.

An object never changes, and its name is never used again: what was read once is right for as long
as the object is there. What is kept is a copy and decides nothing. Whatever is wrong with it, the
store is asked as if it were not there, and what is read is checked in the same way. One file serves
all processes of an API; those that look after a store (``ers verify``, ``ers storage move``) do
without it.

What is erased goes from here too: at once where the API of this machine deletes the object, within
``LOOK_SECONDS`` where another does.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from encrypted_records.server.records.bulk.files import free_below
from encrypted_records.server.records.bulk.protocol import BulkStore, Range

#: Seconds between two looks for objects that are gone.
LOOK_SECONDS = 10.0
#: Longer ranges are not kept, nor are those of a request for more in all: who reads that much,
#: for a merge or an export, does not read it again soon, and would push out what others do.
MOST_OF_ONE = 256 << 10
MOST_AT_ONCE = 4 << 20
#: The disk may be the database's, too: with less room than this, nothing more is kept.
KEEP_FREE_BYTES = 1 << 30
#: Of the room there is, so much is made when it is full.
_FREED = 10
_TABLE = """
CREATE TABLE IF NOT EXISTS block (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL, first INTEGER NOT NULL, stop INTEGER NOT NULL,
    crc INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE (name, first, stop)
)
"""
_KEEP = "INSERT OR REPLACE INTO block (name, first, stop, crc, data) VALUES (?, ?, ?, ?, ?)"
_FIND = "SELECT crc, data FROM block WHERE name = ? AND first = ? AND stop = ?"
_passed_over: ContextVar[bool] = ContextVar("passed_over", default=False)


class BlockCache:
    """At most ``most_bytes`` in a file; what came first goes first. Any thread may use it."""

    def __init__(self, path: Path, most_bytes: int, *, keep_free: int = KEEP_FREE_BYTES) -> None:
        self._path = path
        self._keep_free = keep_free
        self._most = most_bytes
        self._lock = threading.Lock()
        self._looked = time.monotonic()
        self._database: sqlite3.Connection | None = None
        try:
            self._database = _open(path)
        except sqlite3.DatabaseError:
            # What is damaged is no loss.
            for end in ("", "-wal", "-shm"):
                path.with_name(path.name + end).unlink(missing_ok=True)
            with suppress(sqlite3.Error):
                self._database = _open(path)

    def read(self, store: BulkStore, ranges: Sequence[Range]) -> list[bytes]:
        """As :meth:`BulkStore.read`, which is asked for what is not here."""
        wanted = sorted(set(ranges))
        if sum(one.end - one.start for one in wanted) > MOST_AT_ONCE:
            return store.read(ranges)
        found = {} if _passed_over.get() else self._find(wanted)
        left = [one for one in wanted if one not in found]
        if left:
            read = dict(zip(left, store.read(left), strict=True))
            self._keep(read)
            found |= read
        return [found[one] for one in ranges]

    @contextmanager
    def passed_over(self) -> Iterator[None]:
        """Have the store asked for everything, and what it gives kept instead."""
        token = _passed_over.set(True)
        try:
            yield
        finally:
            _passed_over.reset(token)

    def forget(self, names: Collection[str]) -> None:
        """Delete what is kept of these objects, so that it is in no file any more."""
        gone = [(name,) for name in names]
        self._write(lambda database: _run(database, "DELETE FROM block WHERE name = ?", gone))
        self._empty_log()

    def _empty_log(self) -> None:
        """Have the bytes of what was deleted leave SQLite's log, too, unless somebody reads."""
        with self._lock, suppress(sqlite3.Error):
            if self._database is not None:
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def look(self, known: Callable[[Collection[str]], Collection[str]]) -> None:
        """Now and then, delete what is kept of objects that others have deleted.

        Args:
            known: those of some names that the database knows.
        """
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        kept = self.names()
        gone = kept.difference(known(kept))
        if gone:
            self.forget(gone)
        else:
            self._empty_log()

    def names(self) -> set[str]:
        """Of the objects of which something is kept."""
        with self._lock, suppress(sqlite3.Error):
            if self._database is not None:
                return {
                    name for (name,) in self._database.execute("SELECT DISTINCT name FROM block")
                }
        return set()

    def _find(self, wanted: Sequence[Range]) -> dict[Range, bytes]:
        found: dict[Range, bytes] = {}
        with self._lock, suppress(sqlite3.Error):
            database = self._database
            for one in wanted if database is not None else ():
                assert database is not None
                row = database.execute(_FIND, one).fetchone()
                if row is not None and zlib.crc32(row[1]) == row[0]:
                    found[one] = row[1]
        return found

    def _keep(self, read: Mapping[Range, bytes]) -> None:
        if free_below(self._path.parent) < self._keep_free:
            return
        rows = [
            (*one, zlib.crc32(data), data) for one, data in read.items() if len(data) <= MOST_OF_ONE
        ]

        def keep(database: sqlite3.Connection) -> None:
            _run(database, _KEEP, rows)
            self._make_room(database)

        self._write(keep)

    def _make_room(self, database: sqlite3.Connection) -> None:
        (size,) = database.execute("PRAGMA page_size").fetchone()
        (every,) = database.execute("PRAGMA page_count").fetchone()
        (free,) = database.execute("PRAGMA freelist_count").fetchone()
        if (every - free) * size <= self._most:
            return
        first, last = database.execute("SELECT MIN(number), MAX(number) FROM block").fetchone()
        some = first + (last - first) // _FREED
        database.execute("DELETE FROM block WHERE number <= ?", [some])

    def _write(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Do it in a transaction; where that fails, as on a full disk, nothing changes."""
        with self._lock, suppress(sqlite3.Error):
            database = self._database
            if database is None:
                return
            database.execute("BEGIN IMMEDIATE")
            try:
                work(database)
                database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                raise


def _open(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    database = sqlite3.connect(path, timeout=0.2, isolation_level=None, check_same_thread=False)
    try:
        for pragma in ("journal_mode = WAL", "synchronous = OFF", "secure_delete = ON"):
            database.execute(f"PRAGMA {pragma}")
        database.execute(_TABLE)
        database.execute("SELECT MAX(number) FROM block").fetchone()
    except sqlite3.Error:
        database.close()
        raise
    return database


def _run(database: sqlite3.Connection, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
    database.executemany(statement, rows)


_opened: list[BlockCache] = []


def open_cache(path: Path, most_bytes: int) -> None:
    """Have this process keep what it reads there; without room for anything, nothing is kept."""
    _opened[:] = [BlockCache(path, most_bytes)] if most_bytes else []


def opened() -> BlockCache | None:
    """That of this process, if it has one."""
    return _opened[0] if _opened else None

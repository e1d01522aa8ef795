"""Blocks and pages of a store of objects that is far away, kept on the disk of an API's machine.

An object never changes, and its name is never used again: what was read once is right for as long
as the object is there. What is kept is a copy and decides nothing. Whatever is wrong with it, the
store is asked as if it were not there, and what is read is checked in the same way. One file serves
all processes of an API; those that look after a store (``ers verify``, ``ers storage move``) do
without it.

What is erased goes from here too: at once where the API of this machine deletes the object, at the
next look where another does. The database has of each file which look began last and which has
ended (:mod:`.cache_files`), and an erasure waits for one that began after the objects were gone. So
what was asked of the store before a look began is not kept after that, and a process that has not
looked for a minute, as one that was stopped or has just begun, does without its copies.
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
from typing import Protocol

from encrypted_records.server.records.bulk.files import free_below
from encrypted_records.server.records.bulk.protocol import BulkStore, Range

#: Seconds between two looks for objects that are gone.
LOOK_SECONDS = 10.0
#: So long after its last look began, a process goes by its copies. Less than
#: :data:`.cache_files.LAPSE`, by much.
TRUSTED_SECONDS = 60.0
#: After so many looks one after the other that failed, the file is made again.
MOST_FAILURES = 12
#: Other processes may just make the file.
_OPENINGS, _OPENING_SECONDS = 20, 0.1
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
#: Of the file: what the database calls it, and the number of the look that began last in it.
_OWN = "CREATE TABLE IF NOT EXISTS own (id TEXT NOT NULL, turn INTEGER NOT NULL)"
_NAME_IT = (
    "INSERT INTO own SELECT lower(hex(randomblob(16))), 0 WHERE NOT EXISTS (SELECT 1 FROM own)"
)
#: In place of that number: this API has ended, and only a look has it begin again.
_ENDED = -1
_KEEP = "INSERT OR REPLACE INTO block (name, first, stop, crc, data) VALUES (?, ?, ?, ?, ?)"
_FIND = "SELECT crc, data FROM block WHERE name = ? AND first = ? AND stop = ?"
_passed_over: ContextVar[bool] = ContextVar("passed_over", default=False)


class Registry(Protocol):
    """What the database knows of the files of all APIs, and of objects."""

    def begin(self, cache: str, /) -> int: ...

    def end(self, cache: str, number: int, /) -> bool: ...

    def leave(self, cache: str, /) -> None: ...

    def known(self, names: Collection[str], /) -> Collection[str]: ...


class BlockCache:
    """At most ``most_bytes`` in a file; what came first goes first. Any thread may use it."""

    def __init__(self, path: Path, most_bytes: int, *, keep_free: int = KEEP_FREE_BYTES) -> None:
        self._path = path
        self._keep_free = keep_free
        self._most = most_bytes
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._looked: float | None = None
        self._failures = 0
        self._ended = False
        self._database = _open_or_make(path)

    def read(self, store: BulkStore, ranges: Sequence[Range]) -> list[bytes]:
        """As :meth:`BulkStore.read`, which is asked for what is not here."""
        wanted = sorted(set(ranges))
        if sum(one.end - one.start for one in wanted) > MOST_AT_ONCE:
            return store.read(ranges)
        turn, found = self._find(() if _passed_over.get() else wanted)
        left = [one for one in wanted if one not in found]
        if left:
            read = dict(zip(left, store.read(left), strict=True))
            self._keep(read, turn)
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

    def _empty_log(self) -> bool:
        """Have the bytes of what was deleted leave SQLite's log, too; whether nobody reads it."""
        with self._lock, suppress(sqlite3.Error):
            if self._database is not None:
                row = self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                return not row[0]
        return False

    def look(self, registry: Registry, *, soon: bool = False) -> bool:
        """Delete what is kept of objects that others have deleted, and say so to the database.

        Args:
            soon: whether somebody waits for it; else nothing is done soon after another look.

        Returns:
            Whether it was done.
        """
        with self._looking:
            began = _now()
            if self._ended or (self._is_trusted(LOOK_SECONDS) and not soon):
                return False
            if self._drop_gone(registry):
                self._looked, self._failures = began, 0
                return True
            self._failures += 1
            if self._failures == MOST_FAILURES:
                # Erasures wait for it, and would for ever where its disk or file is damaged.
                self._delete(registry)
                self._database, self._failures = _open_or_make(self._path), 0
            return False

    def end(self, registry: Registry) -> None:
        """Delete the file, as this API ends, so that no erasure waits for it."""
        with self._looking:
            self._ended = True
            self._delete(registry)

    def _drop_gone(self, registry: Registry) -> bool:
        cache = self._id()
        if cache is None:
            return False
        number = registry.begin(cache)
        if not self._write(lambda database: _turn(database, number)):
            return False
        kept = self._names()
        if kept is None:
            return False
        gone = [(name,) for name in kept.difference(registry.known(kept))]
        dropped = self._write(
            lambda database: _run(database, "DELETE FROM block WHERE name = ?", gone)
        )
        return dropped and self._empty_log() and registry.end(cache, number)

    def _delete(self, registry: Registry) -> None:
        cache, self._looked = self._id(), None
        # Other processes of this API go on with what has no name any more, once they look again.
        self._write(lambda database: _turn(database, _ENDED))
        with self._lock:
            if self._database is not None:
                self._database.close()
            self._database = None
        _delete(self._path)
        if cache is not None:
            registry.leave(cache)

    def _is_trusted(self, seconds: float) -> bool:
        return self._looked is not None and _now() - self._looked < seconds

    def _id(self) -> str | None:
        with self._lock, suppress(sqlite3.Error):
            if self._database is not None:
                (cache,) = self._database.execute("SELECT id FROM own").fetchone()
                return str(cache)
        return None

    def names(self) -> set[str]:
        """Of the objects of which something is kept."""
        return self._names() or set()

    def _names(self) -> set[str] | None:
        with self._lock, suppress(sqlite3.Error):
            if self._database is not None:
                return {
                    name for (name,) in self._database.execute("SELECT DISTINCT name FROM block")
                }
        return None

    def _find(self, wanted: Sequence[Range]) -> tuple[int, dict[Range, bytes]]:
        """The number of the last look, and what there is of these ranges."""
        turn, found = _ENDED, dict[Range, bytes]()
        if not self._is_trusted(TRUSTED_SECONDS):
            return turn, found
        with self._lock, suppress(sqlite3.Error):
            database = self._database
            if database is None:
                return turn, found
            turn = _turn_of(database)
            for one in wanted:
                row = database.execute(_FIND, one).fetchone()
                if row is not None and zlib.crc32(row[1]) == row[0]:
                    found[one] = row[1]
        return turn, found

    def _keep(self, read: Mapping[Range, bytes], turn: int) -> None:
        """Unless a look has begun since: what was read may be of an object that it missed."""
        if turn == _ENDED or free_below(self._path.parent) < self._keep_free:
            return
        rows = [
            (*one, zlib.crc32(data), data) for one, data in read.items() if len(data) <= MOST_OF_ONE
        ]

        def keep(database: sqlite3.Connection) -> None:
            if _turn_of(database) != turn or not self._is_trusted(TRUSTED_SECONDS):
                return
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

    def _write(self, work: Callable[[sqlite3.Connection], None]) -> bool:
        """Do it in a transaction; where that fails, as on a full disk, nothing changes. Whether it
        is done."""
        with self._lock, suppress(sqlite3.Error):
            database = self._database
            if database is None:
                return False
            database.execute("BEGIN IMMEDIATE")
            try:
                work(database)
                database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                raise
            return True
        return False


def _now() -> float:
    """Seconds that pass while the machine sleeps, too."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _delete(path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def _open_or_make(path: Path) -> sqlite3.Connection | None:
    for _ in range(_OPENINGS):
        try:
            return _open(path)
        except sqlite3.OperationalError:
            time.sleep(_OPENING_SECONDS)
        except sqlite3.DatabaseError:
            # What is damaged is no loss.
            _delete(path)
    return None


def _open(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    database = sqlite3.connect(path, timeout=0.2, isolation_level=None, check_same_thread=False)
    try:
        for pragma in ("journal_mode = WAL", "synchronous = OFF", "secure_delete = ON"):
            database.execute(f"PRAGMA {pragma}")
        for statement in (_TABLE, _OWN, _NAME_IT):
            database.execute(statement)
        database.execute("SELECT MAX(number) FROM block").fetchone()
    except sqlite3.Error:
        database.close()
        raise
    return database


def _run(database: sqlite3.Connection, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
    database.executemany(statement, rows)


def _turn(database: sqlite3.Connection, number: int) -> None:
    database.execute("UPDATE own SET turn = ?", [number])


def _turn_of(database: sqlite3.Connection) -> int:
    (turn,) = database.execute("SELECT turn FROM own").fetchone()
    return int(turn)


_opened: list[BlockCache] = []


def open_cache(path: Path, most_bytes: int) -> None:
    """Have this process keep what it reads there; without room for anything, nothing is kept, and
    what was kept before is deleted."""
    _opened[:] = [BlockCache(path, most_bytes)] if most_bytes else []
    if not most_bytes:
        _delete(path)


def end_cache(registry: Registry) -> None:
    """Delete that of this process, which ends."""
    for cache in _opened:
        cache.end(registry)


def opened() -> BlockCache | None:
    """That of this process, if it has one."""
    return _opened[0] if _opened else None

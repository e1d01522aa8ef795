"""Sealed index pages on this machine's disk, within a budget, so that none is asked for twice.

Only sealed bytes are here, which the API holds as well. A page is authenticated whenever it is
opened, so that a damaged file costs a request and no answer: whatever goes wrong with the file
counts as having nothing, and a page that does not open is dropped and fetched anew.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from encrypted_records.model.records import PAGE_BYTES
from encrypted_records.proxy.cache import Use

log = logging.getLogger(__name__)

#: How many numbers one statement names; SQLite takes at least 999.
_AT_ONCE = 900
#: What is freed beyond need, so that not every store has to.
_ROOM = 10

_TABLES = """
CREATE TABLE IF NOT EXISTS page (
    segment BLOB NOT NULL,
    number INTEGER NOT NULL,
    used INTEGER NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (segment, number)
);
CREATE INDEX IF NOT EXISTS page_used ON page (used);
"""

T = TypeVar("T")


class SealedPages:
    """Least recently used pages go first. Safe to use from several threads and processes."""

    def __init__(self, path: Path, budget: int) -> None:
        """
        Raises:
            OSError: the folder cannot be written.
        """
        self._path = path
        self._most = budget // PAGE_BYTES
        self._lock = threading.Lock()
        self._hits = self._misses = 0
        try:
            self._database = _open(path)
        except sqlite3.DatabaseError:
            log.warning("the cache of index pages was damaged and is begun anew")
            _remove(path)
            self._database = _open(path)

    def get(self, segment: bytes, numbers: Iterable[int]) -> dict[int, bytes]:
        """Those of these pages that are here."""
        return self._guarded(lambda: self._get(segment, list(numbers)), {})

    def _get(self, segment: bytes, numbers: Sequence[int]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        now = time.time_ns()
        for at in range(0, len(numbers), _AT_ONCE):
            some = numbers[at : at + _AT_ONCE]
            chosen = f"WHERE segment = ? AND number IN ({','.join('?' * len(some))})"
            found |= self._database.execute(
                f"SELECT number, data FROM page {chosen}",  # noqa: S608  question marks only
                (segment, *some),
            ).fetchall()
            self._database.execute(f"UPDATE page SET used = ? {chosen}", (now, segment, *some))  # noqa: S608
        self._hits += len(found)
        self._misses += len(numbers) - len(found)
        return found

    def put(self, segment: bytes, pages: Mapping[int, bytes]) -> None:
        """Keep these pages, and drop what has not been used for longest beyond the budget."""
        self._guarded(lambda: self._put(segment, pages), None)

    def _put(self, segment: bytes, pages: Mapping[int, bytes]) -> None:
        now = time.time_ns()
        self._database.execute("BEGIN IMMEDIATE")
        with self._database:
            self._database.executemany(
                "INSERT OR REPLACE INTO page (segment, number, used, data) VALUES (?, ?, ?, ?)",
                [(segment, number, now, data) for number, data in pages.items()],
            )
            held = self._count()
            if held > self._most:
                oldest = "SELECT rowid FROM page ORDER BY used LIMIT ?"
                self._database.execute(
                    f"DELETE FROM page WHERE rowid IN ({oldest})",  # noqa: S608  no input
                    (held - self._most + self._most // _ROOM,),
                )

    def drop(self, segments: Iterable[bytes]) -> None:
        """Forget the pages of segments that are no more, or that did not open."""
        gone = [(segment,) for segment in segments]
        self._guarded(
            lambda: self._database.executemany("DELETE FROM page WHERE segment = ?", gone), None
        )

    @property
    def use(self) -> Use:
        """Pages held and looked for; the latter since this process began."""
        count = self._guarded(self._count, 0)
        return Use(count, count * PAGE_BYTES, self._hits, self._misses)

    def _count(self) -> int:
        (held,) = self._database.execute("SELECT COUNT(*) FROM page").fetchone()
        return int(held)

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _guarded(self, work: Callable[[], T], otherwise: T) -> T:
        with self._lock:
            try:
                return work()
            except sqlite3.Error as error:
                log.warning("the cache of index pages cannot be used: %s", type(error).__name__)
                return otherwise


def _open(path: Path) -> sqlite3.Connection:
    path.touch(mode=0o600)
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        # After a power cut the newest pages may be missing, never half there.
        database.execute("PRAGMA synchronous = NORMAL")
        database.executescript(_TABLES)
    except sqlite3.DatabaseError:
        database.close()
        raise
    return database


def _remove(path: Path) -> None:
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        with suppress(FileNotFoundError):
            path.with_name(name).unlink()

"""Sealed pages on this machine's disk, within a budget, so that none is requested twice.

Pages of the index are known by their segment and number; blocks of rows (:mod:`.row_cache`) are
here as well, by their schema and number. Only sealed bytes are here, which the API has as well.
A page is authenticated whenever it is opened, so a damaged file costs a request and no answer: any
error of the file counts as having no page, and a page that does not open is fetched again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from encrypted_records import runtime
from encrypted_records.proxy.disk import CacheDatabase
from encrypted_records.proxy.search.memory_pool import CacheUsage

#: What nobody has used for so long is dropped: a proxy that nobody asks hears of no end.
UNUSED_SECONDS = 30 * 24 * 3600
#: How many numbers one statement names; SQLite takes at least 999.
_AT_ONCE = 900
#: This share of the budget is freed beyond need, so that not every store has to.
_SPARE_SHARE = 10
#: So many are read at once when some are dropped.
_DROPPED_AT_ONCE = 200

_TABLES = """
-- So that replacing a page fires both triggers below.
PRAGMA recursive_triggers = ON;
CREATE TABLE IF NOT EXISTS page (
    segment BLOB NOT NULL,
    number INTEGER NOT NULL,
    used INTEGER NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (segment, number)
);
CREATE INDEX IF NOT EXISTS page_used ON page (used);
-- The bytes of all pages, updated with every change: a sum takes long for a full cache.
CREATE TABLE IF NOT EXISTS held (bytes INTEGER NOT NULL);
INSERT INTO held SELECT (SELECT COALESCE(SUM(LENGTH(data)), 0) FROM page)
    WHERE NOT EXISTS (SELECT 1 FROM held);
CREATE TRIGGER IF NOT EXISTS page_in AFTER INSERT ON page
    BEGIN UPDATE held SET bytes = bytes + LENGTH(NEW.data); END;
CREATE TRIGGER IF NOT EXISTS page_out AFTER DELETE ON page
    BEGIN UPDATE held SET bytes = bytes - LENGTH(OLD.data); END;
"""


class DiskCache(CacheDatabase):
    """The least recently used pages are dropped first.

    Safe to use from several threads and processes.
    """

    def __init__(self, path: Path, budget: int) -> None:
        """
        Args:
            budget: in bytes, of what is kept; the file is a little larger.

        Raises:
            OSError, Startup: as :class:`CacheDatabase`.
        """
        super().__init__(path, _TABLES)
        self._budget = budget
        self._hits = self._misses = 0

    def get(self, segment: bytes, numbers: Iterable[int]) -> dict[int, bytes]:
        """The cached pages among these."""
        return self._guard(lambda: self._get(segment, list(numbers)), {})

    def _get(self, segment: bytes, numbers: Sequence[int]) -> dict[int, bytes]:
        pages: dict[int, bytes] = {}
        now = runtime.wall_ns()
        for at in range(0, len(numbers), _AT_ONCE):
            some = numbers[at : at + _AT_ONCE]
            chosen = f"WHERE segment = ? AND number IN ({','.join('?' * len(some))})"
            found = self._database.execute(
                f"SELECT number, data FROM page {chosen}",  # noqa: S608  question marks only
                (segment, *some),
            ).fetchall()
            if found:  # a change of nothing would wait for others' all the same
                self._database.execute(f"UPDATE page SET used = ? {chosen}", (now, segment, *some))  # noqa: S608
            pages |= found
        self._hits += len(pages)
        self._misses += len(numbers) - len(pages)
        return pages

    def has(self, segment: bytes, numbers: Iterable[int]) -> set[int]:
        """The numbers of the cached pages among these; the lookup counts neither in the statistics
        nor as a use of the pages.
        """
        return self._guard(lambda: self._has(segment, list(numbers)), set())

    def _has(self, segment: bytes, numbers: Sequence[int]) -> set[int]:
        held: set[int] = set()
        for at in range(0, len(numbers), _AT_ONCE):
            some = numbers[at : at + _AT_ONCE]
            marks = ",".join("?" * len(some))
            statement = f"SELECT number FROM page WHERE segment = ? AND number IN ({marks})"  # noqa: S608  question marks only
            held.update(number for (number,) in self._database.execute(statement, (segment, *some)))
        return held

    def put(self, segment: bytes, pages: Mapping[int, bytes]) -> None:
        """Keep these pages, and drop what has not been used for longest beyond the budget."""
        self._guard(lambda: self._put(segment, pages), None)

    def _put(self, segment: bytes, pages: Mapping[int, bytes]) -> None:
        now = runtime.wall_ns()
        self._database.execute("BEGIN IMMEDIATE")
        with self._database:
            self._database.executemany(
                "INSERT OR REPLACE INTO page (segment, number, used, data) VALUES (?, ?, ?, ?)",
                [(segment, number, now, data) for number, data in pages.items()],
            )
            if self._measure() > self._budget:
                self._free(self._measure() - self._budget + self._budget // _SPARE_SHARE)

    def _free(self, wanted: int) -> None:
        oldest = "SELECT rowid, LENGTH(data) FROM page ORDER BY used LIMIT ?"
        while wanted > 0 and (
            batch := self._database.execute(oldest, (_DROPPED_AT_ONCE,)).fetchall()
        ):
            for row, size in batch:
                self._database.execute("DELETE FROM page WHERE rowid = ?", (row,))
                wanted -= size
                if wanted <= 0:
                    break

    def drop(self, segments: Iterable[bytes]) -> None:
        """Forget the pages of segments that no longer exist, or that did not open."""
        gone = [(segment,) for segment in segments]
        self._guard(
            lambda: self._database.executemany("DELETE FROM page WHERE segment = ?", gone), None
        )

    def drop_unused(self) -> None:
        """Forget what was not used for ``UNUSED_SECONDS``, and empty the write-ahead log."""
        since = runtime.wall_ns() - UNUSED_SECONDS * 10**9
        self._guard(
            lambda: self._database.execute("DELETE FROM page WHERE used < ?", (since,)), None
        )
        self.empty_log()

    def drop_some(self, segment: bytes, numbers: Iterable[int]) -> None:
        """Forget these pages of a segment."""
        gone = [(segment, number) for number in numbers]
        statement = "DELETE FROM page WHERE segment = ? AND number = ?"
        self._guard(lambda: self._database.executemany(statement, gone), None)

    def drop_between(self, segment: bytes, first: int, end: int) -> None:
        """Forget the pages of a segment from number ``first`` on, up to ``end``."""
        statement = "DELETE FROM page WHERE segment = ? AND number >= ? AND number < ?"
        self._guard(lambda: self._database.execute(statement, (segment, first, end)), None)

    @property
    def use(self) -> CacheUsage:
        """Pages held and looked for; the latter since this process began."""
        count, size = self._guard(lambda: (self._count(), self._measure()), (0, 0))
        return CacheUsage(count, size, self._hits, self._misses)

    def _count(self) -> int:
        (count,) = self._database.execute("SELECT COUNT(*) FROM page").fetchone()
        return int(count)

    def _measure(self) -> int:
        (held,) = self._database.execute("SELECT bytes FROM held").fetchone()
        return int(held)

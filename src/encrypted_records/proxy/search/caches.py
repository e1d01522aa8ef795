"""Caches of pages, opened segments and rows, in memory and on disk.

Cached data is immutable, under keys that are never reused, so nothing in memory is ever stale: if a
later definition shows a segment with other names or grids, that is another view of the segment. The
API sees less, since cached data is not requested again.

The disk holds only sealed bytes, which the API has as well. A page is authenticated whenever it is
opened, so a damaged file costs a request but never a wrong answer: any error of the file counts as
a cache miss, and a page or row that does not open is fetched again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

import msgspec

from encrypted_records import runtime
from encrypted_records.index.columns.column import EntryBlock
from encrypted_records.index.columns.dictionary import ByRow, ColumnSums
from encrypted_records.index.columns.directory import Outline
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.segments.loaded import KeptSegment
from encrypted_records.model.records import RowRef
from encrypted_records.proxy.disk import CacheDatabase

#: Bytes of an entry in addition to its value: its key, and its place in the cache.
ENTRY_BYTES = 360


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """The number of entries of a cache, their size in bytes, and its hits and misses."""

    count: int
    bytes: int
    hits: int
    misses: int


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=_Sized)


class MemoryPool:
    """A memory budget shared by caches. Thread-safe. A cache without references takes nothing."""

    def __init__(self, budget: int) -> None:
        """``budget`` is the size of all cached values in bytes."""
        self.budget = budget
        self.lock = threading.RLock()
        self._caches: WeakSet[LruCache[Any, Any]] = WeakSet()

    @property
    def held(self) -> int:
        """The bytes of all caches."""
        with self.lock:
            return sum(cache.held for cache in self._caches)

    def join(self, cache: LruCache[Any, Any]) -> None:
        with self.lock:
            self._caches.add(cache)

    def make_room(self, newest: LruCache[Any, Any]) -> None:
        """Drop the least recently used entries until all caches are within the budget. The last
        entry of ``newest`` stays: it is within the budget by itself. The lock is held."""
        caches = list(self._caches)
        total = sum(cache.held for cache in caches)
        while total > self.budget:
            full = [cache for cache in caches if cache.entries > (1 if cache is newest else 0)]
            total -= max(full, key=lambda cache: cache.held / cache.share).drop_oldest()


class LruCache(Generic[K, V]):
    """The size of an entry is the ``size`` of its value, and the overhead of the cache.

    Safe to use from several threads.
    """

    def __init__(self, pool: MemoryPool, share: int) -> None:
        """
        Args:
            share: of the pool, in any unit that all of its caches use.
        """
        self._pool = pool
        self.share = share
        self.held = 0
        self._hits = self._misses = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        pool.join(self)

    @property
    def entries(self) -> int:
        return len(self._values)

    def get(self, key: K, *, again: bool = False) -> V | None:
        """
        Args:
            again: whether the key was looked up just before, so that this is not a second miss.
        """
        with self._pool.lock:
            entry = self._values.get(key)
            if entry is None:
                self._misses += not again
                return None
            self._hits += 1
            self._values.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V) -> None:
        """Cache ``value``. Its size counts as it is now, until it is put again. A value that is
        larger than the whole budget is not cached."""
        size = value.size + ENTRY_BYTES
        with self._pool.lock:
            self._forget(key)
            if size <= self._pool.budget:
                self._values[key] = (value, size)
                self.held += size
                self._pool.make_room(self)

    def drop(self, keys: Iterable[K]) -> None:
        with self._pool.lock:
            for key in keys:
                self._forget(key)

    def drop_where(self, is_gone: Callable[[K], bool]) -> None:
        with self._pool.lock:
            self.drop([key for key in self._values if is_gone(key)])

    def drop_oldest(self) -> int:
        """Drop the oldest entry; returns the bytes that this frees."""
        before = self.held
        self._forget(next(iter(self._values)))
        return before - self.held

    @property
    def use(self) -> CacheUsage:
        with self._pool.lock:
            return CacheUsage(len(self._values), self.held, self._hits, self._misses)

    def clear(self) -> None:
        with self._pool.lock:
            self._values.clear()
            self.held = 0

    def _forget(self, key: K) -> None:
        entry = self._values.pop(key, None)
        if entry is not None:
            self.held -= entry[1]


#: When memory is short, the cache that holds most in relation to its share frees some.
SEGMENT_SHARE, DIRECTORY_SHARE, BLOCK_SHARE, COLUMN_SHARE, ROW_SHARE = 15, 20, 25, 25, 15
SUM_SHARE = 1
#: Bytes of a segment's uid, with which its views begin.
UID = 16
#: Bytes of a row in addition to its content.
_ROW_OVERHEAD = 330


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Some of the rows that were stored one after another, each as the MessagePack of its
    :class:`SealedRow`. The ``unchecked`` rows have not been opened yet; ``loaded`` means that all
    rows of the block on disk are included.

    No value of a row is part of a cycle, so Python's garbage collector does not search the dict.
    """

    rows: Mapping[RowRef, bytes]
    unchecked: frozenset[RowRef]
    loaded: bool

    @property
    def size(self) -> int:
        return sum(map(len, self.rows.values())) + len(self.rows) * _ROW_OVERHEAD


class MemoryCache:
    """Safe to use from several threads."""

    def __init__(self, pool: MemoryPool) -> None:
        """``pool`` is a memory budget that may be shared with other caches."""
        self.pool = pool
        self._segments = LruCache[tuple[bytes, bytes], KeptSegment](pool, SEGMENT_SHARE)
        self._directories = LruCache[tuple[bytes, str], Outline](pool, DIRECTORY_SHARE)
        self._blocks = LruCache[tuple[bytes, int], EntryBlock](pool, BLOCK_SHARE)
        self._columns = LruCache[tuple[bytes, str], ByRow](pool, COLUMN_SHARE)
        self._sums = LruCache[tuple[bytes, str], ColumnSums](pool, SUM_SHARE)
        self._rows = LruCache[tuple[bytes, int], RowBlock](pool, ROW_SHARE)

    @classmethod
    def within(cls, budget: int) -> MemoryCache:
        """Caches that together take at most ``budget`` bytes."""
        return cls(MemoryPool(budget))

    def get(self, key_id: bytes, view: bytes) -> KeptSegment | None:
        """This view of a segment, opened with the schema key ``key_id``."""
        return self._segments.get((key_id, view))

    def put(self, key_id: bytes, segment: KeptSegment) -> None:
        """Cache a segment; for a paged segment, only its header."""
        self._segments.put((key_id, segment.view), segment)

    def directory(self, view: bytes, field: str) -> Outline | None:
        """The directory of a column of a segment that :meth:`get` returned."""
        return self._directories.get((view, field))

    def put_directory(self, view: bytes, field: str, directory: Outline) -> None:
        self._directories.put((view, field), directory)

    def block(self, view: bytes, number: int) -> EntryBlock | None:
        """The opened data page of a segment that :meth:`get` returned."""
        return self._blocks.get((view, number))

    def put_block(self, view: bytes, number: int, block: EntryBlock) -> None:
        self._blocks.put((view, number), block)

    def column(self, view: bytes, field: str) -> ByRow | None:
        """The whole column of a segment that :meth:`get` returned."""
        return self._columns.get((view, field))

    def put_column(self, view: bytes, field: str, column: ByRow) -> None:
        self._columns.put((view, field), column)

    def sums(self, view: bytes, field: str, *, again: bool = False) -> ColumnSums | None:
        """The sums of a column of a segment that :meth:`get` returned.

        Args:
            again: whether it was looked up just before, so that this is not a second miss.
        """
        return self._sums.get((view, field), again=again)

    def put_sums(self, view: bytes, field: str, sums: ColumnSums) -> None:
        self._sums.put((view, field), sums)

    def rows(self, schema: bytes, number: int) -> RowBlock | None:
        """The block with this number of a schema's rows."""
        return self._rows.get((schema, number))

    def put_rows(self, schema: bytes, number: int, block: RowBlock) -> None:
        self._rows.put((schema, number), block)

    def drop_rows(self, schema: bytes, numbers: Iterable[int]) -> None:
        self._rows.drop((schema, number) for number in numbers)

    def drop_rows_between(self, schema: bytes, first: int, end: int) -> None:
        """Drop the blocks with numbers ``first`` to before ``end``."""
        if end - first < self._rows.entries:
            self.drop_rows(schema, range(first, end))
        else:
            self._rows.drop_where(lambda key: key[0] == schema and first <= key[1] < end)

    def drop(self, uids: Iterable[bytes]) -> None:
        """Drop segments that no longer exist."""
        gone = set(uids)
        self._segments.drop_where(lambda key: _uid(key[1]) in gone)
        self._directories.drop_where(lambda key: _uid(key[0]) in gone)
        self._blocks.drop_where(lambda key: _uid(key[0]) in gone)
        self._columns.drop_where(lambda key: _uid(key[0]) in gone)
        self._sums.drop_where(lambda key: _uid(key[0]) in gone)

    @property
    def uses(self) -> dict[str, CacheUsage]:
        """The usage of each cache, for all schemas of all users of this proxy."""
        return {
            "segments": self._segments.use,
            "directories": self._directories.use,
            "pages": self._blocks.use,
            "columns": self._columns.use,
            "sums": self._sums.use,
            "rows": self._rows.use,
        }

    def clear(self) -> None:
        self._segments.clear()
        self._directories.clear()
        self._blocks.clear()
        self._columns.clear()
        self._sums.clear()
        self._rows.clear()


def _uid(view: bytes) -> bytes:
    """The uid of the segment that a view shows."""
    return view[:UID]


#: Pages unused for this long are dropped: an idle proxy does not learn which segments have ended.
UNUSED_SECONDS = 30 * 24 * 3600
#: Page numbers in one statement; SQLite takes at least 999.
_AT_ONCE = 900
#: One part in this many of the budget is freed beyond need, so that not every store has to.
_SPARE_SHARE = 10
#: Pages read at once when some are dropped.
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
            budget: size of the cached pages in bytes; the file is a little larger.

        Raises:
            OSError, Startup: as :class:`CacheDatabase`.
        """
        super().__init__(path, _TABLES)
        self._budget = budget
        self._hits = self._misses = 0

    def get(self, segment: bytes, numbers: Iterable[int]) -> dict[int, bytes]:
        """The cached pages with these numbers."""
        return self._guard(lambda: self._get(segment, list(numbers)), {})

    def _get(self, segment: bytes, numbers: Sequence[int]) -> dict[int, bytes]:
        pages: dict[int, bytes] = {}
        now = runtime.wall_ns()
        for at in range(0, len(numbers), _AT_ONCE):
            batch = numbers[at : at + _AT_ONCE]
            chosen = f"WHERE segment = ? AND number IN ({','.join('?' * len(batch))})"
            found = self._database.execute(
                f"SELECT number, data FROM page {chosen}",  # noqa: S608  question marks only
                (segment, *batch),
            ).fetchall()
            if found:  # an empty change would wait for the changes of others all the same
                self._database.execute(f"UPDATE page SET used = ? {chosen}", (now, segment, *batch))  # noqa: S608
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
        stored: set[int] = set()
        for at in range(0, len(numbers), _AT_ONCE):
            batch = numbers[at : at + _AT_ONCE]
            marks = ",".join("?" * len(batch))
            statement = f"SELECT number FROM page WHERE segment = ? AND number IN ({marks})"  # noqa: S608  question marks only
            stored.update(
                number for (number,) in self._database.execute(statement, (segment, *batch))
            )
        return stored

    def put(self, segment: bytes, pages: Mapping[int, bytes]) -> None:
        """Cache these pages, and drop the least recently used pages beyond the budget."""
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
        """Drop the pages of segments that no longer exist, or that did not open."""
        gone = [(segment,) for segment in segments]
        self._guard(
            lambda: self._database.executemany("DELETE FROM page WHERE segment = ?", gone), None
        )

    def drop_unused(self) -> None:
        """Drop pages unused for ``UNUSED_SECONDS``, and empty the write-ahead log."""
        since = runtime.wall_ns() - UNUSED_SECONDS * 10**9
        self._guard(
            lambda: self._database.execute("DELETE FROM page WHERE used < ?", (since,)), None
        )
        self.empty_log()

    def drop_some(self, segment: bytes, numbers: Iterable[int]) -> None:
        """Drop these pages of a segment."""
        gone = [(segment, number) for number in numbers]
        statement = "DELETE FROM page WHERE segment = ? AND number = ?"
        self._guard(lambda: self._database.executemany(statement, gone), None)

    def drop_between(self, segment: bytes, first: int, end: int) -> None:
        """Drop the pages of a segment with numbers ``first`` to before ``end``."""
        statement = "DELETE FROM page WHERE segment = ? AND number >= ? AND number < ?"
        self._guard(lambda: self._database.execute(statement, (segment, first, end)), None)

    @property
    def use(self) -> CacheUsage:
        """The cached pages, and the lookups since this process began."""
        count, size = self._guard(lambda: (self._count(), self._measure()), (0, 0))
        return CacheUsage(count, size, self._hits, self._misses)

    def _count(self) -> int:
        (count,) = self._database.execute("SELECT COUNT(*) FROM page").fetchone()
        return int(count)

    def _measure(self) -> int:
        (total,) = self._database.execute("SELECT bytes FROM held").fetchone()
        return int(total)


#: Rows of a block.
BLOCK = 64
#: Larger rows are not cached: a few would evict all others.
MOST_BYTES = 16 << 10

#: The rows of a block on disk, each as its group, ordinal and bytes.
_Stored = list[tuple[bytes, int, bytes]]
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Stored)
_NONE = RowBlock({}, frozenset(), False)


class RowCache:
    """Safe to use from several threads. All but :meth:`in_memory` and :meth:`keep` use the disk."""

    def __init__(self, memory: MemoryCache, disk: DiskCache) -> None:
        self._memory = memory
        self._disk = disk
        #: held while a block in memory, or on disk, is read and changed; the second lock is taken
        #: first, and only if the disk is used
        self._changing = threading.Lock()
        self._writing = threading.Lock()

    def in_memory(self, schema: bytes, numbers: Iterable[int]) -> dict[int, RowBlock]:
        """The parts of these blocks that are in memory."""
        blocks = {number: self._memory.rows(schema, number) for number in numbers}
        return {number: block for number, block in blocks.items() if block is not None}

    def blocks(self, schema: bytes, numbers: Collection[int]) -> dict[int, RowBlock]:
        """The parts of these blocks that are in memory or on disk."""
        blocks = self.in_memory(schema, numbers)
        left = [at for at in numbers if at not in blocks or not blocks[at].loaded]
        if left:
            with self._writing:
                stored = self._disk.get(schema, sorted(left))
                for number in left:
                    rows = _unpack(stored[number]) if number in stored else {}
                    blocks[number] = self._add(schema, number, rows, loaded=True)
        return blocks

    def keep(self, schema: bytes, snapshot: Snapshot, rows: Mapping[RowRef, bytes]) -> None:
        """Cache these rows in memory, unchecked."""
        for number, rows_of_block in _by_block(snapshot, rows).items():
            self._add(schema, number, rows_of_block, loaded=False)

    def store(
        self, schema: bytes, answers: Iterable[tuple[Snapshot, Mapping[RowRef, bytes]]]
    ) -> None:
        """Store on disk the rows of these answers, all of which open.

        Args:
            answers: each with a snapshot that contains its rows.
        """
        with self._writing:
            parts: dict[int, dict[RowRef, bytes]] = defaultdict(dict)
            for snapshot, rows in answers:
                for number, rows_of_block in _by_block(snapshot, rows).items():
                    parts[number] |= rows_of_block
            stored = self._disk.get(schema, sorted(parts))
            packed = {}
            for number, rows_of_block in parts.items():
                before = _unpack(stored[number]) if number in stored else {}
                packed[number] = _pack({**before, **rows_of_block})
                self._change(schema, number, checked=rows_of_block)
            self._disk.put(schema, packed)

    def forget(self, schema: bytes, snapshot: Snapshot, rows: Iterable[RowRef]) -> None:
        """Drop these rows from memory and disk, but not the other rows of their blocks."""
        with self._writing:
            parts = _by_block(snapshot, dict.fromkeys(rows, b""))
            changed = {}
            for number, data in self._disk.get(schema, sorted(parts)).items():
                stored = _unpack(data)
                if not stored.keys().isdisjoint(parts[number]):
                    changed[number] = {
                        ref: stored[ref] for ref in stored.keys() - parts[number].keys()
                    }
            self._disk.drop_some(schema, changed)
            self._disk.put(schema, {at: _pack(left) for at, left in changed.items() if left})
            for number, gone in parts.items():
                self._change(schema, number, gone=gone)

    def forget_between(self, schema: bytes, numbers: range) -> None:
        """Drop the whole blocks of the rows with these numbers, from memory and disk."""
        first, end = numbers.start // BLOCK, -(-numbers.stop // BLOCK)
        with self._writing:
            self._disk.drop_between(schema, first, end)
            self._memory.drop_rows_between(schema, first, end)

    def forget_segments(self, uids: Collection[bytes]) -> None:
        """Drop all pages of segments that no longer exist, from memory and disk."""
        self._memory.drop(uids)
        self._disk.drop(uids)

    def _add(
        self, schema: bytes, number: int, rows: Mapping[RowRef, bytes], *, loaded: bool
    ) -> RowBlock:
        """Add rows to a block in memory; returns the block. The rows come from disk if ``loaded``;
        otherwise they are unchecked.
        """
        with self._changing:
            cached = self._memory.rows(schema, number) or _NONE
            new = {ref: row for ref, row in rows.items() if ref not in cached.rows}
            unchecked = cached.unchecked if loaded else cached.unchecked | new.keys()
            block = RowBlock({**cached.rows, **new}, unchecked, cached.loaded or loaded)
            self._memory.put_rows(schema, number, block)
            return block

    def _change(
        self,
        schema: bytes,
        number: int,
        *,
        checked: Collection[RowRef] = (),
        gone: Collection[RowRef] = (),
    ) -> None:
        with self._changing:
            cached = self._memory.rows(schema, number)
            if cached is not None:
                rows = {ref: row for ref, row in cached.rows.items() if ref not in gone}
                unchecked = cached.unchecked.difference(checked, gone)
                self._memory.put_rows(schema, number, RowBlock(rows, unchecked, cached.loaded))


def _by_block(snapshot: Snapshot, rows: Mapping[RowRef, bytes]) -> dict[int, dict[RowRef, bytes]]:
    """The rows that are small enough to keep, by block."""
    parts: dict[int, dict[RowRef, bytes]] = defaultdict(dict)
    for ref, row in rows.items():
        if len(row) <= MOST_BYTES:
            parts[snapshot.number(ref) // BLOCK][ref] = row
    return parts


def _pack(rows: Mapping[RowRef, bytes]) -> bytes:
    return _encoder.encode([(ref.group, ref.ordinal, row) for ref, row in rows.items()])


def _unpack(data: bytes) -> dict[RowRef, bytes]:
    """The rows of a block on disk; empty if the block is damaged."""
    try:
        return {RowRef(group, ordinal): row for group, ordinal, row in _decoder.decode(data)}
    except msgspec.DecodeError:
        return {}

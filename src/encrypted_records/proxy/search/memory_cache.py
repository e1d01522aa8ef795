"""The cache in memory: opened segments with their directories, data pages and columns; and rows,
sealed as the API has them.

All of it is immutable, under keys that are never reused, so nothing here is ever stale: a segment
that a later definition shows with other names or grids is another view of it. What is here is not
requested again, so the API sees less.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from encrypted_records.index.columns.column import EntryBlock
from encrypted_records.index.columns.dictionary import ColumnDictionary
from encrypted_records.index.segments.paged import OpenedSegment
from encrypted_records.model.records import RowRef

SEGMENT_BYTES = 256 << 20
BLOCK_BYTES = 256 << 20
COLUMN_BYTES = 256 << 20
ROW_BYTES = 128 << 20
#: Bytes of a segment's uid, with which its views begin.
UID = 16
#: What a row takes beside its bytes.
_ROW_OVERHEAD = 250


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """How much a cache holds, and how many look-ups hit or missed."""

    count: int
    bytes: int
    hits: int
    misses: int


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=_Sized)


class _LruCache(Generic[K, V]):
    """The least recently used values are dropped first. ``budget`` is in bytes of their ``size``.

    Safe to use from several threads.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._held = 0
        self._hits = self._misses = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            entry = self._values.get(key)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._values.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V) -> None:
        """Keep ``value``; its size counts as it is now, until it is put again."""
        with self._lock:
            self._forget(key)
            self._values[key] = (value, value.size)
            self._held += value.size
            while self._held > self._budget and len(self._values) > 1:
                self._forget(next(iter(self._values)))

    def drop(self, keys: Iterable[K]) -> None:
        with self._lock:
            for key in keys:
                self._forget(key)

    def list_keys(self) -> list[K]:
        with self._lock:
            return list(self._values)

    @property
    def use(self) -> CacheUsage:
        with self._lock:
            return CacheUsage(len(self._values), self._held, self._hits, self._misses)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._held = 0

    def _forget(self, key: K) -> None:
        entry = self._values.pop(key, None)
        if entry is not None:
            self._held -= entry[1]


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Some of the rows that were stored one after another, each as the MessagePack of its
    :class:`SealedRow`. The ``unchecked`` ones have not been opened yet; ``loaded`` if all
    that the disk has of the block is among them."""

    rows: Mapping[RowRef, bytes]
    unchecked: frozenset[RowRef]
    loaded: bool

    @property
    def size(self) -> int:
        return sum(map(len, self.rows.values())) + len(self.rows) * _ROW_OVERHEAD


class MemoryCache:
    """Opened segments, and separately the opened data pages and columns of paged ones, and sealed
    rows."""

    def __init__(
        self,
        segments: int = SEGMENT_BYTES,
        blocks: int = BLOCK_BYTES,
        columns: int = COLUMN_BYTES,
        rows: int = ROW_BYTES,
    ) -> None:
        """Budgets in bytes."""
        self._segments: _LruCache[tuple[bytes, bytes], OpenedSegment] = _LruCache(segments)
        self._blocks: _LruCache[tuple[bytes, int], EntryBlock] = _LruCache(blocks)
        self._columns: _LruCache[tuple[bytes, str], ColumnDictionary] = _LruCache(columns)
        self._rows: _LruCache[tuple[bytes, int], RowBlock] = _LruCache(rows)

    def get(self, key_id: bytes, view: bytes) -> OpenedSegment | None:
        """The segment of this view as opened with the schema key ``key_id``."""
        return self._segments.get((key_id, view))

    def put(self, key_id: bytes, segment: OpenedSegment) -> None:
        """Keep a segment; again, once it holds more."""
        self._segments.put((key_id, segment.view), segment)

    def block(self, view: bytes, number: int) -> EntryBlock | None:
        """The opened data page of a segment that :meth:`get` gave."""
        return self._blocks.get((view, number))

    def put_block(self, view: bytes, number: int, block: EntryBlock) -> None:
        self._blocks.put((view, number), block)

    def column(self, view: bytes, field: str) -> ColumnDictionary | None:
        """The whole column of a segment that :meth:`get` gave."""
        return self._columns.get((view, field))

    def put_column(self, view: bytes, field: str, column: ColumnDictionary) -> None:
        self._columns.put((view, field), column)

    def rows(self, schema: bytes, number: int) -> RowBlock | None:
        """The block of this number of a schema's rows."""
        return self._rows.get((schema, number))

    def put_rows(self, schema: bytes, number: int, block: RowBlock) -> None:
        self._rows.put((schema, number), block)

    def drop_rows(self, schema: bytes, numbers: Iterable[int]) -> None:
        self._rows.drop((schema, number) for number in numbers)

    def drop_rows_between(self, schema: bytes, first: int, end: int) -> None:
        """Forget the blocks from number ``first`` on, up to ``end``."""
        every = self._rows.list_keys()
        self._rows.drop(key for key in every if key[0] == schema and first <= key[1] < end)

    def drop(self, uids: Iterable[bytes]) -> None:
        """Forget segments that no longer exist."""
        gone = set(uids)
        self._segments.drop(key for key in self._segments.list_keys() if _uid(key[1]) in gone)
        self._blocks.drop(key for key in self._blocks.list_keys() if _uid(key[0]) in gone)
        self._columns.drop(key for key in self._columns.list_keys() if _uid(key[0]) in gone)

    @property
    def uses(self) -> dict[str, CacheUsage]:
        """For all schemas of all users of this proxy."""
        return {
            "segments": self._segments.use,
            "pages": self._blocks.use,
            "columns": self._columns.use,
            "rows": self._rows.use,
        }

    def clear(self) -> None:
        self._segments.clear()
        self._blocks.clear()
        self._columns.clear()
        self._rows.clear()


def _uid(view: bytes) -> bytes:
    """The uid of the segment that is open in this view."""
    return view[:UID]

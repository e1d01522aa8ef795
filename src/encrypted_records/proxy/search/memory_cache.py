"""The caches in memory: opened segments, the directories, data pages and columns of paged ones and
what columns add up to, and rows, sealed as the API has them.

All of it is immutable, under keys that are never reused, so nothing here is ever stale: a segment
that a later definition shows with other names or grids is another view of it. What is here is not
requested again, so the API sees less. Together the caches keep to one budget
(:mod:`.memory_pool`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from encrypted_records.index.columns.column import EntryBlock
from encrypted_records.index.columns.dictionary import ByRow
from encrypted_records.index.columns.outline import Outline
from encrypted_records.index.columns.sums import ColumnSums
from encrypted_records.index.segments.loaded import KeptSegment
from encrypted_records.model.records import RowRef
from encrypted_records.proxy.search.memory_pool import CacheUsage, LruCache, MemoryPool

#: Where room is short, the cache that has most for its share makes some.
SEGMENT_SHARE, DIRECTORY_SHARE, BLOCK_SHARE, COLUMN_SHARE, ROW_SHARE = 15, 20, 25, 25, 15
SUM_SHARE = 1
#: Bytes of a segment's uid, with which its views begin.
UID = 16
#: What a row takes beside its bytes.
_ROW_OVERHEAD = 330


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Some of the rows that were stored one after another, each as the MessagePack of its
    :class:`SealedRow`. The ``unchecked`` rows have not been opened yet; ``loaded`` means that all
    rows of the block on disk are included.

    No place of a row is part of a cycle, so Python does not search the dict for any.
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
        """``pool`` is the memory that this may take, with others."""
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
        """The segment of this view as opened with the schema key ``key_id``."""
        return self._segments.get((key_id, view))

    def put(self, key_id: bytes, segment: KeptSegment) -> None:
        """Keep a segment; of a paged one, what its header says."""
        self._segments.put((key_id, segment.view), segment)

    def directory(self, view: bytes, field: str) -> Outline | None:
        """The directory of a column of a segment that :meth:`get` gave."""
        return self._directories.get((view, field))

    def put_directory(self, view: bytes, field: str, directory: Outline) -> None:
        self._directories.put((view, field), directory)

    def block(self, view: bytes, number: int) -> EntryBlock | None:
        """The opened data page of a segment that :meth:`get` gave."""
        return self._blocks.get((view, number))

    def put_block(self, view: bytes, number: int, block: EntryBlock) -> None:
        self._blocks.put((view, number), block)

    def column(self, view: bytes, field: str) -> ByRow | None:
        """The whole column of a segment that :meth:`get` gave."""
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
        """The block of this number of a schema's rows."""
        return self._rows.get((schema, number))

    def put_rows(self, schema: bytes, number: int, block: RowBlock) -> None:
        self._rows.put((schema, number), block)

    def drop_rows(self, schema: bytes, numbers: Iterable[int]) -> None:
        self._rows.drop((schema, number) for number in numbers)

    def drop_rows_between(self, schema: bytes, first: int, end: int) -> None:
        """Forget the blocks from number ``first`` on, up to ``end``."""
        if end - first < self._rows.entries:
            self.drop_rows(schema, range(first, end))
        else:
            self._rows.drop_where(lambda key: key[0] == schema and first <= key[1] < end)

    def drop(self, uids: Iterable[bytes]) -> None:
        """Forget segments that no longer exist."""
        gone = set(uids)
        self._segments.drop_where(lambda key: _uid(key[1]) in gone)
        self._directories.drop_where(lambda key: _uid(key[0]) in gone)
        self._blocks.drop_where(lambda key: _uid(key[0]) in gone)
        self._columns.drop_where(lambda key: _uid(key[0]) in gone)
        self._sums.drop_where(lambda key: _uid(key[0]) in gone)

    @property
    def uses(self) -> dict[str, CacheUsage]:
        """For all schemas of all users of this proxy."""
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
    """The uid of the segment that is open in this view."""
    return view[:UID]

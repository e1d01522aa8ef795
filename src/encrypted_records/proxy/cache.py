"""What is open of the index, in memory: segments with their directories, data pages, columns.

Segments and pages are immutable and named by uids that are never reused, so what is here is never
stale. It also keeps questions from the API: what is here is not asked for again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from encrypted_records.index.coded import Coded
from encrypted_records.index.columns import Block
from encrypted_records.index.paged import Opened

SEGMENT_BYTES = 256 << 20
BLOCK_BYTES = 256 << 20
COLUMN_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Use:
    """How much a cache holds, and how often what was looked for was there."""

    count: int
    bytes: int
    hits: int
    misses: int


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=_Sized)


class _Recent(Generic[K, V]):
    """Least recently used go first. ``budget`` is in bytes as the values' ``size`` tells them.

    Safe to use from several threads.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._held = 0
        self._hits = self._misses = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, place: K) -> V | None:
        with self._lock:
            found = self._values.get(place)
            if found is None:
                self._misses += 1
                return None
            self._hits += 1
            self._values.move_to_end(place)
            return found[0]

    def put(self, place: K, value: V) -> None:
        """Keep ``value``; its size counts as it is now, until it is put again."""
        with self._lock:
            self._forget(place)
            self._values[place] = (value, value.size)
            self._held += value.size
            while self._held > self._budget and len(self._values) > 1:
                self._forget(next(iter(self._values)))

    def drop(self, places: Iterable[K]) -> None:
        with self._lock:
            for place in places:
                self._forget(place)

    def places(self) -> list[K]:
        with self._lock:
            return list(self._values)

    @property
    def use(self) -> Use:
        with self._lock:
            return Use(len(self._values), self._held, self._hits, self._misses)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._held = 0

    def _forget(self, place: K) -> None:
        found = self._values.pop(place, None)
        if found is not None:
            self._held -= found[1]


class SegmentCache:
    """Opened segments, and apart from them the opened data pages and columns of paged ones."""

    def __init__(
        self,
        segments: int = SEGMENT_BYTES,
        blocks: int = BLOCK_BYTES,
        columns: int = COLUMN_BYTES,
    ) -> None:
        """Budgets in bytes."""
        self._segments: _Recent[tuple[bytes, bytes], Opened] = _Recent(segments)
        self._blocks: _Recent[tuple[bytes, int], Block] = _Recent(blocks)
        self._columns: _Recent[tuple[bytes, str], Coded] = _Recent(columns)

    def get(self, key_id: bytes, uid: bytes) -> Opened | None:
        """The segment ``uid`` as opened with the schema key ``key_id``."""
        return self._segments.get((key_id, uid))

    def put(self, key_id: bytes, segment: Opened) -> None:
        """Keep a segment; again, once it holds more."""
        self._segments.put((key_id, segment.segment.uid), segment)

    def block(self, uid: bytes, number: int) -> Block | None:
        """The opened data page of a segment that :meth:`get` gave."""
        return self._blocks.get((uid, number))

    def put_block(self, uid: bytes, number: int, block: Block) -> None:
        self._blocks.put((uid, number), block)

    def column(self, uid: bytes, field: str) -> Coded | None:
        """The whole column of a segment that :meth:`get` gave."""
        return self._columns.get((uid, field))

    def put_column(self, uid: bytes, field: str, column: Coded) -> None:
        self._columns.put((uid, field), column)

    def drop(self, uids: Iterable[bytes]) -> None:
        """Forget segments that are no more."""
        gone = set(uids)
        self._segments.drop(place for place in self._segments.places() if place[1] in gone)
        self._blocks.drop(place for place in self._blocks.places() if place[0] in gone)
        self._columns.drop(place for place in self._columns.places() if place[0] in gone)

    @property
    def uses(self) -> dict[str, Use]:
        """For all schemas of all users of this proxy."""
        return {
            "segments": self._segments.use,
            "pages": self._blocks.use,
            "columns": self._columns.use,
        }

    def clear(self) -> None:
        self._segments.clear()
        self._blocks.clear()
        self._columns.clear()

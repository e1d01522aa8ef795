"""Caches that share one budget of memory: each may take what the others leave.

Where they have more than the budget, the cache that has most for its share drops what it has not
used for longest. What was put last stays, unless it is larger than the budget by itself; so the
caches never hold more than that.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

#: What an entry takes beside its value: its key, and its place in the cache.
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
    """A shared memory budget of caches. Thread-safe. A cache without references takes nothing."""

    def __init__(self, budget: int) -> None:
        """``budget`` is in bytes of what the caches hold."""
        self.budget = budget
        self.lock = threading.RLock()
        self._caches: WeakSet[LruCache[Any, Any]] = WeakSet()

    @property
    def held(self) -> int:
        """Bytes of all caches."""
        with self.lock:
            return sum(cache.held for cache in self._caches)

    def join(self, cache: LruCache[Any, Any]) -> None:
        with self.lock:
            self._caches.add(cache)

    def make_room(self, newest: LruCache[Any, Any]) -> None:
        """Drop what was not used for longest until all is within the budget; of ``newest`` not its
        last entry, which is within it by itself. The lock is held."""
        caches = list(self._caches)
        held = sum(cache.held for cache in caches)
        while held > self.budget:
            full = [cache for cache in caches if cache.entries > (1 if cache is newest else 0)]
            held -= max(full, key=lambda cache: cache.held / cache.share).drop_oldest()


class LruCache(Generic[K, V]):
    """Bytes are those that a value's ``size`` says, and what the cache itself needs for it.

    Safe to use from several threads.
    """

    def __init__(self, pool: MemoryPool, share: int) -> None:
        """
        Args:
            share: of the pool, in any unit that all of its caches have.
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
            again: whether it was looked for just before, so that this is no second miss.
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
        """Keep ``value``; its size counts as it is now, until it is put again. One that is larger
        than all that the caches may hold is not kept."""
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
        """The bytes that this gives back."""
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

"""A disk cache of blocks and pages of a remote store of objects, on the machine of an API.

An object never changes, and its name is never reused: bytes that were read are right for as long as
the object exists. The cache is a copy and decides nothing. If anything is wrong with it, the store
is read as if there were no cache, and the bytes get the same checks. Maintenance of a store (``ers
verify``, ``ers storage move``) does not use it.

Each process of an API has an unnamed file: only this process can read it, and the system frees its
space when the process ends, however it ends. So a killed API leaves no erased data behind. The
positions in the file are kept in memory.

Erased data leaves the cache too: at once if this process deletes the object, otherwise at the next
look. The database has the latest started and the latest finished look of each file
(:mod:`.cache_files`), and an erasure waits for a look that began after the objects were gone. So
data read from the store before a look began is dropped after it if its object is gone. A process
that could not look for a minute, for example without a database, drops its whole cache, by its own
clock.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
import threading
import time
import zlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import BinaryIO, Literal, NamedTuple, Protocol

from encrypted_records.server import metrics
from encrypted_records.server.objects.stores import BulkStore, Range, find_reach, free_below

# Empty files that show which processes use a folder.
#
# Each process keeps its file locked for as long as it runs; the lock ends however the process ends.


_SIGNS = "blocks-*.lock"


def sign_of(folder: Path, cache: str) -> Path:
    """The sign file of the process whose cache has this id."""
    return folder / _SIGNS.replace("*", cache)


def locked(path: Path) -> int:
    """Open and lock a file that no other process has locked; the lock lasts until this process
    ends.

    Raises:
        OSError: another process has locked the file.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def find_dead(folder: Path, cache_id: str) -> Iterator[str]:
    """The cache ids of killed processes. The file of each is deleted when the next id is
    requested.
    """
    before, behind = _SIGNS.split("*")
    for path in folder.glob(_SIGNS):
        cache = path.name.removeprefix(before).removesuffix(behind)
        if cache == cache_id:
            continue
        with suppress(OSError):
            sign = locked(path)
            try:
                yield cache
                path.unlink(missing_ok=True)
            finally:
                os.close(sign)


# Single flight: ranges that a thread reads from a store, so that other threads wait for the read.
#
# A thread that has waited looks in the cache again, and reads the missing ranges itself. No result
# and no error passes from thread to thread. A thread never waits while it holds a claim.


#: The longest wait for another thread's read. Reads are usually much faster. If the store fails,
#: the waiting thread still has time to try it before the proxy gives up.
MOST_SECONDS = 2.0


class Reads:
    """Ranges that are being read. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Range, threading.Event] = {}

    @contextmanager
    def claim(self, ranges: Collection[Range]) -> Iterator[Mapping[Range, threading.Event]]:
        """Claim the ranges that no other thread is reading, until the block ends; other threads
        wait for them.

        Yields:
            The ranges that other threads are reading, each with an event that is set when the read
            ends.
        """
        ended = threading.Event()
        with self._lock:
            theirs = {span: self._under_way[span] for span in ranges if span in self._under_way}
            unclaimed = set(ranges) - theirs.keys()
            self._under_way |= dict.fromkeys(unclaimed, ended)
        try:
            yield theirs
        finally:
            with self._lock:
                for range_ in unclaimed:
                    del self._under_way[range_]
            ended.set()


def wait_for(reads: Collection[threading.Event]) -> None:
    """Wait until all of these have ended, or for :data:`MOST_SECONDS`."""
    deadline = time.monotonic() + MOST_SECONDS
    for read in set(reads):
        read.wait(max(0.0, deadline - time.monotonic()))


#: Seconds between two checks for deleted objects.
CHECK_INTERVAL = 10.0
#: A process uses its cache for this many seconds after its last check began. Much less than
#: :data:`.cache_files.LAPSE`.
TRUSTED_SECONDS = 60.0
#: Seconds between two checks whether this time is over.
LAPSE_SECONDS = 5.0
#: Longer ranges are not cached, nor the ranges of a request for more bytes in total: such a reader,
#: for a merge or an export, does not soon read them again, and would evict those of other readers.
MOST_OF_ONE = 256 << 10
MOST_AT_ONCE = 4 << 20
#: Bytes around a range that are read with it: a request costs more.
AHEAD_BYTES = 1 << 20
#: The most ranges in the cache, which limits its index in memory to about 20 MiB.
MOST_RANGES = 1 << 16
#: With less free disk space, nothing more is cached: the database may use the same disk.
KEEP_FREE_BYTES = 1 << 30
_passed_over: ContextVar[bool] = ContextVar("passed_over", default=False)


class _CachedRange(NamedTuple):
    """The position of a range in the file, and the CRC of its bytes."""

    start: int
    length: int
    crc: int


class BlockCache:
    """At most ``most_bytes`` in a file; the oldest are evicted first. Thread-safe.

    A ring buffer: the file is filled up to ``most_bytes``, and then overwritten from its beginning.
    """

    def __init__(
        self,
        folder: Path,
        most_bytes: int,
        *,
        keep_free: int = KEEP_FREE_BYTES,
    ) -> None:
        self.id = secrets.token_hex(16)
        self._folder = folder
        self._most = most_bytes
        self._keep_free = keep_free
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._reads = Reads()
        self._looked: float | None = None
        self._ended = False
        self._turn = 0
        self._sign: int | None = None
        self._file: BinaryIO | None = None
        self._open()

    def _open(self) -> None:
        """Begin with an empty file; without a file, nothing is cached."""
        #: in the order of their positions in the file, from the oldest on
        self._kept: dict[Range, _CachedRange] = {}
        self._at = self._size = 0
        with suppress(OSError):
            if self._file is not None:
                self._file.close()
        self._file = None
        with suppress(OSError):
            self._file = tempfile.TemporaryFile(  # noqa: SIM115 - open for as long as this
                dir=self._folder, buffering=0
            )
            if self._sign is None:
                self._sign = locked(sign_of(self._folder, self.id))

    def read(
        self,
        store: BulkStore,
        ranges: Sequence[Range],
        spare: Spare = lambda: (),
        ahead: Ahead = lambda _first, _most: (),
    ) -> list[bytes]:
        """Bytes of each range: from the cache, else from :meth:`BulkStore.read`.

        Args:
            spare: ranges to cache if they are between ranges that the store reads as one.
            ahead: ranges around a range to read as well, while the cache is less than half full.
        """
        wanted = sorted(set(ranges))
        if sum(range_.end - range_.start for range_ in wanted) > MOST_AT_ONCE:
            return store.read(ranges)
        turn, found = self._find(() if _passed_over.get() else wanted)
        left = [range_ for range_ in wanted if range_ not in found]
        metrics.block_cache.looked_up(len(found), len(left))
        theirs: Mapping[Range, Event] = {}
        if left:
            with self._reads.claim(self._worth_waiting_for(left)) as theirs:
                if claimed := [block for block in left if block not in theirs]:
                    neighbours = self._neighbours(claimed, spare, ahead)
                    with self._reads.claim(neighbours) as others:
                        blocks = claimed + [block for block in neighbours if block not in others]
                        found |= self._ask(store, blocks, turn)
        if theirs:
            wait_for(theirs.values())
            turn, more = self._find(list(theirs))
            found |= more
            if missing := [their for their in theirs if their not in more]:
                found |= self._ask(store, missing, turn)
        return [found[span] for span in ranges]

    def _worth_waiting_for(self, ranges: Sequence[Range]) -> list[Range]:
        """The ranges among these that will be cached once another thread has read them."""
        if _passed_over.get() or not self._is_trusted(TRUSTED_SECONDS):
            return []
        return [span for span in ranges if self._can_keep(span.end - span.start)]

    def _ask(self, store: BulkStore, ranges: Sequence[Range], turn: int) -> dict[Range, bytes]:
        """Read these ranges from the store, and cache them."""
        read = dict(zip(ranges, store.read(ranges), strict=True))
        self._keep(read, turn)
        return read

    def _neighbours(self, left: Sequence[Range], spare: Spare, ahead: Ahead) -> list[Range]:
        """Ranges that are read with these, to be cached."""
        # A neighbour may be damaged, and must not prevent the read.
        if _passed_over.get() or not self._is_trusted(TRUSTED_SECONDS):
            return []
        around = self._around(left, ahead)
        return around + self._between(sorted([*left, *around]), spare)

    def _around(self, left: Sequence[Range], ahead: Ahead) -> list[Range]:
        """Ranges around these that are not cached and can be. Reading ahead hardly ever evicts a
        range that was requested: the ring buffer is less than half full.
        """
        with self._lock:
            free = min(MOST_AT_ONCE, self._most // 2 - self._size)
            if len(self._kept) > MOST_RANGES // 2:
                return []
        most = min(AHEAD_BYTES, free // len(left))
        around = {near for block in left for near in ahead(block, most)} if most > 0 else set()
        with self._lock:
            new = around.difference(left, self._kept)
        return sorted(block for block in new if self._can_keep(block.end - block.start))

    def _between(self, left: Sequence[Range], spare: Spare) -> list[Range]:
        """Spare ranges that are not cached and are between two of these that are read as one."""
        kept_too = spare()
        reach = find_reach(left)
        chosen: list[Range] = []
        room = MOST_AT_ONCE - sum(block.end - block.start for block in left)
        with self._lock:
            new = [block for block in sorted(set(kept_too)) if block not in self._kept]
        for before, behind in pairwise(left):
            if before.name == behind.name and behind.start - before.end <= reach:
                at = bisect_left(new, (before.name, before.end, 0))
                while at < len(new) and new[at].name == before.name and room > 0:
                    if new[at].end > behind.start:
                        break
                    chosen.append(new[at])
                    room -= new[at].end - new[at].start
                    at += 1
        return chosen

    @contextmanager
    def passed_over(self) -> Iterator[None]:
        """Bypass the cache for reads, and store the results in it."""
        token = _passed_over.set(True)
        try:
            yield
        finally:
            _passed_over.reset(token)

    def forget(self, names: Collection[str]) -> None:
        """Overwrite the cached bytes of these objects."""
        with self._lock, self._reopening():
            self._drop([block for block in self._kept if block.name in names], "gone")

    def look(self, registry: Registry, *, soon: bool = False) -> bool:
        """Drop cached objects that other processes have deleted, and report that to the database.

        Args:
            soon: whether an erasure waits for the check; otherwise nothing is done shortly after an
                earlier check.

        Returns:
            Whether the check was done.
        """
        with self._looking:
            began = _now()
            if self._ended or (self._is_trusted(CHECK_INTERVAL) and not soon):
                return False
            with self._lock:
                if self._file is None or self._sign is None:
                    self._open()
                    if self._sign is None:
                        return False
            self._leave_for_the_dead(registry)
            number = registry.begin(self.id)
            with self._lock:
                self._turn += 1
            kept = self.names()
            self.forget(kept.difference(registry.known(kept)))
            if not registry.end(self.id, number):
                return False
            self._looked = began
            return True

    def _leave_for_the_dead(self, registry: Registry) -> None:
        """Unregister the caches of killed processes of this folder, so that no erasure waits for
        them.
        """
        for cache in find_dead(self._folder, self.id):
            registry.leave(cache)

    def end(self, registry: Registry) -> None:
        """Close the file at the end of this API, so that no erasure waits for it."""
        with self._looking, self._lock:
            self._ended, self._looked = True, None
            if self._sign is not None:
                registry.leave(self.id)
                with suppress(OSError):
                    sign_of(self._folder, self.id).unlink(missing_ok=True)
                    os.close(self._sign)
            self._kept.clear()
            if self._file is not None:
                self._file.close()
            self._file = self._sign = None

    def lapse(self) -> bool:
        """Drop the whole cache if the last check began too long ago; returns whether that was the
        case.

        Other processes do not wait for this process much longer, so this does not wait for
        anything: the database may be the reason why checks are not possible.
        """
        with self._lock:
            is_over = not self._ended and not self._is_trusted(TRUSTED_SECONDS)
            if is_over and self._kept:
                metrics.block_cache.dropped("gone", len(self._kept))
                self._open()
                metrics.block_cache.holds(0)
            return is_over

    def _is_trusted(self, seconds: float) -> bool:
        return self._looked is not None and _now() - self._looked < seconds

    def names(self) -> set[str]:
        """Names of the objects with cached ranges."""
        with self._lock:
            return {block.name for block in self._kept}

    def _find(self, wanted: Sequence[Range]) -> tuple[int, dict[Range, bytes]]:
        """The number of the last look, and those of these ranges that are cached."""
        found: dict[Range, bytes] = {}
        with self._lock, suppress(OSError):
            if self._file is not None and self._is_trusted(TRUSTED_SECONDS):
                for range_ in wanted:
                    kept = self._kept.get(range_)
                    if kept is not None:
                        data = os.pread(self._file.fileno(), kept.length, kept.start)
                        if zlib.crc32(data) == kept.crc:
                            found[range_] = data
        return self._turn, found

    def _keep(self, read: Mapping[Range, bytes], turn: int) -> None:
        """Cache bytes, unless a look has begun since they were read: it may have missed their
        object.
        """
        if free_below(self._folder) < self._keep_free:
            return
        with self._lock, self._reopening():
            if turn != self._turn or not self._is_trusted(TRUSTED_SECONDS):
                return
            for wanted_range, data in read.items():
                if self._can_keep(len(data)):
                    self._put(wanted_range, data)
            metrics.block_cache.holds(self._size)

    def _can_keep(self, size: int) -> bool:
        return size <= min(MOST_OF_ONE, self._most)

    @contextmanager
    def _reopening(self) -> Iterator[None]:
        """Start again with an empty file if the file cannot be written: closing an unnamed file
        frees its space, and removes the bytes that were to be overwritten.
        """
        try:
            yield
        except OSError:
            self._open()

    def _put(self, place: Range, data: bytes) -> None:
        if self._file is None:
            return
        if place in self._kept:
            self._drop([place], "room")
        if self._at + len(data) > self._most:
            self._make_room(self._at, self._most)
            self._at = 0
        start, end = self._at, self._at + len(data)
        self._make_room(start, end)
        self._write(start, data)
        self._kept[place] = _CachedRange(start, len(data), zlib.crc32(data))
        self._at, self._size = end, self._size + len(data)

    def _make_room(self, start: int, end: int) -> None:
        """Drop the ranges between two positions, which are the oldest, and ranges beyond the
        limit.
        """
        over: list[Range] = []
        for wanted_range, kept in self._kept.items():
            overlaps = kept.start < end and start < kept.start + kept.length
            if not overlaps and len(self._kept) - len(over) < MOST_RANGES:
                break
            over.append(wanted_range)
        self._drop(over, "room")

    def _drop(self, ranges: Sequence[Range], reason: Literal["gone", "room"]) -> None:
        """Overwrite these with zeros, even if a range is written there next: it may be shorter."""
        for span in ranges:
            kept = self._kept.pop(span)
            self._size -= kept.length
            self._write(kept.start, bytes(kept.length))
        metrics.block_cache.dropped(reason, len(ranges))
        metrics.block_cache.holds(self._size)

    def _write(self, start: int, data: bytes) -> None:
        assert self._file is not None, "what is kept has a file"
        left = memoryview(data)
        while left:
            written = os.pwrite(self._file.fileno(), left, start)
            start, left = start + written, left[written:]


def _now() -> float:
    """A monotonic clock that includes the time while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


_opened: list[BlockCache] = []


def open_cache(folder: Path, most_bytes: int) -> None:
    """Cache reads of this process in a file of this folder, unless ``most_bytes`` is 0."""
    for path in folder.glob("blocks.sqlite3*"):  # of an earlier version, which used a named file
        path.unlink(missing_ok=True)
    _opened[:] = [BlockCache(folder, most_bytes)] if most_bytes else []


def watch_cache() -> None:
    """Drop the cache of this process whenever its last check began too long ago; runs as long as
    there is a cache.
    """
    while (cache := opened()) is not None:
        cache.lapse()
        time.sleep(LAPSE_SECONDS)


def end_cache(registry: Registry) -> None:
    """Close the cache of this process at its end."""
    for cache in _opened:
        cache.end(registry)


def opened() -> BlockCache | None:
    """The block cache of this process, if it has one."""
    return _opened[0] if _opened else None


#: Ranges, some of which may be cached as well.
Spare = Callable[[], Sequence[Range]]
#: Given a range and a number of bytes: the ranges around it that are no longer than this together.
Ahead = Callable[[Range, int], Iterable[Range]]


class Registry(Protocol):
    """The tables of cache files, of all APIs, and of objects."""

    def begin(self, cache: str, /) -> int: ...

    def end(self, cache: str, number: int, /) -> bool: ...

    def leave(self, cache: str, /) -> None: ...

    def known(self, names: Collection[str], /) -> Collection[str]: ...

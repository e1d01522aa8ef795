"""Blocks and pages of a store of objects that is far away, kept on the disk of an API's machine.

An object never changes, and its name is never used again: what was read once is right for as long
as the object is there. What is kept is a copy and decides nothing. Whatever is wrong with it, the
store is asked as if it were not there, and what is read is checked in the same way. Those that look
after a store (``ers verify``, ``ers storage move``) do without it.

Each process of an API has a file of its own, without a name: only this process can read it, and the
system takes its room back when the process ends, however it ends. So nothing that is erased stays
behind with an API that was killed. Where in it something lies, the process has in memory.

What is erased goes from here too: at once where this process deletes the object, at the next look
where another does. The database has of each file which look began last and which has ended
(:mod:`.cache_files`), and an erasure waits for one that began after the objects were gone. So what
was asked of the store before a look began is not kept after that, and a process that has not looked
for a minute, as one that cannot reach the database, drops all of its copies, by its own clock.
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

from encrypted_records.server.objects.stores import BulkStore, Range, find_reach, free_below

# Empty files by which the processes that use a folder see which of the others run.
#
# Each has one, locked for as long as it runs, however it ends.


_SIGNS = "blocks-*.lock"


def sign_of(folder: Path, cache: str) -> Path:
    """The sign of the process whose copies have this name."""
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


def find_dead(folder: Path, own: str) -> Iterator[str]:
    """The names of those that were killed. The file of each goes when the next one is asked for."""
    before, behind = _SIGNS.split("*")
    for path in folder.glob(_SIGNS):
        cache = path.name.removeprefix(before).removesuffix(behind)
        if cache == own:
            continue
        with suppress(OSError):
            sign = locked(path)
            try:
                yield cache
                path.unlink(missing_ok=True)
            finally:
                os.close(sign)


# Ranges that threads read from a store, so that others wait for them instead of reading them too.
#
# A thread that has waited looks in the cache again, and reads what is not there. Nothing else
# passes from thread to thread, and no error does. Nobody waits while they have claimed something.


#: Nobody waits longer for what others read. It is far more than a read takes as a rule; and who
#: then finds a store that fails has time left to try it, before the proxy gives this API up.
MOST_SECONDS = 2.0


class Reads:
    """Used by any thread."""

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
            own = set(ranges) - theirs.keys()
            self._under_way |= dict.fromkeys(own, ended)
        try:
            yield theirs
        finally:
            with self._lock:
                for range_ in own:
                    del self._under_way[range_]
            ended.set()


def wait_for(reads: Collection[threading.Event]) -> None:
    """Wait until all of these have ended, or for :data:`MOST_SECONDS`."""
    deadline = time.monotonic() + MOST_SECONDS
    for read in set(reads):
        read.wait(max(0.0, deadline - time.monotonic()))


#: Seconds between two looks for objects that are gone.
LOOK_SECONDS = 10.0
#: So long after its last look began, a process has its copies. Less than
#: :data:`.cache_files.LAPSE`, by much.
TRUSTED_SECONDS = 60.0
#: Seconds after which a process sees that this time is over.
LAPSE_SECONDS = 5.0
#: Longer ranges are not kept, nor are those of a request for more in all: who reads that much,
#: for a merge or an export, does not read it again soon, and would push out what others do.
MOST_OF_ONE = 256 << 10
MOST_AT_ONCE = 4 << 20
#: Of what lies around a range that is read, so much is read with it: a request costs more.
AHEAD_BYTES = 1 << 20
#: Ranges that are kept at most, so that what memory has of them is bounded: some 20 MiB.
MOST_RANGES = 1 << 16
#: The disk may be the database's, too: with less room than this, nothing more is kept.
KEEP_FREE_BYTES = 1 << 30
_passed_over: ContextVar[bool] = ContextVar("passed_over", default=False)


class _Kept(NamedTuple):
    """The place of a range in the file, and the CRC of its bytes."""

    start: int
    length: int
    crc: int


class BlockCache:
    """At most ``most_bytes`` in a file; what came first goes first. Any thread may use it.

    The file is filled from its beginning to ``most_bytes`` and then from its beginning again, over
    what has lain there for longest.
    """

    def __init__(
        self,
        folder: Path,
        most_bytes: int,
        counts: RangeCounters | None = None,
        *,
        keep_free: int = KEEP_FREE_BYTES,
    ) -> None:
        self.id = secrets.token_hex(16)
        self._folder = folder
        self._most = most_bytes
        self._counts = counts or Uncounted()
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
        """Begin with an empty file; without one, nothing is kept."""
        #: in the order in which they lie in the file, from the oldest on
        self._kept: dict[Range, _Kept] = {}
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
        ahead: Ahead = lambda _one, _most: (),
    ) -> list[bytes]:
        """Bytes of each range: from the cache, else from :meth:`BulkStore.read`.

        Args:
            spare: what is kept as well where the store is asked for what lies before and behind.
            ahead: what the store is asked for as well, as long as this is not half full.
        """
        wanted = sorted(set(ranges))
        if sum(range_.end - range_.start for range_ in wanted) > MOST_AT_ONCE:
            return store.read(ranges)
        turn, found = self._find(() if _passed_over.get() else wanted)
        left = [range_ for range_ in wanted if range_ not in found]
        self._counts.looked_up(len(found), len(left))
        theirs: Mapping[Range, Event] = {}
        if left:
            with self._reads.claim(self._worth_waiting_for(left)) as theirs:
                if own := [block for block in left if block not in theirs]:
                    beside = self._beside(own, spare, ahead)
                    with self._reads.claim(beside) as others:
                        every = own + [block for block in beside if block not in others]
                        found |= self._ask(store, every, turn)
        if theirs:
            wait_for(theirs.values())
            turn, more = self._find(list(theirs))
            found |= more
            if rest := [their for their in theirs if their not in more]:
                found |= self._ask(store, rest, turn)
        return [found[span] for span in ranges]

    def _worth_waiting_for(self, ranges: Sequence[Range]) -> list[Range]:
        """The ranges among these that will be kept once another thread has read them."""
        if _passed_over.get() or not self._is_trusted(TRUSTED_SECONDS):
            return []
        return [span for span in ranges if self._can_keep(span.end - span.start)]

    def _ask(self, store: BulkStore, ranges: Sequence[Range], turn: int) -> dict[Range, bytes]:
        """These ranges from the store, and kept."""
        read = dict(zip(ranges, store.read(ranges), strict=True))
        self._keep(read, turn)
        return read

    def _beside(self, left: Sequence[Range], spare: Spare, ahead: Ahead) -> list[Range]:
        """Ranges that are read with these, to be kept."""
        # What is damaged may lie beside what is asked for, which has to be read all the same.
        if _passed_over.get() or not self._is_trusted(TRUSTED_SECONDS):
            return []
        around = self._around(left, ahead)
        return around + self._between(sorted([*left, *around]), spare)

    def _around(self, left: Sequence[Range], ahead: Ahead) -> list[Range]:
        """Ranges around these that are not here and can be kept. An evicted range is hardly ever
        one that was asked for: the file is written round and round, whatever is free in it.
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
        """Spare ranges that are not here and lie between two of these that are read as one."""
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
        """Overwrite what is kept of these objects."""
        with self._lock, self._whole():
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
            if self._ended or (self._is_trusted(LOOK_SECONDS) and not soon):
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
        """Ensure that nothing waits for killed processes of this folder, whose caches are gone."""
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
                self._counts.dropped("gone", len(self._kept))
                self._open()
                self._counts.holds(0)
            return is_over

    def _is_trusted(self, seconds: float) -> bool:
        return self._looked is not None and _now() - self._looked < seconds

    def names(self) -> set[str]:
        """Names of the objects of which something is kept."""
        with self._lock:
            return {block.name for block in self._kept}

    def _find(self, wanted: Sequence[Range]) -> tuple[int, dict[Range, bytes]]:
        """The number of the last look, and what there is of these ranges."""
        found: dict[Range, bytes] = {}
        with self._lock, suppress(OSError):
            if self._file is not None and self._is_trusted(TRUSTED_SECONDS):
                for asked in wanted:
                    kept = self._kept.get(asked)
                    if kept is not None:
                        data = os.pread(self._file.fileno(), kept.length, kept.start)
                        if zlib.crc32(data) == kept.crc:
                            found[asked] = data
        return self._turn, found

    def _keep(self, read: Mapping[Range, bytes], turn: int) -> None:
        """Unless a look has begun since: what was read may be of an object that it missed."""
        if free_below(self._folder) < self._keep_free:
            return
        with self._lock, self._whole():
            if turn != self._turn or not self._is_trusted(TRUSTED_SECONDS):
                return
            for wanted_range, data in read.items():
                if self._can_keep(len(data)):
                    self._put(wanted_range, data)
            self._counts.holds(self._size)

    def _can_keep(self, size: int) -> bool:
        return size <= min(MOST_OF_ONE, self._most)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Begin again with nothing where the file cannot be written: what is closed and has no name
        is gone, also what was to be overwritten, and a full disk has its room back."""
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
        self._kept[place] = _Kept(start, len(data), zlib.crc32(data))
        self._at, self._size = end, self._size + len(data)

    def _make_room(self, start: int, end: int) -> None:
        """Drop what lies between two places, which are the oldest, and what is too many."""
        over: list[Range] = []
        for wanted_range, kept in self._kept.items():
            here = kept.start < end and start < kept.start + kept.length
            if not here and len(self._kept) - len(over) < MOST_RANGES:
                break
            over.append(wanted_range)
        self._drop(over, "room")

    def _drop(self, ranges: Sequence[Range], reason: Literal["gone", "room"]) -> None:
        """Overwrite these, also where something else comes there: it may be shorter."""
        for span in ranges:
            kept = self._kept.pop(span)
            self._size -= kept.length
            self._write(kept.start, bytes(kept.length))
        self._counts.dropped(reason, len(ranges))
        self._counts.holds(self._size)

    def _write(self, start: int, data: bytes) -> None:
        assert self._file is not None, "what is kept has a file"
        left = memoryview(data)
        while left:
            written = os.pwrite(self._file.fileno(), left, start)
            start, left = start + written, left[written:]


def _now() -> float:
    """Seconds that pass while the machine sleeps, too."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


_opened: list[BlockCache] = []


def open_cache(folder: Path, most_bytes: int, counts: RangeCounters | None = None) -> None:
    """Cache reads of this process in a file of this folder, unless ``most_bytes`` is 0."""
    for path in folder.glob("blocks.sqlite3*"):  # of a version that kept them under a name
        path.unlink(missing_ok=True)
    _opened[:] = [BlockCache(folder, most_bytes, counts)] if most_bytes else []


def watch_cache() -> None:
    """Drop the cache of this process whenever its last check began too long ago; runs as long as
    there is a cache.
    """
    while (cache := opened()) is not None:
        cache.lapse()
        time.sleep(LAPSE_SECONDS)


def end_cache(registry: Registry) -> None:
    """Close the cache of this process, which ends."""
    for cache in _opened:
        cache.end(registry)


def opened() -> BlockCache | None:
    """The block cache of this process, if it has one."""
    return _opened[0] if _opened else None


#: Ranges, of which some may be kept as well.
Spare = Callable[[], Sequence[Range]]
#: What lies around a range that is read, of so many bytes with it.
Ahead = Callable[[Range, int], Iterable[Range]]


class Registry(Protocol):
    """Access to the tables of cache files, of all APIs, and of objects."""

    def begin(self, cache: str, /) -> int: ...

    def end(self, cache: str, number: int, /) -> bool: ...

    def leave(self, cache: str, /) -> None: ...

    def known(self, names: Collection[str], /) -> Collection[str]: ...


class RangeCounters(Protocol):
    """Counters of what becomes of ranges, and of the bytes that are kept."""

    def looked_up(self, hits: int, misses: int, /) -> None: ...

    def dropped(self, reason: Literal["gone", "room"], ranges: int, /) -> None: ...

    def holds(self, size: int, /) -> None: ...


class Uncounted:
    """Counters that count nothing."""

    def looked_up(self, hits: int, misses: int, /) -> None:
        pass

    def dropped(self, reason: Literal["gone", "room"], ranges: int, /) -> None:
        pass

    def holds(self, size: int, /) -> None:
        pass

"""The caches of index pages keep to their budgets, and trouble with one is never an answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from encrypted_records.index.columns.column import EntryBlock
from encrypted_records.model.records import PAGE_BYTES
from encrypted_records.proxy.search.caches import ENTRY_BYTES, DiskCache, MemoryCache, MemoryPool
from tests.support.sqlite_files import change

ONE, OTHER = b"uid of a segment", b"uid of the other"


def page(number: int) -> bytes:
    return number.to_bytes(2, "big") * (PAGE_BYTES // 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pages.sqlite3"


@pytest.fixture
def stored(path: Path) -> Iterator[DiskCache]:
    found = DiskCache(path, 10 * PAGE_BYTES)
    yield found
    found.close()


def test_pages_are_there_again_after_a_restart(stored: DiskCache, path: Path) -> None:
    stored.put(ONE, {number: page(number) for number in (3, 5)})
    stored.close()
    again = DiskCache(path, 10 * PAGE_BYTES)
    assert again.get(ONE, [3, 4, 5]) == {3: page(3), 5: page(5)}
    assert again.get(OTHER, [3]) == {}
    again.close()


def test_what_was_not_used_for_longest_goes_first(stored: DiskCache) -> None:
    for number in range(10):
        stored.put(ONE, {number: page(number)})
    stored.get(ONE, [0])
    stored.put(OTHER, {0: page(0)})
    left = stored.get(ONE, range(10))
    assert 0 in left
    assert 1 not in left
    assert len(left) + len(stored.get(OTHER, [0])) <= 10


def test_dropping_a_segment_leaves_the_others(stored: DiskCache) -> None:
    stored.put(ONE, {1: page(1)})
    stored.put(OTHER, {1: page(1)})
    stored.drop([ONE])
    assert stored.get(ONE, [1]) == {}
    assert stored.get(OTHER, [1]) == {1: page(1)}


@pytest.mark.parametrize("damage", [b"", b"no database", b"SQLite format 3\0" + bytes(5000)])
def test_a_damaged_file_is_begun_anew(path: Path, damage: bytes) -> None:
    path.write_bytes(damage)
    stored = DiskCache(path, 10 * PAGE_BYTES)
    stored.put(ONE, {1: page(1)})
    assert stored.get(ONE, [1]) == {1: page(1)}
    stored.close()


def test_a_file_that_fails_later_counts_as_having_nothing(stored: DiskCache, path: Path) -> None:
    stored.put(ONE, {1: page(1)})
    change(path, "DROP TABLE page")
    assert stored.get(ONE, [1]) == {}
    stored.put(ONE, {1: page(1)})
    stored.drop([ONE])


def test_threads_and_processes_may_share_a_file(stored: DiskCache, path: Path) -> None:
    other = DiskCache(path, 10 * PAGE_BYTES)

    def work(number: int) -> bool:
        cache = (stored, other)[number % 2]
        cache.put(ONE, {number: page(number)})
        found = cache.get(ONE, range(40))
        return all(found[at] == page(at) for at in found)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(40)))
    assert len(stored.get(ONE, range(40))) <= 10
    other.close()


def test_a_killed_process_leaves_no_page_half_there(path: Path) -> None:
    script = (
        "import sys; from pathlib import Path;"
        "from tests.proxy.test_page_cache import *;"
        "stored = DiskCache(Path(sys.argv[1]), 1000 * PAGE_BYTES); print('begun', flush=True);\n"
        "for number in range(60_000): stored.put(ONE, {number: page(number)})"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    watched = DiskCache(path, 1000 * PAGE_BYTES)
    while not watched.get(ONE, range(100)):
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    watched.close()
    stored = DiskCache(path, 1000 * PAGE_BYTES)
    found = stored.get(ONE, range(1000))
    assert found
    assert all(found[number] == page(number) for number in found)
    stored.close()


def block(rows: int) -> EntryBlock:
    every = np.arange(rows, dtype=np.uint32)
    return EntryBlock(every, every.astype(np.uint64), every)


def test_opened_pages_keep_to_their_budget() -> None:
    cache = MemoryCache(MemoryPool(3 * (block(100).size + ENTRY_BYTES)))
    for number in range(3):
        cache.put_block(ONE, number, block(100))
    assert cache.block(ONE, 0) is not None
    cache.put_block(ONE, 3, block(100))
    assert [cache.block(ONE, number) is not None for number in range(4)] == [
        True,
        False,
        True,
        True,
    ]
    cache.drop([ONE])
    assert cache.block(ONE, 3) is None


@dataclass
class _Segment:
    """As much of an opened segment as a cache looks at."""

    size: int

    @property
    def segment(self) -> _Segment:
        return self

    uid: bytes = ONE

    @property
    def view(self) -> bytes:
        return self.uid


def test_a_segment_counts_as_large_as_it_was_when_it_was_last_put() -> None:
    cache = MemoryCache(MemoryPool(100 + 2 * ENTRY_BYTES))
    growing, other = _Segment(10), _Segment(60, OTHER)
    cache.put(b"key", growing)  # type: ignore[arg-type]
    cache.put(b"key", other)  # type: ignore[arg-type]
    growing.size = 90
    cache.put(b"key", growing)  # type: ignore[arg-type]
    assert cache.get(b"key", OTHER) is None
    assert cache.get(b"key", ONE) is growing  # type: ignore[comparison-overlap]
    assert cache.get(b"another key", ONE) is None
    cache.clear()
    assert cache.get(b"key", ONE) is None

"""What is kept of a far store, in the file of one process: never too much, never more than it is
worth."""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.errors import ObjectLost
from encrypted_records.server import metrics
from encrypted_records.server.objects import block_cache
from encrypted_records.server.objects.block_cache import MOST_AT_ONCE, TRUSTED_SECONDS, BlockCache
from encrypted_records.server.objects.stores import Files, Range
from tests.server.cache_parts import Counted, Known, Slow


def looked_at(folder: Path, *, database: Known | None = None, **more: Any) -> BlockCache:
    cache = BlockCache(folder, 1 << 20, **more)
    assert cache.look(database or Known())
    return cache


def file_of(cache: BlockCache) -> int:
    assert cache._file is not None
    return cache._file.fileno()


def bytes_of(cache: BlockCache) -> bytes:
    """All that lies in the file of a cache."""
    return os.pread(file_of(cache), 1 << 22, 0)


def test_whoever_finds_a_copy_to_be_another_passes_it_over(tmp_path: Path) -> None:
    """What reads by copies compares digests, and asks the store where they differ."""
    store, cache = Files(tmp_path / "objects"), looked_at(tmp_path)
    store.put("a" * 32, b"data")
    wanted = [Range("a" * 32, 0, 4)]
    cache.read(store, wanted)
    [(one, kept)] = cache._kept.items()
    cache._kept[one] = kept._replace(crc=zlib.crc32(b"evil"))
    os.pwrite(file_of(cache), b"evil", 0)
    assert cache.read(store, wanted) == [b"evil"]
    with cache.passed_over():
        assert cache.read(store, wanted) == [b"data"]
    assert cache.read(store, wanted) == [b"data"]


def test_an_api_that_is_to_keep_nothing_deletes_what_it_kept_under_a_name(tmp_path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        (tmp_path / f"blocks.sqlite3{end}").write_bytes(b"of an older version")
    block_cache.open_cache(tmp_path, 0)
    assert block_cache.opened() is None and not list(tmp_path.iterdir())


def test_what_was_read_before_a_look_is_not_kept_after_it(tmp_path: Path) -> None:
    database = Known({"a" * 32})
    cache = looked_at(tmp_path, database=database)

    def go() -> None:
        database.objects.clear()
        assert cache.look(database, soon=True)

    store = Slow(tmp_path / "objects", go)
    store.put("a" * 32, b"data")
    assert cache.read(store, [Range("a" * 32, 0, 4)]) == [b"data"]
    assert cache.names() == set() and b"data" not in bytes_of(cache)


def test_a_process_that_has_not_looked_for_a_minute_asks_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, store = Known({"a" * 32}), Files(tmp_path / "objects")
    cache = looked_at(tmp_path, database=database)
    store.put("a" * 32, b"data")
    wanted = [Range("a" * 32, 0, 4)]
    assert cache.read(store, wanted) == [b"data"]
    store.delete(["a" * 32])
    assert cache.read(store, wanted) == [b"data"]
    later = block_cache._now() + TRUSTED_SECONDS
    monkeypatch.setattr(block_cache, "_now", lambda: later)
    with pytest.raises(ObjectLost):
        cache.read(store, wanted)
    database.objects.clear()
    assert cache.look(database) and cache.names() == set()
    assert b"data" not in bytes_of(cache)


def test_a_file_that_cannot_be_cleared_is_made_again(tmp_path: Path) -> None:
    database, store = Known({"a" * 32}), Files(tmp_path / "objects")
    cache = looked_at(tmp_path, database=database)
    store.put("a" * 32, b"data")
    wanted = [Range("a" * 32, 0, 4)]
    cache.read(store, wanted)
    # As where the disk takes nothing any more.
    reading = os.open(f"/proc/self/fd/{file_of(cache)}", os.O_RDONLY)
    os.dup2(reading, file_of(cache))
    os.close(reading)
    database.objects.clear()
    assert cache.look(database, soon=True) and cache.names() == set()
    assert bytes_of(cache) == b""
    assert cache.read(store, wanted) == cache.read(store, wanted) == [b"data"]
    assert cache.names() == {"a" * 32}


def test_there_is_room_for_no_more_than_was_said(tmp_path: Path) -> None:
    store, cache = Files(tmp_path / "objects"), looked_at(tmp_path)
    data = b"".join(number.to_bytes(4, "big") for number in range(1 << 20))
    store.put("a" * 32, data)
    places, begin = [], 0
    while begin < len(data):
        size = 40_000 + begin % 30_011
        places.append(Range("a" * 32, begin, min(begin + size, len(data))))
        begin += size
    for place in places:
        assert cache.read(store, [place, place]) == [data[place.start : place.end]] * 2
        assert os.fstat(file_of(cache)).st_size <= 1 << 20
    # The newest are there, byte for byte, and what is more than somebody waits for is not.
    store.delete(["a" * 32])
    newest = [place for place in places if place in cache._kept]
    assert newest == places[-len(newest) :]
    assert sum(one.end - one.start for one in newest) > 1 << 19
    assert cache.read(store, newest) == [data[one.start : one.end] for one in newest]
    store.put("b" * 32, bytes(MOST_AT_ONCE + 1))
    whole = [Range("b" * 32, 0, MOST_AT_ONCE), Range("b" * 32, MOST_AT_ONCE, MOST_AT_ONCE + 1)]
    assert list(map(len, cache.read(store, whole))) == [MOST_AT_ONCE, 1]
    assert cache.names() == {"a" * 32}
    # What had to make room, or is deleted, has left no byte behind.
    cache.forget({"a" * 32})
    assert not any(bytes_of(cache))


def test_a_disk_that_is_nearly_full_is_left_to_others(tmp_path: Path) -> None:
    store, much = Files(tmp_path / "objects"), shutil.disk_usage(tmp_path).total
    cache = looked_at(tmp_path, keep_free=much)
    store.put("a" * 32, b"data")
    assert cache.read(store, [Range("a" * 32, 0, 4)]) == [b"data"]
    assert cache.names() == set()


def test_what_a_store_reads_over_is_kept_as_well(tmp_path: Path) -> None:
    store, cache = Files(tmp_path / "objects"), looked_at(tmp_path)
    pages = [bytes([at]) * 16_384 for at in range(200)]
    store.put("a" * 32, b"".join(pages))
    every = [Range("a" * 32, at * 16_384, (at + 1) * 16_384) for at in range(200)]
    # Between the second and the third lies more than is read as one.
    wanted = [every[3], every[20], every[199]]
    assert cache.read(store, wanted, lambda: every) == [pages[3], pages[20], pages[199]]
    store.delete(["a" * 32])
    assert cache.read(store, every[3:21]) == pages[3:21]
    for at in (2, 21, 198):
        with pytest.raises(ObjectLost):
            cache.read(store, [every[at]])


def test_what_becomes_of_ranges_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, counted = Files(tmp_path / "objects"), Counted()
    monkeypatch.setattr(metrics, "block_cache", counted)
    cache = BlockCache(tmp_path, 1000)
    database = Known({"a" * 32})
    assert cache.look(database)
    store.put("a" * 32, bytes(4000))
    for start in (0, 600, 0, 0):
        cache.read(store, [Range("a" * 32, start, start + 600)])
    assert (counted.hits, counted.misses, counted.size) == (1, 3, 600)
    database.objects.clear()
    assert cache.look(database, soon=True)
    assert (counted.gone, counted.room, counted.size) == (1, 2, 0)

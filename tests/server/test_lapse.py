"""What an API keeps of a far store lapses where it cannot look for what is gone: nobody waits for
it much longer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from encrypted_records.server import metrics
from encrypted_records.server.objects import block_cache
from encrypted_records.server.objects.block_cache import TRUSTED_SECONDS, BlockCache
from encrypted_records.server.objects.stores import Files, Range
from tests.listening.conftest import PATIENCE
from tests.server.cache_parts import Counted, Known
from tests.support.eventually import eventually

NAME = "a" * 32
WANTED = [Range(NAME, 0, 4)]


@pytest.fixture
def store(tmp_path: Path) -> Files:
    store = Files(tmp_path / "objects")
    store.put(NAME, b"data")
    return store


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Seconds by which the clock of this process is ahead."""
    ahead, now = [0.0], block_cache._now
    monkeypatch.setattr(block_cache, "_now", lambda: now() + ahead[0])
    yield ahead
    block_cache._opened.clear()


def sizes(folder: Path) -> list[int]:
    """Of the files without a name that this process has open in a folder."""
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # of the listing itself
            target = str(one.readlink())
            if target.startswith(str(folder.resolve())) and target.endswith("(deleted)"):
                found.append(one.stat().st_size)
    return found


def test_copies_are_dropped_a_minute_after_the_last_look(
    tmp_path: Path, store: Files, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted()
    monkeypatch.setattr(metrics, "block_cache", counted)
    cache = BlockCache(tmp_path, 1 << 20)
    assert cache.look(Known({NAME}))
    cache.read(store, WANTED)
    assert not cache.lapse() and cache.names() == {NAME} and sizes(tmp_path) == [4]
    clock[0] = TRUSTED_SECONDS
    assert cache.lapse() and cache.names() == set()
    # The file that they lay in is closed, and had no name.
    assert sizes(tmp_path) == [0]
    assert (counted.gone, counted.size) == (1, 0)
    assert cache.read(store, WANTED) == [b"data"] and cache.names() == set()
    assert cache.look(Known({NAME}))
    assert cache.read(store, WANTED) == [b"data"] and cache.names() == {NAME}


def test_a_database_that_hangs_keeps_no_copy_from_being_dropped(
    tmp_path: Path, store: Files, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    class Hanging(Known):
        def begin(self, cache: str) -> int:
            assert answers.wait(PATIENCE)
            return super().begin(cache)

    monkeypatch.setattr(block_cache, "LAPSE_SECONDS", 0.01)
    block_cache.open_cache(tmp_path, 1 << 20)
    cache = block_cache.opened()
    assert cache is not None and cache.look(Known({NAME}))
    cache.read(store, WANTED)
    looking = threading.Thread(target=cache.look, args=[Hanging({NAME})], kwargs={"soon": True})
    looking.start()
    watching = threading.Thread(target=block_cache.watch_cache)
    watching.start()
    try:
        clock[0] = TRUSTED_SECONDS
        eventually(lambda: not cache.names())
        assert sizes(tmp_path) == [0]
    finally:
        answers.set()
        looking.join()
        block_cache.open_cache(tmp_path, 0)
        watching.join()


def test_one_that_has_ended_does_not_lapse(
    tmp_path: Path, store: Files, clock: list[float]
) -> None:
    cache = BlockCache(tmp_path, 1 << 20)
    assert cache.look(Known({NAME}))
    cache.end(Known())
    clock[0] = TRUSTED_SECONDS
    assert not cache.lapse() and sizes(tmp_path) == []

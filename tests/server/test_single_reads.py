"""What several threads need of a far store at once is asked of it once; and who waits for another's
read gets what the store says, whatever becomes of that read."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from encrypted_records.errors import StoreUnavailable
from encrypted_records.server.objects import block_cache
from encrypted_records.server.objects.block_cache import MOST_OF_ONE, BlockCache
from encrypted_records.server.objects.stores import Files, Range
from tests.server.cache_parts import Known

NAME = "a" * 32
SIZE = 1 << 20
THREADS = 8
PATIENCE = 60.0
DATA = random.Random(4).randbytes(SIZE)


class Held(Files):
    """Notes what is read, and does what a test says before it answers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.put(NAME, DATA)
        self.asked: list[list[Range]] = []
        self.before: Callable[[int], None] = lambda _number: None
        self._lock = threading.Lock()

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        with self._lock:
            number = len(self.asked)
            self.asked.append(list(ranges))
        self.before(number)
        return super().read(ranges)


class First:
    """Holds the first read until it is let go; then a test may do something, and fail it."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.came, self.go, self.then = threading.Event(), threading.Event(), then

    def __call__(self, number: int) -> None:
        if number == 0:
            self.came.set()
            assert self.go.wait(PATIENCE)
            self.then()


@pytest.fixture
def store(tmp_path: Path) -> Held:
    return Held(tmp_path / "objects")


@pytest.fixture
def cache(tmp_path: Path) -> BlockCache:
    made = BlockCache(tmp_path, 16 << 20)
    assert made.look(Known({NAME}))
    return made


def at(start: int, length: int = 100) -> Range:
    return Range(NAME, start, start + length)


def bytes_of(*ranges: Range) -> list[bytes]:
    return [DATA[span.start : span.end] for span in ranges]


def read_while_held(
    store: Held, first: First, asks: Sequence[Callable[[], list[bytes]]]
) -> list[Future[list[bytes]]]:
    """The first of these, while all others come and wait for it; what became of each."""
    store.before = first
    waiting = threading.Semaphore(0)
    wait_as_ever = block_cache.wait_for

    def wait_for(some: Collection[threading.Event]) -> None:
        waiting.release()
        wait_as_ever(some)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(THREADS) as pool:
        patch.setattr(block_cache, "MOST_SECONDS", PATIENCE)
        patch.setattr(block_cache, "wait_for", wait_for)
        begun = [pool.submit(asks[0])]
        assert first.came.wait(PATIENCE)
        begun += [pool.submit(ask) for ask in asks[1:]]
        for _ in asks[1:]:
            assert waiting.acquire(timeout=PATIENCE)
        first.go.set()
    return begun


def test_what_many_need_at_once_is_asked_for_once(store: Held, cache: BlockCache) -> None:
    shared = at(1000)
    wanted = [[shared, at(5000 * number)] for number in range(1, THREADS)]
    asks = [partial(cache.read, store, ranges) for ranges in [[shared], *wanted]]
    begun = read_while_held(store, First(), asks)
    assert begun[0].result() == bytes_of(shared)
    for future, ranges in zip(begun[1:], wanted, strict=True):
        assert future.result() == bytes_of(*ranges)
    times = Counter(one for asked in store.asked for one in asked)
    # What nobody else reads was read meanwhile, and not after it.
    assert set(times.values()) == {1}
    assert len(store.asked) == THREADS
    assert not cache._reads._under_way


def test_what_is_read_beside_is_waited_for_too(store: Held, cache: BlockCache) -> None:
    def ask(one: Range, beside: Range) -> list[bytes]:
        return cache.read(store, [one], ahead=lambda _one, _most: [beside])

    asks = [partial(ask, at(1000), at(1100)), partial(ask, at(1100), at(1000))]
    begun = read_while_held(store, First(), asks)
    assert [one.result() for one in begun] == [bytes_of(at(1000)), bytes_of(at(1100))]
    assert store.asked == [[at(1000), at(1100)]]


def test_an_error_is_of_who_met_it_alone(store: Held, cache: BlockCache) -> None:
    def fail() -> None:
        raise StoreUnavailable("the store is away")

    begun = read_while_held(store, First(fail), [partial(cache.read, store, [at(1000)])] * THREADS)
    with pytest.raises(StoreUnavailable):
        begun[0].result()
    for future in begun[1:]:
        assert future.result() == bytes_of(at(1000))
    assert not cache._reads._under_way


def test_what_did_not_stay_each_reads_for_itself(store: Held, cache: BlockCache) -> None:
    """As after a look that began meanwhile: what was asked for before it may be gone."""

    def look() -> None:
        assert cache.look(Known({NAME}), soon=True)

    begun = read_while_held(store, First(look), [partial(cache.read, store, [at(1000)])] * 2)
    assert [one.result() for one in begun] == [bytes_of(at(1000))] * 2
    assert len(store.asked) == 2


def test_nobody_waits_for_what_will_not_be_kept(store: Held, cache: BlockCache) -> None:
    first, large = First(), at(0, MOST_OF_ONE + 1)
    store.before = first
    with ThreadPoolExecutor(2) as pool:
        begun = pool.submit(cache.read, store, [large, at(900_000)])
        assert first.came.wait(PATIENCE)
        # While the first one is held.
        assert cache.read(store, [large]) == bytes_of(large)
        with cache.passed_over():
            assert cache.read(store, [at(900_000)]) == bytes_of(at(900_000))
        first.go.set()
        assert begun.result() == bytes_of(large, at(900_000))


def test_nobody_waits_for_long(
    store: Held, cache: BlockCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_cache, "MOST_SECONDS", 0.01)
    first = First()
    store.before = first
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(cache.read, store, [at(1000)])
        assert first.came.wait(PATIENCE)
        assert cache.read(store, [at(1000)]) == bytes_of(at(1000))
        first.go.set()
        assert begun.result() == bytes_of(at(1000))


def test_whatever_threads_ask_for_and_whatever_fails_they_get_what_the_store_has(
    store: Held, cache: BlockCache
) -> None:
    chance = random.Random(11)
    spoiled = {number for number in range(2000) if chance.random() < 0.1}

    def spoil(number: int) -> None:
        if number in spoiled:
            raise StoreUnavailable("the store is away")

    store.before = spoil

    def ask(seed: int) -> tuple[int, int]:
        own = random.Random(seed)
        right = failed = 0

        def beside(_one: Range, _most: int) -> list[Range]:
            return [at(100 * own.randrange(200)) for _ in range(3)]

        for _ in range(60):
            ranges = [at(100 * own.randrange(200)) for _ in range(own.randrange(1, 6))]
            try:
                found = cache.read(store, ranges, ahead=beside)
            except StoreUnavailable:
                failed += 1
            else:
                assert found == bytes_of(*ranges)
                right += 1
        return right, failed

    with ThreadPoolExecutor(THREADS) as pool:
        counts = list(pool.map(ask, range(THREADS)))
    assert sum(failed for _, failed in counts) <= len(spoiled)
    assert sum(right for right, _ in counts) > 0
    assert not cache._reads._under_way

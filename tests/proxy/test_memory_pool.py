"""The caches in memory keep to one budget together, and count what they hold."""

from __future__ import annotations

import gc
import secrets
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.index.columns.column import Column, EntryBlock
from encrypted_records.index.columns.dictionary import build_column_dictionary
from encrypted_records.model.records import RowRef
from encrypted_records.proxy.search.caches import (
    ENTRY_BYTES,
    LruCache,
    MemoryCache,
    MemoryPool,
    RowBlock,
)


@dataclass(frozen=True)
class Thing:
    size: int


#: Which cache, under which key, how large (nothing is kept where it is only looked for).
STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 5), st.none() | st.integers(0, 900)), max_size=60
)


@given(STEPS, st.integers(0, 4000))
def test_caches_never_hold_more_than_their_budget(
    steps: list[tuple[int, int, int | None]], budget: int
) -> None:
    pool = MemoryPool(budget)
    caches = [LruCache[int, Thing](pool, share) for share in (1, 2, 5)]
    for which, key, size in steps:
        if size is None:
            caches[which].get(key)
            continue
        thing = Thing(size)
        caches[which].put(key, thing)
        # What was put last is there, if it is within the budget by itself.
        fits = size + ENTRY_BYTES <= budget
        assert (caches[which].get(key) is thing) == fits
        every = [cache.use for cache in caches]
        assert pool.held == sum(one.bytes for one in every) <= budget


def test_what_others_leave_may_be_taken_and_is_given_back() -> None:
    pool = MemoryPool(10 * (100 + ENTRY_BYTES))
    one, other = LruCache[int, Thing](pool, 1), LruCache[int, Thing](pool, 1)
    for key in range(20):
        one.put(key, Thing(100))
    assert one.use.count == 10
    for key in range(20):
        other.put(key, Thing(100))
    assert (one.use.count, other.use.count) == (5, 5)
    assert [one.get(key) is not None for key in range(14, 20)] == [False, *[True] * 5]


def test_a_cache_that_nobody_has_any_more_takes_nothing() -> None:
    pool = MemoryPool(1000 + ENTRY_BYTES)
    cold = MemoryCache(pool)
    cold.put_block(bytes(48), 1, a_block())
    assert pool.held
    del cold
    gc.collect()
    assert not pool.held


def a_block() -> EntryBlock:
    ordinals = np.arange(20, dtype=np.uint32)
    return EntryBlock(ordinals, ordinals.astype(np.uint64), ordinals.copy())


def a_block_that_is_a_view() -> EntryBlock:
    whole = np.arange(4000, dtype=np.uint32)
    return EntryBlock(whole[:20], whole[:20].astype(np.uint64), whole[:20].copy())


def put_blocks(make: Callable[[], EntryBlock]) -> Callable[[MemoryCache, int], None]:
    def put(cache: MemoryCache, number: int) -> None:
        cache.put_block(secrets.token_bytes(48), number, make())

    return put


def put_column(cache: MemoryCache, number: int) -> None:
    every = np.arange(500, dtype=np.uint32)
    column = build_column_dictionary(Column(every, every.astype("S48")), len(every))
    assert column.texts
    cache.put_column(secrets.token_bytes(48), "field", column)


def put_rows(cache: MemoryCache, number: int) -> None:
    group = secrets.token_bytes(16)
    rows = {
        RowRef(bytes(bytearray(group)), ordinal): secrets.token_bytes(300) for ordinal in range(64)
    }
    cache.put_rows(group, number, RowBlock(rows, frozenset(rows), loaded=True))


@pytest.mark.parametrize(
    "put",
    [put_blocks(a_block), put_blocks(a_block_that_is_a_view), put_column, put_rows],
    ids=["blocks", "views", "columns", "rows"],
)
def test_what_is_counted_is_what_it_takes(put: Callable[[MemoryCache, int], None]) -> None:
    """A little more is better than less: the allocator needs some, too."""
    cache = MemoryCache(MemoryPool(1 << 30))
    put(cache, 0)
    gc.collect()
    before = cache.pool.held
    tracemalloc.start()
    try:
        for number in range(1, 400):
            put(cache, number)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    counted = cache.pool.held - before
    assert taken <= counted <= 1.35 * taken

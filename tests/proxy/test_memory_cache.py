"""Blocks of rows go by their numbers, however many others are in memory."""

from __future__ import annotations

import pytest

from encrypted_records.proxy.search.caches import MemoryCache, RowBlock

ONE, OTHER = b"1" * 16, b"2" * 16
BLOCK = RowBlock({}, frozenset(), True)


@pytest.mark.parametrize(("first", "end"), [(3, 5), (3, 4), (0, 100), (3, 3), (90, 99), (5, 1000)])
def test_just_the_blocks_between_two_numbers_of_a_schema_go(first: int, end: int) -> None:
    cache = MemoryCache.within(1 << 20)
    for schema in (ONE, OTHER):
        for number in range(10):
            cache.put_rows(schema, number, BLOCK)
    cache.drop_rows_between(ONE, first, end)
    left = [number for number in range(10) if cache.rows(ONE, number) is not None]
    assert left == [number for number in range(10) if not first <= number < end]
    assert all(cache.rows(OTHER, number) is not None for number in range(10))

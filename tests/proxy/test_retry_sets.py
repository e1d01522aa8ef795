"""Failed requests are remembered, up to a limit."""

from __future__ import annotations

import asyncio

from encrypted_records.proxy.search.cover import LEAST_ROOM, MOST_REQUESTS, RetrySets


def request(retry_sets: RetrySets[int], items: set[int], *, fails: bool) -> None:
    try:
        with retry_sets.request(lambda: items):
            if fails:
                raise asyncio.CancelledError
    except asyncio.CancelledError:
        assert fails


def test_failed_requests_are_remembered_until_a_request_that_contains_them_succeeds() -> None:
    retry_sets: RetrySets[int] = RetrySets(1000)
    request(retry_sets, {1, 2, 3, 4}, fails=True)
    request(retry_sets, {8, 9}, fails=True)
    assert retry_sets.same_request({1}) == {1, 2, 3, 4}
    assert retry_sets.same_request({5}) == set()
    request(retry_sets, {1, 2, 3}, fails=False)
    assert retry_sets.same_request({1}) == {1, 2, 3, 4}
    # A larger request replaces it.
    request(retry_sets, {1, 2, 3, 4, 5, 6}, fails=True)
    assert retry_sets.same_request({1}) == {1, 2, 3, 4, 5, 6}
    assert len(retry_sets._requests) == 2
    request(retry_sets, {1, 2, 3, 4, 5, 6}, fails=False)
    assert retry_sets.same_request({1}) == set()
    assert retry_sets.same_request({1, 8}) == {8, 9}


def test_the_number_of_remembered_items_is_limited() -> None:
    retry_sets: RetrySets[int] = RetrySets(1000)
    request(retry_sets, {*range(1001)}, fails=True)
    assert retry_sets.same_request({1}) == set()
    for first in range(0, 2000, 100):
        request(retry_sets, {*range(first, first + 100)}, fails=True)
    assert retry_sets.same_request({*range(2000)}) == {*range(1000, 2000)}
    for item in range(2 * MOST_REQUESTS):
        request(retry_sets, {item}, fails=True)
    assert len(retry_sets._requests) == MOST_REQUESTS


def test_a_small_request_does_not_repeat_a_large_request() -> None:
    retry_sets: RetrySets[int] = RetrySets(10 * LEAST_ROOM)
    large = {*range(2 * LEAST_ROOM)}
    request(retry_sets, large, fails=True)
    assert retry_sets.same_request({1}) == set()
    # A request for most of its items does.
    assert retry_sets.same_request({*range(LEAST_ROOM)}) == large
    # Only the newest of many requests are repeated.
    for first in range(0, 10 * LEAST_ROOM, LEAST_ROOM // 2):
        newest = {1, *range(10**6 + first, 10**6 + first + LEAST_ROOM // 2 - 1)}
        request(retry_sets, newest, fails=True)
    found = retry_sets.same_request({1})
    assert LEAST_ROOM // 2 < len(found) <= LEAST_ROOM
    assert newest <= found

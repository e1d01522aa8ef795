"""Requests that were made in vain are remembered, and not too many of them."""

from __future__ import annotations

import asyncio

from encrypted_records.proxy.search.cover import LEAST_ROOM, MOST_REQUESTS, Unanswered


def ask(unanswered: Unanswered[int], asked: set[int], *, fails: bool) -> None:
    try:
        with unanswered.request(lambda: asked):
            if fails:
                raise asyncio.CancelledError
    except asyncio.CancelledError:
        assert fails


def test_requests_are_remembered_until_one_that_holds_them_is_answered() -> None:
    unanswered: Unanswered[int] = Unanswered(1000)
    ask(unanswered, {1, 2, 3, 4}, fails=True)
    ask(unanswered, {8, 9}, fails=True)
    assert unanswered.beside({1}) == {1, 2, 3, 4}
    assert unanswered.beside({5}) == set()
    ask(unanswered, {1, 2, 3}, fails=False)
    assert unanswered.beside({1}) == {1, 2, 3, 4}
    # A larger one stands for it.
    ask(unanswered, {1, 2, 3, 4, 5, 6}, fails=True)
    assert unanswered.beside({1}) == {1, 2, 3, 4, 5, 6}
    assert len(unanswered._requests) == 2
    ask(unanswered, {1, 2, 3, 4, 5, 6}, fails=False)
    assert unanswered.beside({1}) == set()
    assert unanswered.beside({1, 8}) == {8, 9}


def test_no_more_is_remembered_than_may_be() -> None:
    unanswered: Unanswered[int] = Unanswered(1000)
    ask(unanswered, {*range(1001)}, fails=True)
    assert unanswered.beside({1}) == set()
    for first in range(0, 2000, 100):
        ask(unanswered, {*range(first, first + 100)}, fails=True)
    assert unanswered.beside({*range(2000)}) == {*range(1000, 2000)}
    for one in range(2 * MOST_REQUESTS):
        ask(unanswered, {one}, fails=True)
    assert len(unanswered._requests) == MOST_REQUESTS


def test_who_needs_little_does_not_ask_for_all_of_a_large_request() -> None:
    unanswered: Unanswered[int] = Unanswered(10 * LEAST_ROOM)
    large = {*range(2 * LEAST_ROOM)}
    ask(unanswered, large, fails=True)
    assert unanswered.beside({1}) == set()
    # Who asks for the same does.
    assert unanswered.beside({*range(LEAST_ROOM)}) == large
    # Nor for all of many: for the newest ones.
    for first in range(0, 10 * LEAST_ROOM, LEAST_ROOM // 2):
        asked = {1, *range(10**6 + first, 10**6 + first + LEAST_ROOM // 2 - 1)}
        ask(unanswered, asked, fails=True)
    found = unanswered.beside({1})
    assert LEAST_ROOM // 2 < len(found) <= LEAST_ROOM
    assert asked <= found

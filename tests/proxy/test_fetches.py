"""A fetch is known to others by what it brings, and by how much that is."""

from __future__ import annotations

import asyncio

import pytest

from encrypted_records.proxy.process import Fetches


def test_what_is_claimed_later_belongs_to_the_same_fetch_which_is_as_large_then() -> None:
    async def scene() -> None:
        fetches: Fetches[int] = Fetches()
        with fetches.claim([9]), fetches.claim([1]) as claim:
            (one,) = fetches.of([1]).values()
            assert one.size == 1
            claim([1, 2, 3, 9])
            assert one.size == 4
            under_way = fetches.of([1, 2, 3, 9])
            assert [under_way[key] is one for key in (1, 2, 3)] == [True] * 3
            assert under_way[9] is not one, "it is somebody else's"
            assert fetches.all() == {1, 2, 3, 9}
        assert fetches.all() == set()
        assert one.ended.done()

    asyncio.run(scene())


def test_what_was_claimed_later_is_given_up_with_the_rest() -> None:
    async def scene() -> None:
        fetches: Fetches[int] = Fetches()
        with pytest.raises(asyncio.CancelledError), fetches.claim([1]) as claim:
            claim([1, 2])
            (one,) = {*fetches.of([2]).values()}
            raise asyncio.CancelledError
        assert one.ended.cancelled()
        assert fetches.all() == set()

    asyncio.run(scene())

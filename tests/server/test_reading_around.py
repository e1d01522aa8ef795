"""Of a store that is far away, what lies around something is read with it: in one request, as long
as nothing has to go for it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import ObjectLost
from encrypted_records.server.objects import layout
from encrypted_records.server.objects.block_cache import MOST_AT_ONCE, MOST_OF_ONE, BlockCache
from encrypted_records.server.objects.layout import BlockEntry
from encrypted_records.server.objects.stores import (
    JOINED_BYTES,
    READ_OVER_BYTES,
    Range,
    find_reach,
    join_neighbours,
)
from tests.server.cache_parts import Counting, Known


def test_what_lies_around_is_read_while_less_than_half_is_full(tmp_path: Path) -> None:
    store = Counting(tmp_path / "objects")
    cache = BlockCache(tmp_path, 1 << 20)
    assert cache.look(Known())
    pages = [bytes([at]) * 16_384 for at in range(128)]
    store.put("a" * 32, b"".join(pages))
    every = [Range("a" * 32, at * 16_384, (at + 1) * 16_384) for at in range(128)]

    def around(one: Range, most: int) -> list[Range]:
        at = one.start // 16_384
        return every[at - at % 8 : at - at % 8 + 8] if most >= 8 * 16_384 else []

    read = partial(cache.read, store, ahead=around)
    for at in range(128):
        assert read([every[at]]) == [pages[at]]
    # One request for eight pages until half of a MiB is there, then one for each.
    assert store.asked == [8 * 16_384] * 4 + [16_384] * 96


def test_of_one_request_no_more_is_read_around_than_fits_into_all(tmp_path: Path) -> None:
    store = Counting(tmp_path / "objects")
    cache = BlockCache(tmp_path, 64 << 20)
    assert cache.look(Known())
    store.put("a" * 32, bytes(MOST_AT_ONCE))
    wanted = [Range("a" * 32, at << 17, (at << 17) + 1) for at in range(0, 32, 2)]
    mosts = set()

    def around(one: Range, most: int) -> list[Range]:
        mosts.add(most)
        return [Range(one.name, one.end, one.end + most - 1)]

    assert cache.read(store, wanted, ahead=around) == [b"\0"] * 16
    assert mosts == {MOST_AT_ONCE // 16}
    assert sum(store.asked) == MOST_AT_ONCE


def test_what_could_not_be_kept_is_not_read(tmp_path: Path) -> None:
    store = Counting(tmp_path / "objects")
    cache = BlockCache(tmp_path, 64 << 20)
    assert cache.look(Known())
    store.put("a" * 32, bytes(1 << 20))
    wanted = Range("a" * 32, 0, 1000)
    long = Range("a" * 32, 1000, 1000 + MOST_OF_ONE + 1)
    assert cache.read(store, [wanted], ahead=lambda _one, _most: [long]) == [bytes(1000)]
    assert store.asked == [1000]


@given(st.lists(st.tuples(st.integers(0, 3 * JOINED_BYTES), st.integers(1, 1000)), max_size=300))
def test_what_is_read_over_has_a_bound(laid: list[tuple[int, int]]) -> None:
    ranges, at = [], 0
    for gap, length in laid:
        ranges.append(Range("a" * 32, at + gap, at + gap + length))
        at += gap + length
    reach = find_reach(ranges)
    asked = sum(span.end - span.start for span in ranges)
    joined = join_neighbours(ranges, reach)
    assert sum(one.end - one.start for one in joined) - asked <= READ_OVER_BYTES
    if sum(gap for gap, _ in laid if gap <= JOINED_BYTES) <= READ_OVER_BYTES:
        assert reach == JOINED_BYTES
    else:
        # And no narrower than it has to be.
        wider = join_neighbours(ranges, reach + 1)
        assert sum(one.end - one.start for one in wider) - asked > READ_OVER_BYTES


def test_what_is_damaged_keeps_nobody_from_what_lies_beside_it(tmp_path: Path) -> None:
    store = Counting(tmp_path / "objects")
    cache = BlockCache(tmp_path, 1 << 20)
    assert cache.look(Known())
    store.put("a" * 32, b"whole and cut")
    whole, cut = Range("a" * 32, 0, 5), Range("a" * 32, 10, 20)

    def read() -> list[bytes]:
        return cache.read(store, [whole], lambda: [cut], lambda _one, _most: [cut])

    with pytest.raises(ObjectLost):
        read()
    # As whoever meets this reads again.
    with cache.passed_over():
        assert read() == [b"whole"]


@given(st.integers(1, 200), st.integers(1, 40), st.integers(0, 1000), st.data())
def test_pages_around_one_are_neighbours_that_always_go_together(
    count: int, length: int, most: int, data: st.DataObject
) -> None:
    places = [layout.HEAD_BYTES + at * length for at in range(count)]
    one = data.draw(st.sampled_from(places))
    around = list(layout.pages_around(one, count, length, most))
    first = places.index(around[0])
    assert around == places[first : first + len(around)]
    assert one in around
    assert len(around) * length <= max(most, length)
    for other in around:
        assert list(layout.pages_around(other, count, length, most)) == around
    if count * length <= most // 2:
        assert around == places


@given(st.lists(st.integers(1, 100), min_size=1, max_size=40), st.integers(0, 2000), st.data())
def test_blocks_around_one_are_neighbours_of_no_more_bytes_than_were_said(
    lengths: list[int], most: int, data: st.DataObject
) -> None:
    entries = [
        BlockEntry(at, length, bytes(32), bytes(16), bytes(16)) for at, length in enumerate(lengths)
    ]
    one = data.draw(st.sampled_from(entries))
    around = layout.blocks_around(entries, one.start, most)
    assert bool(around) == (one.length <= most)
    if around:
        first = around[0].start
        assert list(around) == entries[first : first + len(around)]
        assert one in around
        assert sum(other.length for other in around) <= most
        assert any(len(around) == min(1 << at, len(entries) - first) for at in range(7))
    if sum(lengths) <= most:
        assert list(around) == entries

"""Pages that are asked for beside those that are needed are none that an API would rule out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from encrypted_records.crypto.keys import CoverKey
from encrypted_records.model.records import PageRef
from encrypted_records.proxy.search.caches import DiskCache
from encrypted_records.proxy.search.cover import Draw, PageCover

ONE, OTHER = b"one" * 5 + b".", b"other" * 3 + b"."
#: Two segments: one of many pages, one of few.
SEGMENTS: Any = [SimpleNamespace(uid=ONE, pages=1000), SimpleNamespace(uid=OTHER, pages=24)]


def draw_of(question: int) -> Draw:
    """What draws for a question."""
    return partial(CoverKey(bytes(32)).draw, question.to_bytes(32, "big"))


@pytest.fixture
def stored(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "pages.sqlite3", 1 << 20)


def pages(uid: bytes, *numbers: int) -> set[PageRef]:
    return {PageRef(uid, number) for number in numbers}


@pytest.mark.parametrize("needed", [1, 2, 3, 5, 16, 33, 500])
def test_pages_are_as_many_as_a_power_of_two_of_all_segments(
    stored: DiskCache, needed: int
) -> None:
    wanted = pages(ONE, *range(needed))
    chosen = PageCover(stored).fill_up(SEGMENTS, wanted, draw_of(1))
    assert len(chosen) == len(set(chosen)) == 1 << (needed - 1).bit_length()
    assert wanted <= set(chosen)


def test_others_differ_from_question_to_question_and_come_in_no_order(stored: DiskCache) -> None:
    wanted = pages(ONE, *range(65))
    draws = [PageCover(stored).fill_up(SEGMENTS, wanted, draw_of(one)) for one in range(40)]
    assert len({frozenset(draw) for draw in draws}) == len(draws)
    assert any(ref.segment == OTHER for draw in draws for ref in draw)
    assert all(draw[:65] != sorted(wanted, key=lambda ref: ref.number) for draw in draws)


def test_every_proxy_draws_the_same_pages_for_a_question(stored: DiskCache, tmp_path: Path) -> None:
    wanted = pages(ONE, *range(65))
    other = DiskCache(tmp_path / "other.sqlite3", 1 << 20)
    draws = [
        PageCover(store).fill_up(segments, wanted, draw_of(1))
        for store in (stored, other)
        for segments in (SEGMENTS, SEGMENTS[::-1])
    ]
    assert len({frozenset(draw) for draw in draws}) == 1
    assert len({tuple(draw) for draw in draws}) > 1
    # A proxy that has some of them asks for the next ones, and for none that no other draws.
    other.put(ONE, dict.fromkeys(range(500, 1000), b"page"))
    later = set(PageCover(other).fill_up(SEGMENTS, wanted, draw_of(1)))
    both = {ref for ref in draws[0] if ref.segment == OTHER or ref.number < 500}
    assert both <= later


def test_a_page_that_came_before_or_is_coming_is_not_drawn(stored: DiskCache) -> None:
    stored.put(ONE, dict.fromkeys(range(100, 1000), b"page"))
    coming = pages(OTHER, *range(20))
    wanted = pages(ONE, *range(65))
    for one in range(20):
        chosen = set(PageCover(stored).fill_up(SEGMENTS, wanted, draw_of(one), coming))
        # 35 of one segment and 4 of the other are left, which are fewer than 63.
        assert chosen == pages(ONE, *range(100)) | pages(OTHER, *range(20, 24))
    for one in range(20):
        chosen = set(PageCover(stored).fill_up(SEGMENTS, pages(ONE, 1, 2, 3), draw_of(one), coming))
        assert len(chosen) == 4
        assert chosen <= pages(ONE, *range(100)) | pages(OTHER, *range(20, 24))


def test_where_all_pages_are_here_but_those_none_is_beside_them(stored: DiskCache) -> None:
    stored.put(ONE, dict.fromkeys(range(1000), b"page"))
    stored.put(OTHER, dict.fromkeys(range(21), b"page"))
    wanted = pages(OTHER, 21, 22, 23)
    assert set(PageCover(stored).fill_up(SEGMENTS, wanted, draw_of(1))) == wanted


def test_those_that_are_lacking_are_of_these_segments_and_not_on_disk(stored: DiskCache) -> None:
    stored.put(ONE, {3: b"page"})
    looked_for = pages(ONE, 3, 4) | pages(OTHER, 3) | pages(b"a third one.....", 3)
    lacking = PageCover(stored).select_lacking(SEGMENTS, looked_for)
    assert lacking == pages(ONE, 4) | pages(OTHER, 3)
    assert stored.use.hits == stored.use.misses == 0

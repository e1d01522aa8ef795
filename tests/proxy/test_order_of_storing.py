"""Searches that want some few rows as they were stored look no further than they must."""

from __future__ import annotations

import asyncio
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from encrypted_records.index import view as views_of
from encrypted_records.index.merge import Tier
from encrypted_records.index.view import GroupState, View, place_of
from encrypted_records.model.records import Group, RowRef, Segment
from encrypted_records.proxy import explaining, search
from tests.support.second_proxy import Proxy, second_proxy, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "even": {"type": "integer", "minimum": 0, "maximum": 1},
    },
}
EVEN = {"field": "even", "op": "eq", "value": 1}
#: Rows of each ingest. The second is too large to be merged with the others, which it lies between.
SIZES = (5, 4200, 5, 5)
#: Merge small segments as soon as there are two.
FEW = (Tier(4096, 1),)


@st.composite
def views(draw: st.DrawFn) -> View:
    """Groups in any order of storing, shared out among segments."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    owners = [draw(st.integers(0, 4)) for _ in sizes]
    groups = {
        at.to_bytes(16): GroupState(Group(at.to_bytes(16), 1, size, ["a"]), at)
        for at, size in enumerate(sizes)
    }
    segments = []
    for owner in draw(st.permutations(sorted(set(owners)))):
        own = draw(st.permutations([at for at, one in enumerate(owners) if one == owner]))
        count = sum(sizes[at] for at in own)
        ends = [0, *accumulate(sizes[at] for at in own)]
        bases = [(at.to_bytes(16), base) for at, base in zip(own, ends, strict=False)]
        segments.append(Segment(owner.to_bytes(16), "mini", 1, count, 0, bases, 1, b"h"))
    return View(1, tuple(segments), groups, {})


def sequences(view: View, segments: list[Segment]) -> list[int]:
    return [view.groups[uid].sequence for one in segments for uid, _ in one.groups]


@given(views(), st.integers(0, 12), st.integers(1, 60))
def test_parts_follow_one_another_and_grow(view: View, behind: int, rows: int) -> None:
    parts = list(view.by_age(behind=behind, rows=rows))
    reached = [at for part in parts for at in sequences(view, part)]
    assert {at for at in range(len(view.groups)) if at >= behind} <= set(reached)
    assert all(max(sequences(view, [one])) >= behind for part in parts for one in part)
    before = 0
    for part, following in pairwise(parts):
        assert max(sequences(view, part)) < min(sequences(view, following))
        held = sum(one.count for one in part)
        assert held >= max(rows, before)
        before += held


@given(views(), st.data(), st.integers(-1, 12), st.sampled_from([0, 1 << 14]))
def test_rows_come_by_place_however_many_they_are(
    view: View, data: st.DataObject, sequence: int, few: int
) -> None:
    segment = view.segments[0]
    lies = {
        base + ordinal: place_of(view.groups[uid].sequence, ordinal)
        for uid, base in segment.groups
        for ordinal in range(view.groups[uid].group.count)
    }
    rows = data.draw(st.sets(st.sampled_from(sorted(lies))))
    behind = place_of(sequence, data.draw(st.integers(0, 9)))
    expected = sorted((lies[row], row) for row in rows if lies[row] > behind)
    with mock.patch.object(views_of, "_FEW", few):
        found = list(view.sequences(segment).in_order(BitMap(rows), behind=behind))
    assert found == expected
    assert [view.ref(place) for place, _ in found if view.has(place)] == [
        RowRef(uid, row - base)
        for _, row in expected
        for uid, base in segment.groups
        if base <= row < base + view.groups[uid].group.count
    ]
    assert view.sequences(segment).later(sequence) == BitMap(
        row for row, place in lies.items() if place >= place_of(max(0, sequence), 0)
    )


@pytest.fixture
def store(service: Service) -> Store:
    store = new_store(service, DEFINITION)
    store.ingest([{"name": "first"}])
    return store


@pytest.fixture
def folder(store: Store, tmp_path: Path) -> Path:
    return with_keyrings(store.service, tmp_path)


async def names(proxy: Proxy, limit: int) -> list[Any]:
    """Of all answers, page by page."""
    body: dict[str, Any] = {"where": EVEN, "limit": limit}
    found: list[Any] = []
    while True:
        answer = await proxy.parts.search.ask(proxy.caller, proxy.state.id, body)
        found += [record.data["name"] for record in answer.records]
        if answer.next_cursor is None:
            return found
        body["cursor"] = answer.next_cursor


def test_pages_are_whole_and_in_order_however_little_is_looked_into(
    store: Store, folder: Path
) -> None:
    rows = [
        [{"name": f"{ingest} {number}", "even": number % 2} for number in range(size)]
        for ingest, size in enumerate(SIZES)
    ]
    # Of the large one few match, so that the small ones around it are come to.
    rows[1] = [row | {"even": int(number in (7, 9))} for number, row in enumerate(rows[1])]
    expected = [row["name"] for some in rows for row in some if row["even"]]

    async def whole() -> None:
        async with second_proxy(store, folder) as proxy:
            for some in rows:
                await proxy.ingest(some)
            for merged in (False, True):
                if merged:
                    assert await proxy.merger(*FEW).once(proxy.caller, proxy.state)
                for first in (1, 6, 4300, 1 << 18):
                    with mock.patch.object(search, "FIRST_ROWS", first):
                        for limit in (1, 3, 100):
                            assert await names(proxy, limit) == expected

    asyncio.run(whole())


def test_segments_that_come_later_are_left_alone_where_the_first_have_enough(
    store: Store, folder: Path
) -> None:
    async def looked_into(proxy: Proxy, **more: Any) -> int:
        body = {"where": EVEN, **more}
        parts = proxy.parts
        plan = await explaining.explain(parts.asker, proxy.caller, proxy.state.id, body)
        return plan.asking.cost.certain

    async def whole() -> None:
        async with second_proxy(store, folder) as proxy:
            for _ in range(3):
                await proxy.ingest([{"name": "x", "even": 1}] * 4)
            with mock.patch.object(search, "FIRST_ROWS", 1):
                # The fixture's row is the oldest; what has no match is passed.
                assert await looked_into(proxy, limit=4) == 12
            with mock.patch.object(search, "FIRST_ROWS", 5):
                assert await looked_into(proxy, limit=3) == 4
                assert await looked_into(proxy, limit=4) == 12
                assert await looked_into(proxy, limit=3, count=True) == 12
                assert await looked_into(proxy, limit=3, order_by=["name"]) == 12

    asyncio.run(whole())

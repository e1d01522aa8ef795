"""A huge merge, held at a step, while large and smaller ones go on; and one that loses a race."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.errors import Conflict, Unavailable
from encrypted_records.index.segments.merge_policy import Tier
from encrypted_records.model import ids
from encrypted_records.proxy.write import merge_scheduler
from encrypted_records.proxy.write.merge_scheduler import (
    LEAST_REST,
    Lane,
    Lanes,
    MergeOutcome,
    MergeScheduler,
)
from tests.proxy.test_merge_lanes import counts, delete, fill, held, soon
from tests.support.background import Queued
from tests.support.pools import closing_pool
from tests.support.second_proxy import Proxy, act_as_second, second_proxy, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9999}},
}
#: Two of the first are a huge merge, two of the second a large one, two of the last none of these.
HUGE, LARGE, SMALL = 4600, 4200, 2500
MOST, MOST_LARGE = 6000, 9000
TIERS = (Tier(4096, 3), Tier(MOST, 1), Tier(MOST_LARGE, 1), Tier(1 << 16, 1))
LOW = {"field": "n", "op": "lt", "value": 10}
Test = Callable[[Proxy], Awaitable[None]]
Run = Callable[[Test], None]


@pytest.fixture
def store(service: Service) -> Store:
    store = new_store(service, DEFINITION)
    store.ingest([{"n": 0}])
    return store


@pytest.fixture
def run(store: Store, tmp_path: Path) -> Run:
    return partial(act_as_second, store, with_keyrings(store.service, tmp_path))


def merger(proxy: Proxy, **more: Any) -> MergeScheduler:
    lanes = more.pop("lanes", None) or Lanes(MOST, MOST_LARGE)
    return proxy.merger(*TIERS, pages_at_once=2, lanes=lanes, **more)


def staged(store: Store) -> int:
    """How many stagings the API has of the schema."""
    database = sqlite3.connect(store.service.data_dir / "api" / "db.sqlite3")
    schema = ids.from_text(store.schema_id)
    (found,) = database.execute(
        "SELECT COUNT(*) FROM staging WHERE schema_id = ?", (schema,)
    ).fetchone()
    database.close()
    return int(found)


def kept_pages(folder: Path) -> int:
    """How many pages a proxy keeps on its disk."""
    database = sqlite3.connect(folder / "proxy" / "pages.sqlite3")
    (found,) = database.execute("SELECT COUNT(*) FROM page").fetchone()
    database.close()
    return int(found)


def test_large_and_smaller_merges_go_on_beside_a_huge_one_though_there_is_one_worker(
    run: Run,
) -> None:
    async def test(proxy: Proxy) -> None:
        async with closing_pool(count=1) as workers:
            merging = merger(proxy, workers=workers)
            await fill(proxy, HUGE)
            async with held(proxy, merging.merge_next(proxy.caller, proxy.state)) as huge:
                await fill(proxy, LARGE)
                async with held(proxy, merging.merge_next(proxy.caller, proxy.state)) as large:
                    await fill(proxy, SMALL)
                    assert await soon(
                        merging.merge_next(proxy.caller, proxy.state)
                    ) == MergeOutcome(2, 2 * SMALL)
                    assert not large.done() and not huge.done()
                    assert await proxy.count(LOW) == 61
                assert await large == MergeOutcome(2, 2 * LARGE)
                assert not huge.done()
            assert await huge == MergeOutcome(2, 2 * HUGE)
            assert counts(proxy) == [1, 2 * SMALL, 2 * LARGE, 2 * HUGE]
            assert await proxy.count(LOW) == 61

    run(test)


def test_all_of_them_begin_behind_commits_which_wait_for_none(run: Run) -> None:
    async def test(proxy: Proxy) -> None:
        background = Queued()
        merging = merger(proxy, background=background)
        ordinary, large, huge = merging._lanes.every
        await fill(proxy, HUGE)
        await merging.after_ingest(proxy.caller, proxy.state)
        assert huge.running and background.put_off() == 1
        async with held(proxy, background.wait(background.begin())):
            await fill(proxy, LARGE)
            await soon(merging.after_ingest(proxy.caller, proxy.state))
            # What the large one makes is worth a huge one, with what that makes which is held.
            await soon(background.wait(large.running.values()))
            await fill(proxy, SMALL)
            await soon(merging.after_ingest(proxy.caller, proxy.state))
            await soon(background.wait(ordinary.running.values()))
            assert counts(proxy) == [1, HUGE, HUGE, 2 * SMALL, 2 * LARGE]
        await merging.close()
        assert sum(counts(proxy)) == 1 + 2 * (HUGE + LARGE + SMALL)
        while await merging.merge_next(proxy.caller, proxy.state):
            pass
        assert len(counts(proxy)) <= 1 + len(TIERS)
        assert await proxy.count(LOW) == 61

    run(test)


@pytest.mark.parametrize("reading", [True, False], ids=["while it reads", "while it stages"])
def test_it_stops_soon_after_another_proxy_was_faster_and_leaves_nothing_staged(
    store: Store, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: bool
) -> None:
    other = with_keyrings(store.service, tmp_path / "other")

    async def faster() -> None:
        async with second_proxy(store, other) as proxy:
            # More than the other one merges, and so under another staging.
            merging = proxy.merger(Tier(1 << 16, 0), pages_at_once=2)
            assert await merging.merge_next(proxy.caller, proxy.state)

    async def test(proxy: Proxy) -> None:
        await fill(proxy, HUGE)
        work = merger(proxy).merge_next(proxy.caller, proxy.state)
        with pytest.raises(Conflict) as caught:
            async with held(proxy, work, reading=reading) as huge:
                await faster()
                assert staged(store) == (not reading)
                # From here on nothing of it is read, staged or published any more.
                for step in ("pages", "stage", "publish"):
                    monkeypatch.setattr(proxy.services.api, step, None)
                monkeypatch.setattr(merge_scheduler, "CHECK_SECONDS", 0.0)
            await huge
        assert caught.value.reason == "segment_not_live"
        assert staged(store) == 0
        monkeypatch.undo()
        # The look has read what the other one did.
        assert counts(proxy) == [1 + 2 * HUGE]
        assert await proxy.count(LOW) == 21

    run(test)


def test_an_api_that_is_away_when_it_looks_ends_nothing(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(proxy: Proxy) -> None:
        looked = 0

        schemas = proxy.services.schemas
        read_on = schemas._catch_up

        async def away_at_first(*arguments: Any) -> None:
            nonlocal looked
            looked += 1
            if looked <= 2:
                raise Unavailable("the API does not answer")
            await read_on(*arguments)

        merging = merger(proxy)
        await fill(proxy, HUGE)
        found = await asyncio.to_thread(store.found, LOW)
        monkeypatch.setattr(merge_scheduler, "CHECK_SECONDS", 0.0)
        async with held(proxy, merging.merge_next(proxy.caller, proxy.state)) as huge:
            await asyncio.to_thread(delete, store, found[-1])
            monkeypatch.setattr(schemas, "_catch_up", away_at_first)
        assert await huge == MergeOutcome(2, 2 * HUGE)
        assert looked > 2
        # What died meanwhile is dead, also where a look has told of it.
        assert await proxy.count(LOW) == 20
        assert await merging.purge(proxy.caller, proxy.state) == 2 * HUGE - 1

    run(test)


def test_the_pages_that_it_reads_take_no_room_of_those_that_questions_need(
    run: Run, tmp_path: Path
) -> None:
    async def test(proxy: Proxy) -> None:
        await fill(proxy, HUGE)
        assert await proxy.count(LOW) == 21
        before = kept_pages(tmp_path)
        assert before > 0
        async with held(proxy, merger(proxy).merge_next(proxy.caller, proxy.state)):
            assert kept_pages(tmp_path) == before
        # Those of what was merged are dropped.
        assert kept_pages(tmp_path) < before
        assert await proxy.count(LOW) == 21

    run(test)


def test_who_loses_a_huge_race_rests_and_leaves_the_next_to_the_other() -> None:
    now = 0.0
    lanes = Lanes(MOST, MOST_LARGE, clock=lambda: now)
    key = (b"user", b"schema")

    def lose(lane: Lane, takes: float) -> None:
        nonlocal now
        with pytest.raises(Conflict), lane.attempt(key):
            now += takes
            raise Conflict("another merge came first", code="segment_not_live")

    for lane in (lanes.ordinary, lanes.large):
        lose(lane, 60.0)
        assert not lane.rests(key)
    lose(lanes.huge, 0.0)
    now += LEAST_REST - 0.5
    assert lanes.huge.rests(key)
    now += 0.5
    assert not lanes.huge.rests(key)
    lose(lanes.huge, 60.0)
    now += 119.0
    assert lanes.huge.rests(key)
    now += 1.0
    assert not lanes.huge.rests(key)
    with lanes.huge.attempt(key):
        now += 300.0
    assert not lanes.huge.rests(key)

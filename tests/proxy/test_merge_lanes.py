"""A large merge, held at a step, while smaller ones, writers and questions go on beside it. Three
lanes at once, and a race with another proxy, are in ``test_huge_merges.py``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.errors import Unavailable
from encrypted_records.index.segments.merge_policy import CrowdSizes, Tier
from encrypted_records.proxy.process import Background
from encrypted_records.proxy.write.merge_scheduler import (
    MOST_REST,
    Lanes,
    MergeOutcome,
    MergeScheduler,
    Tasks,
)
from tests.support import eventually
from tests.support.background import Queued
from tests.support.second_proxy import Proxy, act_as_second, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9999}},
}
#: Of more rows than a mini has, and of half as many.
LARGE, SMALL = 4200, 2500
#: Two of the one are a large merge, two of the other none.
MOST = 6000
TIERS = (Tier(4096, 3), Tier(MOST, 1), Tier(1 << 16, 1))
LOW = {"field": "n", "op": "lt", "value": 10}
#: How long something may take that must not wait.
SOON = 120.0
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


async def fill(proxy: Proxy, count: int, times: int = 2) -> None:
    for _ in range(times):
        await proxy.ingest([{"n": number} for number in range(count)])


def merger(proxy: Proxy, lanes: Lanes | None = None, **more: Any) -> MergeScheduler:
    return proxy.merger(*TIERS, pages_at_once=2, lanes=lanes or Lanes(MOST), **more)


def delete(store: Store, record: str) -> None:
    answer = store.proxy("DELETE", f"/api/records/{record}/")
    assert answer.status == 204, answer.body


def counts(proxy: Proxy) -> list[int]:
    return sorted(segment.count for segment in proxy.state.ledger.snapshot().segments)


@asynccontextmanager
async def held(
    proxy: Proxy, work: Awaitable[Any], *, reading: bool = False
) -> AsyncIterator[asyncio.Future[Any]]:
    """``work`` has staged pages, or waits for some, and goes on when this ends."""
    reached, go_on = asyncio.Event(), asyncio.Event()
    owner, name = (
        (proxy.services.pager, "fetch_sealed") if reading else (proxy.services.api, "stage")
    )
    act = getattr(owner, name)

    async def wait(*arguments: Any) -> Any:
        done = await act(*arguments)
        reached.set()
        await go_on.wait()
        return done

    setattr(owner, name, wait)
    task = asyncio.ensure_future(work)
    await asyncio.wait_for(reached.wait(), SOON)
    setattr(owner, name, act)
    try:
        yield task
    finally:
        go_on.set()
        await asyncio.wait([task])


async def until(told: Callable[[], object], what: str) -> None:
    await eventually.soon(told, what, SOON)


class Watched(Background):
    """Knows how many wait for what it has started."""

    waiting = 0

    async def wait(self, *arguments: Any, **more: Any) -> None:
        self.waiting += 1
        try:
            await super().wait(*arguments, **more)
        finally:
            self.waiting -= 1


def is_awaited(lock: asyncio.Lock) -> bool:
    return bool(lock._waiters)


async def soon(work: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(work, SOON)


def test_an_ingest_waits_for_small_merges_only_where_these_have_fallen_behind(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(proxy: Proxy) -> None:
        background, go_on = Watched(), asyncio.Event()
        merging = merger(proxy, background=background)
        replace = MergeScheduler._replace

        async def wait(*arguments: Any) -> MergeOutcome:
            await go_on.wait()
            return await replace(*arguments)

        async def store() -> None:
            await proxy.ingest([{"n": 1}])
            await merging.after_ingest(proxy.caller, proxy.state)

        monkeypatch.setattr(MergeScheduler, "_replace", wait)
        for _ in range(3):
            await soon(store())
        assert (len(counts(proxy)), merging.running) == (4, 1)
        late = asyncio.ensure_future(store())
        await until(lambda: background.waiting or late.done(), "the ingest waits")
        assert not late.done() and len(counts(proxy)) == 5
        go_on.set()
        await soon(late)
        assert len(counts(proxy)) < 5
        assert await proxy.count(LOW) == 5

    run(test)


def test_it_begins_behind_an_ingest_and_those_after_it_do_not_wait(run: Run) -> None:
    async def test(proxy: Proxy) -> None:
        background = Queued()
        merging = merger(proxy, background=background)
        await fill(proxy, LARGE)
        await merging.after_ingest(proxy.caller, proxy.state)
        assert merging._lanes.large.running and background.put_off() == 1
        async with held(proxy, background.wait(background.begin())):
            for _ in range(4):
                await proxy.ingest([{"n": 1}])
                await soon(merging.after_ingest(proxy.caller, proxy.state))
            await fill(proxy, SMALL)
            await soon(merging.after_ingest(proxy.caller, proxy.state))
            await soon(background.wait(merging._lanes.ordinary.running.values()))
            assert counts(proxy) == [5, LARGE, LARGE, 2 * SMALL]
            # Nothing but the large one is worth it, which is under way.
            assert background.put_off() == 1
            assert merging._lanes.large.running and merging.pending(proxy.state)
        # Which goes on with what became large meanwhile.
        assert not merging.running
        assert counts(proxy) == [5, 2 * LARGE + 2 * SMALL]
        assert await proxy.count(LOW) == 45

    run(test)


def test_work_that_comes_right_when_other_work_ends_is_begun() -> None:
    """It is not left to what has looked for the last time."""
    key, done = (b"user", b"schema"), list[str]()

    async def test() -> None:
        tasks, background = Tasks(), Background()

        async def second() -> None:
            done.append("second")

        def come() -> None:
            if key not in tasks.running:
                tasks.start(background, key, second)

        async def first() -> None:
            done.append("first")
            asyncio.get_running_loop().call_soon(come)

        tasks.start(background, key, first)
        task = tasks.running[key]
        await soon(task)
        await until(lambda: not tasks.running, "the second has ended")

        tasks.start(background, key, second)
        tasks.running[key].cancel()
        await until(lambda: not tasks.running, "the cancelled one has ended")

    asyncio.run(test())
    assert done == ["first", "second"]


def test_what_comes_while_a_compaction_waits_for_its_turn_is_merged_behind_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(proxy: Proxy) -> None:
        merging = merger(proxy)
        compact, times = merging.compact_next, 0

        async def waiting(*arguments: Any) -> int:
            nonlocal times
            times += 1
            if times == 1:
                await fill(proxy, SMALL)
                await merging.after_ingest(proxy.caller, proxy.state)
            return await compact(*arguments)

        monkeypatch.setattr(merging, "compact_next", waiting)
        await fill(proxy, SMALL)
        await soon(merging.after_ingest(proxy.caller, proxy.state))
        await until(lambda: not merging.running, "merges have ended")
        assert SMALL not in counts(proxy)
        assert await proxy.count(LOW) == 41

    run(test)


def test_what_dies_meanwhile_is_dead_in_the_new_segment_and_a_purge_waits_for_it(
    store: Store, run: Run
) -> None:
    async def test(proxy: Proxy) -> None:
        merging = merger(proxy)
        await fill(proxy, LARGE)
        found = await asyncio.to_thread(store.found, LOW)
        async with held(proxy, merging.merge_next(proxy.caller, proxy.state)) as large:
            await asyncio.to_thread(delete, store, found[-1])
            await proxy.services.schemas.refresh(proxy.caller, proxy.state.id)
            purging = asyncio.ensure_future(merging.purge(proxy.caller, proxy.state))
            lock = merging._lanes.large.lock
            await until(lambda: is_awaited(lock) or purging.done(), "the purge waits")
            assert not purging.done() and not large.done()
        assert await large == MergeOutcome(2, 2 * LARGE)
        assert await proxy.count(LOW) == 20
        assert await soon(purging) == 2 * LARGE - 1
        assert counts(proxy) == [1, 2 * LARGE - 1]
        assert await proxy.count(LOW) == 20

    run(test)


def test_a_compaction_leaves_its_segments_alone(run: Run) -> None:
    async def test(proxy: Proxy) -> None:
        merging = merger(proxy, sizes=CrowdSizes(few=1, small=(1 << 12,)))
        await fill(proxy, SMALL, times=4)
        for _ in range(2):
            await merging.merge_next(proxy.caller, proxy.state)
        assert counts(proxy) == [1, 2 * SMALL, 2 * SMALL]
        async with held(proxy, merging.merge_next(proxy.caller, proxy.state)) as large:
            assert await soon(merging.compact_next(proxy.caller, proxy.state)) == 0
        assert await large == MergeOutcome(2, 4 * SMALL)
        assert await soon(merging.compact_next(proxy.caller, proxy.state)) == 4
        assert await proxy.count(LOW) == 41

    run(test)


def test_two_large_ones_run_one_after_the_other_and_share_no_segment(run: Run) -> None:
    async def test(proxy: Proxy) -> None:
        merging = merger(proxy)
        await fill(proxy, LARGE)
        async with held(proxy, merging.merge_next(proxy.caller, proxy.state)) as first:
            await fill(proxy, LARGE + 1)
            second = asyncio.ensure_future(merging.merge_next(proxy.caller, proxy.state))
            lock = merging._lanes.large.lock
            await until(lambda: is_awaited(lock) or second.done(), "the second waits")
            assert not second.done() and not first.done()
        assert await first == MergeOutcome(2, 2 * LARGE)
        outcome = await soon(second)
        assert outcome.inputs > 1 and outcome.rows > MOST
        assert sum(counts(proxy)) == 1 + 4 * LARGE + 2
        assert await proxy.count(LOW) == 41

    run(test)


def test_a_proxy_that_stops_in_the_middle_leaves_it_to_the_next(store: Store, run: Run) -> None:
    async def stop(proxy: Proxy) -> None:
        merging = merger(proxy)
        await fill(proxy, LARGE)

        async def behind() -> None:
            await merging.after_ingest(proxy.caller, proxy.state)
            await until(lambda: not merging.running, "merges have ended")

        async with held(proxy, behind()):
            await soon(merging.close())
            assert not merging.running
        assert counts(proxy) == [1, LARGE, LARGE]

    async def go_on(proxy: Proxy) -> None:
        assert await proxy.count(LOW) == 21
        outcome = await merger(proxy).merge_next(proxy.caller, proxy.state)
        assert outcome == MergeOutcome(2, 2 * LARGE)
        assert await proxy.count(LOW) == 21

    run(stop)
    run(go_on)


def test_a_large_one_whose_worker_is_killed_fails_alone(run: Run) -> None:
    async def test(proxy: Proxy) -> None:
        pool = proxy.services.workers
        take, taken = pool._take, list[asyncio.subprocess.Process]()

        async def noted() -> asyncio.subprocess.Process:
            taken.append(await take())
            return taken[-1]

        pool._take = noted  # type: ignore[method-assign]
        merging = merger(proxy)
        await fill(proxy, LARGE)
        work = merging.merge_next(proxy.caller, proxy.state)
        async with held(proxy, work, reading=True) as large:
            taken[0].kill()
            await fill(proxy, SMALL)
            assert await soon(merging.merge_next(proxy.caller, proxy.state)) is not None
        with pytest.raises(Unavailable) as caught:
            await large
        assert caught.value.reason == "worker_lost"
        assert counts(proxy) == [1, LARGE, LARGE, 2 * SMALL]
        outcome = await merging.merge_next(proxy.caller, proxy.state)
        assert outcome is not None and outcome.rows > 2 * LARGE
        assert await proxy.count(LOW) == 41

    run(test)


def test_a_large_one_that_fails_again_and_again_rests_longer_each_time(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit would begin it again, and it may take minutes before it fails."""
    now, takes = 0.0, 10.0

    async def test(proxy: Proxy) -> None:
        nonlocal now
        failures = 0
        merging = merger(proxy, Lanes(MOST, clock=lambda: now))
        await fill(proxy, LARGE)
        api = proxy.services.api

        async def fail(*_: Any) -> None:
            nonlocal now, failures
            now, failures = now + takes, failures + 1
            raise Unavailable("the disk is full")

        async def commit(times: int = 1) -> int:
            """How many attempts the commits begin."""
            before = failures
            for _ in range(times):
                await proxy.ingest([{"n": 1}])
                await soon(merging.after_ingest(proxy.caller, proxy.state))
                await until(lambda: not merging.running, "merges have ended")
            return failures - before

        monkeypatch.setattr(api, "stage", fail)
        assert await commit(2) == 1
        for rest in (takes, 2 * takes, 4 * takes):
            now += rest - 0.5
            assert await commit() == 0
            assert await merging.merge_next(proxy.caller, proxy.state, unless_resting=True) is None
            now += 0.5
            assert await commit(2) == 1
        for _ in range(9):
            now += MOST_REST
            assert await commit() == 1

        # Who asks for it does not wait, and what goes well is forgotten.
        monkeypatch.undo()
        assert await merging.merge_next(proxy.caller, proxy.state) is not None
        await fill(proxy, LARGE)
        monkeypatch.setattr(api, "stage", fail)
        assert await commit(2) == 1
        now += takes
        monkeypatch.undo()
        assert await commit() == 0
        assert max(counts(proxy)) >= 2 * LARGE
        assert await proxy.count(LOW) > 41

    run(test)

"""Merges whose files find no room: named, nothing lost, and made again later."""

from __future__ import annotations

import asyncio
import logging
import resource
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.errors import OutOfSpace
from encrypted_records.index.segments.merge_policy import Tier
from encrypted_records.proxy.write.merge_executor import MergeExecutor
from encrypted_records.proxy.write.merge_scheduler import Lanes, MergeOutcome, MergeScheduler
from tests.support.background import Queued
from tests.support.second_proxy import Proxy, act_as_second, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 9999},
        "name": {"type": "string"},
    },
}
#: More than a mini holds.
MANY = 4200
TIERS = (Tier(4096, 64), Tier(1 << 16, 1))
LOW = {"field": "n", "op": "lt", "value": 10}


@pytest.fixture
def store(service: Service) -> Store:
    store = new_store(service, DEFINITION)
    store.ingest([{"n": 0}])
    return store


async def fill(proxy: Proxy) -> None:
    for _ in range(2):
        await proxy.ingest([{"n": number, "name": f"n{number}"} for number in range(MANY)])


def limit_workers(proxy: Proxy, largest: int) -> None:
    """No file of a worker that takes a task from now on grows beyond so many bytes (EFBIG)."""
    take = type(proxy.services.workers)._take

    async def limited() -> asyncio.subprocess.Process:
        process = await take(proxy.services.workers)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
        return process

    proxy.services.workers._take = limited  # type: ignore[method-assign]


def merger(proxy: Proxy, lanes: Lanes | None = None, **more: Any) -> MergeScheduler:
    return proxy.merger(*TIERS, pages_at_once=2, lanes=lanes, **more)


async def merge(proxy: Proxy, lanes: Lanes | None = None) -> MergeOutcome | None:
    return await merger(proxy, lanes).merge_next(proxy.caller, proxy.state)


@pytest.mark.parametrize("edges", [(1 << 16, 1 << 20), (1000, MANY)], ids=["ordinary", "huge"])
def test_wherever_the_room_ends_it_is_named_and_a_later_merge_goes_through(
    store: Store, tmp_path: Path, edges: tuple[int, int]
) -> None:
    async def test(proxy: Proxy) -> None:
        await fill(proxy)
        largest, refused = 0, 0
        while True:
            limit_workers(proxy, largest)
            try:
                outcome = await merge(proxy, Lanes(*edges))
            except OutOfSpace as error:
                assert error.code == "out_of_space"
                assert len(proxy.state.ledger.snapshot().segments) == 3
                assert await proxy.count(LOW) == 21
                largest = 2 * largest + 4096
                refused += 1
            else:
                break
        assert outcome == MergeOutcome(2, 2 * MANY)
        # From the first byte to the last pages of the new segment.
        assert refused > 5
        assert len(proxy.state.ledger.snapshot().segments) == 2
        assert await proxy.count(LOW) == 21

    act_as_second(store, with_keyrings(store.service, tmp_path), test)


def test_behind_an_ingest_it_is_only_logged_and_the_next_ingest_merges(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    background = Queued()

    async def settled(merging: MergeScheduler, proxy: Proxy) -> None:
        await merging.after_ingest(proxy.caller, proxy.state)
        await background.settle()

    async def test(proxy: Proxy) -> None:
        merging = merger(proxy, background=background)
        await fill(proxy)
        limit_workers(proxy, 20_000)
        with caplog.at_level(logging.WARNING):
            await settled(merging, proxy)
        assert "merging failed, and a later ingest will try again: the disk is full" in caplog.text
        assert len(proxy.state.ledger.snapshot().segments) == 3
        limit_workers(proxy, resource.RLIM_INFINITY)
        await proxy.ingest([{"n": 1}])
        await settled(merging, proxy)
        assert [segment.count for segment in proxy.state.ledger.snapshot().segments].count(
            2 * MANY
        ) == 1
        assert await proxy.count(LOW) == 22

    act_as_second(store, with_keyrings(store.service, tmp_path), test)


def test_what_is_to_stay_free_of_the_disk_is_left_free(store: Store, tmp_path: Path) -> None:
    async def test(proxy: Proxy) -> None:
        await fill(proxy)
        uses = proxy.services
        builds = MergeExecutor(
            uses.api,
            uses.fetcher,
            uses.pager,
            uses.workers,
            uses.spool.folder,
            keep_free=1 << 60,
        )
        snapshot = proxy.state.ledger.snapshot()
        large = [segment for segment in snapshot.segments if segment.count == MANY]
        with pytest.raises(OutOfSpace, match="no space for a merge"):
            await builds.build(proxy.caller, proxy.state, snapshot, large)
        assert await merge(proxy) == MergeOutcome(2, 2 * MANY)

    act_as_second(store, with_keyrings(store.service, tmp_path), test)

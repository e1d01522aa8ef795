"""Work beside requests: begun in one place, heard of where it fails, and ended with its proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from encrypted_records.errors import OutOfSpace
from encrypted_records.index.segments.merge_policy import Tier
from encrypted_records.proxy.process import CLOCK, JOB_SWEEP, JOBS, MERGES, UPLOAD_SWEEP, Background
from encrypted_records.proxy.settings import Overrides
from tests.support.background import Queued
from tests.support.eventually import soon
from tests.support.proxies import Proxy
from tests.support.store import Store


@pytest.fixture
def definition() -> dict[str, Any]:
    number = {"type": "integer", "minimum": 0, "maximum": 99}
    return {"type": "object", "properties": {"n": number}}


@pytest.fixture
def overrides() -> Overrides:
    return Overrides(tiers=(Tier(64, 3),))


def play(scene: Callable[[Background], Awaitable[None]]) -> None:
    async def whole() -> None:
        background = Background()
        await scene(background)
        await background.stop()

    asyncio.run(whole())


BUG, FULL = KeyError("73519 is somebody's salary"), OutOfSpace("the disk is full")


async def fail(error: Exception) -> None:
    raise error


def test_a_failure_is_logged_with_its_kind_and_without_what_it_worked_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(background: Background) -> None:
        merge = background.start(MERGES, partial(fail, BUG))
        job = background.start(JOBS, partial(fail, FULL))
        await background.wait([merge, job])

    play(scene)
    assert "merging failed because of an internal error: KeyError" in caplog.text
    assert "a job failed: the disk is full" in caplog.text
    assert "salary" not in caplog.text


@pytest.mark.parametrize("error", [BUG, FULL], ids=["bug", "full disk"])
def test_what_is_done_again_and_again_goes_on_behind_a_failure(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    times = 0

    async def fail_first() -> None:
        nonlocal times
        times += 1
        if times < 3:
            raise error

    async def scene(background: Background) -> None:
        background.every(0, JOB_SWEEP, fail_first)
        await soon(lambda: times > 3, "a turn after those that failed")

    play(scene)
    assert caplog.text.count("sweeping jobs failed") == 2


def test_a_proxy_whose_sweeps_fail_for_a_time_sweeps_later(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that was full, or a bug, in one turn ends none of them for the life of the proxy."""
    stores = proxy.services.stores
    for error in (BUG, FULL):
        with monkeypatch.context() as patch:
            for store, name in ((stores.jobs, "with_leftovers"), (stores.uploads, "list_expired")):
                patch.setattr(store, name, Mock(side_effect=error))
            proxy.settle(JOB_SWEEP, UPLOAD_SWEEP)
    assert caplog.text.count("sweeping jobs failed") == 2
    assert caplog.text.count("sweeping uploads failed") == 2
    caplog.clear()
    proxy.settle(JOB_SWEEP, UPLOAD_SWEEP, CLOCK)
    assert "failed" not in caplog.text


def test_what_is_stopped_has_ended_and_others_go_on() -> None:
    ended = list[str]()

    async def last(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def scene(background: Background) -> None:
        merge, job = (background.start(name, partial(last, name)) for name in (MERGES, JOBS))
        await asyncio.sleep(0)
        await background.stop(MERGES)
        assert (merge.done(), job.done(), ended) == (True, False, [MERGES])
        await background.stop()
        assert ended == [MERGES, JOBS]

    play(scene)


def test_what_does_not_end_in_time_is_stopped() -> None:
    async def scene(background: Background) -> None:
        short = background.start(MERGES, partial(asyncio.sleep, 0))
        long = background.start(MERGES, asyncio.Event().wait)  # type: ignore[arg-type]  # for ever
        await background.finish(MERGES, within=0.01)
        assert not short.cancelled() and long.cancelled()

    play(scene)


def test_what_is_put_off_is_done_in_its_order_or_once_somebody_waits_for_it() -> None:
    done = list[int]()

    async def note(number: int) -> None:
        done.append(number)
        if number == 1:
            queued.start(MERGES, partial(note, 3))

    async def scene() -> None:
        for number in (1, 2):
            queued.start(MERGES, partial(note, number))
        asked = queued.start(JOBS, partial(note, 0))
        await asyncio.wait([asked])
        assert (done, queued.put_off(MERGES)) == ([0], 2)
        await queued.settle(MERGES)
        assert (done, queued.put_off()) == ([0, 1, 2, 3], 0)
        await queued.wait([queued.start(MERGES, partial(note, 4))])
        assert done[-1] == 4
        never = queued.start(MERGES, partial(note, 5))
        await queued.stop()
        assert never.cancelled() and 5 not in done

    queued = Queued()
    asyncio.run(scene())


def test_a_store_that_merges_beside_a_request_does_so_when_the_test_says(
    proxy: Proxy, store: Store
) -> None:
    for number in range(4):
        store.ingest([{"n": number}])
    path = f"/api/records/status/?schema={store.schema_id}"
    assert store.proxy("GET", path).json()["merge_pending"]
    assert proxy.background.put_off(MERGES) == 1
    proxy.settle(MERGES)
    assert proxy.background.put_off(MERGES) == 0
    assert not store.proxy("GET", path).json()["merge_pending"]
    assert len(store.found()) == 4

"""Large segments through a real API: fetched page by page, kept on disk, and merged."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from encrypted_records.errors import Unavailable
from encrypted_records.index.segments.merge_policy import Tier
from tests.support.second_proxy import Proxy, second_proxy, with_keyrings
from tests.support.service import Service
from tests.support.sqlite_files import change
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "city": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
}
#: More than a mini holds.
MANY = 4200
#: Merge as soon as there are two.
FEW = (Tier(4096, 64), Tier(1 << 16, 1))


def person(number: int) -> dict[str, Any]:
    return {"name": f"n{number:05}", "city": f"c{number % 7}", "age": number % 90}


SPOIL = "UPDATE page SET data = zeroblob(16384)"


@pytest.fixture
def store(service: Service) -> Store:
    """A schema whose key is in the service's keyring."""
    store = new_store(service, DEFINITION)
    store.ingest([{"name": "first"}])
    return store


Run = Callable[[Callable[[Proxy], Awaitable[None]]], None]


@pytest.fixture
def folder(store: Store, tmp_path: Path) -> Path:
    return with_keyrings(store.service, tmp_path)


@pytest.fixture
def run(store: Store, folder: Path) -> Run:
    def run(test: Callable[[Proxy], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with second_proxy(store, folder) as proxy:
                await test(proxy)

        asyncio.run(whole())

    return run


def test_a_page_is_asked_for_once_and_never_alone(store: Store, run: Run) -> None:
    where = {"field": "age", "op": "between", "value": [10, 19]}

    async def first(proxy: Proxy) -> None:
        await proxy.ingest([person(number) for number in range(MANY)])
        expected = sum(10 <= number % 90 <= 19 for number in range(MANY))
        assert await proxy.count(where) == expected
        # The mini; directories; data.
        sizes = [len(asked) for asked in proxy.asked]
        assert all(size & (size - 1) == 0 for size in sizes)
        assert len(sizes) == 3
        for asked in proxy.asked:
            assert len(set(asked)) == len(asked)
        before = len(proxy.asked)
        assert await proxy.count(where) == expected
        assert len(proxy.asked) == before

    async def later(proxy: Proxy) -> None:
        """After a restart pages come from disk; the mini alone is asked for again."""
        await proxy.count(where)
        assert [len(asked) for asked in proxy.asked] == [1]

    run(first)
    run(later)


def test_a_damaged_page_on_disk_is_fetched_anew(store: Store, run: Run, folder: Path) -> None:
    where = {"field": "city", "op": "eq", "value": "c1"}

    async def fill(proxy: Proxy) -> None:
        await proxy.ingest([person(number) for number in range(MANY)])
        await proxy.count(where)
        assert change(folder / "proxy" / "pages.sqlite3", SPOIL) > 0

    async def ask(proxy: Proxy) -> None:
        assert await proxy.count(where) == MANY // 7

    run(fill)
    run(ask)


def test_a_merge_with_a_damaged_page_on_disk_fetches_it_anew(
    store: Store, run: Run, folder: Path
) -> None:
    where = {"field": "city", "op": "eq", "value": "c1"}

    async def merge(proxy: Proxy) -> None:
        for _ in range(2):
            await proxy.ingest([person(number) for number in range(MANY)])
        await proxy.count(where)
        assert change(folder / "proxy" / "pages.sqlite3", SPOIL) > 0
        assert await proxy.merger(*FEW).merge_next(proxy.caller, proxy.state) is not None
        assert await proxy.count(where) == 2 * (MANY // 7)

    run(merge)


def test_a_large_merge_leaves_out_what_was_deleted(store: Store, run: Run) -> None:
    async def fill(proxy: Proxy) -> None:
        for _ in range(2):
            await proxy.ingest([person(number) for number in range(MANY)])

    async def look(proxy: Proxy) -> None:
        sizes = [
            (segment.count, segment.purged) for segment in proxy.state.ledger.snapshot().segments
        ]
        assert sorted(sizes) == [(1, 0), (2 * MANY - left_out, left_out)]

    run(fill)
    where = {"field": "city", "op": "eq", "value": "c1"}
    left_out = 2 * (MANY // 7)
    path = f"/api/records/delete/?confirm={left_out}"
    answer = store.proxy("POST", path, {"schema": store.schema, "where": where})
    assert answer.status == 200, answer.body
    while not store.proxy("POST", f"{store.schema}merge/", {}).json()["done"]:
        pass  # it merges segments with so many dead rows as soon as they are deleted
    run(look)
    assert store.search(where, count=True, limit=0)["count"] == 0
    assert store.search(None, count=True, limit=0)["count"] == 2 * MANY + 1 - left_out


def busy_workers(proxy: Proxy) -> set[int]:
    """Processes of this test run that are workers, but those of the proxy that wait for a task."""
    services = proxy.services
    idle = {process.pid for process in [*services.workers.idle, *services.readers.idle]}
    own = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    children = [int(pid) for listed in own for pid in listed.read_text().split()]
    return {
        pid
        for pid in children
        if b"encrypted_records.proxy.workers.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    } - idle


def test_a_merge_whose_worker_is_killed_is_done_by_another(store: Store, run: Run) -> None:
    async def merge(proxy: Proxy) -> None:
        for _ in range(2):
            await proxy.ingest([person(number) for number in range(MANY)])
        merger, api = proxy.merger(*FEW), proxy.services.api
        before = proxy.state.ledger.snapshot()
        of_others = busy_workers(proxy)
        original = api.pages

        async def kill(*asked: Any, **known: Any) -> Any:
            (worker,) = busy_workers(proxy) - of_others
            os.kill(worker, signal.SIGKILL)
            return await original(*asked, **known)

        with mock.patch.object(api, "pages", kill), pytest.raises(Unavailable) as refused:
            await merger.merge_next(proxy.caller, proxy.state)
        assert refused.value.reason == "worker_lost"
        assert proxy.state.ledger.snapshot() == before
        assert await merger.merge_next(proxy.caller, proxy.state) is not None

    run(merge)
    assert store.search(None, count=True, limit=0)["count"] == 2 * MANY + 1


def test_two_mergers_at_once_leave_every_record_in_one_segment(
    store: Store, run: Run, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "proxy", tmp_path / "other" / "proxy")

    async def race(proxy: Proxy) -> None:
        for _ in range(2):
            await proxy.ingest([person(number) for number in range(MANY)])
        async with second_proxy(store, tmp_path / "other") as other:
            results = await asyncio.gather(
                *(one.merger(*FEW).merge_next(one.caller, one.state) for one in (proxy, other)),
                return_exceptions=True,
            )
            lost = [result for result in results if isinstance(result, Exception)]
            assert [getattr(one, "reason", one) for one in lost] in (
                ["segment_not_live"],
                ["log_conflict"],
                ["writer_conflict"],
            )
            state = await proxy.services.schemas.refresh(proxy.caller, proxy.state.id)
            assert len(state.ledger.snapshot().segments) == 2
            assert state.ledger.snapshot().count == 2 * MANY + 1

    run(race)


def test_a_merge_that_is_too_large_for_one_body_is_stored_ahead(store: Store, run: Run) -> None:
    where = {"field": "city", "op": "eq", "value": "c1"}

    async def merge(proxy: Proxy) -> None:
        for _ in range(2):
            await proxy.ingest([person(number) for number in range(MANY)])
        merger = proxy.merger(*FEW, pages_at_once=2)
        # One that is cut off leaves parts behind, which nobody sees.
        cut_off = mock.patch.object(proxy.services.api, "publish", side_effect=Unavailable("gone"))
        with cut_off, pytest.raises(Unavailable):
            await merger.merge_next(proxy.caller, proxy.state)
        before = len(proxy.state.ledger.snapshot().segments)
        assert await merger.merge_next(proxy.caller, proxy.state) is not None
        state = await proxy.services.schemas.refresh(proxy.caller, proxy.state.id)
        snapshot = state.ledger.snapshot()
        assert len(snapshot.segments) < before
        assert max(segment.pages for segment in snapshot.segments) > 4
        assert await proxy.count(where) == 2 * (MANY // 7)

    run(merge)
    assert store.search(None, count=True, limit=0)["count"] == 2 * MANY + 1


def test_merging_is_done_on_demand_until_nothing_is_left(store: Store, run: Run) -> None:
    """Sixteen that are more than half full are one too many; the one of the fixture is left."""

    async def fill(proxy: Proxy) -> None:
        for _ in range(16):
            await proxy.ingest([person(number) for number in range(2049)])

    run(fill)
    path = f"/api/schemas/{store.schema_id}/merge/"
    first = store.proxy("POST", path)
    assert (first.status, first.json()) == (
        200,
        {"merged": 16, "records": 16 * 2049, "segments": 2, "done": False},
    )
    again = store.proxy("POST", path).json()
    assert again == {"merged": 0, "records": 0, "segments": 2, "done": True}
    assert store.search(None, count=True, limit=1)["count"] == 16 * 2049 + 1
    assert store.api("POST", path).status in (404, 405)


def test_an_ingest_that_makes_too_many_has_them_merged_in_the_background(
    store: Store, run: Run
) -> None:
    async def fill(proxy: Proxy) -> None:
        for _ in range(16):
            await proxy.ingest([person(number) for number in range(2049)])

    async def wait(proxy: Proxy) -> None:
        state = proxy.state
        while len(state.ledger.snapshot().segments) > 3:
            state = await proxy.services.schemas.refresh(proxy.caller, state.id)
        assert state.ledger.snapshot().count == 16 * 2049 + 2

    run(fill)
    store.ingest([{"name": "one more"}])
    run(wait)

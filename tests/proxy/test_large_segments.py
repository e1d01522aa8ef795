"""Large segments through a real API: fetched page by page, kept on disk, and merged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.index.segments.merge_policy import Tier
from tests.support.second_proxy import Proxy, act_as_second, with_keyrings
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
    return partial(act_as_second, store, folder)


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

"""Searches that want some few rows as they were stored look no further than they must."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.proxy.search import explain as explaining
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


@pytest.fixture
def store(service: Service) -> Store:
    store = new_store(service, DEFINITION)
    store.ingest([{"name": "first"}])
    return store


@pytest.fixture
def folder(store: Store, tmp_path: Path) -> Path:
    return with_keyrings(store.service, tmp_path)


def test_segments_that_come_later_are_left_alone_where_the_first_have_enough(
    store: Store, folder: Path
) -> None:
    async def looked_into(proxy: Proxy, first_rows: int, **more: Any) -> int:
        body = {"where": EVEN, **more}
        services = proxy.services
        plan = await explaining.explain(
            services.query_runner, proxy.caller, proxy.state.id, body, first_rows=first_rows
        )
        return plan.context.stats.certain

    async def whole() -> None:
        async with second_proxy(store, folder) as proxy:
            for _ in range(3):
                await proxy.ingest([{"name": "x", "even": 1}] * 4)
            # The fixture's row is the oldest; what has no match is passed.
            assert await looked_into(proxy, 1, limit=4) == 12
            assert await looked_into(proxy, 5, limit=3) == 4
            assert await looked_into(proxy, 5, limit=4) == 12
            assert await looked_into(proxy, 5, limit=3, count=True) == 12
            assert await looked_into(proxy, 5, limit=3, order_by=["name"]) == 12

    asyncio.run(whole())

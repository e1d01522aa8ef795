"""Several people's proxies merge the same segments. Who loses a race is in
``tests/proxy/test_huge_merges.py``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from encrypted_records.index.segments.merge_policy import Tier
from encrypted_records.model import roster as form
from encrypted_records.proxy.write.merge_scheduler import MergeOutcome, MergeScheduler
from tests.proxy.sharing.people import Person
from tests.proxy.sharing.shared import Shared
from tests.support.second_proxy import Proxy, second_proxy
from tests.support.store import Store

#: More than a mini holds.
MANY = 4200
MERGED = MergeOutcome(2, 2 * MANY)


class _Killed(Exception):
    pass


def merger(proxy: Proxy) -> MergeScheduler:
    """One that stages what it makes."""
    return proxy.merger(Tier(4096, 64), Tier(1 << 16, 1), pages_at_once=2)


async def merged(proxy: Proxy) -> MergeOutcome | None:
    return await merger(proxy).merge_next(proxy.caller, proxy.state)


def acting(shared: Shared, person: Person, act: Callable[[Proxy], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        store = Store(person.service, person.account, shared.schema)
        async with second_proxy(store, person.folder.parent) as proxy:
            return await act(proxy)

    return asyncio.run(run())


def two_writers(shared: Shared) -> tuple[Person, Person]:
    """Of a schema with two segments that are worth merging, and a small one."""
    shared.proxy(shared.team.ada).ingest([{"n": MANY}])
    grace, alan = shared.person(form.WRITER), shared.person(form.WRITER)
    acting(shared, grace, fill)
    return grace, alan


async def fill(proxy: Proxy) -> None:
    for _ in range(2):
        await proxy.ingest([{"n": number} for number in range(MANY)])


async def counted(proxy: Proxy) -> int:
    return await proxy.count({"field": "n", "op": "lt", "value": 10})


def test_what_somebodys_killed_proxy_staged_is_in_nobody_elses_way(shared: Shared) -> None:
    async def die(proxy: Proxy) -> None:
        staged = proxy.services.api.stage

        async def stage(*arguments: Any) -> None:
            await staged(*arguments)
            raise _Killed

        proxy.services.api.stage = stage  # type: ignore[assignment,method-assign]
        try:
            await merged(proxy)
        finally:
            await asyncio.sleep(0.2)  # its worker is killed with it; else the loop ends before

    grace, alan = two_writers(shared)
    with pytest.raises(_Killed):
        acting(shared, grace, die)
    assert acting(shared, alan, merged) == MERGED
    assert acting(shared, alan, counted) == 20

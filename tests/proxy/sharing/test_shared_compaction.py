"""Several people's proxies make one group of many small ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from encrypted_records.model import roster as form
from tests.proxy.sharing.people import Person
from tests.proxy.sharing.shared import Shared, numbers
from tests.proxy.test_compaction import compact
from tests.support.second_proxy import Proxy, second_proxy
from tests.support.store import Store


class _Killed(Exception):
    pass


def compacted(shared: Shared, person: Person, *, killed: bool = False) -> int:
    """How many groups ended; ``killed``: the proxy goes with the rows staged, and not named."""

    async def die(*_: Any) -> None:
        raise _Killed

    async def act() -> int:
        store = Store(person.service, person.account, shared.schema)
        async with second_proxy(store, person.folder.parent) as proxy:
            if killed:
                await _stage_alone(proxy, die)
            return await compact(proxy, most_with_commit=0)

    return asyncio.run(act())


async def _stage_alone(proxy: Proxy, die: Any) -> None:
    """Let the commit of a compaction fail, which comes after a part is staged."""
    staged = proxy.services.api.stage

    async def stage(*arguments: Any) -> None:
        await staged(*arguments)
        await die()

    proxy.services.api.stage = stage  # type: ignore[assignment,method-assign]


def test_what_somebodys_killed_proxy_staged_is_in_nobody_elses_way(shared: Shared) -> None:
    ada = shared.proxy(shared.team.ada)
    ada.ingest([{"n": n} for n in range(12)], at_once=1)
    grace, alan = shared.person(form.WRITER), shared.person(form.WRITER)
    with pytest.raises(_Killed):
        compacted(shared, grace, killed=True)
    assert compacted(shared, alan) == 12
    assert sorted(numbers(ada)) == list(range(12))

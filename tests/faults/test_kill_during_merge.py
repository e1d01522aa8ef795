"""SIGKILL of the proxy or the API at each step of a merge: the same answers, and nothing left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.errors import Unavailable
from encrypted_records.index.segments.merge_policy import Tier
from encrypted_records.proxy.schemas.heads import Heads
from encrypted_records.proxy.write.lanes import Lanes
from tests.support.second_proxy import Proxy, second_proxy, with_keyrings
from tests.support.service import Account, Service, clean_environment, gone, running_service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 120}},
}
#: More than a mini holds, so that there are pages enough for several parts.
MANY = 4200
TIERS = (Tier(4096, 64), Tier(1 << 16, 1))
PAGES_AT_ONCE = 2
#: Before each of them, in the middle of the first two. By the last the API has the merge, and the
#: proxy does not remember it.
STEPS = ("pages", "stage", "publish", "remember")
#: In which lane the merge is, which has 8,400 rows.
LANES = {"ordinary": (1 << 16, 1 << 20), "large": (4096, 1 << 20), "huge": (1000, 4096)}
WHERE = {"field": "age", "op": "between", "value": [10, 19]}


async def merge(proxy: Proxy, lane: str) -> bool:
    merger = proxy.merger(*TIERS, pages_at_once=PAGES_AT_ONCE, lanes=Lanes(*LANES[lane]))
    return await merger.merge_next(proxy.caller, proxy.state) is not None


def kill(victims: Sequence[int]) -> None:
    for pid in victims:
        # Of a side's processes, some end with others.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert gone(victims, within=60)


def interrupt(proxy: Proxy, step: str, victims: Sequence[int]) -> None:
    """Have SIGKILL meet ``victims`` before a step of the next merge."""
    if step == "remember":
        Heads.remember = lambda *_: kill(victims)  # type: ignore[method-assign]
        return
    original = getattr(proxy.services.api, step)
    calls = 0

    async def killing(*arguments: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        # In the middle of the pages or parts, should it be one of them.
        if step == "publish" or calls == 2:
            kill(victims)
        return await original(*arguments, **more)

    setattr(proxy.services.api, step, killing)


async def _merge_and_die(folder: Path, store: Store, step: str, lane: str) -> None:
    async with second_proxy(store, folder) as proxy:
        interrupt(proxy, step, [os.getpid()])
        await merge(proxy, lane)


def die(folder: Path, store: Store, step: str, lane: str) -> int:
    """A proxy of its own process merges until it is killed; how it ended."""
    chosen = [store.service.base_url, store.account.email, store.account.password, store.schema]
    command = [sys.executable, "-m", "tests.faults.test_kill_during_merge", str(folder), step, lane]
    return subprocess.run([*command, *chosen], env=clean_environment(), check=False).returncode


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "second"


def filled(service: Service, folder: Path) -> Store:
    """Two segments worth merging, and one record beside; ``folder`` has the keys."""
    store = new_store(service, DEFINITION)
    store.ingest([{"age": 15}])
    with_keyrings(service, folder)

    async def fill() -> None:
        async with second_proxy(store, folder) as proxy:
            await more(proxy)

    asyncio.run(fill())
    return store


async def more(proxy: Proxy) -> None:
    for _ in range(2):
        await proxy.ingest([{"age": number % 90} for number in range(MANY)])


def expected(times: int) -> int:
    return times * 2 * sum(10 <= number % 90 <= 19 for number in range(MANY)) + 1


async def check(folder: Path, store: Store, times: int, lane: str) -> None:
    """The answers are the same, the merge goes through, and the answers are the same again."""
    async with second_proxy(store, folder) as proxy:
        assert await proxy.count(WHERE) == expected(times)
        while await merge(proxy, lane):
            pass
        view = proxy.state.ledger.snapshot()
        assert len(view.segments) <= 3
        assert view.count == times * 2 * MANY + 1
        assert await proxy.count(WHERE) == expected(times)


def nothing_is_left_behind(service: Service) -> None:
    """Of no staging, and no page of a segment that is none; replaced ones go by and by."""
    database = sqlite3.connect(service.data_dir / "api" / "db.sqlite3")
    for table in ("staging", "staged_part"):
        assert database.execute(f"SELECT COUNT(*) FROM {table}").fetchone() == (0,)
    orphans = (
        "SELECT COUNT(*) FROM index_page WHERE segment_id NOT IN (SELECT id FROM index_segment)"
    )
    staged = "SELECT COUNT(*) FROM index_segment WHERE staging_id IS NOT NULL"
    assert [database.execute(one).fetchone()[0] for one in (orphans, staged)] == [0, 0]
    database.close()


@pytest.mark.parametrize("lane", LANES)
def test_a_merge_that_is_killed_at_any_step_changes_no_answer(
    tmp_path: Path, folder: Path, lane: str
) -> None:
    data_dir = tmp_path / "data"

    async def add() -> None:
        async with second_proxy(store, folder) as proxy:
            await more(proxy)

    async def interrupted(step: str, victims: Sequence[int]) -> None:
        async with second_proxy(store, folder) as proxy:
            interrupt(proxy, step, victims)
            with pytest.raises(Unavailable):
                await merge(proxy, lane)

    with running_service(data_dir) as service:
        store = filled(service, folder)
        for step in STEPS:
            assert die(folder, store, step, lane) == -signal.SIGKILL, step
            assert store.search(WHERE, count=True, limit=0)["count"] == expected(1)
        # Each try took the place of the one before, and the last went through.
        nothing_is_left_behind(service)
        asyncio.run(add())
        asyncio.run(interrupted("publish", _apis(service)))
    with running_service(data_dir) as service:
        store = Store(service, store.account, store.schema, store.device)
        asyncio.run(check(folder, store, 2, lane))
        nothing_is_left_behind(service)


def _apis(service: Service) -> list[int]:
    command = b"encrypted_records.cli.main\0api"
    return [
        pid for pid in service.children() if command in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


if __name__ == "__main__":
    data_dir, step, lane, base_url, email, password, schema = sys.argv[1:]
    service = Service(None, base_url, "", Path(data_dir), Path(os.devnull))  # type: ignore[arg-type]
    dying = Store(service, Account(email, password, ""), schema)
    asyncio.run(_merge_and_die(Path(data_dir), dying, step, lane))

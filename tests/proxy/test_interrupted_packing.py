"""Interrupted packing of jobs: whole or absent in the end, and nothing is left. Kills, lost
workers and lost answers are simulated (``tests/simulation/scenarios/packing.py``)."""

from __future__ import annotations

import asyncio
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.proxy.settings import Overrides
from encrypted_records.proxy.workers import messages
from tests.support import jobs
from tests.support.eventually import eventually
from tests.support.older import make_older
from tests.support.packed import (
    DEFINITION,
    FEW,
    PACKING,
    POLICY,
    about,
    held,
    is_staged,
    long_rows,
    nothing_is_staged,
    numbers,
    segments,
    send,
)
from tests.support.pools import closing_pool
from tests.support.proxies import Proxy
from tests.support.store import Store

__all__ = ["DEFINITION"]


@pytest.fixture
def overrides() -> Overrides:
    return PACKING


@pytest.fixture(autouse=True)
def _short_waits(proxy: Proxy) -> None:
    proxy.services.jobs.runner.waits = (0.05,)


def test_a_rotation_while_it_is_packed_has_all_sealed_anew(
    store: Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There a rotated keyring seals at once; a roster follows it later.
    make_older(store.service, store.account)
    with held(proxy, monkeypatch) as gate:
        path = send(store, long_rows())
        assert gate.reached.wait(60)
        assert store.proxy("POST", "/api/keyring/rotate/").status == 201
        store.ingest([{"n": FEW}])
        gate.open()
        jobs.completed(store, path)
    assert numbers(store) == list(range(FEW + 1))
    assert {segment.key_version for segment in segments(proxy, store)} == {2}
    nothing_is_staged(store.service, path)


def test_a_job_that_is_cancelled_while_it_is_packed_leaves_nothing(
    store: Store, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held(proxy, monkeypatch) as gate:
        path = send(store, long_rows())
        assert gate.reached.wait(60)
        assert is_staged(store.service, path)
        assert store.proxy("DELETE", path).status == 204
    assert jobs.ended(store, path)["error"].endswith("(job_cancelled)")
    assert numbers(store) == []
    assert list((tmp_path / "own" / "proxy" / "spool").iterdir()) == []
    nothing_is_staged(store.service, path)


@pytest.mark.parametrize(
    ("largest_file", "keep_free", "why"),
    [
        (20_000, 0, "the disk is full"),
        (1 << 40, 1 << 60, "the disk has no space for packing a job's index"),
    ],
)
def test_where_the_disk_is_full_the_job_waits_says_why_and_goes_on_later(
    store: Store, proxy: Proxy, largest_file: int, keep_free: int, why: str
) -> None:
    largest = [largest_file]
    packing = proxy.services.jobs.runner._packing
    packing.policy = replace(POLICY, keep_free=keep_free)
    workers = proxy.services.workers
    run = workers.run

    async def limited(task: messages.Task, *rest: Any, **options: Any) -> messages.Result:
        if not isinstance(task, messages.PackTask):
            return await run(task, *rest, **options)
        async with closing_pool(count=1) as fresh:
            take = fresh._take

            async def taking() -> asyncio.subprocess.Process:
                process = await take()
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (largest[0], largest[0]))
                return process

            fresh._take = taking  # type: ignore[method-assign]
            return await fresh.run(task, *rest, **options)

    workers.run = limited  # type: ignore[method-assign]
    path = send(store, long_rows())
    eventually(lambda: about(store, path)["waits"] is not None)
    waiting = about(store, path)
    assert waiting["waits"] == why
    assert (waiting["status"], waiting["packed"], "error" in waiting) == ("processing", 0, False)
    assert numbers(store) == []
    largest[0], packing.policy = 1 << 40, POLICY
    jobs.completed(store, path)
    assert about(store, path)["waits"] is None
    assert numbers(store) == list(range(FEW))


@pytest.mark.parametrize("harm", ["altered", "gone"])
def test_an_upload_that_is_damaged_before_it_is_packed_fails_the_job_and_nothing_is_visible(
    store: Store, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    # So that it is read once more.
    proxy.services.jobs.runner._packing.policy = replace(POLICY, run_bytes=0)
    with held(proxy, monkeypatch) as gate:
        path = send(store, long_rows())
        assert gate.reached.wait(60)
        eventually(lambda: about(store, path)["processed"] == FEW)
        (file,) = (tmp_path / "own" / "proxy" / "spool").glob("*.spool")
        content = bytearray(file.read_bytes())
        content[len(content) // 3] ^= 1
        if harm == "gone":
            file.unlink()
        else:
            file.write_bytes(content)
        gate.open()
        failed = jobs.ended(store, path)
    assert failed["status"] == "failed"
    assert failed["error"].endswith("(not_found)" if harm == "gone" else "(spool_damaged)")
    assert numbers(store) == []
    nothing_is_staged(store.service, path)

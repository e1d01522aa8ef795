"""A job whose worker processes end: it waits where all do, and fails where its own rows do it."""

from __future__ import annotations

import asyncio
import sys
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from encrypted_records.proxy.jobs import runner
from encrypted_records.proxy.settings import Overrides
from encrypted_records.proxy.workers.pool import WorkerPool
from tests.support import jobs
from tests.support.eventually import eventually
from tests.support.proxies import Proxy
from tests.support.store import Store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 10_000}},
}
ROWS = [{"n": n} for n in range(200)]
ENDS_AT_ONCE = "raise SystemExit(1)"
#: Workers as they are, but for one step.
_CHANGED = """
import os
from encrypted_records.proxy.workers import main
def {step}(task):
    {does}
main.{step} = {step}
main.main()
"""
DIES_OF_ROWS = _CHANGED.format(step="seal", does="os._exit(9)")
DIES_OF_THE_CHECK = _CHANGED.format(step="check", does="os._exit(9)")
HAS_NO_MEMORY = _CHANGED.format(step="seal", does="raise MemoryError")


@dataclass
class Starts:
    """What is started instead of a worker, where it is something."""

    program: str | None = None
    #: whether the system starts nothing at all
    refuses: bool = False
    count: int = 0


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    made, original = Starts(), asyncio.create_subprocess_exec

    async def start(*command: str, **options: Any) -> asyncio.subprocess.Process:
        made.count += 1
        if made.refuses:
            raise OSError(12, "Cannot allocate memory")
        if made.program is not None:
            command = (sys.executable, "-c", made.program)
        return await original(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    return made


@pytest.fixture
def overrides() -> Overrides:
    """Workers whose starts ``starts`` sees, as it does not see copies of a template."""
    return Overrides(workers=partial(WorkerPool))


@pytest.fixture(autouse=True)
def hurried(proxy: Proxy) -> None:
    proxy.services.jobs.runner.lost_waits = (0.01,)


def numbers(store: Store) -> list[int]:
    return sorted(int(one["data"]["n"]) for one in store.everything())


def why_waiting(proxy: Proxy, path: str) -> str:
    return proxy.services.progress.why_waiting(uuid.UUID(path.split("/")[-2]).bytes) or ""


@pytest.mark.parametrize("way", ["every worker ends", "none can be started"])
def test_a_job_waits_without_end_where_no_worker_works_and_completes_once_some_do(
    store: Store, proxy: Proxy, starts: Starts, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "MOST_LOST", 3)
    starts.program = ENDS_AT_ONCE if way == "every worker ends" else None
    starts.refuses = starts.program is None
    path = jobs.started(store, jobs.as_json(store, ROWS))
    # One of the job, and one that shows whether others work: more than a job may lose.
    eventually(lambda: starts.count > 2 * runner.MOST_LOST + 2)
    assert "no worker process is working" in why_waiting(proxy, path)
    about = store.proxy("GET", f"{path}about/").json()
    assert about["status"] == "processing"
    starts.program, starts.refuses = None, False
    jobs.completed(store, path)
    assert numbers(store) == list(range(200))


@pytest.mark.parametrize("program", [DIES_OF_ROWS, HAS_NO_MEMORY], ids=["killed", "memory"])
def test_rows_that_end_every_worker_fail_their_job_and_are_named(
    store: Store, starts: Starts, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "MOST_LOST", 3)
    starts.program = program
    path = jobs.started(store, jobs.as_json(store, ROWS))
    failed = jobs.ended(store, path, within=180)
    assert failed["status"] == "failed"
    assert "at rows 1 to 200, 3 times, while other work succeeded" in failed["error"]
    assert failed["error"].endswith("(worker_lost)")
    starts.program = None
    assert numbers(store) == []


def test_a_job_says_how_often_its_rows_have_ended_a_worker(
    store: Store, proxy: Proxy, starts: Starts
) -> None:
    proxy.services.jobs.runner.lost_waits = (0.01, 3600.0)
    starts.program = DIES_OF_THE_CHECK
    path = jobs.started(store, jobs.as_json(store, ROWS))
    eventually(lambda: "2 of 12 attempts before the job fails" in why_waiting(proxy, path))
    assert "the next try is in 3600 s" in why_waiting(proxy, path)


def test_waits_for_workers_grow_to_minutes_and_last_longer_than_a_short_want_of_memory() -> None:
    waits = runner.LOST_WAITS
    assert list(waits) == sorted(waits)
    assert waits[-1] >= 120
    last = [waits[min(number, len(waits) - 1)] for number in range(runner.MOST_LOST - 1)]
    assert sum(last) > 15 * 60

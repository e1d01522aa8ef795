"""Jobs that are packed: a proxy that packs small ones, records for it, and what there is then."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.model import ids
from encrypted_records.model.records import Segment
from encrypted_records.proxy.jobs.packing import PackingPolicy
from encrypted_records.proxy.settings import Overrides
from encrypted_records.proxy.workers import messages
from tests.support import jobs
from tests.support.eventually import eventually
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Service
from tests.support.store import Store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 200_000},
        "part": {"type": "number", "minimum": 0, "maximum": 10, "precision": 1},
        "name": {"type": "string"},
        "text": {"type": "string", "x-index": ["words"]},
    },
    "required": ["n"],
}
FIELDS: dict[str, Any] = DEFINITION["properties"]
NAMES = tuple(FIELDS)
#: So that a chunk has 700 of these rows, as chunks of a CSV in this charset have a third of the
#: bytes of others.
LONG = "x" * 4_000
CSV = "text/csv; charset=windows-1252"
#: Four chunks, two in each pack.
FEW = 2_600
POLICY = PackingPolicy(least=1000, rows=FEW // 2 + 1)
PACKING = Overrides(packing=POLICY)


def row(n: int) -> dict[str, Any]:
    made: dict[str, Any] = {"n": n, "name": f"name {n % 700} of many who are called alike"}
    if n % 3:
        made["part"] = (n % 101) / 10
    if n % 5:
        made["text"] = ("one", "two three", f"four n{n % 50}", "")[n % 4]
    return {name: value for name, value in made.items() if value != ""}


def long_rows(count: int = FEW) -> list[dict[str, Any]]:
    return [{"n": n, "name": LONG} for n in range(count)]


@contextmanager
def packing_proxy(base_url: str, folder: Path, policy: PackingPolicy) -> Iterator[Proxy]:
    with running_proxy(base_url, folder, overrides=Overrides(packing=policy)) as running:
        running.services.jobs.runner.waits = (0.05,)
        yield running


def send(store: Store, rows: list[dict[str, Any]], **options: Any) -> str:
    return jobs.started(store, jobs.as_csv(store, rows, NAMES), CSV, **options)


def numbers(store: Store) -> list[int]:
    return sorted(one["data"]["n"] for one in store.everything())


def segments(proxy: Proxy, store: Store) -> list[Segment]:
    """Those that live, as the proxy has verified it."""
    (state,) = [
        one for one in proxy.services.schemas.in_use() if one.id == ids.from_text(store.schema_id)
    ]
    return list(state.ledger.snapshot().segments)


def about(store: Store, path: str) -> dict[str, Any]:
    answer = store.proxy("GET", f"{path}about/")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


def is_staged(service: Service, path: str) -> bool:
    """Whether something of a job is. Of others there may be, whose proxies have ended."""
    job = uuid.UUID(path.split("/")[-2]).bytes
    database = sqlite3.connect(service.data_dir / "api" / "db.sqlite3")
    (count,) = database.execute("SELECT COUNT(*) FROM staging WHERE uid = ?", (job,)).fetchone()
    database.close()
    return bool(count)


def nothing_is_staged(service: Service, path: str) -> None:
    """Now, or soon: what a job has left is dropped behind its end."""
    eventually(lambda: not is_staged(service, path))


class Gate:
    """Lets a step of the packing happen, once it is open."""

    def __init__(self) -> None:
        self.reached, self._open = threading.Event(), threading.Event()

    def open(self) -> None:
        self._open.set()

    async def passed(self) -> None:
        self.reached.set()
        await asyncio.to_thread(self._open.wait, 60)


@contextmanager
def held(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """No pack is built before the gate opens."""
    gate, workers = Gate(), proxy.services.workers
    run = workers.run

    async def waiting(task: messages.Task, *rest: Any, **options: Any) -> messages.Result:
        if isinstance(task, messages.PackTask):
            await gate.passed()
        return await run(task, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(workers, "run", waiting)
        yield gate
        gate.open()

"""Retention while others store, change and delete, by proxies of which one is killed over and over:
nothing that may stay goes, and what has to go does."""

from __future__ import annotations

import shutil
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.support.second_proxy import with_keyrings
from tests.support.service import Service, running_service
from tests.support.store import Store, new_store

DAYS = 30
DEFINITION: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "retention": {"days": DAYS, "field": "seen"},
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 9999},
        "seen": {"type": "string", "format": "date"},
    },
}
WRITERS, ROUNDS, KILLS = 4, 8, 2


def day(ago: int) -> str:
    return (datetime.now(UTC) - timedelta(days=ago)).date().isoformat()


@dataclass
class Told:
    """What was acknowledged: records that stay, and records that have to go."""

    stay: set[str] = field(default_factory=set)
    go: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, record: str, *, stays: bool) -> None:
        with self._lock:
            self.stay.discard(record)
            self.go.discard(record)
            (self.stay if stays else self.go).add(record)


def write(store: Store, told: Told, number: int) -> None:
    """Store old and young records; make some of each the other; delete one that would stay."""
    for n in range(ROUNDS):
        rows = [{"n": number * 1000 + n, "seen": day(ago)} for ago in (0, 1, 2, 40, 400)]
        sent = store.send(rows)
        assert sent.status == 201, sent.body
        made = [one["id"] for one in sent.json()]
        for at, one in enumerate(made):
            told.note(one, stays=at < 3)
        for at, ago in ((0, 50), (3, 3)):
            path = f"/api/records/{made[at]}/"
            changed = store.proxy("PATCH", path, {"data": {"seen": day(ago)}})
            # Only one that was old may have gone before.
            assert changed.status == 200 or (changed.status, at) == (404, 3), changed.body
            if changed.status == 200:
                told.note(made[at], stays=ago < DAYS)
        assert store.proxy("DELETE", f"/api/records/{made[1]}/").status == 204
        told.note(made[1], stays=False)


@pytest.mark.parametrize("service", ["sqlite", "postgresql"], indirect=True)
def test_records_go_by_their_dates_alone_whoever_writes_and_whatever_is_killed(
    service: Service, tmp_path: Path
) -> None:
    store = new_store(service, DEFINITION)
    store.ingest([{"n": 0, "seen": day(0)}])
    told = Told(stay=set(store.found()))
    retention = f"{store.schema}retention/"
    folder = with_keyrings(service, tmp_path / "other")
    shutil.copy(service.data_dir / "format", folder / "format")
    writing = threading.Event()

    def let_go() -> None:
        while not writing.is_set():
            answer = store.proxy("POST", retention)
            assert answer.status == 200 or answer.json()["code"] == "log_conflict", answer.body

    def be_killed() -> None:
        for _ in range(KILLS):
            with running_service(
                folder,
                command="proxy",
                environment={"ERS_BASE_URL": service.base_url, "ERS_ACCESS": "api"},
            ) as proxy:
                own = replace(store, service=replace(store.service, proxy_url=proxy.proxy_url))
                threading.Thread(target=ask, args=(own, retention), daemon=True).start()
                time.sleep(0.05)
                proxy.process.kill()
                proxy.process.wait(30)

    with ThreadPoolExecutor(WRITERS + 2) as pool:
        others = [pool.submit(let_go), pool.submit(be_killed)]
        writers = [pool.submit(write, store, told, number) for number in range(WRITERS)]
        try:
            finish(writers)
        finally:
            writing.set()
        finish(others)
    assert store.proxy("POST", retention).status == 200
    assert told.go
    assert set(store.found()) == told.stay
    assert store.proxy("GET", retention).json()["records"] == 0


def finish(tasks: list[Future[None]]) -> None:
    for one in tasks:
        one.result(timeout=300)


def ask(store: Store, path: str) -> None:
    with suppress(OSError, HTTPException):  # it is killed before it answers
        store.proxy("POST", path)

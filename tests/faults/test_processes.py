"""Real processes that are killed or stopped, or whose disk is full. At which moment, and beside
what, is for the simulation, which believes that a killed process leaves what these leave.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.support import jobs
from tests.support.eventually import eventually
from tests.support.front import Asked, Reply, running_front
from tests.support.packed import CSV
from tests.support.service import Service, descendants, free_ports, gone, running_service
from tests.support.sides import full_disk, running_side, running_sides
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "batch": {"type": "integer", "minimum": 0, "maximum": 10**6},
        "name": {"type": "string"},
    },
    "required": ["batch", "name"],
}
#: In a request, and in a job of several chunks.
RECORDS, ROWS = 40, 1500
FILLER = "x" * 4_000


def rows(batch: int) -> list[dict[str, object]]:
    """Enough bytes for several chunks, of few rows: those take their time to be read back."""
    return [{"batch": batch, "name": f"row {row}{FILLER}"} for row in range(ROWS)]


def csv(store: Store, batch: int) -> tuple[bytes, str]:
    """In a charset of which a chunk has a third of the bytes."""
    return jobs.as_csv(store, rows(batch), ("batch", "name")), CSV


class Feeder:
    """Sends batch after batch until the service is gone; knows which were acknowledged."""

    def __init__(self, store: Store, numbers: itertools.count[int]) -> None:
        self.sent: list[int] = []
        self.acknowledged: list[int] = []
        self._store, self._numbers = store, numbers
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for number in self._numbers:
            self.sent.append(number)
            batch = [{"batch": number, "name": f"row {row}"} for row in range(RECORDS)]
            try:
                answer = self._store.send(batch)
            except (OSError, HTTPException):
                return
            if answer.status != 201:
                return
            self.acknowledged.append(number)

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def command_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        return ""
    return b" ".join(words).decode().strip()


def kill(service: Service, side: str) -> None:
    pids = [service.process.pid, *service.children()]
    chosen = [pid for pid in pids if command_of(pid).endswith(f"encrypted_records.cli.main {side}")]
    assert chosen
    for pid in chosen:
        os.kill(pid, signal.SIGKILL)
    assert gone(pids, within=60), "a side outlived the other"


def test_each_request_and_each_job_is_whole_whichever_side_is_killed(
    database: str | None, tmp_path: Path
) -> None:
    numbers = itertools.count()
    store: Store | None = None
    feeders: list[Feeder] = []
    uploaded: dict[int, str] = {}
    for side in ("proxy", "api"):
        with running_service(tmp_path / "data", database_url=database) as service:
            store = (
                new_store(service, DEFINITION) if store is None else replace(store, service=service)
            )
            job = 10**5 + len(uploaded)
            uploaded[job] = jobs.started(store, *csv(store, job))
            feeder = Feeder(store, numbers)
            feeders.append(feeder)
            eventually(lambda feeder=feeder: len(feeder.acknowledged) > 1)  # type: ignore[misc]
            kill(service, side)
            feeder.join()

    with running_service(tmp_path / "data", database_url=database) as service:
        assert store is not None
        store = replace(store, service=service)
        for path in uploaded.values():
            jobs.completed(store, path)
        stored: dict[int, list[str]] = {}
        for record in store.everything():
            stored.setdefault(record["data"]["batch"], []).append(record["data"]["name"])
        for job in uploaded:
            assert Counter(stored.pop(job)) == Counter(str(row["name"]) for row in rows(job))
        acknowledged = {number for feeder in feeders for number in feeder.acknowledged}
        assert (
            acknowledged <= set(stored) <= {number for feeder in feeders for number in feeder.sent}
        )
        for number, names in stored.items():
            assert sorted(names) == sorted(f"row {row}" for row in range(RECORDS)), number
        # Interrupted work does not stand in the way of later work.
        assert len(store.ingest([{"batch": 10**6, "name": "after"}])) == 1
        path = jobs.started(store, *csv(store, 10**6))
        with jobs.socket(store, path) as watching:
            assert next(jobs.messages(watching))["status"] == "processing"
            assert service.stop() == 0
            with suppress(ConnectionClosed):
                list(jobs.messages(watching))
            assert watching.close_code == 1012


def workers(proxy: int) -> list[int]:
    return [
        pid
        for pid in descendants(proxy)
        if "encrypted_records.proxy.workers.main" in command_of(pid)
    ]


# Nothing here is the database's affair.
@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_a_worker_that_is_killed_while_it_waits_for_an_answer_costs_its_job_nothing(
    service: Service, tmp_path: Path
) -> None:
    killed: list[int] = []
    (port,) = free_ports(1)
    url, log = f"http://127.0.0.1:{port}", tmp_path / "proxy.log"
    with running_front(service.base_url) as front:
        settings = {
            "ERS_DATA_DIR": str(tmp_path / "data"),
            "ERS_PROXY_PORT": str(port),
            "ERS_BASE_URL": front.url,
        }
        # A process of its own: its event loop hears of the end of a child only in a main thread.
        with running_side("proxy", settings, url, log) as process:

            def invent(asked: Asked) -> Reply | None:
                mine = workers(process.pid)
                # The check has asked the proxy for the schema, and the proxy asks the API.
                if "/manifest/" in asked.path and mine and not killed:
                    killed.extend(mine)
                    for pid in mine:
                        os.kill(pid, signal.SIGKILL)
                    assert gone(mine, within=60)
                return None

            front.invent = invent
            store = new_store(service, DEFINITION)
            store = replace(store, service=replace(service, proxy_url=url))
            few = [{"batch": number, "name": "few"} for number in range(200)]
            jobs.completed(store, jobs.started(store, jobs.as_json(store, few)))
            assert killed
            assert "a worker process ended before its work was done" in log.read_text()
            found = sorted(one["data"]["batch"] for one in store.everything())
            assert found == list(range(200))


def until_logged(service: Service, words: str) -> None:
    eventually(lambda: words in service.log, f"the log says {words!r}")


def test_a_full_disk_is_named_and_corrupts_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "proxy" / "proxy"
    with running_sides(tmp_path) as (service, fog):
        store = new_store(service, DEFINITION)
        # It fills under a job, which goes on when there is room again.
        path = jobs.started(store, *csv(store, 1))
        fog.fall()
        until_logged(service, f"job {path.split('/')[-2]} waits")
        changes = (folder / "jobs.sqlite3-wal").stat().st_size
        assert changes > len(service.log) + 8192, "the log must be able to grow"
        with full_disk(service, changes):
            fog.lift()
            until_logged(service, "store of jobs does not answer")
            assert "error" not in jobs.status(store, path)
        jobs.completed(store, path)
        assert sorted(one["data"]["name"] for one in store.everything()) == sorted(
            str(row["name"]) for row in rows(1)
        )

        # It has no room for an upload.
        with full_disk(service, 4 << 20):
            refused = jobs.upload(store, b"[" + b" " * (8 << 20) + b"]")
            assert (refused.status, refused.json()["code"]) == (507, "out_of_space")
            job, _ = store.proxy("GET", "/api/jobs/").json()["results"]
            assert job["status"] == "failed"
            assert "out_of_space" in job["error"]
            assert list((folder / "spool").glob("*.spool")) == []

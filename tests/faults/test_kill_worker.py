"""SIGKILL of a worker, just as the proxy is about to answer it, costs its job nothing."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import jobs
from tests.support.front import Asked, Reply, running_front
from tests.support.service import Service, descendants, free_ports, gone
from tests.support.sides import running_side
from tests.support.store import new_store

# Nothing here is the database's affair.
pytestmark = pytest.mark.parametrize("service", ["sqlite"], indirect=True)

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 10_000}},
}
ROWS = [{"n": n} for n in range(200)]


def workers(proxy: int) -> list[int]:
    return [
        pid
        for pid in descendants(proxy)
        if b"encrypted_records.proxy.workers.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


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
                    time.sleep(0.2)  # until the proxy has noticed
                return None

            front.invent = invent
            store = new_store(service, DEFINITION)
            store = replace(store, service=replace(service, proxy_url=url))
            jobs.completed(store, jobs.started(store, jobs.as_json(store, ROWS)))
            assert killed
            assert "a worker process ended before its work was done" in log.read_text()
            assert sorted(one["data"]["n"] for one in store.everything()) == list(range(200))

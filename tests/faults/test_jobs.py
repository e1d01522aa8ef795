"""Whatever interrupts a job, it ends whole: every record once, or none of them.

``JOB_FAULT_ROUNDS`` says how often each test interrupts (2 by default); each prints its seed, and
``JOB_FAULT_SEED`` repeats one.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.faults.test_kill_during_ingest import victims
from tests.support import jobs
from tests.support.service import Service, gone, running_service
from tests.support.sides import running_sides
from tests.support.store import Store, new_store

ROUNDS = int(os.environ.get("JOB_FAULT_ROUNDS", "2"))
DEFINITION = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 0, "maximum": 10**6},
        "name": {"type": "string"},
    },
    "required": ["number", "name"],
}
#: Enough bytes for several chunks.
COUNT = 10_000
FILLER = "x" * 2000


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("JOB_FAULT_SEED", random.randrange(2**32)))
    sys.stdout.write(f"JOB_FAULT_SEED={seed}\n")
    return random.Random(seed)


def rows() -> list[dict[str, object]]:
    return [{"number": number, "name": f"row {number}{FILLER}"} for number in range(COUNT)]


def numbers(store: Store) -> Counter[int]:
    """How often each row is stored, read back and decrypted."""
    found: Counter[int] = Counter()
    for record in store.everything():
        assert record["data"]["name"] == f"row {record['data']['number']}{FILLER}"
        found[record["data"]["number"]] += 1
    return found


def check(store: Store, path: str) -> str:
    """The job's end, whole or not at all; what it is."""
    final = jobs.ended(store, path)
    expected = Counter(range(COUNT)) if final["status"] == "completed" else Counter()
    assert numbers(store) == expected, final
    assert final["status"] == "completed" or final["error"], final
    return str(final["status"])


@contextmanager
def uploading(store: Store, body: bytes, kind: str) -> Iterator[None]:
    """An upload under way, whose answer may never come."""

    def run() -> None:
        with suppress(OSError, HTTPException):
            jobs.upload(store, body, kind)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(60)
        assert not thread.is_alive()


def kill(service: Service, side: str) -> None:
    pids = [service.process.pid, *service.children()]
    chosen = victims(service, side)
    assert chosen
    for pid in chosen:
        os.kill(pid, 9)
    assert gone(pids, within=12), "something outlived its parent"


@pytest.mark.parametrize(
    ("side", "kind"), [("both", "text/csv"), ("proxy", "application/json"), ("api", "text/csv")]
)
def test_a_job_survives_being_killed_at_any_moment(
    side: str, kind: str, chance: random.Random, tmp_path: Path
) -> None:
    with running_service(tmp_path / "data") as service:
        store = new_store(service, DEFINITION)
        body = (
            jobs.as_csv(store, rows(), ["name", "number"])
            if kind == "text/csv"
            else jobs.as_json(store, rows())
        )
        with uploading(store, body, kind):
            # Bytes that are not acknowledged are their sender's to send again.
            time.sleep(chance.uniform(0, 2.5))
            kill(service, side)
    for _ in range(ROUNDS - 1):
        with running_service(tmp_path / "data") as service:
            time.sleep(chance.uniform(0, 1.5))
            kill(service, side)
    with running_service(tmp_path / "data") as service:
        store = Store(service, store.account, store.schema)
        for one in store.proxy("GET", "/api/jobs/").json()["results"]:
            check(store, f"/api/jobs/{one['job_id']}/")
        # What was interrupted does not stand in the way of what comes after it.
        again = store.another_schema(DEFINITION)
        assert check(again, jobs.started(again, jobs.as_json(again, rows()))) == "completed"


def test_a_job_gets_through_broken_connections_and_bad_gateways(
    chance: random.Random, tmp_path: Path
) -> None:
    with running_sides(tmp_path) as (service, fog):
        store = new_store(service, DEFINITION)
        for _ in range(ROUNDS):
            store = store.another_schema(DEFINITION)
            path = jobs.started(store, jobs.as_json(store, rows()))
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                fog.fall(0.6, chance)
                time.sleep(chance.uniform(0, 0.5))
            fog.lift()
            assert check(store, path) == "completed"
        assert fog.spoiled > 0


def test_a_job_that_is_cancelled_at_any_moment_is_whole_or_absent(
    chance: random.Random, tmp_path: Path
) -> None:
    with running_service(tmp_path / "data") as service:
        store = new_store(service, DEFINITION)
        for _ in range(2 * ROUNDS):
            store = store.another_schema(DEFINITION)
            path = jobs.started(store, jobs.as_json(store, rows()[:500]))
            time.sleep(chance.uniform(0, 1))
            answer = store.proxy("DELETE", path)
            if answer.status == 204 and store.proxy("GET", path).status == 404:
                assert sum(numbers(store).values()) == 500  # it had ended, and is forgotten
                continue
            final = jobs.ended(store, path)["status"]
            assert (answer.status, final) in ((204, "failed"), (409, "completed"))
            assert sum(numbers(store).values()) == (500 if final == "completed" else 0)


def test_a_job_waits_for_an_api_that_is_away(tmp_path: Path) -> None:
    with running_sides(tmp_path) as (service, fog):
        store = new_store(service, DEFINITION)
        path = jobs.started(store, jobs.as_json(store, rows()))
        fog.fall(1.0)
        deadline = time.monotonic() + 60
        while "a job waits" not in service.log:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        fog.lift()
        assert "error" not in jobs.status(store, path)
        assert check(store, path) == "completed"

"""Whatever interrupts a job, it ends whole: every record once, or none of them.

``JOB_FAULT_ROUNDS`` says how often each test interrupts (once by default); each prints its seed,
and ``JOB_FAULT_SEED`` repeats one.
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
from websockets.exceptions import ConnectionClosed

from tests.faults.test_kill_during_ingest import victims
from tests.support import jobs
from tests.support.eventually import eventually
from tests.support.service import Account, Service, gone, running_service
from tests.support.sides import Fog, full_disk, running_sides
from tests.support.store import Store, new_schema, new_store

ROUNDS = int(os.environ.get("JOB_FAULT_ROUNDS", "1"))
DEFINITION = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 0, "maximum": 10**6},
        "name": {"type": "string"},
    },
    "required": ["number", "name"],
}
#: Enough bytes for several chunks, of few rows: those take their time to be read back.
COUNT = 1500
FILLER = "x" * 12_000
UTF16 = "text/csv; charset=utf-16"
KILLS = (("both", UTF16), ("proxy", "application/json"), ("api", "text/csv"))


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


def until_logged(service: Service, words: str) -> None:
    eventually(lambda: words in service.log, f"the log says {words!r}")


def kill(service: Service, side: str) -> None:
    pids = [service.process.pid, *service.children()]
    chosen = victims(service, side)
    assert chosen
    for pid in chosen:
        os.kill(pid, 9)
    assert gone(pids, within=60), "something outlived its parent"


def test_jobs_survive_being_killed_at_any_moment(chance: random.Random, tmp_path: Path) -> None:
    """Each is killed while its upload or its work is going on, and again with those before it."""
    account: Account | None = None
    schemas: list[str] = []
    for side, kind in KILLS:
        with running_service(tmp_path / "data") as service:
            account = account or service.new_account()
            store = Store(service, account, new_schema(service, account, DEFINITION))
            schemas.append(store.schema)
            body = (
                jobs.as_csv(store, rows(), ["name", "number"])
                if kind.startswith("text/csv")
                else jobs.as_json(store, rows())
            )
            if kind == UTF16:
                body = body.decode().encode("utf-16")
            with uploading(store, body, kind):
                # Bytes that are not acknowledged are their sender's to send again.
                time.sleep(chance.uniform(0, 2.5))
                kill(service, side)
    for _ in range(ROUNDS - 1):
        with running_service(tmp_path / "data") as service:
            time.sleep(chance.uniform(0, 1.5))
            kill(service, "both")
    with running_service(tmp_path / "data") as service:
        assert account is not None
        stores = [Store(service, account, schema) for schema in schemas]
        listed = stores[0].proxy("GET", "/api/jobs/").json()["results"]
        ends = [jobs.ended(stores[0], f"/api/jobs/{one['job_id']}/") for one in listed]
        assert all(one["status"] == "completed" or one["error"] for one in ends)
        stored = [numbers(store) for store in stores]
        assert all(found in (Counter(), Counter(range(COUNT))) for found in stored)
        completed = sum(one["status"] == "completed" for one in ends)
        assert sum(bool(found) for found in stored) == completed
        # What was interrupted does not stand in the way of what comes after it.
        again = stores[0].another_schema(DEFINITION)
        assert check(again, jobs.started(again, jobs.as_json(again, rows()))) == "completed"


@pytest.fixture(scope="module")
def foggy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Fog]]:
    with running_sides(tmp_path_factory.mktemp("foggy")) as (service, fog):
        yield new_store(service, DEFINITION), fog


def test_a_job_gets_through_broken_connections_and_bad_gateways(
    chance: random.Random, foggy: tuple[Store, Fog]
) -> None:
    store, fog = foggy
    for _ in range(ROUNDS):
        store = store.another_schema(DEFINITION)
        path = jobs.started(store, jobs.as_json(store, rows()))
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            fog.fall(0.6, chance)
            time.sleep(chance.uniform(0, 0.5))
        fog.lift()
        assert check(store, path) == "completed"
    assert fog.spoiled > 0


def test_a_job_waits_for_an_api_that_is_away_and_says_so(foggy: tuple[Store, Fog]) -> None:
    account, fog = foggy
    store = account.another_schema(DEFINITION)
    path = jobs.started(store, jobs.as_json(store, rows()))
    fog.fall(1.0)
    until_logged(store.service, f"job {path.split('/')[-2]} waits")
    fog.lift()
    assert "error" not in jobs.status(store, path)
    assert check(store, path) == "completed"


def test_a_job_that_is_cancelled_at_any_moment_is_whole_or_absent(
    chance: random.Random, tmp_path: Path
) -> None:
    with running_service(tmp_path / "data") as service:
        store = new_store(service, DEFINITION)
        for _ in range(2 * ROUNDS):
            store = store.another_schema(DEFINITION)
            path = jobs.started(store, jobs.as_json(store, rows()[:50]))
            time.sleep(chance.uniform(0, 1))
            answer = store.proxy("DELETE", path)
            if answer.status == 204 and store.proxy("GET", path).status == 404:
                assert sum(numbers(store).values()) == 50  # it had ended, and is forgotten
                continue
            final = jobs.ended(store, path)["status"]
            assert (answer.status, final) in ((204, "failed"), (409, "completed"))
            assert sum(numbers(store).values()) == (50 if final == "completed" else 0)

        # It ends in time and in order, whoever watches what is under way.
        path = jobs.started(store, jobs.as_json(store, rows()))
        with jobs.socket(store, path) as one, jobs.socket(store, path) as other:
            assert next(jobs.messages(one))["status"] == "processing"
            assert service.stop() == 0
            for watching in (one, other):
                with suppress(ConnectionClosed):
                    list(jobs.messages(watching))
                assert watching.close_code == 1012


def test_a_full_disk_is_named_and_corrupts_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "proxy" / "proxy"
    with running_sides(tmp_path) as (service, fog):
        store = new_store(service, DEFINITION)
        # It fills under a job, which goes on when there is room again.
        path = jobs.started(store, jobs.as_json(store, rows()))
        fog.fall(1.0)
        until_logged(service, " waits ")
        changes = (folder / "jobs.sqlite3-wal").stat().st_size
        assert changes > len(service.log) + 8192, "the log must be able to grow"
        with full_disk(service, changes):
            fog.lift()
            until_logged(service, "store of jobs does not answer")
            assert "error" not in jobs.status(store, path)
        assert check(store, path) == "completed"

        # It has no room for an upload.
        with full_disk(service, 4 << 20):
            refused = jobs.upload(store, b"[" + b" " * (8 << 20) + b"]")
            assert (refused.status, refused.json()["code"]) == (507, "out_of_space")
            job, _ = store.proxy("GET", "/api/jobs/").json()["results"]
            assert job["status"] == "failed"
            assert "out_of_space" in job["error"]
            assert list((folder / "spool").glob("*.spool")) == []

"""``ers api --workers``: several processes of one API, of which any may be killed."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from encrypted_records.model import wire
from encrypted_records.model.records import RowRef, SealedRow, StoredRow
from tests.server.api import PASSWORD, Account, Answer, Api, basic, free_port, wait_until_up
from tests.server.writer import FRAMES, Writer, person
from tests.support.eventually import eventually
from tests.support.forked import Forked
from tests.support.postgres import NewDatabase
from tests.support.service import ERS, clean_environment, descendants, gone
from tests.support.tables import give_tables

WORKERS = 2
#: More connections than one process takes by itself before others wake up.
MANY = 24


class Patient(Api):
    """Asked again where a process was killed that had the request, as everybody does."""

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        once = partial(super().call, method, path, body, headers=headers)

        def answered() -> Answer | None:
            with suppress(OSError, HTTPException):
                return once()
            return None

        answer = eventually(answered, "a process answers")
        assert answer is not None
        return answer


@contextmanager
def running(folder: Path, *arguments: str, database_url: str = "") -> Iterator[Api]:
    if not database_url:
        give_tables(folder / "data")
    port = free_port()
    with (folder / "log").open("ab") as log:
        process = Forked(
            [*ERS, "api", "--workers", str(WORKERS), *arguments],
            env=clean_environment(
                ERS_DATA_DIR=str(folder / "data"),
                ERS_API_PORT=str(port),
                ERS_PUBLIC_URL="http://proxy.example:8080",
                **({"ERS_DATABASE_URL": database_url} if database_url else {}),
            ),
            stdout=log,
            stderr=log,
        )
    try:
        wait_until_up(port, process)
        yield Patient(process, port, folder / "data", folder / "log", database_url or None)
    finally:
        left = descendants(process.pid)
        process.kill()
        process.wait(10)
        for pid in left:
            if not gone([pid], within=0):
                os.kill(pid, signal.SIGKILL)


def workers_of(api: Api, *, without: int = 0) -> set[int]:
    """All of them, once they run."""

    def found() -> set[int]:
        return set(descendants(api.process.pid)) - {without}

    eventually(lambda: len(found()) >= WORKERS, "all workers run")
    return found()


@dataclass
class Storing:
    """Stores rows by commits, one after the other; each again until it is acknowledged."""

    writer: Writer
    stop: threading.Event
    acknowledged: list[tuple[bytes, SealedRow]] = field(default_factory=list)

    def run(self) -> None:
        while not self.stop.is_set():
            row = person()
            commit = self.writer.adding([row])
            answer = self.writer.post(commit)
            assert answer.status in (200, 201), answer.body
            self.writer.follow(commit)
            [batch] = commit.rows
            self.acknowledged.append((batch.group, row))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_any_process_of_an_api_may_be_killed_and_nothing_is_lost_or_doubled(
    tmp_path: Path, postgresql: NewDatabase, kind: str
) -> None:
    url, port = postgresql.with_tables() if kind == "postgresql" else "", free_port()
    with running(tmp_path, "--api-metrics-port", str(port), database_url=url) as api:
        workers = workers_of(api)
        # All of them count together.
        before = counted(port)
        for _ in range(MANY):
            assert api.call("GET", "/api/status/").status == 200
        assert counted(port) == before + MANY
        account, locked = api.new_account(), api.new_account()
        # Wrong passwords count together, whichever process is asked.
        for _ in range(10):
            api.call("GET", "/api/users/self/", headers=basic(locked.email, "wrong password"))
        lock_for_an_hour(api)
        for _ in range(MANY):
            assert account.call("GET", "/api/users/self/").status == 200
            refused = api.call("GET", "/api/users/self/", headers=basic(locked.email, PASSWORD))
            assert (refused.status, refused.code) == (429, "too_many_failures")

        stop = threading.Event()
        every = [Storing(Writer(account, account.new_schema()), stop) for _ in range(2)]
        threads = [threading.Thread(target=one.run, daemon=True) for one in every]
        for thread in threads:
            thread.start()
        try:
            wait_for_more(every, threads)
            killed = min(workers)
            os.kill(killed, signal.SIGKILL)
            wait_for_more(every, threads)
            after = workers_of(api, without=killed)
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        assert len(after - workers) == 1
        assert "(signal SIGKILL) and is restarted" in api.log.read_text()
        for one in every:
            assert_stored(account, one)

        # They end with the process that keeps them, however it ends.
        if kind == "postgresql":
            api.process.kill()
            api.process.wait(10)
            assert gone(list(after), within=30)
        else:
            api.process.send_signal(signal.SIGTERM)
            assert api.process.wait(60) == 0
            assert gone(list(after), within=0)


def lock_for_an_hour(api: Api) -> None:
    """What is locked by now, stays so, however slow this machine is."""
    hour = (
        "strftime('%Y-%m-%d %H:%M:%f', 'now', '+1 hour')"
        if api.database_url is None
        else "now() + interval '1 hour'"
    )
    api.execute(f"UPDATE accounts_tally SET until = {hour} WHERE count >= 10")


def wait_for_more(every: list[Storing], threads: list[threading.Thread]) -> None:
    wanted = [len(one.acknowledged) + 5 for one in every]

    def have() -> bool:
        assert all(thread.is_alive() for thread in threads)
        return all(len(one.acknowledged) >= want for one, want in zip(every, wanted, strict=True))

    eventually(have, f"{wanted} are acknowledged", pause=0.01)


def assert_stored(account: Account, one: Storing) -> None:
    """What was acknowledged is there, and nothing else."""
    url = one.writer.schema["url"]
    listed = account.call("GET", f"/api/records/?schema={one.writer.schema['id']}&limit=1")
    assert listed.json()["count"] == len(one.acknowledged)
    wanted = wire.encode([RowRef(group, 0) for group, _ in one.acknowledged])
    answer = account.call("POST", f"{url}rows/", wanted, **FRAMES)
    assert answer.status == 200, answer.body
    assert [found.row for found in wire.decode_all(answer.body, StoredRow)] == [
        row for _, row in one.acknowledged
    ]


def counted(port: int) -> float:
    """Requests of the status, as metrics tell them."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    assert "\ners_live_records " in text
    found = re.findall(r'^ers_requests_total\{.*route="/api/status/".*\} (\S+)$', text, re.M)
    return sum(map(float, found))

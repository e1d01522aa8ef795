"""SIGKILL at a random moment of a running ingest leaves every request whole or absent."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
import time
from http.client import HTTPException
from pathlib import Path

from tests.support.service import Service, gone, running_service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "batch": {"type": "integer", "minimum": 0, "maximum": 10**6},
        "name": {"type": "string"},
    },
    "required": ["batch", "name"],
}
UNIQUE = {"type": "object", "properties": {"key": {"type": "string"}}, "unique": [["key"]]}
RECORDS = 40
RACERS = 8
#: How often each side is killed.
ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))
SIDES = ("both", "proxy", "api")


class Feeder:
    """Sends batch after batch until the service is gone; knows which were acknowledged."""

    def __init__(self, store: Store, numbers: itertools.count[int]) -> None:
        self.store = store
        self.numbers = numbers
        self.sent: list[int] = []
        self.acknowledged: list[int] = []
        self.flowing = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        for number in self.numbers:
            self.sent.append(number)
            try:
                answer = self.store.send(
                    [{"batch": number, "name": f"row {row}"} for row in range(RECORDS)]
                )
            except (OSError, HTTPException):
                return
            if answer.status != 201:
                return
            self.acknowledged.append(number)
            self.flowing.set()


class Race:
    """Writers who want the same unique value, of whom somebody has an answer."""

    def __init__(self, store: Store, key: str) -> None:
        self.key = key
        self.won: list[str] = []
        self._store = store
        self._answered = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(RACERS)]

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()
        assert self._answered.wait(60)

    def end(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _run(self) -> None:
        try:
            answer = self._store.send([{"key": self.key}])
        except (OSError, HTTPException):
            return
        if answer.status in (201, 409):
            if answer.status == 201:
                self.won.append(answer.json()[0]["id"])
            self._answered.set()


def victims(service: Service, side: str) -> list[int]:
    """Process ids of the API's side, the proxy's, or of everything."""
    everything = [service.process.pid, *service.children()]
    if side == "both":
        return everything
    return [
        pid for pid in everything if _command(pid).endswith(f"encrypted_records.cli.main {side}")
    ]


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        return ""
    return b" ".join(words).decode().strip()


def test_each_request_is_stored_whole_or_not_at_all(database: str | None, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    chance = random.Random(seed)
    numbers = itertools.count()
    sent: list[int] = []
    acknowledged: list[int] = []
    store: Store | None = None
    unique: Store | None = None
    races: list[Race] = []

    for side in SIDES * ROUNDS:
        with running_service(tmp_path / "data", database_url=database) as service:
            if store is None:
                store = new_store(service, DEFINITION)
                unique = store.another_schema(UNIQUE)
            assert unique is not None
            store = Store(service, store.account, store.schema, store.device)
            feeder = Feeder(store, numbers)
            feeder.thread.start()
            # Starting up may take long; what is to be hit is the running ingest.
            assert feeder.flowing.wait(60)
            time.sleep(chance.uniform(0, 0.5))
            unique = Store(service, unique.account, unique.schema, unique.device)
            races.append(Race(unique, f"{len(races)}"))
            races[-1].begin()
            pids = [service.process.pid, *service.children()]
            chosen = victims(service, side)
            assert chosen
            for pid in chosen:
                os.kill(pid, signal.SIGKILL)
            feeder.thread.join(60)
            assert not feeder.thread.is_alive()
            races[-1].end()
            assert gone(pids, within=60), "a side outlived the other"
            sent += feeder.sent
            acknowledged += feeder.acknowledged

    with running_service(tmp_path / "data", database_url=database) as service:
        assert store is not None
        store = Store(service, store.account, store.schema, store.device)
        stored: dict[int, list[str]] = {}
        for record in store.everything():
            stored.setdefault(record["data"]["batch"], []).append(record["data"]["name"])
        assert set(acknowledged) <= set(stored) <= set(sent)
        for number, names in stored.items():
            assert sorted(names) == sorted(f"row {row}" for row in range(RECORDS)), number
        assert unique is not None
        unique = Store(service, unique.account, unique.schema, unique.device)
        held = [(record["data"]["key"], record["id"]) for record in unique.everything()]
        assert sorted(key for key, _ in held) == sorted(race.key for race in races)
        for race in races:
            assert race.won in ([], [dict(held)[race.key]])
            assert unique.send([{"key": race.key}]).status == 409
        # What was interrupted does not stand in the way of what comes after it.
        assert len(store.ingest([{"batch": 10**6, "name": "after"}])) == 1

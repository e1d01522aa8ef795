"""SIGKILL around a rotation leaves the old keyring or the new one, and every record readable."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import time
from http.client import HTTPException
from pathlib import Path

from tests.support.service import gone, running_service
from tests.support.store import Store, new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}
ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))


def rotate_until_killed(store: Store, acknowledged: list[int], begun: threading.Event) -> None:
    """Rotate again and again; appends how many versions there were said to be."""
    while True:
        try:
            answer = store.proxy("POST", "/api/keyring/rotate/")
        except (OSError, HTTPException):
            return
        if answer.status != 201:
            return
        acknowledged.append(len(answer.json()["versions"]))
        begun.set()


def test_a_kill_leaves_one_of_the_two_keyrings_and_all_records_readable(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    chance = random.Random(seed)
    names: list[str] = []
    acknowledged: list[int] = []
    store: Store | None = None

    for turn in range(ROUNDS):
        with running_service(tmp_path / "data") as service:
            store = (
                new_store(service, DEFINITION)
                if store is None
                else Store(service, store.account, store.schema, store.device)
            )
            names.append(f"record {turn}")
            if acknowledged:
                held = store.proxy("GET", "/api/keyring/").json()["versions"]
                assert len(held) - acknowledged[-1] in (0, 1)
            store.ingest([{"name": names[-1]}])
            begun = threading.Event()
            rotating = threading.Thread(
                target=rotate_until_killed, args=(store, acknowledged, begun)
            )
            rotating.start()
            assert begun.wait(60)
            time.sleep(chance.uniform(0, 0.1))
            pids = [service.process.pid, *service.children()]
            for pid in pids:
                # Each side ends by itself once it sees that the other is gone.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            rotating.join(60)
            assert gone(pids, within=60)

    with running_service(tmp_path / "data") as service:
        assert store is not None
        store = Store(service, store.account, store.schema, store.device)
        found = store.proxy("GET", "/api/keyring/").json()
        # What was acknowledged is there, and at most one more: what was cut short.
        assert len(found["versions"]) - acknowledged[-1] in (0, 1)
        assert [one["data"]["name"] for one in store.everything()] == names
        store.ingest([{"name": "after"}])
        assert len(store.everything()) == len(names) + 1

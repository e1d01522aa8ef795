"""One busy user at one proxy does not keep a quiet one at another proxy waiting."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.eventually import eventually
from tests.support.front import Front, running_front
from tests.support.proxies import running_proxy
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 100}},
}
#: More changes at once than the API has threads.
CHANGES, THREADS = 10, 8
PATIENCE = 30.0


def at(proxy_url: str, store: Store) -> Store:
    return replace(store, service=replace(store.service, proxy_url=proxy_url))


@contextmanager
def no_writes(service: Service) -> Iterator[None]:
    """Who changes the API's database waits; who reads does not."""
    path = service.data_dir / "api" / "db.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("ROLLBACK")


def wait_for_commits(front: Front, count: int) -> None:
    def come() -> bool:
        return sum(one.path == "/api/commits/" for one in front.asked) >= count

    eventually(come, f"{count} commits come", PATIENCE)


def test_a_quiet_user_is_answered_while_a_busy_ones_changes_wait(
    service: Service, tmp_path: Path
) -> None:
    with (
        running_front(service.base_url) as front,
        running_proxy(front.url, tmp_path / "busy") as one,
        running_proxy(service.base_url, tmp_path / "quiet") as other,
        ThreadPoolExecutor(CHANGES) as pool,
    ):
        first = at(one.url, new_store(service, DEFINITION))
        busy = [first, *(first.another_schema(DEFINITION) for _ in range(CHANGES - 1))]
        quiet = at(other.url, new_store(service, DEFINITION))
        for store in (*busy, quiet):
            store.ingest([{"n": 7}])
        assert quiet.search(count=True)["count"] == 1  # the API has noted that it reads
        front.forget()
        with no_writes(service):
            changes = [pool.submit(store.send, [{"n": 8}]) for store in busy]
            wait_for_commits(front, THREADS)
            for _ in range(3):
                assert quiet.search(count=True)["count"] == 1
            assert not any(change.done() for change in changes)
        assert {change.result().status for change in changes} == {201}

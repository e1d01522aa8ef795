"""SIGKILL of the proxy at each step of a job that is packed: each record once, and nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from encrypted_records.client.api import Api
from encrypted_records.proxy.jobs.pack_store import PackStore
from encrypted_records.proxy.jobs.packing import PackingPolicy
from encrypted_records.proxy.jobs.store import JobStore
from encrypted_records.proxy.overrides import Overrides
from encrypted_records.proxy.schemas.heads import Heads
from encrypted_records.proxy.workers import messages
from encrypted_records.proxy.workers.pool import WorkerPool
from tests.faults.test_kill_during_merge import nothing_is_left_behind
from tests.support import jobs
from tests.support.eventually import eventually
from tests.support.proxies import running_proxy
from tests.support.second_proxy import with_keyrings
from tests.support.service import Account, Service, clean_environment, running_service
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 100_000},
        "name": {"type": "string"},
    },
}
#: Of rows as long as these a chunk has 5,600, so that there are four, two in each pack; and a
#: packed segment has pages enough for several parts.
FILLER = "x" * 1_500
COUNT = 22_000
POLICY = PackingPolicy(least=1000, rows=COUNT // 2 + 1, pages=16)


def rows() -> list[dict[str, Any]]:
    return [{"n": n, "name": f"{n}{FILLER}"} for n in range(COUNT)]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner: Any, name: str, when: Callable[..., bool] = lambda *_, **__: True) -> None:
    """Die before a call of a method."""
    original = getattr(owner, name)

    def dying(*arguments: Any, **options: Any) -> Any:
        if when(*arguments, **options):
            die()
        return original(*arguments, **options)

    setattr(owner, name, dying)


def after(owner: Any, name: str) -> None:
    """Die after a method has returned."""
    original = getattr(owner, name)

    def dying(*arguments: Any, **options: Any) -> Any:
        original(*arguments, **options)
        die()

    setattr(owner, name, dying)


def after_answer(owner: Any, name: str) -> None:
    """Die when the API has done what it was asked for."""
    original: Callable[..., Awaitable[Any]] = getattr(owner, name)

    async def dying(*arguments: Any, **options: Any) -> None:
        await original(*arguments, **options)
        die()

    setattr(owner, name, dying)


def nth(count: int, chosen: Callable[..., bool]) -> Callable[..., bool]:
    """Of the calls that are chosen, this one."""
    left = iter(range(1, count))

    def is_it(*arguments: Any, **options: Any) -> bool:
        return chosen(*arguments, **options) and next(left, None) is None

    return is_it


def packs(_pool: WorkerPool, task: messages.Task, *_: Any, **__: Any) -> bool:
    return isinstance(task, messages.PackTask)


def is_packed(_api: Api, _schema: bytes, body: bytes, *_: Any, **__: Any) -> bool:
    """Whether a part is of a packed segment: it has no group, and few pages."""
    return len(body) < 1_000_000


#: In the order in which a job comes to them: each next proxy gets as far as the next one.
STEPS: dict[str, Callable[[], None]] = {
    "a chunk is sealed, and not staged": lambda: before(Api, "stage"),
    "a chunk is staged, and not marked": lambda: before(JobStore, "done"),
    "a chunk is marked": lambda: after(JobStore, "done"),
    "a pack is begun": lambda: before(WorkerPool, "run", packs),
    "no part is staged": lambda: before(Api, "stage", is_packed),
    "some parts are staged": lambda: before(Api, "stage", nth(2, is_packed)),
    "all parts are staged, and not marked": lambda: before(PackStore, "add"),
    "a pack is built": lambda: after(PackStore, "add"),
    "the other pack is begun": lambda: before(WorkerPool, "run", packs),
    "all is packed": lambda: before(JobStore, "mark_sealed"),
    "all is marked": lambda: after(JobStore, "mark_sealed"),
    "publication": lambda: before(Api, "publish"),
    "it is published, and not remembered": lambda: before(Heads, "remember"),
    "it is published, and not entered": lambda: before(JobStore, "mark_completed"),
}


@contextmanager
def proxy_of(folder: Path, store: Store) -> Iterator[Store]:
    """The store, by way of a proxy in this process, which goes on with what is in its folder."""
    overrides = Overrides(packing=POLICY)
    with running_proxy(store.service.base_url, folder, overrides=overrides) as proxy:
        service = Service(None, store.service.base_url, proxy.url, folder, Path(os.devnull))  # type: ignore[arg-type]
        yield Store(service, store.account, store.schema, store.device)


def unfinished(store: Store) -> list[str]:
    listed = store.proxy("GET", "/api/jobs/").json()["results"]
    return [one["job_id"] for one in listed if one["status"] not in jobs.ENDED]


def go_on_and_die(folder: Path, store: Store, step: str) -> None:
    """Send the job, if it is not there yet, and wait for the kill."""
    STEPS[step]()
    with proxy_of(folder, store) as own:
        if not unfinished(own):
            jobs.started(own, jobs.as_csv(own, rows(), list(DEFINITION["properties"])), "text/csv")
        eventually(lambda: not unfinished(own), "no job is left")


def killed(folder: Path, store: Store, step: str) -> int:
    """How a proxy of its own process ended."""
    account = store.account
    chosen = [store.service.base_url, account.email, account.password, store.schema]
    command = [sys.executable, "-m", "tests.faults.test_kill_during_packing", str(folder), step]
    return subprocess.run([*command, *chosen], env=clean_environment(), check=False).returncode


def test_a_packed_job_that_is_killed_at_every_step_is_stored_once(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    with running_service(tmp_path / "data") as service:
        store = new_store(service, DEFINITION)
        store.ingest([{"n": COUNT}])
        with_keyrings(service, folder)
        seen: list[int] = []
        for step in STEPS:
            assert killed(folder, store, step) == -signal.SIGKILL, step
            seen.append(store.search(None, count=True, limit=0)["count"])
        # All at once: only the last two are behind the publication.
        assert seen == [1] * (len(STEPS) - 2) + [1 + COUNT] * 2
        with proxy_of(folder, store) as own:
            (listed,) = own.proxy("GET", "/api/jobs/").json()["results"]
            jobs.completed(own, f"/api/jobs/{listed['job_id']}/")
            found = own.everything()
            assert sorted(one["data"]["n"] for one in found) == list(range(COUNT + 1))
            for n in (0, 1, COUNT // 2, COUNT - 1):
                where = {"field": "name", "op": "eq", "value": f"{n}{FILLER}"}
                assert [one["data"]["n"] for one in own.everything(where)] == [n]
            status = own.proxy("GET", f"/api/records/status/?schema={own.schema_id}").json()
            assert status["segments"]["live"] == 3
        nothing_is_left_behind(service)
        # Files without a name are gone with their processes, and the upload with its job.
        assert list((folder / "proxy" / "spool").iterdir()) == []


if __name__ == "__main__":
    data_dir, step, base_url, email, password, schema = sys.argv[1:]
    service = Service(None, base_url, "", Path(data_dir), Path(os.devnull))  # type: ignore[arg-type]
    go_on_and_die(Path(data_dir), Store(service, Account(email, password, ""), schema), step)

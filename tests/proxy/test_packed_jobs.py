"""Jobs whose index is packed before they are published: the same records, found in the same way."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.model import ids, json_text
from encrypted_records.model.records import Segment
from encrypted_records.proxy.jobs.packing import PackingPolicy
from encrypted_records.proxy.overrides import Overrides
from encrypted_records.proxy.workers import messages
from encrypted_records.proxy.workers.pool import WorkerPool
from tests import oracle
from tests.support import jobs
from tests.support.front import Asked, Front, Reply, running_front
from tests.support.older import make_older
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Service
from tests.support.store import Store, new_store

pytestmark = pytest.mark.parametrize("service", ["sqlite"], indirect=True)

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 200_000},
        "part": {"type": "number", "minimum": 0, "maximum": 10, "precision": 1},
        "name": {"type": "string"},
        "text": {"type": "string", "x-index": ["words"]},
    },
    "required": ["n"],
}
FIELDS: dict[str, Any] = DEFINITION["properties"]
NAMES = tuple(FIELDS)
#: More than a segment has that is not packed, and more than one chunk.
MANY = 70_000
#: So that a chunk has 700 of these rows.
LONG = "x" * 12_000
#: Four chunks, two in each range.
FEW = 2_600
POLICY = PackingPolicy(least=1000, rows=FEW // 2 + 1)
STAGED = ("staging", "staged_part")


def row(n: int) -> dict[str, Any]:
    made: dict[str, Any] = {"n": n, "name": f"name {n % 700} of many who are called alike"}
    if n % 3:
        made["part"] = (n % 101) / 10
    if n % 5:
        made["text"] = ("one", "two three", f"four n{n % 50}", "")[n % 4]
    return {name: value for name, value in made.items() if value != ""}


def long_rows(count: int = FEW) -> list[dict[str, Any]]:
    return [{"n": n, "name": LONG} for n in range(count)]


@contextmanager
def packing_proxy(base_url: str, folder: Path, policy: PackingPolicy = POLICY) -> Iterator[Proxy]:
    with running_proxy(base_url, folder, overrides=Overrides(packing=policy)) as running:
        running.services.jobs.runner.waits = (0.05,)
        yield running


@pytest.fixture
def front(service: Service) -> Iterator[Front]:
    with running_front(service.base_url) as running:
        yield running


@pytest.fixture
def proxy(front: Front, tmp_path: Path) -> Iterator[Proxy]:
    with packing_proxy(front.url, tmp_path / "own") as running:
        yield running


@pytest.fixture
def store(service: Service, proxy: Proxy) -> Store:
    return at(new_store(service, DEFINITION), proxy)


def at(store: Store, proxy: Proxy) -> Store:
    """The same, by way of another proxy."""
    return replace(store, service=replace(store.service, proxy_url=proxy.url))


def send(store: Store, rows: list[dict[str, Any]], **options: Any) -> str:
    return jobs.started(store, jobs.as_csv(store, rows, NAMES), "text/csv", **options)


def numbers(store: Store) -> list[int]:
    return sorted(one["data"]["n"] for one in store.everything())


def segments(proxy: Proxy, store: Store) -> list[Segment]:
    """Those that live, as the proxy has verified it."""
    (state,) = [
        one for one in proxy.services.schemas.in_use() if one.id == ids.from_text(store.schema_id)
    ]
    return list(state.ledger.snapshot().segments)


def about(store: Store, path: str) -> dict[str, Any]:
    answer = store.proxy("GET", f"{path}about/")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def nothing_is_staged(service: Service) -> None:
    database = sqlite3.connect(service.data_dir / "api" / "db.sqlite3")
    counts = [database.execute(f"SELECT COUNT(*) FROM {one}").fetchone()[0] for one in STAGED]
    database.close()
    assert counts == [0, 0]


class Gate:
    """Lets a step of the packing happen, once it is open."""

    def __init__(self) -> None:
        self.reached, self._open = threading.Event(), threading.Event()

    def open(self) -> None:
        self._open.set()

    async def passed(self) -> None:
        self.reached.set()
        await asyncio.to_thread(self._open.wait, 60)


@contextmanager
def held(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """No range is packed before the gate opens."""
    gate, workers = Gate(), proxy.services.workers
    run = workers.run

    async def waiting(task: messages.Task, *rest: Any, **options: Any) -> messages.Result:
        if isinstance(task, messages.PackTask):
            await gate.passed()
        return await run(task, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(workers, "run", waiting)
        yield gate
        gate.open()


WHERES: list[Any] = [
    None,
    {"field": "n", "op": "between", "value": [60_000, 66_000]},
    {"field": "n", "op": "eq", "value": 65_536},
    {"field": "part", "op": "gt", "value": 9.5},
    {"field": "part", "op": "is_null"},
    {"field": "name", "op": "eq", "value": row(7)["name"]},
    {"not": {"field": "name", "op": "ge", "value": "name 4"}},
    {"field": "text", "op": "has_words", "value": "four n37"},
    {
        "and": [
            {"field": "text", "op": "has_words", "value": "three"},
            {
                "or": [
                    {"field": "n", "op": "lt", "value": 20},
                    {"field": "part", "op": "eq", "value": 1},
                ]
            },
        ]
    },
]


def test_a_packed_job_is_found_as_one_that_is_not_and_as_the_oracle_says(
    service: Service, tmp_path: Path
) -> None:
    rows = [row(n) for n in range(MANY)]
    with packing_proxy(service.base_url, tmp_path / "own", PackingPolicy(least=MANY)) as proxy:
        packed = at(new_store(service, DEFINITION), proxy)
        jobs.completed(packed, send(packed, rows))
        (one,) = segments(proxy, packed)
        assert (one.form, one.count, len(one.groups)) == ("paged", MANY, 2)
        plain = packed.another_schema(DEFINITION)
        jobs.completed(plain, send(plain, rows[:-1]))  # one fewer than are packed
        plain.ingest(rows[-1:])
        assert [len(own.groups) for own in segments(proxy, plain)] == [1, 1, 1]
        for where in WHERES:
            expected = [one for one in rows if oracle.holds(where, one, FIELDS)]
            for store in (packed, plain):
                found = store.search(where, count=True, limit=50, order_by=["-n"])
                assert found["count"] == len(expected), where
                assert [one["data"]["n"] for one in found["results"]] == [
                    one["n"] for one in expected[::-1][:50]
                ]
        body = {"measures": [{"op": "count"}, {"op": "avg", "field": "part"}], "group_by": ["text"]}
        told = [
            store.proxy("POST", "/api/records/aggregate/", {"schema": store.schema, **body}).json()
            for store in (packed, plain)
        ]
        assert told[0]["groups"] == told[1]["groups"]
        # Merging, deleting and undoing go on from there.
        assert packed.proxy("DELETE", f"/api/records/{packed.found(WHERES[2])[0]}/").status == 204
        assert packed.search(None, count=True, limit=0)["count"] == MANY - 1


def test_each_range_of_chunks_has_one_segment_and_their_order_is_that_of_the_file(
    store: Store, proxy: Proxy
) -> None:
    path = send(store, long_rows())
    jobs.completed(store, path)
    found = segments(proxy, store)
    assert sorted(len(one.groups) for one in found) == [2, 2]
    assert sum(one.count for one in found) == FEW
    assert [one["data"]["n"] for one in store.everything()] == list(range(FEW))
    shown = about(store, path)
    assert (shown["packs"], shown["packed"], shown["waits"]) == (2, 2, None)


def test_rows_of_several_schemas_are_packed_apart_and_bad_ones_left_out(
    store: Store, proxy: Proxy
) -> None:
    other = store.another_schema(DEFINITION)
    rows = [
        {
            "schema": (store, other)[n % 3 == 0].schema,
            "data": {"n": -1 if n == 5 else n, "name": LONG},
        }
        for n in range(FEW)
    ]
    path = jobs.started(store, json_text.encode(rows), X_On_Invalid="skip")
    jobs.completed(store, path)
    assert numbers(store) == [n for n in range(FEW) if n % 3 and n != 5]
    assert numbers(other) == list(range(0, FEW, 3))
    assert [len(segments(proxy, one)) for one in (store, other)] == [2, 2]


def test_rows_that_collide_are_left_out_of_what_is_packed(
    store: Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also such that came to collide while others were packed: their range is packed again."""
    unique = store.another_schema({**DEFINITION, "unique": [["n"]]})
    unique.ingest([{"n": 7}])
    with held(proxy, monkeypatch) as gate:
        path = send(unique, long_rows(), X_On_Conflict="skip")
        assert gate.reached.wait(60)
        unique.ingest([{"n": 1}])
        gate.open()
        jobs.completed(unique, path)
    assert numbers(unique) == list(range(FEW))
    assert unique.search({"field": "name", "op": "is_null"}, count=True, limit=0)["count"] == 2
    packed = [one for one in segments(proxy, unique) if one.count > 1]
    assert sum(one.count for one in packed) == FEW - 2


def test_rows_replace_records_and_are_packed(store: Store, proxy: Proxy) -> None:
    unique = store.another_schema({**DEFINITION, "unique": [["n"]]})
    before = unique.ingest([{"n": 7}, {"n": 1300}])
    jobs.completed(unique, send(unique, long_rows(), X_On_Conflict="replace"))
    assert numbers(unique) == list(range(FEW))
    for n, one in zip((7, 1300), before, strict=True):
        assert unique.found({"field": "n", "op": "eq", "value": n}) == [one]
    assert sum(one.count for one in segments(proxy, unique) if one.count > 2) == FEW


def test_a_job_that_seals_again_has_a_segment_for_each_chunk(store: Store, proxy: Proxy) -> None:
    """Its rows come from the API, and would have to come twice."""
    jobs.completed(store, send(store, long_rows()))
    answer = store.proxy("POST", f"/api/schemas/{store.schema_id}/reseal/", {})
    assert answer.status in (201, 202), answer.body
    path = f"/api/jobs/{answer.json()['job_id']}/"
    jobs.completed(store, path)
    assert about(store, path)["packs"] == 0
    assert all(len(one.groups) == 1 for one in segments(proxy, store))
    assert numbers(store) == list(range(FEW))


def test_a_rotation_while_it_is_packed_has_all_sealed_anew(
    store: Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There a rotated keyring seals at once; a roster follows it later.
    make_older(store.service, store.account)
    with held(proxy, monkeypatch) as gate:
        path = send(store, long_rows())
        assert gate.reached.wait(60)
        assert store.proxy("POST", "/api/keyring/rotate/").status == 201
        store.ingest([{"n": FEW}])
        gate.open()
        jobs.completed(store, path)
    assert numbers(store) == list(range(FEW + 1))
    assert {one.key_version for one in segments(proxy, store)} == {2}
    nothing_is_staged(store.service)


def test_a_job_that_is_cancelled_while_it_is_packed_leaves_nothing(
    store: Store, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held(proxy, monkeypatch) as gate:
        path = send(store, long_rows())
        assert gate.reached.wait(60)
        assert store.proxy("DELETE", path).status == 204
    assert jobs.ended(store, path)["error"].endswith("(job_cancelled)")
    assert numbers(store) == []
    assert list((tmp_path / "own" / "proxy" / "spool").iterdir()) == []
    nothing_is_staged(store.service)


def test_a_worker_that_is_killed_while_it_packs_is_replaced(store: Store, proxy: Proxy) -> None:
    killed: list[int] = []
    stage = proxy.services.api.stage

    async def killing(schema: bytes, body: bytes, auth: str) -> Any:
        if not killed and proxy.services.jobs.runner._packing.turns.locked():
            victims = [one for one in packers if one.returncode is None]
            for one in victims:
                one.kill()
                killed.append(one.pid)
        return await stage(schema, body, auth)

    packers = watched_packers(proxy)
    proxy.services.api.stage = killing  # type: ignore[method-assign]
    jobs.completed(store, send(store, long_rows()))
    assert killed
    assert numbers(store) == list(range(FEW))


def watched_packers(proxy: Proxy) -> list[asyncio.subprocess.Process]:
    """The processes that pack from now on."""
    found: list[asyncio.subprocess.Process] = []
    workers = proxy.services.workers
    run, take = workers.run, workers._take

    async def running(task: messages.Task, *rest: Any, **options: Any) -> messages.Result:
        if isinstance(task, messages.PackTask):
            fresh = WorkerPool(1)

            async def noting() -> asyncio.subprocess.Process:
                found.append(await take())
                return found[-1]

            fresh._take = noting  # type: ignore[method-assign]
            return await fresh.run(task, *rest, **options)
        return await run(task, *rest, **options)

    workers.run = running  # type: ignore[method-assign]
    return found


def test_where_the_disk_is_full_the_job_waits_says_why_and_goes_on_later(
    store: Store, proxy: Proxy, tmp_path: Path
) -> None:
    largest = [0]
    workers = proxy.services.workers
    run = workers.run

    async def limited(task: messages.Task, *rest: Any, **options: Any) -> messages.Result:
        if not isinstance(task, messages.PackTask):
            return await run(task, *rest, **options)
        fresh = WorkerPool(1)
        take = fresh._take

        async def taking() -> asyncio.subprocess.Process:
            process = await take()
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (largest[0], largest[0]))
            return process

        fresh._take = taking  # type: ignore[method-assign]
        return await fresh.run(task, *rest, **options)

    workers.run = limited  # type: ignore[method-assign]
    path = send(store, long_rows())
    until(lambda: about(store, path)["waits"] is not None)
    waiting = about(store, path)
    assert waiting["waits"] == "the disk has no room for packing a job's index"
    assert (waiting["status"], waiting["packed"], "error" in waiting) == ("processing", 0, False)
    assert numbers(store) == []
    largest[0] = 1 << 30
    jobs.completed(store, path)
    assert about(store, path)["waits"] is None
    assert numbers(store) == list(range(FEW))


@pytest.mark.parametrize("harm", ["altered", "cut", "gone"])
def test_an_upload_that_is_damaged_before_it_is_packed_fails_the_job_and_nothing_is_visible(
    store: Store, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    with held(proxy, monkeypatch) as gate:
        path = send(store, long_rows())
        assert gate.reached.wait(60)
        until(lambda: about(store, path)["processed"] == FEW)
        (file,) = (tmp_path / "own" / "proxy" / "spool").glob("*.spool")
        content = bytearray(file.read_bytes())
        content[len(content) // 3] ^= 1
        if harm == "gone":
            file.unlink()
        else:
            file.write_bytes(content if harm == "altered" else content[: len(content) // 3])
        gate.open()
        failed = jobs.ended(store, path)
    assert failed["status"] == "failed"
    assert failed["error"].endswith("(not_found)" if harm == "gone" else "(spool_damaged)")
    assert numbers(store) == []
    nothing_is_staged(store.service)


def test_an_api_that_loses_a_part_gets_it_anew_and_no_record_twice(
    store: Store, proxy: Proxy, front: Front
) -> None:
    """The answer to one part of each packed segment is lost."""
    lost: list[str] = []

    def lie(asked: Asked, reply: Reply) -> Reply | None:
        if asked.path.endswith("/staging/") and len(asked.body) < (1 << 20) and len(lost) < 2:
            lost.append(asked.path)
            return None
        return reply

    with front.telling(lie):
        jobs.completed(store, send(store, long_rows()))
    assert len(lost) == 2
    assert numbers(store) == list(range(FEW))

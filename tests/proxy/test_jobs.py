"""Jobs as the proxy keeps them: which way they may go, what survives, what is sealed."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from encrypted_records.errors import Conflict, DoesNotOpen, ErsError, Flaw, OutOfSpace, Unavailable
from encrypted_records.proxy import tasks
from encrypted_records.proxy.app import ProxySettings, create_app
from encrypted_records.proxy.job_secrets import JobSecrets
from encrypted_records.proxy.job_store import CheckedSchema, JobStore
from encrypted_records.proxy.jobs import Job, Order
from encrypted_records.proxy.keyrings import Keyrings
from encrypted_records.proxy.parts import Parts
from encrypted_records.proxy.tasks import ChunkAt, SealedPart
from encrypted_records.proxy.workers import Workers

USER, SCHEMA = os.urandom(16), os.urandom(16)


def new_job(**members: object) -> Job:
    job = Job(
        id=os.urandom(16),
        user=USER,
        order=Order(csv=True),
        state="uploading",
        phase="check",
        size=0,
        processed=0,
        total=0,
        flawed=0,
        listed=0,
        error=None,
        created=1000.0,
        finished=None,
    )
    return dataclasses.replace(job, **members)  # type: ignore[arg-type]  # by name


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    opened = JobStore(tmp_path / "jobs.sqlite3")
    yield opened
    opened.close()


def chunks(*sizes: int) -> list[ChunkAt]:
    ends = list(itertools.accumulate(sizes))
    return [
        ChunkAt(number, 0, 1, end - size + 1, end)
        for number, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]


def checked(store: JobStore, job: Job, *sizes: int) -> list[ChunkAt]:
    found = chunks(*sizes)
    store.checked(
        job.id,
        rows=sum(sizes),
        flawed=0,
        listed=0,
        flaws=[],
        chunks=found,
        schemas=[CheckedSchema(SCHEMA, bytes(32), 1, 1)],
    )
    return found


def now(store: JobStore, job: Job) -> Job:
    found = store.get(job.id)
    assert found is not None
    return found


@pytest.mark.parametrize(("processed", "batch"), [(0, 1), (9, 1), (10, 2), (24, 3), (25, 3)])
def test_the_batch_being_processed_follows_from_the_records(processed: int, batch: int) -> None:
    job = new_job(state="processing", phase="seal", processed=processed, total=25)
    assert job.payload() == {
        "status": "processing",
        "processed": processed,
        "total": 25,
        "current_batch": batch,
        "total_batches": 3,
    }


def test_a_payload_has_an_error_only_when_there_is_one() -> None:
    assert "error" not in new_job().payload()
    assert new_job(state="failed", error="no").payload()["error"] == "no"


def test_a_job_never_leaves_an_end(store: JobStore) -> None:
    job = new_job()
    store.add(job, b"token")
    with pytest.raises(Conflict):
        store.completed(job.id, 1.0)
    store.received(job.id, 7)
    store.completed(job.id, 1.0)
    for move in (
        lambda: store.failed(job.id, "x", 2.0),
        lambda: store.received(job.id, 8),
        lambda: store.completed(job.id, 2.0),
    ):
        with pytest.raises(Conflict) as caught:
            move()
        assert caught.value.reason == "job_ended"
    assert (now(store, job).state, now(store, job).error, now(store, job).size) == (
        "completed", None, 7,
    )  # fmt: skip


def test_what_was_done_is_done_after_opening_the_store_again(
    store: JobStore, tmp_path: Path
) -> None:
    job = new_job()
    store.add(job, b"token")
    store.received(job.id, 100)
    first, second, third = checked(store, job, 40, 30, 30)
    part = SealedPart(SCHEMA, b"", bytes(32), [], [])
    store.done(job.id, second, [part])
    again = JobStore(tmp_path / "jobs.sqlite3")
    try:
        assert now(again, job).processed == 30
        assert again.open_chunks(job.id) == [first, third]
        assert [one.digest for one in again.parts(job.id, SCHEMA)] == [bytes(32)]
        assert [one.id for one in again.unfinished()] == [job.id]
        assert again.token(job.id) == b"token"
    finally:
        again.close()


def test_a_full_disk_undoes_one_change_and_stands_in_the_way_of_no_later_one(
    store: JobStore,
) -> None:
    job = new_job()
    store.add(job, b"token")
    store.received(job.id, 100)
    ((pages,),) = store._rows("PRAGMA page_count")
    store._rows(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(OutOfSpace):
        checked(store, job, *[1] * 10_000)
    assert (now(store, job).phase, store.open_chunks(job.id)) == ("check", [])
    store._rows("PRAGMA max_page_count = 4294967294")
    assert len(checked(store, job, 1, 1)) == len(store.open_chunks(job.id)) == 2


def test_progress_does_not_go_back_when_a_job_is_checked_again(store: JobStore) -> None:
    job = new_job()
    store.add(job, b"token")
    store.received(job.id, 100)
    store.counted(job.id, 60)
    store.counted(job.id, 50)
    assert now(store, job).total == 60
    first, *_ = checked(store, job, 70, 30)
    store.done(job.id, first, [])
    store.check_again(job.id)
    store.counted(job.id, 10)
    found = now(store, job)
    assert (found.phase, found.processed, found.total) == ("check", 70, 100)
    both = checked(store, job, 50, 50)
    assert store.parts(job.id, SCHEMA) == []
    store.done(job.id, both[0], [])
    assert now(store, job).processed == 70


def test_ended_jobs_are_forgotten_in_time_and_only_when_nothing_is_left(store: JobStore) -> None:
    old, young, untidy = new_job(), new_job(), new_job()
    for job, ended in ((old, 1.0), (young, 3.0), (untidy, 1.0)):
        store.add(job, b"token")
        store.failed(job.id, "x", ended)
    store.tidied(old.id)
    store.tidied(young.id)
    assert store.token(old.id) == b""
    store.forget_before(2.0)
    assert store.get(old.id) is None
    assert now(store, young).state == now(store, untidy).state == "failed"
    assert [one.id for one in store.with_leftovers()] == [untidy.id]


def test_tokens_and_flaws_open_in_their_own_place_alone(tmp_path: Path) -> None:
    secrets = JobSecrets(Keyrings(tmp_path))
    job, other = new_job(), new_job()
    sealed = secrets.seal_token(USER, job.id, "Job secret")
    assert b"secret" not in sealed
    assert secrets.open_token(job, sealed) == "Job secret"
    flaws = [Flaw("unknown_field", "no such", row=row, field="diagnosis") for row in range(1200)]
    pieces = secrets.seal_flaws(job, flaws)
    assert not any(b"diagnosis" in piece for piece in pieces)
    assert secrets.open_flaws(job, pieces) == flaws
    stranger = dataclasses.replace(job, user=os.urandom(16))
    for where, what in ((other, sealed), (stranger, sealed), (job, sealed[:-1]), (job, b"")):
        with pytest.raises(DoesNotOpen):
            secrets.open_token(where, what)
    with pytest.raises(DoesNotOpen):
        secrets.open_flaws(job, pieces[::-1])
    with pytest.raises(DoesNotOpen):
        secrets.open_token(job, pieces[0])


def test_a_watcher_that_takes_nothing_delays_nobody_and_then_gets_the_newest_state(
    tmp_path: Path,
) -> None:
    app = create_app(ProxySettings(tmp_path, "127.0.0.1", 0, "http://127.0.0.1:9"))
    parts: Parts = app.state.parts
    batch_jobs, store = parts.jobs, parts.jobs._store

    async def run() -> None:
        job = new_job()
        store.add(job, b"token")
        store.received(job.id, 100)
        slow, quick = batch_jobs.watch(job.id), batch_jobs.watch(job.id)
        assert (await anext(slow)).total == (await anext(quick)).total == 0
        for rows in (1, 2, 3):
            store.counted(job.id, rows)
            batch_jobs._progress.changed(job.id)
            assert (await anext(quick)).total == rows
        store.completed(job.id, 1.0)
        batch_jobs._progress.changed(job.id)
        assert [one.state async for one in quick] == ["completed"]
        assert [(one.state, one.total) async for one in slow] == [("completed", 3)]
        await parts.api.transport.close()

    asyncio.run(run())


NOTHING = tasks.Check(tasks.Source("/nowhere", bytes(16), 1, [], True, None, ()))


def worker_of(workers: Workers) -> asyncio.subprocess.Process:
    (process,) = workers._idle
    return process


def environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


async def asked(workers: Workers) -> ErsError:
    with pytest.raises(ErsError) as caught:
        await workers.run(NOTHING)
    return caught.value


def test_a_worker_says_what_is_wrong_and_goes_on_without_an_environment() -> None:
    async def run() -> None:
        workers = Workers(1)
        try:
            assert not isinstance(await asked(workers), Unavailable)
            first = worker_of(workers)
            assert environment(first.pid) == b""
            await asked(workers)
            assert worker_of(workers) is first
        finally:
            await workers.close()
        assert first.returncode is not None

    asyncio.run(run())


def test_a_worker_that_was_killed_is_named_and_replaced() -> None:
    async def run() -> None:
        workers = Workers(1)
        try:
            await asked(workers)
            worker_of(workers).kill()
            lost = await asked(workers)
            assert (type(lost), lost.reason) == (Unavailable, "worker_lost")
            assert (await asked(workers)).reason != "worker_lost"
        finally:
            await workers.close()

    asyncio.run(run())


def test_a_worker_ends_with_its_pipe() -> None:
    async def run() -> None:
        workers = Workers(1)
        await asked(workers)
        process = worker_of(workers)
        assert process.stdin is not None
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 20) == 0

    asyncio.run(run())

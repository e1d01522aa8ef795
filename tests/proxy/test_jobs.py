"""Jobs as the proxy keeps them: which way they may go, what survives, what is sealed."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from encrypted_records.errors import (
    BY_CODE,
    Closed,
    Conflict,
    DoesNotOpen,
    ErsError,
    Flaw,
    OutOfSpace,
    Unavailable,
)
from encrypted_records.model.record_formats import Format
from encrypted_records.model.records import Segment
from encrypted_records.proxy.app import create_app
from encrypted_records.proxy.jobs.job import JobOptions, JobSecrets, StoredJob
from encrypted_records.proxy.jobs.store import CheckedSchema, JobStore
from encrypted_records.proxy.services import Services
from encrypted_records.proxy.settings import ProxySettings
from encrypted_records.proxy.workers import messages
from encrypted_records.proxy.workers.messages import ChunkAt, SealedPart
from encrypted_records.proxy.workers.pool import WorkerPool
from tests.support.keyrings import holder, keyrings_in

USER, SCHEMA = os.urandom(16), os.urandom(16)
SEGMENT = Segment(bytes(16), "mini", 1, 30, 0, [(bytes(16), 0)], 1, bytes(32), bytes(32))


def new_job(**members: object) -> StoredJob:
    job = StoredJob(
        id=os.urandom(16),
        user=USER,
        options=JobOptions(Format.CSV),
        state="uploading",
        phase="check",
        size=0,
        processed=0,
        total=0,
        bad_rows=0,
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


def checked(store: JobStore, job: StoredJob, *sizes: int) -> list[ChunkAt]:
    found = chunks(*sizes)
    store.mark_checked(
        job.id,
        rows=sum(sizes),
        bad_rows=0,
        errors=[],
        chunks=found,
        schemas=[CheckedSchema(SCHEMA, bytes(32), 1, 1)],
    )
    return found


def now(store: JobStore, job: StoredJob) -> StoredJob:
    found = store.get(job.id)
    assert found is not None
    return found


@pytest.mark.parametrize(("processed", "batch"), [(0, 1), (9, 1), (10, 2), (24, 3), (25, 3)])
def test_the_batch_being_processed_follows_from_the_records(processed: int, batch: int) -> None:
    job = new_job(state="processing", phase="seal", processed=processed, total=25)
    assert msgspec.to_builtins(job.progress()) == {
        "status": "processing",
        "processed": processed,
        "total": 25,
        "current_batch": batch,
        "total_batches": 3,
    }


def test_a_payload_has_an_error_only_when_there_is_one() -> None:
    assert "error" not in msgspec.to_builtins(new_job().progress())
    assert msgspec.to_builtins(new_job(state="failed", error="no").progress())["error"] == "no"


def test_a_job_never_leaves_an_end(store: JobStore) -> None:
    job = new_job()
    store.add(job, b"token")
    with pytest.raises(Conflict):
        store.mark_completed(job.id, 1.0)
    store.mark_received(job.id, 7)
    store.mark_completed(job.id, 1.0)
    for move in (
        partial(store.mark_failed, job.id, "x", 2.0),
        partial(store.mark_received, job.id, 8),
        partial(store.mark_completed, job.id, 2.0),
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
    store.mark_received(job.id, 100)
    first, second, third = checked(store, job, 40, 30, 30)
    part = SealedPart(SCHEMA, memoryview(b""), [], [SEGMENT])
    store.done(job.id, second, [part])
    again = JobStore(tmp_path / "jobs.sqlite3")
    try:
        assert now(again, job).processed == 30
        assert again.open_chunks(job.id) == [first, third]
        assert [part.segments for part in again.parts(job.id, SCHEMA)] == [part.segments]
        assert [one.id for one in again.list_unfinished()] == [job.id]
        assert again.token(job.id) == b"token"
    finally:
        again.close()


def test_a_full_disk_undoes_one_change_and_stands_in_the_way_of_no_later_one(
    store: JobStore, tmp_path: Path
) -> None:
    job = new_job()
    store.add(job, b"token")
    store.mark_received(job.id, 100)
    full = JobStore(tmp_path / "jobs.sqlite3", most_pages=1)  # as few as there are
    with pytest.raises(OutOfSpace):
        checked(full, job, *[1] * 10_000)
    assert (now(full, job).phase, full.open_chunks(job.id)) == ("check", [])
    assert len(checked(full, job, 1, 1)) == len(store.open_chunks(job.id)) == 2
    full.close()


def test_progress_does_not_go_back_when_a_job_is_checked_again(store: JobStore) -> None:
    job = new_job()
    store.add(job, b"token")
    store.mark_received(job.id, 100)
    store.mark_counted(job.id, 60)
    store.mark_counted(job.id, 50)
    assert now(store, job).total == 60
    first, *_ = checked(store, job, 70, 30)
    store.done(job.id, first, [])
    store.check_again(job.id)
    store.mark_counted(job.id, 10)
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
        store.mark_failed(job.id, "x", ended)
    store.mark_tidied(old.id)
    store.mark_tidied(young.id)
    assert store.token(old.id) == b""
    store.forget_before(2.0)
    assert store.get(old.id) is None
    assert now(store, young).state == now(store, untidy).state == "failed"
    assert [leftover.id for leftover in store.with_leftovers()] == [untidy.id]


def test_tokens_and_errors_open_in_their_own_place_alone(tmp_path: Path) -> None:
    secrets = JobSecrets(keyrings_in(tmp_path))
    job, other = new_job(), new_job()
    sealed = secrets.seal_token(holder(USER), job.id, "Job secret")
    assert b"secret" not in sealed
    assert secrets.open_token(job, sealed) == "Job secret"
    errors = [Flaw("unknown_field", "no such", row=row, field="diagnosis") for row in range(1200)]
    pieces = secrets.seal_errors(job, errors)
    assert not any(b"diagnosis" in piece for piece in pieces)
    assert secrets.open_errors(holder(USER), job, pieces) == errors
    stranger = dataclasses.replace(job, user=os.urandom(16))
    for where, what in ((other, sealed), (stranger, sealed), (job, sealed[:-1]), (job, b"")):
        with pytest.raises(Closed):  # of a stranger's there is not even a keyring
            secrets.open_token(where, what)
    with pytest.raises(DoesNotOpen):
        secrets.open_errors(holder(USER), job, pieces[::-1])
    with pytest.raises(DoesNotOpen):
        secrets.open_token(job, pieces[0])


def test_a_watcher_that_takes_nothing_delays_nobody_and_then_gets_the_newest_state(
    tmp_path: Path,
) -> None:
    app = create_app(ProxySettings(tmp_path, "127.0.0.1", 0, "http://127.0.0.1:9"))
    services: Services = app.state.services
    batch_jobs, store = services.jobs, services.stores.jobs

    async def run() -> None:
        job = new_job()
        store.add(job, b"token")
        store.mark_received(job.id, 100)
        slow, quick = batch_jobs.watch(job.id), batch_jobs.watch(job.id)
        assert (await anext(slow)).total == (await anext(quick)).total == 0
        for rows in (1, 2, 3):
            store.mark_counted(job.id, rows)
            services.progress.announce(job.id)
            assert (await anext(quick)).total == rows
        store.mark_completed(job.id, 1.0)
        services.progress.announce(job.id)
        assert [one.state async for one in quick] == ["completed"]
        assert [(one.state, one.total) async for one in slow] == [("completed", 3)]
        await services.api.transport.close()

    asyncio.run(run())


NOTHING = messages.CheckTask(
    messages.UploadSource("/nowhere", bytes(16), 1, [], Format.CSV, None, ())
)


def worker_of(workers: WorkerPool) -> asyncio.subprocess.Process:
    (process,) = workers.idle
    return process


def environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


async def asked(workers: WorkerPool) -> ErsError:
    with pytest.raises(ErsError) as caught:
        await workers.run(NOTHING)
    return caught.value


def test_a_worker_says_what_is_wrong_and_goes_on_without_an_environment() -> None:
    async def run() -> None:
        workers = WorkerPool(count=1)
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
        workers = WorkerPool(count=1)
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
        workers = WorkerPool(count=1)
        await asked(workers)
        process = worker_of(workers)
        assert process.stdin is not None
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 60) == 0

    asyncio.run(run())


@pytest.mark.parametrize("kind", BY_CODE.values(), ids=lambda kind: kind.__name__)
def test_an_error_of_a_worker_is_the_same_error_in_the_proxy(kind: type[ErsError]) -> None:
    flaws = (Flaw("type", "a string", row=7, field="age"),)
    error = kind("what happened", hint="what to do", code="narrower", flaws=flaws)
    data = messages.encode(messages.Failed.of(error))
    failed = messages.decode_from_worker(data)
    assert isinstance(failed, messages.Failed)
    again = failed.error()
    assert type(again) is kind
    assert (again.message, again.hint, again.reason) == ("what happened", "what to do", "narrower")
    assert again.flaws == flaws


def test_an_error_of_an_unknown_class_is_a_mistake_of_ours() -> None:
    assert type(messages.Failed("__doc__", "internal_error", "odd", "").error()) is ErsError

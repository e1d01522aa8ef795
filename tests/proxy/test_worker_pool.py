"""Processes that are started before there is work, and large answers of theirs."""

from __future__ import annotations

import asyncio
import errno
import http.client
import io
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from encrypted_records.errors import ErsError, TooLarge, Unavailable
from encrypted_records.ingest.infer import Wishes
from encrypted_records.model.record_formats import Format
from encrypted_records.proxy.process import WORKERS
from encrypted_records.proxy.workers import main, messages, pool
from encrypted_records.proxy.workers.pool import WorkerPool
from tests.support import jobs
from tests.support.eventually import eventually
from tests.support.proxies import Proxy
from tests.support.store import Store
from tests.support.workbooks import sheet, xlsx

#: A task that fails at once: there is no such upload.
NOTHING = messages.CheckTask(
    messages.UploadSource("/nowhere", bytes(16), 1, [], Format.CSV, None, ())
)


async def prepared(workers: WorkerPool) -> list[int]:
    """The processes that wait, once all are there."""
    workers.prepare()
    while len(workers.idle) < workers.count:  # noqa: ASYNC110 # nothing says so
        await asyncio.sleep(0.01)
    return [one.pid for one in workers.idle]


def test_processes_wait_for_work_that_is_expected_and_no_more_than_may_work_at_once() -> None:
    async def run() -> None:
        workers = WorkerPool(count=2)
        try:
            waiting = await prepared(workers)
            workers.prepare()
            assert len(set(waiting)) == 2
            with pytest.raises(ErsError) as caught:
                await workers.run(NOTHING)
            assert not isinstance(caught.value, Unavailable)
            assert sorted(await prepared(workers)) == sorted(waiting)
        finally:
            await workers.close()
        assert workers.idle == []

    asyncio.run(run())


def test_a_result_that_cannot_be_encoded_fails_its_task_and_not_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = messages.CheckReport(1, 1, [], [(1, {"s": "\ud800"})], [])
    sent = io.BytesIO()
    monkeypatch.setattr(main, "check", lambda _: report)
    monkeypatch.setattr(messages, "_results", sent)
    main._run(NOTHING)
    said = messages.decode_from_worker(sent.getvalue()[messages.LENGTH_BYTES :])
    assert isinstance(said, messages.Failed)
    assert said.code == ErsError.code


#: A library that prints a cell, by Python and past it, as Rust does before a panic; and a mistake
#: of our own.
PRINTING = """
import os, sys
import python_calamine
from encrypted_records.proxy.workers import main

class PanicException(BaseException):
    pass

def panic(*_):
    print("a cell of somebody", flush=True)
    print("a cell of somebody", file=sys.stderr, flush=True)
    for number in (1, 2):
        os.write(number, b"thread panicked at a cell of somebody")
    raise PanicException("a cell of somebody")

def mistake(*_):
    raise ValueError("a cell of somebody")

python_calamine.load_workbook = panic
main.check = mistake
main.main()
"""


def test_what_a_library_prints_in_a_worker_reaches_neither_the_log_nor_the_results() -> None:
    workbook = xlsx({"Data": sheet([["a"], ["x"]])})
    tasks = [messages.DetectTask(workbook, True, b"", False), NOTHING]
    sent = b"".join(
        len(one).to_bytes(messages.LENGTH_BYTES, "big") + one for one in map(messages.encode, tasks)
    )
    ended = subprocess.run(
        [sys.executable, "-c", PRINTING], input=sent, capture_output=True, check=True, timeout=60
    )
    assert b"somebody" not in ended.stdout + ended.stderr
    assert b"unexpected ValueError in a worker" in ended.stderr
    results, answers = ended.stdout, []
    while results:
        size = int.from_bytes(results[: messages.LENGTH_BYTES], "big")
        body = results[messages.LENGTH_BYTES :][:size]
        results = results[messages.LENGTH_BYTES + size :]
        answers.append(messages.decode_from_worker(body))
    damaged, failed = answers
    assert isinstance(damaged, messages.Failed)
    assert "damaged" in damaged.message
    assert isinstance(failed, messages.Failed)


def test_looking_at_a_file_ends_by_name_when_it_takes_too_long_or_too_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = messages.DetectTask(b"a,b\n1,2\n", True, b"", False)

    async def scenario() -> None:
        workers = WorkerPool(count=1)
        with monkeypatch.context() as patch:
            patch.setattr(pool, "SAMPLE_SECONDS", 0)
            with pytest.raises(TooLarge, match="more than 0 seconds"):
                await workers.run(task)
        sent = pool._send

        async def aborting(process: asyncio.subprocess.Process, message: Any) -> None:
            process.send_signal(signal.SIGABRT)  # as a library does that has no memory left
            await sent(process, message)

        with monkeypatch.context() as patch:
            patch.setattr(pool, "_send", aborting)
            with pytest.raises(TooLarge, match="2 GiB of memory"):
                await workers.run(task)
        assert isinstance(await workers.run(task), messages.JsonResult)
        await workers.close()

    asyncio.run(scenario())


def test_a_timeout_behind_a_task_that_looks_at_no_file_is_never_told_as_a_file_that_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def timed_out(process: asyncio.subprocess.Process, message: Any) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "a disk far away")

    async def run() -> None:
        workers = WorkerPool(count=1)
        monkeypatch.setattr(pool, "_send", timed_out)
        with pytest.raises(TimeoutError, match="a disk far away"):
            await workers.run(NOTHING)
        assert workers.idle == []
        await workers.close()

    asyncio.run(run())


def test_memory_is_limited_while_a_file_is_read_and_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "MOST_BYTES", 256 << 20)
    before = resource.getrlimit(resource.RLIMIT_AS)
    with messages.limited(), pytest.raises(MemoryError):
        bytearray(512 << 20)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_process_that_reads_without_an_end_ends_by_itself() -> None:
    code = (
        "from encrypted_records.proxy.workers import messages as m\n"
        "m.MOST_SECONDS = 0.05\n"
        "with m.limited():\n"
        "    while True: pass\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False)
    assert ended.returncode == -signal.SIGPROF
    with messages.limited():
        pass
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0


def test_who_cannot_prepare_says_so_when_there_is_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    async def run() -> None:
        workers = WorkerPool(count=2)
        workers.prepare()
        await workers.close()
        assert workers.idle == []
        with pytest.raises(Unavailable) as caught:
            await workers.run(NOTHING)
        assert caught.value.reason == "worker_lost"

    asyncio.run(run())


def test_processes_that_are_just_being_started_end_with_the_pool() -> None:
    async def run() -> None:
        workers = WorkerPool(count=2)
        workers.prepare()
        await workers.close()
        assert workers.idle == []
        assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    asyncio.run(run())


SAMPLE = messages.InferTask(b"a\n1\n", Format.CSV, Wishes())


def test_a_process_that_holds_little_memory_takes_the_next_task_and_one_that_holds_much_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        workers = WorkerPool(count=1)
        try:
            waiting = await prepared(workers)
            for _ in range(2):
                await workers.run(SAMPLE)
                assert [one.pid for one in workers.idle] == waiting
            monkeypatch.setattr(pool, "_MOST_HELD", 0)
            await workers.run(SAMPLE)
            assert workers.idle == []
        finally:
            await workers.close()

    asyncio.run(run())


def test_no_more_processes_wait_than_may_work_at_once_whatever_worked_beside_them() -> None:
    async def run() -> None:
        workers = WorkerPool(count=1)
        try:
            await asyncio.gather(*(workers.run(SAMPLE, additional=True) for _ in range(3)))
            assert len(workers.idle) == 1
        finally:
            await workers.close()

    asyncio.run(run())


CHUNKED = {"Transfer-Encoding": "chunked"}
PROGRAM = """
import sys
data = bytes(range(256)) * {blocks}
sys.stdout.buffer.write(({said}).to_bytes(4, "big") + data)
"""


@pytest.mark.parametrize("blocks", [1, 1 << 12, 3 << 13])
@pytest.mark.parametrize("missing", [0, 1])
def test_a_message_of_any_size_comes_as_it_was_sent_or_not_at_all(
    blocks: int, missing: int
) -> None:
    program = PROGRAM.format(blocks=blocks, said=256 * blocks + missing)

    async def run() -> bytes | bytearray:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, env={**os.environ}
        )
        try:
            return await pool._receive(process)
        finally:
            await process.wait()

    if missing:
        with pytest.raises(asyncio.IncompleteReadError):
            asyncio.run(run())
    else:
        assert asyncio.run(run()) == bytes(range(256)) * blocks


def send(store: Store, pieces: Iterator[bytes]) -> str:
    """Upload CSV as it comes; the job's path."""
    headers = {"Content-Type": "text/csv", "Authorization": store.account.auth}
    connection = http.client.HTTPConnection(urlsplit(store.service.proxy_url).netloc, timeout=90)
    with closing(connection):
        connection.request(
            "POST", "/api/jobs/upload/", pieces, headers | CHUNKED, encode_chunked=True
        )
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
        return str(answer.headers["X-Job-Status-URL"])


@pytest.fixture
def definition() -> dict[str, Any]:
    return {"type": "object", "properties": {"note": {"type": "string", "maxLength": 1000}}}


def test_workers_start_while_a_large_upload_comes_and_none_for_a_small_one(
    proxy: Proxy, store: Store
) -> None:
    workers = proxy.services.workers
    row = f"{'x' * 999}\n".encode()

    def pieces(count: int, wanted: int) -> Iterator[bytes]:
        yield f"note,schema_id:{store.schema_id}\n".encode()
        for _ in range(count):
            yield row * 1000
        if wanted:
            eventually(lambda: proxy.background.put_off(WORKERS), "processes are prepared")
        proxy.settle(WORKERS)
        assert len(workers.idle) == wanted
        yield row

    for count, wanted in ((1, 0), (10, workers.count)):
        path = send(store, pieces(count, wanted))
        assert jobs.completed(store, path)["total"] == 1000 * count + 1

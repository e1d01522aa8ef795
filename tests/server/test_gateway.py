"""Between network and threads: threads meet whole requests, and nobody waits for nothing."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from encrypted_records.errors import Overloaded
from encrypted_records.server.gateway.admission import (
    DISK_BYTES,
    MEMORY_BYTES,
    HeldBody,
    RequestPlaces,
    Room,
)
from encrypted_records.server.gateway.gateway import AnswerNotRead, Passing
from tests.listening.conftest import PATIENCE, rest_of
from tests.server.gateways import FRAMES, THREADS, Start, code, request, starting, status
from tests.support.eventually import eventually


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as begin:
        yield begin


def test_bodies_that_do_not_come_hold_no_thread(start: Start) -> None:
    api = start()
    slow = [api.server.connect(request("/x", 100) + b"x") for _ in range(50)]
    try:
        assert [status(api.ask("/y")) for _ in range(10)] == [200] * 10
        assert set(api.app.calls) == {"/y"}
    finally:
        for one in slow:
            one.close()


def test_readers_that_do_not_read_hold_no_thread_and_little_memory(start: Start) -> None:
    api = start(memory=1 << 20, waiting=5)
    api.app.gate.set()
    slow = [api.server.connect(request("/stream?200", 0), room=4096) for _ in range(5)]
    try:
        eventually(lambda: api.app.streamed == 5)
        assert [status(api.ask("/y")) for _ in range(10)] == [200] * 10
        assert api.room.disk.left < 4 << 30
    finally:
        for one in slow:
            one.close()
    eventually(lambda: (api.room.memory.left, api.room.disk.left) == (1 << 20, 4 << 30))


@pytest.mark.parametrize("memory", [0, 1 << 20, 64 << 20])
def test_a_long_answer_comes_whole_and_in_its_order(start: Start, memory: int) -> None:
    api = start(memory=memory)
    api.app.gate.set()
    with api.server.connect(request("/stream?300", 0, Connection="close")) as connection:
        time.sleep(0.3)  # so that the thread is ahead of its reader
        answer = rest_of(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"chunked" in head:
        body = dechunked(body)
    assert body == b"".join(n.to_bytes(4, "big") * (1 << 14) for n in range(300))
    assert (api.room.memory.left, api.room.disk.left) == (memory, 4 << 30)


def dechunked(body: bytes) -> bytes:
    found = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        found += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return found


def test_a_long_answer_begins_before_all_of_it_is_made(start: Start) -> None:
    api = start()
    with api.server.connect(request("/stream?60", 0)) as connection:
        assert len(connection.recv(1 << 16)) > 0
        assert api.app.made <= 40
        api.app.gate.set()
        rest_of(connection)
    assert api.app.made == 60


def test_nobody_goes_on_making_an_answer_that_nobody_takes(start: Start) -> None:
    api = start()
    with api.server.connect(request("/stream?5000", 0)) as connection:
        assert connection.recv(1 << 10)
    eventually(lambda: api.server.connections == 0)
    api.app.gate.set()
    assert api.app.stopped.wait(PATIENCE)
    assert not api.app.ended.is_set()
    assert status(api.ask("/y")) == 200
    eventually(lambda: (api.room.memory.left, api.room.disk.left) == (MEMORY_BYTES, DISK_BYTES))


def test_an_answer_that_somebody_takes_slowly_is_made_to_its_end(start: Start) -> None:
    api = start()
    with api.server.connect(request("/stream?100", 0), room=4096) as connection:
        eventually(lambda: api.app.made == 40)
        api.app.gate.set()
        assert api.app.stopped.wait(PATIENCE)
        assert api.app.ended.is_set()
        assert len(rest_of(connection)) > 100 << 16


def test_what_is_to_be_refused_is_refused_before_its_body_is_there(start: Start) -> None:
    api = start()
    large = b"x" * 1_000_000
    refused = api.ask(FRAMES, large, sent=100_000, Authorization="wrong")
    assert status(refused) == 401
    assert api.app.calls == [FRAMES]


def test_a_large_body_is_read_once_its_view_has_asked_for_it(start: Start) -> None:
    api = start()
    large = b"x" * 1_000_000
    answer = api.ask(FRAMES, large, Authorization="right")
    assert status(answer) == 200
    assert b"x-length: 1000000" in answer.lower()
    assert api.app.calls == [FRAMES] * 2
    # Remembered, so that the next is not looked at twice.
    assert status(api.ask(FRAMES, large, Authorization="right")) == 200
    assert api.app.calls == [FRAMES] * 3


def test_without_credentials_little_is_read(start: Start) -> None:
    api = start()
    refused = api.ask("/x", b"x" * 1_000_000, sent=100_000)
    assert (status(refused), code(refused)) == (413, "too_large")
    assert status(api.ask("/x", b"x" * 60_000)) == 200


def test_more_than_can_be_answered_is_told_to_come_back(start: Start) -> None:
    api = start(waiting=4, wait_seconds=1.0)
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(api.ask, "/wait") for _ in range(THREADS)]
        eventually(lambda: len(api.app.calls) == THREADS)
        asked += [pool.submit(api.ask, "/wait") for _ in range(10)]
        # Six of the ten do not wait at all, and the four in line for a second.
        answers = [one.result() for one in asked[THREADS:]]
        api.app.gate.set()
        assert [status(one.result()) for one in asked[:THREADS]] == [200] * THREADS
    assert [(status(answer), code(answer)) for answer in answers] == [(503, "overloaded")] * 10
    assert all(b"\r\nretry-after: 2\r\n" in answer.lower() for answer in answers)
    assert len(api.app.calls) == THREADS
    assert api.seen == [("GET", 503)] * 10
    assert status(api.ask("/y")) == 200


def test_a_mistake_of_ours_is_a_problem_document_and_says_no_more(start: Start) -> None:
    api = start()
    answer = api.ask("/bug")
    assert (status(answer), code(answer)) == (500, "internal_error")


def test_sealed_bodies_go_into_a_file_where_memory_is_full_and_others_are_refused(
    start: Start,
) -> None:
    api = start(memory=100_000, disk=3_000_000)
    body = os.urandom(1_000_000)
    assert b"x-length: 1000000" in api.ask(FRAMES, body, Authorization="right").lower()
    refused = api.ask("/x", body, Authorization="right")
    assert (status(refused), code(refused)) == (503, "overloaded")
    assert status(api.ask(FRAMES, body * 4, Authorization="right")) == 503
    assert (api.room.memory.left, api.room.disk.left) == (100_000, 3_000_000)


def test_files_have_no_name(tmp_path: Path) -> None:
    held = HeldBody(Room(tmp_path, memory=0), on_disk=True)
    held.write(b"x" * 1_000_000)
    assert held.is_in_file
    assert held.rewind().read() == b"x" * 1_000_000
    assert list(tmp_path.iterdir()) == []
    held.close()


def test_what_may_hold_a_password_never_touches_a_disk(tmp_path: Path) -> None:
    room = Room(tmp_path / "nothing can be written here", memory=100_000)
    held = HeldBody(room, on_disk=False)
    held.write(b"x" * 60_000)
    with pytest.raises(Overloaded):
        held.write(b"x" * 200_000)
    held.close()
    assert room.memory.left == 100_000


def test_an_answer_that_breaks_off_is_not_taken_for_whole(tmp_path: Path) -> None:
    async def take() -> None:
        passing = Passing(Room(tmp_path), asyncio.get_running_loop())
        passing.put(b"x")
        passing.end(broken=True)
        assert await passing.take() == b"x"
        with pytest.raises(AnswerNotRead):
            await passing.take()

    asyncio.run(take())


@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: 1\r\nTransfer-Encoding: chunked",
        "Content-Length: 1\r\nContent-Length: 2",
        "Content-Length: 1, 2",
        "Content-Length: +1",
        "Content-Length: -1",
        "Content-Length: 0x1",
        "Content-Length: 1 1",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding : chunked",
    ],
)
def test_two_ways_to_read_a_length_are_none(start: Start, head: str) -> None:
    api = start()
    sent = f"POST /x HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n1GET /y HTTP/1.1\r\nHost: x\r\n\r\n"
    with api.server.connect(sent.encode()) as connection:
        connection.settimeout(1.0)
        try:
            answer = connection.recv(1 << 16)
        except TimeoutError:
            answer = b"HTTP/1.1 408 "
    assert 400 <= status(answer) < 500
    # What was called before the parser came to that place was called without a body.
    assert "/y" not in api.app.calls
    assert not api.app.environ or api.app.environ["wsgi.input"].getvalue() == b""


def test_of_headers_that_mean_the_same_only_the_plain_one_counts(start: Start) -> None:
    api = start()
    alike = {"X_Forwarded_For": "9.9.9.9", "X-Forwarded-For": "1.1.1.1"}
    with api.server.connect(request("/x?a=b%20c", 0, **alike)) as connection:
        rest_of(connection)
    environ = api.app.environ
    assert environ["HTTP_X_FORWARDED_FOR"] == "1.1.1.1"
    assert (environ["PATH_INFO"], environ["QUERY_STRING"]) == ("/x", "a=b%20c")
    assert environ["REMOTE_ADDR"] == "127.0.0.1"


def test_a_header_that_comes_twice_counts_twice(start: Start) -> None:
    api = start()
    twice = request("/x", 0, **{"X-Forwarded-For": "1.1.1.1\r\nX-Forwarded-For: 2.2.2.2"})
    with api.server.connect(twice) as connection:
        rest_of(connection)
    assert api.app.environ["HTTP_X_FORWARDED_FOR"] == "1.1.1.1,2.2.2.2"


def test_the_thread_that_had_work_last_has_the_next_request() -> None:
    """Its connection to the database is nearest to the processor."""

    async def ask() -> list[int]:
        places = RequestPlaces(THREADS)

        async def rest() -> None:
            # An answer is told before its thread is free again.
            while len(places._idle) < THREADS:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

        used = []
        for _ in range(20):
            await rest()
            used.append(await places.run(lambda _tell: threading.get_ident()))
        return used

    assert len(set(asyncio.run(ask()))) == 1


def test_a_stop_answers_what_waits_for_a_thread_or_has_it_by_name(start: Start) -> None:
    api = start()
    answers: list[bytes] = []
    with ThreadPoolExecutor(THREADS + 1) as callers:
        asked = [callers.submit(api.ask, "/wait") for _ in range(THREADS + 1)]
        eventually(lambda: len(api.app.calls) == THREADS)
        api.server.server.should_exit = True
        try:
            answers = [one.result(PATIENCE) for one in asked]
        finally:
            api.app.gate.set()
    assert [(status(answer), code(answer)) for answer in answers] == [(503, "stopping")] * len(
        asked
    )

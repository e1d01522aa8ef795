"""Whoever sends too slowly, nothing, or too much of a head, is not waited for."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from encrypted_records.listening.pace import ServerLimits
from tests.listening.conftest import PATIENCE, SHORT, Running, echo, rest_of
from tests.support.eventually import eventually

Start = Callable[..., Running]

HEAD = b"POST /%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n%s\r\n"
CLOSE = GET % b"Connection: close\r\n"


def document(answer: bytes) -> tuple[int, str]:
    """Status and code of a problem document."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["code"]


def test_a_silent_connection_is_closed_without_a_word(start: Start) -> None:
    server = start(echo)
    assert server.ask(b"") == b""
    assert server.closed == {"head": 1}


def test_a_head_that_does_not_end_is_refused_by_name(start: Start) -> None:
    server = start(echo)
    assert document(server.ask(b"GET / HTTP/1.1\r\nHost: x\r\n")) == (408, "too_slow")
    assert server.closed == {"head": 1}


def test_a_head_that_comes_byte_by_byte_has_no_more_time(start: Start) -> None:
    server = start(echo)
    with server.connect(b"GET / HTTP/1.1\r\nX: ") as connection:
        connection.settimeout(0.05)
        answer, deadline = b"", time.monotonic() + PATIENCE
        while not answer and time.monotonic() < deadline:
            connection.sendall(b"x")
            try:
                answer = connection.recv(4096)
            except TimeoutError:
                continue
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_empty_lines_between_requests_keep_nothing_open(start: Start) -> None:
    server = start(echo)
    with server.connect(GET % b"") as connection:
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"\r\n")
        assert rest_of(connection) == b""
    assert server.closed == {"head": 1}


def test_a_head_that_is_too_large_is_refused_by_name(start: Start) -> None:
    server = start(echo)
    with server.connect(b"GET / HTTP/1.1\r\n") as connection:
        for _ in range(10):
            connection.sendall(b"X: " + b"x" * 1000 + b"\r\n")
        assert document(rest_of(connection)) == (431, "too_large")


def test_a_body_that_stops_is_refused_by_name(start: Start) -> None:
    server = start(echo)
    assert document(server.ask(HEAD % (b"", 100) + b"x")) == (408, "too_slow")
    assert server.closed == {"body": 1}


def slowly(connection: socket.socket, pieces: int, pause: float) -> bytes:
    """Send so many bytes, one at a time; what is answered in the end."""
    try:
        for _ in range(pieces):
            connection.sendall(b"x")
            time.sleep(pause)
    except (BrokenPipeError, ConnectionResetError):
        pass
    return rest_of(connection)


def test_a_body_below_the_least_rate_is_given_up_though_it_never_stops(start: Start) -> None:
    server = start(echo)
    with server.connect(HEAD % (b"", 60)) as connection:
        slowly(connection, 60, 0.05)
    assert server.closed == {"body": 1}


def test_a_known_caller_may_be_slow(start: Start) -> None:
    server = start(echo, replace(SHORT, known_grace_seconds=30.0))
    with server.connect(HEAD % (b"known", 60)) as connection:
        assert slowly(connection, 60, 0.05).endswith(b"\r\n\r\n" + b"x" * 60)
    assert server.closed == {}


def test_a_known_caller_may_not_be_silent(start: Start) -> None:
    server = start(echo)
    assert document(server.ask(HEAD % (b"known", 100) + b"x")) == (408, "too_slow")


def test_a_known_caller_may_not_be_slower_than_the_rate_for_those(start: Start) -> None:
    server = start(echo, replace(SHORT, known_least_rate=1000.0))
    with server.connect(HEAD % (b"known", 100)) as connection:
        slowly(connection, 100, 0.05)
    assert server.closed == {"body": 1}


def test_nobody_is_hurried_while_the_server_does_not_read(start: Start) -> None:
    async def late(scope, receive, send) -> None:  # type: ignore[no-untyped-def]  # ASGI's
        import asyncio

        await receive()
        await asyncio.sleep(2.0)
        await echo(scope, receive, send)

    server = start(late)
    body = b"x" * 3_000_000
    with server.connect() as connection:
        connection.sendall(HEAD % (b"", len(body)) + body)
        assert rest_of(connection).startswith(b"HTTP/1.1 200 ")
    assert server.closed == {}


def test_an_answer_that_nobody_reads_is_given_up(start: Start) -> None:
    async def much(_scope, _receive, send) -> None:  # type: ignore[no-untyped-def]  # ASGI's
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(64):
            body = b"x" * (1 << 20)
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    server = start(much)
    with server.connect(CLOSE):
        eventually(lambda: server.closed == {"answer": 1})


def test_an_answer_that_is_read_slowly_is_not(start: Start) -> None:
    size = 40 << 20

    async def much(_scope, _receive, send) -> None:  # type: ignore[no-untyped-def]  # ASGI's
        headers = [(b"content-length", str(size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * size})

    # Longer than any pause of the reader's, and shorter than all of them.
    server = start(much, replace(SHORT, unread_seconds=1.5))
    with server.connect(CLOSE) as connection:
        read = 0
        while part := connection.recv(1 << 20):
            read += len(part)
            time.sleep(0.03)
    assert read > size
    assert server.closed == {}


def test_beyond_capacity_those_go_who_have_waited_with_their_request_the_longest(
    start: Start,
) -> None:
    server = start(echo, replace(SHORT, head_seconds=60.0, connections=10))
    silent = [server.connect() for _ in range(30)]
    try:
        assert server.ask(CLOSE).startswith(b"HTTP/1.1 200 ")
        eventually(lambda: server.closed["crowd"] >= 20)
        assert [one.recv(1) for one in silent[:20]] == [b""] * 20
        silent[-1].settimeout(0.2)
        with pytest.raises(TimeoutError):
            silent[-1].recv(1)
    finally:
        for one in silent:
            one.close()


def test_an_answer_says_how_long_its_connection_is_kept(start: Start) -> None:
    assert b"keep-alive: timeout=%d\r\n" % SHORT.idle_seconds in start(echo).ask(CLOSE).lower()


def test_a_connection_is_kept_for_longer_than_the_minute_of_many_clients() -> None:
    assert ServerLimits().idle_seconds > 60


def test_beyond_capacity_an_idle_connection_gives_way(start: Start) -> None:
    server = start(echo, replace(SHORT, connections=3))
    idle = [server.connect(GET % b"") for _ in range(3)]
    try:
        for one in idle:
            assert one.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert server.ask(CLOSE).startswith(b"HTTP/1.1 200 ")
        assert server.closed == {"crowd": 1}
    finally:
        for one in idle:
            one.close()


def test_five_hundred_slow_senders_keep_nobody_from_an_answer(start: Start) -> None:
    server = start(echo, replace(SHORT, head_seconds=60.0, grace_seconds=60.0))
    kinds = (b"", b"GET / HTTP/1.1\r\nX: ", HEAD % (b"", 100) + b"x")
    slow = [server.connect(kinds[number % 3]) for number in range(500)]
    try:
        for _ in range(20):
            assert server.ask(CLOSE).startswith(b"HTTP/1.1 200 ")
        assert sum(server.closed.values()) == 0
        # And then the time is over of the two kinds that still owe their heads.
        server.watch.limits = replace(SHORT, head_seconds=0.0)
        eventually(lambda: server.closed == {"head": 334})
    finally:
        for one in slow:
            one.close()


UPGRADE = b"%s / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%s\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        UPGRADE % (b"POST", b"Content-Length: 100\r\n") + b"x",
        UPGRADE % (b"POST", b"Transfer-Encoding: chunked\r\n") + b"64\r\nx",
        UPGRADE % (b"GET", b"Content-Length: 100\r\n") + b"x",
        UPGRADE % (b"GET", b"Transfer-Encoding: chunked\r\n") + b"64\r\nx",
        UPGRADE % (b"GET", b""),
        UPGRADE % (b"GET", b"X: " + b"x" * 20_000 + b"\r\n"),
        UPGRADE % (b"GET", b"X: x\r\n" * 500),
    ],
    ids=["post", "post-chunked", "get", "get-chunked", "no-key", "long-line", "many-lines"],
)
def test_an_upgrade_that_is_none_ends_itself_alone(start: Start, sent: bytes) -> None:
    server = start(echo, replace(SHORT, head_bytes=64 << 10), sockets=True)
    answer = server.ask(sent)
    assert 400 <= int(answer.split()[1]) < 500
    assert answer.count(b"HTTP/1.1 ") == 1
    eventually(lambda: server.connections == 0)
    assert server.ask(CLOSE).startswith(b"HTTP/1.1 200 ")


def test_an_upgrade_whose_body_does_not_come_is_refused_by_name(start: Start) -> None:
    server = start(echo, SHORT, sockets=True)
    sent = UPGRADE % (b"POST", b"Content-Length: 100\r\n") + b"x"
    assert document(server.ask(sent)) == (400, "invalid")


def test_an_upgrade_behind_an_answer_that_goes_on_ends_its_connection(start: Start) -> None:
    ended = threading.Event()

    async def long(_scope, receive, send) -> None:  # type: ignore[no-untyped-def]  # ASGI's
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        ended.set()

    server = start(long, SHORT, sockets=True)
    with server.connect(GET % b"") as connection:
        assert connection.recv(1)
        key = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        connection.sendall(UPGRADE % (b"GET", key))
        assert b"101" not in rest_of(connection)
    assert ended.wait(PATIENCE)


def test_a_head_without_end_behind_a_request_spoils_no_answer(start: Start) -> None:
    async def in_two_pieces(_scope, receive, send) -> None:  # type: ignore[no-untyped-def]  # ASGI's
        headers = [(b"content-length", b"200")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * 100, "more_body": True})
        await receive()
        await receive()  # until the connection is gone
        await send({"type": "http.response.body", "body": b"x" * 100})

    server = start(in_two_pieces)
    with server.connect(GET % b"") as connection:
        answer = connection.recv(4096)
        connection.sendall(b"GET / HTTP/1.1\r\n")
        with suppress(ConnectionError):
            for _ in range(20):
                connection.sendall(b"X: " + b"x" * 1000 + b"\r\n")
                time.sleep(0.01)
        answer += rest_of(connection)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 431" not in answer
    assert answer.count(b"x" * 100) == 1


def test_a_mistake_over_one_connection_ends_no_server(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(echo)
    looked = threading.Event()

    def fail() -> None:
        looked.set()
        raise ValueError

    monkeypatch.setattr(server.watch, "look", fail)
    assert looked.wait(PATIENCE)
    assert server.ask(CLOSE).startswith(b"HTTP/1.1 200 ")

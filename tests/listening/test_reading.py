"""What is read goes through one buffer, and reaches whom it is for."""

from __future__ import annotations

import os
import socket
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from encrypted_records.listening.watch import READ_BYTES
from tests.listening.conftest import SHORT, Running, echo, rest_of, until

Start = Callable[..., Running]
CONNECTIONS = 400
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"


def test_connections_share_the_memory_that_they_are_read_into(start: Start) -> None:
    server = start(echo, replace(SHORT, head_seconds=60.0))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        silent = [server.connect(b"GET ") for _ in range(CONNECTIONS)]
        until(lambda: server.watch.heads_owed == CONNECTIONS)
        during = tracemalloc.get_traced_memory()[0]
        for one in silent:
            one.close()
        until(lambda: not server.watch.heads_owed)
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # A buffer each would be a hundred MiB.
    assert during - before < CONNECTIONS * READ_BYTES // 10
    assert after - before < CONNECTIONS * READ_BYTES // 50


def test_bodies_that_come_at_once_are_not_mixed_up(start: Start) -> None:
    server = start(echo, replace(SHORT, grace_seconds=60.0))
    bodies = [os.urandom(2_000_000) for _ in range(12)]

    def bring(body: bytes) -> bytes:
        with server.connect(HEAD % len(body)) as connection:
            for start in range(0, len(body), 50_000):
                connection.sendall(body[start : start + 50_000])
            return rest_of(connection).partition(b"\r\n\r\n")[2]

    with ThreadPoolExecutor(len(bodies)) as pool:
        assert list(pool.map(bring, bodies)) == bodies


def test_requests_that_come_in_one_piece_are_answered_in_their_order(start: Start) -> None:
    server = start(echo)
    one = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n%s\r\n%d"
    sent = b"".join(one % (b"Connection: close\r\n" * (n == 9), n) for n in range(10))
    answers = server.ask(sent).split(b"HTTP/1.1 200 ")[1:]
    assert [answer[-1:] for answer in answers] == [b"%d" % n for n in range(10)]


def test_a_refusal_reaches_who_sends_all_of_a_body_first(start: Start) -> None:
    async def refuse(_scope, _receive, send) -> None:  # type: ignore[no-untyped-def]  # ASGI's
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b"no"})

    server = start(refuse, replace(SHORT, grace_seconds=60.0))
    body = b"x" * 5_000_000
    with server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connection.sendall(HEAD % len(body) + body)
        assert rest_of(connection).startswith(b"HTTP/1.1 401 ")

"""What is read goes through one buffer, and reaches whom it is for."""

from __future__ import annotations

import json
import os
import socket
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from starlette.types import Receive, Scope, Send

from encrypted_records.listening.pace import READ_BYTES
from tests.listening.conftest import PATIENT, Running, echo, rest_of
from tests.support.eventually import eventually

Start = Callable[..., Running]
CONNECTIONS = 400
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"


def test_connections_share_the_memory_that_they_are_read_into(start: Start) -> None:
    server = start(echo, PATIENT)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        silent = [server.connect(b"GET ") for _ in range(CONNECTIONS)]
        eventually(lambda: server.watch.heads_owed == CONNECTIONS)
        during = tracemalloc.get_traced_memory()[0]
        for one in silent:
            one.close()
        eventually(lambda: not server.watch.heads_owed)
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # A buffer each would be a hundred MiB.
    assert during - before < CONNECTIONS * READ_BYTES // 10
    assert after - before < CONNECTIONS * READ_BYTES // 50


def test_bodies_that_come_at_once_are_not_mixed_up(start: Start) -> None:
    server = start(echo, PATIENT)
    bodies = [os.urandom(2_000_000) for _ in range(12)]

    def bring(body: bytes) -> bytes:
        with server.connect(HEAD % len(body)) as connection:
            for start in range(0, len(body), 50_000):
                connection.sendall(body[start : start + 50_000])
            return rest_of(connection).partition(b"\r\n\r\n")[2]

    with ThreadPoolExecutor(len(bodies)) as pool:
        assert list(pool.map(bring, bodies)) == bodies


def test_requests_that_come_in_one_piece_are_answered_in_their_order(start: Start) -> None:
    server = start(echo, PATIENT)
    one = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n%s\r\n%d"
    sent = b"".join(one % (b"Connection: close\r\n" * (n == 9), n) for n in range(10))
    answers = server.ask(sent).split(b"HTTP/1.1 200 ")[1:]
    assert [answer[-1:] for answer in answers] == [b"%d" % n for n in range(10)]


REQUEST = b"POST %s HTTP/1.1\r\nHost: x:80\r\nConnection: close\r\n%s\r\n%s"
SIZED = b"Content-Length: 4\r\n"


def request(target: bytes, headers: bytes, *, chunked: bool = False) -> bytes:
    if chunked:
        return REQUEST % (target, headers, b"4\r\nbody\r\n0\r\n\r\n")
    return REQUEST % (target, SIZED + headers, b"body")


UPGRADE = b"Connection: Upgrade\r\nUpgrade: other\r\n"
ENCODED = (b"Content-Encoding: gzip\r\n", b"Transfer-Encoding: gzip, chunked\r\n")


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (request(b"/", b"X: " + b"x" * 8200 + b"\r\n"), 431, "too_large"),
        (request(b"/" + b"x" * 8200, b""), 431, "too_large"),
        (request(b"/", b"X: x\r\n" * 1400), 431, "too_large"),
        (request(b"/", ENCODED[0]), 415, "unsupported_encoding"),
        (request(b"/", ENCODED[1], chunked=True), 501, "unsupported_encoding"),
        (request(b"http://evil.example/", b""), 421, "unknown_host"),
        (request(b"http://x/", b""), 421, "unknown_host"),
        (request(b"http://x:80@evil.example/", b""), 421, "unknown_host"),
        (request(b"/", b"").replace(b"Host", b"Ghost"), 400, "invalid"),
        (request(b"/", b"Host: x:80\r\n"), 400, "invalid"),
    ],
    ids=lambda value: repr(value)[-40:],
)
def test_a_head_that_cannot_be_taken_is_refused_by_name(
    start: Start, sent: bytes, status: int, code: str
) -> None:
    answer = start(echo, PATIENT).ask(sent)
    assert answer.count(b"HTTP/1.1 ") == 1
    head, _, body = answer.partition(b"\r\n\r\n")
    found = json.loads(body)
    assert (int(answer.split()[1]), found["status"], found["code"]) == (status, status, code)
    assert spelled_otherwise(head) == []


def spelled_otherwise(head: bytes) -> list[bytes]:
    """The names of a head that do not begin with a capital."""
    return [line for line in head.split(b"\r\n")[1:] if line[:1].islower()]


@pytest.mark.parametrize(
    "sent",
    [
        request(b"http://X:80/", b""),
        request(b"/http://evil.example/", b""),
        request(b"/", b"Content-Encoding: identity\r\n"),
        request(b"/", b"").replace(b"HTTP/1.1\r\nHost: x:80", b"HTTP/1.0"),
        request(b"/", b"Transfer-Encoding: Chunked\r\n", chunked=True),
        request(b"/", UPGRADE),
        request(b"/", UPGRADE.lower() + b"Transfer-Encoding: chunked\r\n", chunked=True),
    ],
    ids=lambda value: repr(value)[-40:],
)
def test_a_head_of_the_same_kind_that_can_be_taken_is_taken(start: Start, sent: bytes) -> None:
    answer = start(echo, PATIENT).ask(sent)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"body")
    assert spelled_otherwise(answer.partition(b"\r\n\r\n")[0]) == []


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "later"])
@pytest.mark.parametrize("has_body", [True, False], ids=["body", "no body"])
def test_what_follows_a_head_behind_another_that_asks_for_an_upgrade_is_no_request(
    start: Start, has_body: bool, at_once: bool
) -> None:
    server = start(echo, PATIENT)
    first = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    body = b"Content-Length: %d\r\n" % len(smuggled) if has_body else b""
    head = first + b"POST / HTTP/1.1\r\nHost: x\r\n" + UPGRADE + body + b"\r\n"
    with server.connect(head + smuggled if at_once else head) as connection:
        answer = connection.recv(1 << 16)
        if not at_once:
            with suppress(ConnectionError):
                connection.sendall(smuggled)
        answer += rest_of(connection)
    statuses = [one[:3] for one in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"400" if has_body else b"200"]


def test_a_body_behind_a_head_that_asks_for_an_upgrade_is_no_request(start: Start) -> None:
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % len(smuggled)
    more = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = start(echo, PATIENT).ask(head + UPGRADE + b"\r\n" + smuggled + more)
    assert answer.count(b"HTTP/1.1 200 ") == 2
    assert answer.split(b"\r\n\r\n", 1)[1].startswith(smuggled)


def test_fields_after_a_body_are_dropped(start: Start) -> None:
    seen: list[list[tuple[bytes, bytes]]] = []

    async def look(scope: Scope, receive: Receive, send: Send) -> None:
        await echo(scope, receive, send)
        seen.append(scope["headers"])

    body = b"4\r\nbody\r\n0\r\nHost: evil\r\nX: x\r\n\r\n"
    sent = REQUEST % (b"/", b"Transfer-Encoding: chunked\r\n", body)
    assert start(look, PATIENT).ask(sent).endswith(b"body")
    assert [[name for name, _ in one] for one in seen] == [
        [b"host", b"connection", b"transfer-encoding"]
    ]


HANDSHAKE = (
    b"GET %s HTTP/1.1\r\nHost: x:80\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n"
)


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (HANDSHAKE % (b"/", b"X: " + b"x" * 8200 + b"\r\n"), 431, "too_large"),
        (HANDSHAKE % (b"/", ENCODED[0]), 415, "unsupported_encoding"),
        (HANDSHAKE % (b"http://evil.example/", b""), 421, "unknown_host"),
        (HANDSHAKE % (b"http://x:80@evil.example/", b""), 421, "unknown_host"),
    ],
    ids=["too_large", "encoded", "other_host", "host_behind_user"],
)
def test_a_handshake_of_a_websocket_is_refused_as_other_heads_are(
    start: Start, sent: bytes, status: int, code: str
) -> None:
    asked: list[str] = []

    async def note(scope, receive, send) -> None:  # type: ignore[no-untyped-def]  # ASGI's
        asked.append(scope["type"])
        await echo(scope, receive, send)

    answer = start(note, PATIENT, sockets=True).ask(sent)
    assert answer.count(b"HTTP/1.1 ") == 1
    found = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert (int(answer.split()[1]), found["status"], found["code"]) == (status, status, code)
    assert asked == []


def test_a_head_that_is_refused_is_answered_in_its_turn(start: Start) -> None:
    good = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
    bad = request(b"/", b"Content-Encoding: br\r\n")
    statuses = [one[:3] for one in start(echo, PATIENT).ask(good + bad).split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"415"]


def test_a_refusal_reaches_who_sends_all_of_a_body_first(start: Start) -> None:
    async def refuse(_scope, _receive, send) -> None:  # type: ignore[no-untyped-def]  # ASGI's
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b"no"})

    server = start(refuse, PATIENT)
    body = b"x" * 5_000_000
    with server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connection.sendall(HEAD % len(body) + body)
        assert rest_of(connection).startswith(b"HTTP/1.1 401 ")

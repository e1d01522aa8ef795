"""A request that the application leaves unanswered gets an answer with a name."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from http.client import HTTPConnection, HTTPMessage

import pytest
from starlette.types import Receive, Scope, Send

from tests.listening.conftest import PATIENCE, PATIENT, Running, rest_of
from tests.support.eventually import eventually

Start = Callable[..., Running]

HANDSHAKE = (
    b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Waiting:
    """An application that never answers. ``/begun`` has an answer that never ends."""

    def __init__(self) -> None:
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        self.under_way += 1
        await asyncio.Event().wait()


async def fail(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise ValueError("a value")


async def say_nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
    pass


def ask(server: Running, method: str, path: str = "/") -> tuple[int, HTTPMessage, bytes]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    connection.request(method, path, b"{}" if method == "POST" else None)
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read()


def test_a_stop_answers_requests_under_way_by_name_and_says_when_to_try_again(
    start: Start,
) -> None:
    app = Waiting()
    server = start(app, PATIENT)
    found: dict[str, tuple[int, HTTPMessage, bytes]] = {}

    def note(method: str) -> None:
        found[method] = ask(server, method)

    threads = [threading.Thread(target=note, args=(method,)) for method in ("GET", "POST")]
    for thread in threads:
        thread.start()
    eventually(lambda: app.under_way == len(threads))
    server.server.should_exit = True
    for thread in threads:
        thread.join(PATIENCE)
    for method in ("GET", "POST"):
        status, headers, body = found[method]
        assert (status, headers["Retry-After"]) == (503, "5")
        assert headers["Content-Type"] == "application/problem+json"
        told = json.loads(body)
        assert told["code"] == "stopping"
        assert ("a change may or may not be stored" in told["detail"]) == (method == "POST")


def test_a_stop_breaks_an_answer_off_that_has_begun(start: Start) -> None:
    app = Waiting()
    server = start(app, PATIENT)
    with server.connect(b"GET /begun HTTP/1.1\r\nHost: x\r\n\r\n") as connection:
        eventually(lambda: app.under_way == 1)
        server.server.should_exit = True
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"1\r\nx\r\n")  # without the end of a whole answer


async def stream(scope: Scope, _receive: Receive, send: Send) -> None:
    """An answer of three parts and unknown length; ``/fails`` ends with an error instead."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for part in (b"one", b"two"):
        await send({"type": "http.response.body", "body": part, "more_body": True})
    if scope["path"] == "/fails":
        raise ValueError
    await send({"type": "http.response.body", "body": b"three"})


OLD = b"GET %s HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"


def test_a_client_of_http_1_0_gets_an_answer_without_chunks(start: Start) -> None:
    with start(stream, PATIENT).connect(OLD % b"/") as connection:
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head.lower()
    assert body == b"onetwothree"


def test_an_answer_in_http_1_0_that_breaks_off_does_not_end_like_a_whole_one(start: Start) -> None:
    connection = start(stream, PATIENT).connect(OLD % b"/fails")
    with connection, pytest.raises(ConnectionResetError):
        while connection.recv(1 << 16):
            pass


def test_a_stop_refuses_a_socket_that_is_not_accepted_yet_by_name(start: Start) -> None:
    app = Waiting()
    server = start(app, PATIENT, sockets=True)
    with server.connect(HANDSHAKE) as connection:
        eventually(lambda: app.under_way == 1)
        server.server.should_exit = True
        head, _, body = rest_of(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503")
    assert json.loads(body)["code"] == "stopping"


@pytest.mark.parametrize("app", [fail, say_nothing])
def test_an_application_that_fails_is_an_internal_error_by_name(
    start: Start, app: Callable[..., object]
) -> None:
    status, headers, body = ask(start(app, PATIENT), "GET")
    assert (status, headers["Content-Type"]) == (500, "application/problem+json")
    assert json.loads(body)["code"] == "internal_error"
    assert b"a value" not in body


def test_a_method_in_small_letters_is_refused_with_the_reason(start: Start) -> None:
    answer = start(say_nothing, PATIENT).ask(b"patch / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert "capitals" in json.loads(answer.partition(b"\r\n\r\n")[2])["hint"]


def test_bytes_that_are_not_http_are_refused_by_name(start: Start) -> None:
    head, _, body = start(say_nothing, PATIENT).ask(b"no such thing\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["code"] == "malformed"

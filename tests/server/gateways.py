"""A gateway with an application of a few lines behind it, served as an API is."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from encrypted_records.listening.pace import ServerLimits
from encrypted_records.server.gateway.admission import SENDER, RequestPlaces, Room
from encrypted_records.server.gateway.gateway import Gateway
from tests.listening.conftest import PATIENCE, SHORT, Running, rest_of, running

THREADS = 2
PATIENT = replace(SHORT, head_seconds=60.0, grace_seconds=60.0, unread_seconds=60.0)
FRAMES = "/api/commits/"


@dataclass
class App:
    """A WSGI application that says what it was given, and waits where it is told to."""

    calls: list[str] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    made: int = 0
    streamed: int = 0
    counting: threading.Lock = field(default_factory=threading.Lock)
    ended: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)
    environ: dict[str, Any] = field(default_factory=dict)
    #: whether it says who sends, before it reads what is sent
    names_senders: bool = False

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        self.environ = environ
        path = environ["PATH_INFO"]
        self.calls.append(path)
        if path == "/wait":
            assert self.gate.wait(PATIENCE)
        if path == "/bug":
            raise ValueError
        if environ.get("HTTP_AUTHORIZATION") == "wrong":
            start("401 Unauthorized", [])
            return [b""]
        if self.names_senders:
            environ[SENDER] = environ.get("HTTP_AUTHORIZATION", "")
        body = environ["wsgi.input"].read()
        if path == "/hold":
            assert self.gate.wait(PATIENCE)
        if path == "/stream":
            start("200 OK", [])
            return self._stream(int(environ["QUERY_STRING"]))
        start("200 OK", [("X-Length", str(len(body)))])
        return [body[:10]]

    def _stream(self, pieces: int) -> Iterator[bytes]:
        try:
            for number in range(pieces):
                if number == 40:
                    assert self.gate.wait(PATIENCE)
                self.made = number + 1
                yield number.to_bytes(4, "big") * (1 << 14)
            self.ended.set()
            with self.counting:
                self.streamed += 1
        finally:
            self.stopped.set()


@dataclass
class Api:
    app: App
    room: Room
    server: Running
    seen: list[tuple[str, int]]

    def ask(self, path: str, body: bytes = b"", *, sent: int | None = None, **head: str) -> bytes:
        with self.server.connect(request(path, len(body), **head) + body[:sent]) as connection:
            return rest_of(connection)


def request(path: str, length: int, **head: str) -> bytes:
    given = {"Host": "x", "Connection": "close"} | (
        {"Content-Length": str(length)} if length else {}
    )
    lines = [f"{name}: {value}" for name, value in (given | head).items()]
    method = "POST" if length else "GET"
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


def status(answer: bytes) -> int:
    return int(answer.split()[1])


def code(answer: bytes) -> str:
    return str(json.loads(answer.partition(b"\r\n\r\n")[2])["code"])


@contextmanager
def starting(folder: Path) -> Iterator[Start]:
    """What starts one, with limits of its own; all that were started end with the block."""
    with ExitStack() as stack:

        def begin(
            limits: ServerLimits = PATIENT,
            *,
            waiting: int = 4,
            wait_seconds: float = 60.0,
            **room: int,
        ) -> Api:
            app, seen = App(), list[tuple[str, int]]()
            space = Room(folder, **room)
            places = RequestPlaces(THREADS, waiting=waiting, wait_seconds=wait_seconds)
            gateway = Gateway(app, space, places, lambda *told: seen.append(told[:2]))
            api = Api(app, space, stack.enter_context(running(gateway, limits)), seen)
            stack.callback(app.gate.set)
            return api

        yield begin


Start = Callable[..., Api]

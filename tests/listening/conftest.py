"""A server with little patience, and callers that speak to it byte by byte."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from encrypted_records.listening import pace
from encrypted_records.listening.connections import Lingering
from encrypted_records.listening.pace import ConnectionWatch, ServerLimits
from encrypted_records.listening.serving import Server
from encrypted_records.listening.socket_protocol import Socket
from tests.support.eventually import eventually

#: Seconds that a test waits for what must come.
PATIENCE = 60.0
SHORT = ServerLimits(
    head_seconds=0.6,
    head_bytes=8 << 10,
    idle_seconds=30,
    grace_seconds=0.6,
    least_rate=100_000,
    known_grace_seconds=1.5,
    unread_seconds=0.6,
)
#: The same for tests that are about something else: it does not matter how busy the machine is.
PATIENT = replace(
    SHORT,
    head_seconds=PATIENCE,
    grace_seconds=PATIENCE,
    known_grace_seconds=PATIENCE,
    unread_seconds=PATIENCE,
)


@dataclass
class Running:
    """A server; ``closed`` counts whom it ended, by the reason."""

    port: int
    server: Server
    closed: Counter[str] = field(default_factory=Counter)

    @property
    def watch(self) -> ConnectionWatch:
        return self.server.watch

    @property
    def connections(self) -> int:
        """How many it holds, of either kind."""
        return len(self.server.server_state.connections)

    def connect(self, sent: bytes = b"", *, room: int | None = None) -> socket.socket:
        """``room``: bytes that the system keeps for a reader who does not read."""
        connection = socket.socket()
        connection.settimeout(PATIENCE)
        if room is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        connection.connect(("127.0.0.1", self.port))
        connection.sendall(sent)
        return connection

    def ask(self, sent: bytes) -> bytes:
        """All that is answered, until the server closes."""
        with self.connect(sent) as connection:
            return rest_of(connection)


def rest_of(connection: socket.socket) -> bytes:
    found = b""
    try:
        while part := connection.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a body with itself. ``/known`` knows its callers; ``/late`` reads late."""
    if scope["path"] == "/known":
        pace.know(scope)
    body = b""
    more = True
    while more:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        more = message.get("more_body", False)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def running(app: ASGIApp, limits: ServerLimits = SHORT, sockets: bool = False) -> Iterator[Running]:
    closed: Counter[str] = Counter()

    def count(reason: str) -> None:
        closed[reason] += 1

    listening = socket.create_server(("127.0.0.1", 0))
    # As much on every machine; its connections have the same.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 128 << 10)
    port = listening.getsockname()[1]
    server = Server(
        Lingering(app),
        limits,
        stop_seconds=1,
        closed=count,
        sockets=Socket if sockets else None,
        lifespan="off",
    )
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started)
        yield Running(port, server, closed)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Starts servers that end with the test."""
    with ExitStack() as stack:
        yield lambda *given, **named: stack.enter_context(running(*given, **named))

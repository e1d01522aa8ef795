"""A way to a server on which silence may fall: connections stand, and nothing comes any more."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from tests.support.relay import Relay, relaying


class Silence(Relay):
    """``url`` leads to the server. ``speaking`` is set as long as bytes are carried."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.url = f"http://127.0.0.1:{self.port}"
        self.speaking = threading.Event()
        self.speaking.set()
        self.connections = 0

    @contextmanager
    def falling(self) -> Iterator[None]:
        self.speaking.clear()
        try:
            yield
        finally:
            self.speaking.set()

    def _take(self, client: socket.socket) -> None:
        self.connections += 1
        server = socket.create_connection(self._target)
        for one, other in ((client, server), (server, client)):
            threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.speaking.wait()
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.speaking.set()
        super().close()


def silence_before(port: int) -> AbstractContextManager[Silence]:
    return relaying(Silence(port))

"""A port of a test's own that stands between callers and a server."""

from __future__ import annotations

import abc
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar


class Relay(abc.ABC):
    """Takes connections at ``port``; what becomes of each, its subclass says."""

    def __init__(self, target: int) -> None:
        self._target = ("127.0.0.1", target)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listening.getsockname()[1]

    @abc.abstractmethod
    def _take(self, client: socket.socket) -> None:
        """Begin with a new connection, without waiting for its end."""

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._take(client)

    def close(self) -> None:
        # A thread that waits in accept() is not woken by close() alone.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


R = TypeVar("R", bound=Relay)


@contextmanager
def relaying(relay: R) -> Iterator[R]:
    """The relay at work, from a thread of its own."""
    serving = threading.Thread(target=relay.serve, daemon=True)
    serving.start()
    try:
        yield relay
    finally:
        relay.close()
        serving.join(5)

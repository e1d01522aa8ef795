"""A way between two sides that breaks: TCP, forwarded until a random byte, then cut."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Way:
    """``url`` leads to the other side. Of the next ``cuts`` connections, each is cut after at most
    ``bytes_before`` bytes that the client has sent."""

    url: str
    chance: random.Random
    bytes_before: int
    cuts: int
    made: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def budget(self) -> int | None:
        """How many bytes the next connection lives; None for ever."""
        with self.lock:
            if self.made >= self.cuts:
                return None
            return self.chance.randrange(1, self.bytes_before)

    def was_cut(self) -> None:
        with self.lock:
            self.made += 1


@contextmanager
def breaking_way(host: str, port: int, *, seed: int, cuts: int, bytes_before: int) -> Iterator[Way]:
    """A breaking way to ``host:port``, on a port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        own = server.getsockname()[1]
        way = Way(f"http://127.0.0.1:{own}", random.Random(seed), bytes_before, cuts)
        threading.Thread(target=_accept, args=(server, (host, port), way), daemon=True).start()
        try:
            yield way
        finally:
            # A blocked accept keeps the socket listening; shutting it down wakes it.
            server.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket, there: tuple[str, int], way: Way) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        try:
            upstream = socket.create_connection(there)
        except OSError:
            client.close()
            continue
        pair = (client, upstream)
        threading.Thread(target=_carry, args=(pair, way.budget(), way), daemon=True).start()
        threading.Thread(target=_carry, args=(pair[::-1], None, way), daemon=True).start()
        # With the threads they are gone. What is only shut down never tells a sender who waits.
        del client, upstream, pair


def _carry(pair: tuple[socket.socket, socket.socket], budget: int | None, way: Way) -> None:
    source, target = pair
    try:
        while data := source.recv(64 << 10):
            if budget is not None:
                budget -= len(data)
                if budget <= 0:
                    target.sendall(data[:budget] if budget else data)
                    way.was_cut()
                    break
            target.sendall(data)
    except OSError:
        pass
    cut = budget is not None and budget <= 0
    for end, half in ((source, socket.SHUT_RD), (target, socket.SHUT_WR)):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR if cut else half)

"""People who send slowly, or nothing, and never say who they are."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

from tests.support.eventually import comes_about

#: What each kind sends; then it sends no more.
KINDS = {
    "silent": b"",
    "an unfinished head": b"POST /api/token/ HTTP/1.1\r\nHost: 127.0.0.1\r\nX-",
    "a byte of a body": b"POST /api/token/ HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
    "a byte of sealed rows": b"POST /api/commits/ HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Authorization: Bearer x.y.z\r\nContent-Length: 60000000\r\n\r\nE",
}


@contextmanager
def slow_senders(url: str, count: int) -> Iterator[list[socket.socket]]:
    """So many connections to ``url``, of each kind in turn."""
    address = urlsplit(url)
    port = address.port or 80
    sent = [kind.replace(b"127.0.0.1", f"127.0.0.1:{port}".encode()) for kind in KINDS.values()]
    with ExitStack() as stack:
        found = []
        for number in range(count):
            one = stack.enter_context(socket.create_connection((address.hostname, port), 30))
            one.sendall(sent[number % len(sent)])
            found.append(one)
        yield found


def all_ended(connections: list[socket.socket], *, within: float) -> bool:
    """Whether the other side closes them all."""
    open_ones = set(connections)

    def have_ended() -> bool:
        poll = select.poll()
        by_number = {one.fileno(): one for one in open_ones}
        for number in by_number:
            poll.register(number, select.POLLIN)
        for number, _ in poll.poll(1000):
            try:
                if not by_number[number].recv(1 << 16):
                    open_ones.discard(by_number[number])
            except ConnectionError:
                open_ones.discard(by_number[number])
        return not open_ones

    return comes_about(have_ended, within, pause=0)

"""What goes over a wire: a tap on one, and a stranger who listens where a proxy was."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.relay import Relay, relaying


class Tap(Relay):
    """Hands connections on to a port, and remembers every byte that went there."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.sent = bytearray()

    def _take(self, client: socket.socket) -> None:
        server = socket.create_connection(self._target)
        for source, sink, kept in ((client, server, True), (server, client, False)):
            threading.Thread(target=self._pump, args=(source, sink, kept), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, kept: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if kept:
                    self.sent += data
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def tapped(target: int) -> AbstractContextManager[Tap]:
    return relaying(Tap(target))


class Stranger:
    """A program on a port that says of itself that it is a proxy, and agrees to everything.

    ``heard`` is each request: its first line, its headers by name in lower case, and its body.
    """

    def __init__(
        self, port: int, answer: bytes, told: str | Callable[[dict[str, str]], str]
    ) -> None:
        self.heard: list[tuple[str, dict[str, str], bytes]] = []
        stranger = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                stranger.heard.append((self.requestline, headers, body))
                self.send_response_only(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("X-ERS-Answer", told if isinstance(told, str) else told(headers))
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True


@contextmanager
def stranger_on(
    port: int,
    answer: bytes = b'{"behind_proxy": true, "status": "ok"}',
    told: str | Callable[[dict[str, str]], str] = "0" * 64,
) -> Iterator[Stranger]:
    """Somebody else on a port that a proxy had.

    Args:
        told: what is answered to a challenge, or what makes it of the request's headers.
    """
    stranger = Stranger(port, answer, told)
    serving = threading.Thread(target=stranger.server.serve_forever, args=(0.02,), daemon=True)
    serving.start()
    try:
        yield stranger
    finally:
        stranger.server.shutdown()
        stranger.server.server_close()
        serving.join(5)

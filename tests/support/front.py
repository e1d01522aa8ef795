"""A server in front of the real API that passes everything on, or does to it what a test says.

It is the hostile API of the tests: whatever an API could answer, a lie makes of what the real one
answered. Without a lie it is the real one, and passes the tests that the real one passes.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.support.service import ANSWER_SECONDS


@dataclass(frozen=True)
class Asked:
    method: str
    #: with its query
    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    #: a Set-Cookie header each
    cookies: Sequence[str] = field(default=(), repr=False)

    def with_body(self, body: bytes) -> Reply:
        return replace(self, body=body)


#: What to answer instead; None breaks the connection off.
Lie = Callable[[Asked, Reply], Reply | None]


def honest(_asked: Asked, reply: Reply) -> Reply:
    return reply


def nothing(_asked: Asked) -> Reply | None:
    return None


class Front:
    def __init__(self, upstream: str) -> None:
        address = urlsplit(upstream)
        self._upstream = (address.hostname or "", address.port or 80)
        self.lie: Lie = honest
        #: what to answer without asking the real API, where it is something
        self.invent: Callable[[Asked], Reply | None] = nothing
        #: headers of requests, in lower case, that are not passed on
        self.hidden: frozenset[str] = frozenset()
        #: every request since the last :meth:`forget`
        self.asked: list[Asked] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def telling(self, lie: Lie) -> Iterator[None]:
        self.lie = lie
        try:
            yield
        finally:
            self.lie = honest

    def forget(self) -> None:
        self.asked = []

    def ask(self, asked: Asked, headers: Mapping[str, str]) -> Reply:
        """What the real API answers to a request, with these headers."""
        connection = http.client.HTTPConnection(*self._upstream, timeout=ANSWER_SECONDS)
        try:
            connection.request(asked.method, asked.path, asked.body or None, dict(headers))
            answer = connection.getresponse()
            given = {k: v for k, v in answer.getheaders() if k.lower() != "set-cookie"}
            cookies = answer.headers.get_all("Set-Cookie") or []
            return Reply(answer.status, given, answer.read(), cookies)
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # A body behind its headers would wait for the client to acknowledge these: 40 ms.
            disable_nagle_algorithm = True

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                size = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(size)
                asked = Asked(self.command, self.path, body, dict(self.headers.items()))
                front.asked.append(asked)
                invented = front.invent(asked)
                kept = {
                    name: value
                    for name, value in self.headers.items()
                    if name.lower() not in ("connection", "content-length")
                    and name.lower() not in front.hidden
                }
                try:
                    reply = invented or front.lie(asked, front.ask(asked, kept))
                except (OSError, http.client.HTTPException):
                    reply = None  # the API has gone, and its connection with it
                if reply is None:
                    self.close_connection = True
                    self.connection.close()
                    return
                self.send_response_only(reply.status)
                for name, value in reply.headers.items():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                for cookie in reply.cookies:
                    self.send_header("Set-Cookie", cookie)
                length = reply.headers.get("Content-Length") if asked.method == "HEAD" else None
                self.send_header("Content-Length", length or str(len(reply.body)))
                try:
                    self.end_headers()
                    self.wfile.write(reply.body)
                except ConnectionError:  # the proxy has given up, or has ended
                    self.close_connection = True

        return Handler


@contextmanager
def running_front(upstream: str) -> Iterator[Front]:
    front = Front(upstream)
    thread = threading.Thread(target=front._server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield front
    finally:
        front._server.shutdown()
        front._server.server_close()
        thread.join()

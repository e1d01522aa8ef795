"""Who the proxy does not know must send without delay; who it knows may take his time."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from encrypted_records.listening.pace import ServerLimits
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import ANSWER_SECONDS, Service, call
from tests.support.store import Store, new_store

LIMITS = ServerLimits(grace_seconds=1.0, known_grace_seconds=30.0)
DEFINITION = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 10_000}},
}


@pytest.fixture
def proxy(service: Service, tmp_path: Path) -> Iterator[Proxy]:
    with running_proxy(service.base_url, tmp_path / "own", limits=LIMITS) as running:
        yield running


@pytest.fixture
def store(service: Service) -> Store:
    return new_store(service, DEFINITION)


def begin(proxy: Proxy, path: str, size: int, auth: str) -> socket.socket:
    address = urlsplit(proxy.url)
    connection = socket.create_connection((address.hostname, address.port), timeout=ANSWER_SECONDS)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: {auth}\r\n"
        f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n"
    )
    connection.sendall(head.encode())
    return connection


def slowly(connection: socket.socket, data: bytes, seconds: float) -> bytes:
    """The answer to a body that takes so long."""
    with connection:
        for at in range(len(data)):
            connection.sendall(data[at : at + 1])
            time.sleep(seconds / len(data))
        with connection.makefile("rb") as answer:
            return answer.read()


@pytest.mark.parametrize("path", ["/api/token/", "/api/records/search/", "/api/jobs/upload/"])
def test_a_stranger_is_not_waited_for(
    proxy: Proxy, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with begin(proxy, path, 100, "Bearer x.y.z") as connection:
        connection.sendall(b"{")
        with connection.makefile("rb") as answer:
            assert answer.readline().split()[1] in (b"408", b"401")
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("path", ["/api/jobs/upload/", "/api/records/ingest/"])
def test_a_known_caller_may_send_as_slowly_as_his_line_is(
    proxy: Proxy, store: Store, path: str
) -> None:
    # Whose credentials the proxy remembers is known at once, however busy the API is.
    assert call("GET", f"{proxy.url}/api/datasets/", auth=store.account.auth).status == 200
    body = b'[{"schema": "%s", "data": {"n": 1}}]' % store.schema.encode()
    connection = begin(proxy, path, len(body), store.account.auth)
    answer = slowly(connection, body, 3 * LIMITS.grace_seconds)
    assert answer.startswith(b"HTTP/1.1 201 "), answer

"""Header names go over the wire as the interface spells them, which some clients mind."""

from __future__ import annotations

import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from tests.proxy.tus.client import encoded
from tests.support.service import Service, call
from tests.support.store import Store, new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}


@pytest.fixture(scope="module")
def store(services: Callable[[str], Service]) -> Store:
    return new_store(services("sqlite"), DEFINITION)


def head_of(
    url: str, store: Store, method: str, path: str, body: bytes, **headers: str
) -> set[str]:
    """The names of an answer's headers, letter by letter as they come."""
    address = urlsplit(url)
    sent = {
        "Host": address.netloc,
        "Authorization": store.account.auth,
        "Connection": "close",
        "Content-Length": str(len(body)),
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    received = b""
    with socket.create_connection((address.hostname, address.port or 0), 30) as connection:
        connection.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        while piece := connection.recv(65_536):
            received += piece
    lines = received.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {line.partition(":")[0] for line in lines}


def test_those_of_a_job_are_spelled_as_the_interface_has_them(store: Store) -> None:
    body = f"name,schema_id:{store.schema_id}\nAda\n".encode()
    names = head_of(
        store.service.proxy_url,
        store,
        "POST",
        "/api/jobs/upload/",
        body,
        Content_Type="text/csv",
    )
    assert {"X-Job-ID", "X-Job-Status-URL", "X-Job-Websocket-URL"} <= names
    assert {"Content-Type", "Content-Length", "X-Request-ID", "Cache-Control"} <= names


def test_those_of_a_resumable_upload_are_spelled_as_the_interface_has_them(store: Store) -> None:
    names = head_of(
        store.service.proxy_url,
        store,
        "POST",
        "/api/files/",
        b"",
        Tus_Resumable="1.0.0",
        Upload_Length="5",
        Upload_Metadata=encoded(filename="a.csv"),
    )
    assert {
        *("Location", "X-Job-Id", "X-Job-Status-Url", "X-Job-Websocket-Url"),
        *("Tus-Resumable", "Upload-Offset", "Upload-Expires"),
    } <= names


@pytest.mark.parametrize("at", ["proxy_url", "base_url"])
def test_so_are_those_of_credentials_and_cookies_on_both_hosts(store: Store, at: str) -> None:
    url = getattr(store.service, at)
    refused = head_of(url, store, "GET", "/api/datasets/", b"", Authorization="Basic eDp5")
    assert {"WWW-Authenticate", "Content-Type", "X-Request-ID"} <= refused
    assert "Set-Cookie" in head_of(url, store, "GET", "/api/csrf/", b"")


def test_a_record_comes_with_its_etag(store: Store) -> None:
    (record,) = store.ingest([{"name": "Ada"}])
    names = head_of(store.service.proxy_url, store, "GET", f"/api/records/{record}/", b"")
    assert "ETag" in names


def test_an_answer_without_a_known_length_still_ends(store: Store) -> None:
    """The server recognizes its own headers in any spelling."""
    body = {"schema": store.schema}
    url = f"{store.service.proxy_url}/api/records/export/"
    answer = call("POST", url, body, auth=store.account.auth)
    assert answer.status == 200
    assert answer.headers["Transfer-Encoding"] == "chunked"

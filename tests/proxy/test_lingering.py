"""A refusal arrives, whenever its client looks for it."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest

from tests.support.service import ANSWER_SECONDS, Service, call


@pytest.mark.parametrize("path", ["/api/jobs/upload/", "/api/files/", "/api/records/search/"])
def test_who_sends_a_whole_body_first_gets_the_refusal(service: Service, path: str) -> None:
    refused = call("POST", f"{service.proxy_url}{path}", b" " * (8 << 20), auth="Bearer x")
    assert refused.status == 401


@pytest.mark.parametrize("more", ["", "Expect: 100-continue\r\n"])
def test_who_looks_for_an_answer_first_gets_it_at_once_and_may_leave_the_rest(
    service: Service, more: str
) -> None:
    address = urlsplit(service.proxy_url)
    assert address.hostname is not None
    with socket.create_connection(
        (address.hostname, address.port), timeout=ANSWER_SECONDS
    ) as connection:
        connection.sendall(
            f"POST /api/jobs/upload/ HTTP/1.1\r\nHost: {address.netloc}\r\n{more}"
            "Connection: close\r\nContent-Length: 1000000\r\n\r\n".encode()
        )
        with connection.makefile("rb") as answer:
            # To its end: nobody is waited for who sends nothing.
            assert answer.read().startswith(b"HTTP/1.1 401 ")

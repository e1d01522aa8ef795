"""Where webhooks go: to public addresses alone, judged where the connection begins."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from threading import Thread
from typing import Any

import pytest

from encrypted_records.client.webhook_sender import WebhookSender, is_public
from encrypted_records.errors import InvalidQuery, Unavailable


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("0.0.0.0", "224.0.0.1", "240.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1"),
        *("::", "::1", "fe80::1", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001::1"),
    ],
)
def test_an_address_that_is_not_of_the_internet_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address", ["93.184.215.14", "2606:2800:21f:cb07::1", "::ffff:93.184.215.14", "64:ff9b::5db8:1"]
)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        *("http://example.org/", "ftp://example.org/", "https://", "example.org", "https://[x/"),
        *("https://ada:word@example.org/", "https://example.org/#x", "https://example.org:0/"),
        *("https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/latest/"),
        "https://example.org/" + "x" * 2000,
    ],
)
def test_a_url_that_no_webhook_goes_to_is_refused(url: str) -> None:
    with pytest.raises(InvalidQuery):
        WebhookSender().check_url(url)


@contextmanager
def server() -> Iterator[tuple[int, list[str]]]:
    """A server on this machine, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            pass

    running = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=running.serve_forever, daemon=True).start()
    yield running.server_address[1], asked
    running.shutdown()


def send(sender: WebhookSender, url: str) -> int:
    async def act() -> int:
        async with sender:
            return await sender.send(url, b"{}", {})

    return asyncio.run(act())


def test_a_name_that_means_this_machine_once_it_is_asked_for_gets_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with server() as (port, asked):

        def rebound(*_arguments: Any, **_named: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(socket, "getaddrinfo", rebound)
        with pytest.raises(Unavailable, match="not a public one"):
            send(WebhookSender(), f"https://hook.example.org:{port}/")
        assert asked == []


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    with server() as (port, asked):
        assert send(WebhookSender("any"), f"http://127.0.0.1:{port}/hook") == 302
        assert asked == ["/hook"]


def test_an_error_names_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_arguments: Any, **_named: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "hook.example.org is not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(Unavailable) as failed:
        send(WebhookSender(), "https://hook.example.org/?key=confidential")
    assert "example" not in str(failed.value)
    assert failed.value.__cause__ is None


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as (port, asked):
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        assert send(WebhookSender("any"), f"http://127.0.0.1:{port}/hook") == 302
        assert asked == ["/hook"]

"""Which requests a local server takes at all: its own names, its own pages."""

from __future__ import annotations

import http.client

import pytest

from encrypted_records.proxy.guard import OwnNames
from tests.support.service import Service, call


def ask(service: Service, host: str, **headers: str) -> tuple[int, bytes]:
    """A request whose Host header is chosen freely."""
    address = service.proxy_url.removeprefix("http://")
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.putrequest("GET", "/api/status/", skip_host=True)
        connection.putheader("Host", host)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_name_that_was_rebound_to_this_machine_is_refused(service: Service) -> None:
    port = service.proxy_url.rpartition(":")[2]

    assert ask(service, f"127.0.0.1:{port}")[0] == 200
    assert ask(service, f"localhost:{port}")[0] == 200
    for host in ("evil.example", f"evil.example:{port}", f"localhost.evil.example:{port}", ""):
        status, body = ask(service, host)
        assert status == 403
        assert b"unknown_host" in body


def test_a_page_of_another_site_may_not_change_anything(service: Service) -> None:
    url = f"{service.proxy_url}/api/records/search/"

    for origin in ("https://evil.example", "null", service.base_url):
        answer = call("POST", url, {}, headers={"Origin": origin})
        assert (answer.status, answer.json()["code"]) == (403, "cross_site")
    # Passed on to the check of credentials:
    assert call("POST", url, {}, headers={"Origin": service.proxy_url}).status == 401


def test_a_request_id_is_kept_when_sane_and_made_when_not(service: Service) -> None:
    url = f"{service.proxy_url}/api/status/"

    kept = call("GET", url, headers={"X-Request-ID": "abc-123"})
    made = call("GET", url, headers={"X-Request-ID": "no spaces, please"})

    assert kept.headers["X-Request-ID"] == "abc-123"
    assert made.headers["X-Request-ID"] not in ("", "no spaces, please")
    # Both sides' lines about one request carry one id.
    assert service.log.count("[abc-123]") >= 2


@pytest.mark.parametrize("host", ["proxy.example", "proxy.example:443", "PROXY.example:8080"])
def test_an_allowed_name_goes_for_any_port(host: str) -> None:
    names = OwnNames("0.0.0.0", 8080, ["Proxy.Example"])

    assert names.includes(host)
    assert names.includes_origin(f"https://{host}")
    assert not names.includes("other.example")

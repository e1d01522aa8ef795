"""Which requests a local server takes at all: its own names, its own pages."""

from __future__ import annotations

import http.client

import pytest

from encrypted_records.proxy.http.guard import OwnNames
from tests.support.service import ANSWER_SECONDS, Service, call


def ask(service: Service, host: str, **headers: str) -> tuple[int, bytes]:
    """A request whose Host header is chosen freely."""
    address = service.proxy_url.removeprefix("http://")
    connection = http.client.HTTPConnection(address, timeout=ANSWER_SECONDS)
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
        assert status == 421
        assert service.proxy_url.encode() in body
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


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1:8080:anything", "127.0.0.1:8080@evil.example", "127.0.0.1:8080/x"),
        *("127.0.0.1", "127.0.0.1:", "127.0.0.1:81", "127.0.0.1:8080 ", " 127.0.0.1:8080"),
        *("proxy.example:evil", "proxy.example:443:1", "user@proxy.example", "x.proxy.example"),
        *("proxy.example.", "proxy.example:123456", "[::1]", "::1:8080", "[::1]:8080:1", ""),
        *("127.0.0.1:8080\n", "front.example", "front.example:443"),
    ],
)
def test_a_host_names_this_proxy_as_a_whole_or_not_at_all(host: str) -> None:
    names = OwnNames("127.0.0.1", 8080, ["proxy.example", "front.example:8443"])
    assert not names.includes(host)
    assert not names.includes_origin(f"http://{host}")


def test_the_proxy_goes_by_its_addresses_and_the_names_it_was_given() -> None:
    names = OwnNames("::", 8080, ["proxy.example", "front.example:8443"])
    for host in ("127.0.0.1:8080", "LOCALHOST:8080", "[::1]:8080", "[::]:8080"):
        assert names.includes(host)
    assert names.includes("front.example:8443")
    assert OwnNames("127.0.0.1", 80).includes("localhost")
    assert OwnNames("::1", 8080).includes("127.0.0.1:8080")
    assert not OwnNames("127.0.0.1", 80).includes("localhost:81")


@pytest.mark.parametrize(
    ("origin", "scheme", "host", "right"),
    [
        ("http://127.0.0.1:8080", "http", "127.0.0.1:8080", True),
        ("HTTP://LocalHost:8080", "http", "localhost:8080", True),
        # Another name of this proxy is another origin.
        ("http://localhost:8080", "http", "127.0.0.1:8080", False),
        ("https://127.0.0.1:8080", "http", "127.0.0.1:8080", False),
        ("http://127.0.0.1:8081", "http", "127.0.0.1:8080", False),
        # Behind a front server: its name, by https.
        ("https://proxy.example", "http", "proxy.example", True),
        ("https://proxy.example", "http", "127.0.0.1:8080", True),
        ("https://proxy.example:8443", "http", "proxy.example:8443", True),
        ("https://front.example:8443", "http", "127.0.0.1:8080", True),
        ("https://proxy.example:9000", "http", "proxy.example", False),
        ("https://front.example", "http", "front.example:8443", False),
        ("http://proxy.example", "http", "127.0.0.1:8080", False),
        ("http://proxy.example", "https", "proxy.example", False),
        ("https://evil.example", "http", "proxy.example", False),
        ("https://proxy.example.evil.example", "http", "proxy.example", False),
        ("https://evil.example/https://proxy.example", "http", "proxy.example", False),
        ("null", "http", "proxy.example", False),
        ("", "http", "proxy.example", False),
    ],
)
def test_a_change_is_taken_from_a_page_of_the_very_same_address(
    origin: str, scheme: str, host: str, right: bool
) -> None:
    names = OwnNames("127.0.0.1", 8080, ["Proxy.example", "front.example:8443"])
    assert names.is_of_page(origin, scheme, host) is right


def test_a_proxy_on_one_address_does_not_answer_to_the_machines_own_names() -> None:
    """Another program may listen on 127.0.0.1 of the same port, and pass on what it is sent."""
    names = OwnNames("192.0.2.7", 8080)
    assert names.includes("192.0.2.7:8080")
    for host in ("127.0.0.1:8080", "localhost:8080", "[::1]:8080"):
        assert not names.includes(host)
    assert names.address == "http://192.0.2.7:8080"


#: What browsers say of a link that is followed in a tab.
LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize("site", ["same-site", "cross-site", "anything"])
def test_a_link_from_elsewhere_opens_a_page_and_nothing_else(service: Service, site: str) -> None:
    login, status = f"{service.proxy_url}/login/", f"{service.proxy_url}/api/status/"
    came = {"Sec-Fetch-Site": site}
    assert call("GET", login, headers=came | LINK).status == 200
    for method, url, more in (
        ("POST", login, LINK),
        ("HEAD", login, LINK),
        ("GET", login, LINK | {"Sec-Fetch-Dest": "iframe"}),
        ("GET", login, {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}),
        ("GET", login, {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}),
        ("GET", login, LINK | {"X-HTTP-Method-Override": "DELETE"}),
        ("GET", login, {}),
        ("GET", status, {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}),
        ("POST", status, {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}),
    ):
        answer = call(method, url, headers=came | more)
        assert answer.status == 403, (method, url, more)
        assert method == "HEAD" or answer.json()["code"] == "cross_site"
    for own in ("same-origin", "none"):
        assert call("GET", status, headers={"Sec-Fetch-Site": own}).status == 200


@pytest.mark.parametrize("site", ["same-origin", "none", "cross-site", None])
def test_no_browser_goes_to_an_address_under_api(service: Service, site: str | None) -> None:
    came = LINK | ({} if site is None else {"Sec-Fetch-Site": site})
    for path in ("/api/status/", "/api/nowhere/", "/%61pi/status/", "/api/users/self/"):
        answer = call("GET", service.proxy_url + path, headers=came)
        assert (answer.status, answer.json()["code"]) == (403, "not_a_page"), path


def test_what_is_under_api_is_for_pages_of_this_origin_alone(service: Service) -> None:
    for path in ("/api/status/", "/api/nowhere/", "/api/files/", "/api/jobs/"):
        answer = call("GET", service.proxy_url + path)
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert answer.headers["Content-Security-Policy"].startswith("sandbox;")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    page = call("GET", f"{service.proxy_url}/login/")
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src")


def test_two_hosts_are_none(service: Service) -> None:
    port = service.proxy_url.rpartition(":")[2]
    status, body = ask(service, f"127.0.0.1:{port}", **{"Host": f"127.0.0.1:{port}"})
    assert status in (400, 421)
    assert b"behind_proxy" not in body

"""What comes back from the API: data, of a list of headers, whatever the API says."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from encrypted_records import errors
from encrypted_records.client import transport
from encrypted_records.http import problem
from encrypted_records.model.ids import new_id, to_text
from encrypted_records.proxy.api import forward
from tests.proxy.forwarding.place import DATA, SCRIPT, SELF, Place, adding, instead
from tests.support.front import Asked, Lie, Reply
from tests.support.proxies import running_proxy
from tests.support.service import Service, call


def test_an_honest_answer_is_data_for_browsers(place: Place) -> None:
    missing = f"/api/schemas/{to_text(new_id())}/"
    for method, path, status in (
        ("GET", SELF, 200),
        ("GET", "/api/status/", 200),
        ("GET", missing, 404),
        ("DELETE", missing, 404),
        ("GET", "/api/nowhere/", 404),
        ("POST", "/api/records/search/", 415),
    ):
        answer = place.call(method, path, b"" if method == "POST" else None, Content_Type="x/y")
        assert answer.status == status, path
        assert answer.headers["Content-Type"] in ("application/json", "application/problem+json")
        assert {name: answer.headers[name] for name in DATA} == DATA
    assert place.anybody("GET", SELF).headers["WWW-Authenticate"].startswith("Basic realm=")


def test_head_is_get_without_its_body(services: Callable[[str], Service], place: Place) -> None:
    url = services("sqlite").proxy_url + SELF
    got, head = (call(method, url, auth=place.account.auth) for method in ("GET", "HEAD"))
    assert (head.status, head.body) == (200, b"")
    for name in ("Content-Type", "Content-Length"):
        assert head.headers[name] == got.headers[name]


@pytest.mark.parametrize(
    "lie",
    [
        instead(headers={"Content-Type": "text/html; charset=utf-8"}, body=SCRIPT),
        instead(headers={"Content-Type": "application/xhtml+xml"}, body=SCRIPT),
        instead(headers={"Content-Type": "image/svg+xml"}, body=SCRIPT),
        instead(headers={"Content-Type": "text/javascript"}, body=b"alert(1)"),
        instead(headers={"Content-Type": "text/event-stream"}, body=b"data: x\n\n"),
        instead(headers={"Content-Type": "application/json, text/html"}, body=SCRIPT),
        instead(headers={"Content-Type": "application/json"}, body=SCRIPT),
        instead(headers={"Content-Type": "application/json"}, body=b'{"a": 1'),
        instead(headers={"Content-Type": "application/json"}, body=b'{"a": 1, "a": 2}'),
        instead(headers={"Content-Type": "application/json"}, body=b"[" * 100_000),
        instead(status=200, headers={"Content-Type": "application/problem+json"}),
        instead(headers={"Content-Type": "application/vnd.encrypted-records.frames"}),
        instead(headers={}, body=SCRIPT),
        instead(headers={"Content-Type": "application/json", "Content-Encoding": "gzip"}),
        instead(status=302, headers={"Location": "https://evil.example/"}),
        instead(status=307, headers={"Location": "/api/records/ingest/"}),
        instead(status=304, body=b""),
        instead(status=500, headers={"Content-Type": "text/html"}, body=SCRIPT),
        instead(status=404, headers={"Content-Type": "text/plain"}, body=SCRIPT),
        # as load balancers answer that have no API to ask
        instead(status=503, headers={"Content-Length": "0"}, body=b""),
        instead(status=502, headers={}, body=b""),
        instead(status=503, headers={"Content-Type": "application/json"}, body=b""),
        instead(status=503, headers={"Content-Type": "application/json"}, body=b'{"message": "x"}'),
    ],
)
def test_what_is_no_json_is_refused_by_name_and_dropped(place: Place, lie: Lie) -> None:
    with place.front.telling(lie):
        for method, path, body in (("GET", SELF, None), ("POST", "/api/token/verify/", {})):
            answer = place.call(method, path, body)
            assert (answer.status, answer.json()["code"]) == (502, "api_answer")
            assert b"script" not in answer.body
            assert {name: answer.headers[name] for name in DATA} == DATA
            assert "Location" not in answer.headers
    assert place.call("GET", SELF).status == 200


def test_of_the_apis_headers_a_list_is_handed_on_if_they_have_their_form(place: Place) -> None:
    good = {
        "Content-Type": "application/json",
        "ETag": '"7"',
        "Retry-After": "30",
        "Allow": "GET, HEAD",
        "Location": f"/api/datasets/{to_text(new_id())}/",
    }
    with place.front.telling(instead(headers=good)):
        answer = place.call("GET", SELF)
    assert {name: answer.headers[name] for name in good} == good

    bad = {
        "Content-Type": "application/json; charset=utf-7",
        "ETag": "7; x",
        "Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT",
        "Allow": "GET <script>",
        "Location": "//evil.example/",
        "Refresh": "0; url=https://evil.example/",
        "Link": "</x>; rel=preload",
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Allow-Credentials": "true",
        "Clear-Site-Data": '"*"',
        "Service-Worker-Allowed": "/",
        "Strict-Transport-Security": "max-age=99999999",
        "HX-Redirect": "https://evil.example/",
        "X-ERS-Answer": "yes",
        "Server": "evil",
        "Set-Cookie": "sessionid=" + "e" * 32,
        "WWW-Authenticate": 'Basic realm="type your 24 words"',
    }
    with place.front.telling(instead(headers=bad)):
        answer = place.call("GET", SELF)
    assert answer.status == 200
    of_the_server = {"date", "connection", "keep-alive", "server"}
    assert answer.headers["Server"] != "evil"
    assert {name.lower() for name in answer.headers} - of_the_server == {
        *("content-type", "content-length", "x-request-id"),
        *(name.lower() for name in DATA),
    }
    named = b'{"code": "not_authenticated"}'
    with place.front.telling(instead(status=401, headers=bad, body=named)):
        challenges = place.call("GET", SELF).headers.get_all("WWW-Authenticate", [])
    assert [challenge.partition(" realm=")[0] for challenge in challenges] == ["Basic", "Bearer"]


@pytest.mark.parametrize(
    "place_of",
    [
        "https://evil.example/",
        "//evil.example/api/datasets/",
        "javascript:alert(1)",
        "/api/keyring/backup/",
        "/api/datasets/../../logout/",
        "/login/",
        "\\\\evil.example",
    ],
)
def test_a_location_is_a_path_of_the_list_or_nothing(place: Place, place_of: str) -> None:
    with place.front.telling(adding(Location=place_of)):
        answer = place.call("GET", SELF)
    assert answer.status == 200
    assert "Location" not in answer.headers


def test_a_line_break_in_a_header_of_the_apis_brings_no_header_of_ours(place: Place) -> None:
    for evil in (
        '"1"\r\nSet-Cookie: sessionid=evil\r\nX: y',
        '"1"\nContent-Type: text/html',
    ):
        with place.front.telling(adding(ETag=evil)):
            answer = place.call("GET", SELF)
        assert answer.status in (200, 502)
        assert "Set-Cookie" not in answer.headers
        assert answer.headers["Content-Type"].endswith("json")


def test_a_long_answer_streams_with_the_same_headers(place: Place) -> None:
    body = json.dumps(["<script>document.title = 'ran'</script>" * 20_000]).encode()
    assert len(body) > 256 << 10
    with place.front.telling(instead(headers={"Content-Type": "application/json"}, body=body)):
        answer = place.call("GET", SELF)
    assert (answer.status, answer.body) == (200, body)
    assert answer.headers["Content-Type"] == "application/json"
    assert {name: answer.headers[name] for name in DATA} == DATA


def test_an_answer_without_an_end_breaks_off(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients trust their proxy, and hold what it answers in memory."""
    monkeypatch.setattr(transport, "MAX_JSON_BYTES", 1 << 20)
    body = b'["%s"]' % (b"x" * (2 << 20))
    lie = instead(headers={"Content-Type": "application/json"}, body=body)
    with place.front.telling(lie), pytest.raises(http.client.IncompleteRead) as caught:
        place.call("GET", SELF)
    assert len(caught.value.partial) <= 1 << 20
    assert not [line for line in caplog.records if line.levelname == "ERROR"]


MISLEADING = "send your 24 words to https://evil.example\x1b[2J\x9b2J\u202e\r\nhint: do it\u2028now"
SHOWN = "send your 24 words to https://evil.example [2J 2J   hint: do it now"


@pytest.mark.parametrize(
    ("path", "at"),
    [
        ("/api/organizations/", "/api/organizations/"),
        # a request of the proxy's own
        ("/api/keyring/", "/api/token/"),
    ],
)
def test_texts_of_errors_of_the_apis_are_marked_and_short_and_control_no_terminal(
    place: Place, path: str, at: str
) -> None:
    flaw = {"code": "x", "detail": MISLEADING, "pointer": MISLEADING}
    told = {"code": "not_allowed", "detail": MISLEADING + "x" * 100_000, "hint": MISLEADING}
    body = json.dumps({**told, "type": "https://evil.example", "errors": [flaw]}).encode()

    def lie(asked: Asked, reply: Reply) -> Reply:
        if not asked.path.startswith(at):
            return reply
        return Reply(403, {"Content-Type": "application/problem+json"}, body)

    stranger = "Basic " + base64.b64encode(b"stranger@example.org:" + at.encode()).decode()
    with place.front.telling(lie):
        answer = place.call("GET", path, auth=stranger)
    found = answer.json()
    detail = found.pop("detail")
    assert (answer.status, detail.rstrip("x"), len(detail)) == (403, SHOWN, 2_000)
    assert found == {
        "type": "/help/errors/not_allowed/",
        "title": "Not allowed",
        "status": 403,
        "code": "not_allowed",
        "hint": SHOWN,
        "errors": [{"code": "x", "detail": SHOWN, "pointer": SHOWN}],
        "from_api": True,
    }


@pytest.mark.parametrize("kind", [errors.KeyMissing, errors.DoesNotOpen, errors.LogBroken])
@pytest.mark.parametrize("status", [403, 404, 422])
def test_an_error_of_the_apis_is_none_that_only_a_proxy_can_find(
    kind: type[errors.ErsError], status: int
) -> None:
    """Where a key is missing, names count that nobody has signed."""
    body = json.dumps({"code": kind.code}).encode()
    assert isinstance(problem.to_error(status, body), kind)
    assert not isinstance(problem.to_error(status, body, from_api=True), kind)


def test_an_error_longer_than_any_is_refused(place: Place) -> None:
    named = json.dumps({"code": "not_found", "more": "x" * (300 << 10)}).encode()
    lie = instead(status=404, headers={"Content-Type": "application/problem+json"}, body=named)
    with place.front.telling(lie):
        answer = place.call("GET", SELF)
    assert (answer.status, answer.json()["code"]) == (502, "api_answer")


@pytest.mark.parametrize(
    "lie",
    [
        instead(headers={"Content-Type": "text/html"}, body=SCRIPT),
        instead(headers={"Content-Type": "application/json"}, body=SCRIPT),
        instead(body=b'["ok"]'),
        instead(body=b""),
        instead(status=302, headers={"Location": "/"}, body=b""),
    ],
)
def test_a_status_that_is_none_is_not_merged(place: Place, lie: Lie) -> None:
    with place.front.telling(lie):
        for path in ("/api/status/", "/api/openapi.json"):
            answer = place.call("GET", path)
            if path == "/api/openapi.json":
                # The lie is also told of who it is that asks.
                assert answer.status == 502
                continue
            assert (answer.status, answer.json()["code"]) == (502, "api_answer")
        assert {name: answer.headers[name] for name in DATA} == DATA


@pytest.mark.parametrize("body", [b"{}", b'{"paths": 1}', b'{"paths": {"/api/csrf/": {"get": 1}}}'])
def test_a_reference_that_is_none_is_refused(place: Place, body: bytes) -> None:
    def lie(asked: Asked, reply: Reply) -> Reply:
        return replace(reply, body=body) if asked.path == "/api/openapi.json" else reply

    with place.front.telling(lie):
        assert place.code("GET", "/api/openapi.json") == (502, "api_answer")


def test_interim_answers_without_an_end_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "ANSWER_SECONDS", 0.2)

    def flood(listening: socket.socket) -> None:
        """Send interim answers for as long as the proxy stays."""
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    while True:
                        connection.sendall(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        flooding = threading.Thread(target=flood, args=(listening,), daemon=True)
        flooding.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with running_proxy(url, tmp_path) as proxy:
            answer = call("GET", f"{proxy.url}/api/csrf/")
        listening.shutdown(socket.SHUT_RDWR)
        flooding.join()
    assert (answer.status, answer.json()["code"]) == (504, "api_timeout")

"""What holds for every path: problem documents, request ids, limits, hosts, and quiet logs."""

from __future__ import annotations

import json
import re
import socket

import pytest

from tests.server.api import PASSWORD, Account, Api, basic


def test_status_is_public_and_says_what_runs(api: Api) -> None:
    status = api.call("GET", "/api/status/").json()
    assert set(status) == {"status", "api_version", "behind_proxy"}
    assert (status["status"], status["behind_proxy"]) == ("ok", False)
    assert re.fullmatch(r"\d+\.\d+\.\d+", status["api_version"])


def test_everything_else_needs_credentials(api: Api) -> None:
    paths = [
        *("/api/users/self/", "/api/datasets/", "/api/schemas/", "/api/organizations/"),
        *("/api/records/", "/api/records/x/", "/api/schemas/x/manifest/", "/api/docs/"),
    ]
    assert {path: api.call("GET", path).status for path in paths} == dict.fromkeys(paths, 401)
    posts = [
        *("/api/commits/", "/api/schemas/x/pages/", "/api/schemas/x/rows/"),
        *("/api/accounts/logout/", "/api/accounts/change-password/", "/api/datasets/"),
    ]
    assert {path: api.call("POST", path, b"{}").status for path in posts} == dict.fromkeys(
        posts, 401
    )


def test_the_description_of_the_interface_needs_none(api: Api) -> None:
    answer = api.call("GET", "/api/openapi.json")
    assert answer.status == 200
    assert "/api/datasets/" in json.loads(answer.body)["paths"]
    wrong = {"Authorization": "Bearer nonsense"}
    assert api.call("GET", "/api/openapi.json", headers=wrong).status == 401


def test_credentials_are_looked_at_before_the_body(api: Api) -> None:
    assert api.call("POST", "/api/datasets/", b"not json").status == 401


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/", None, 404, "not_found"),
        ("GET", "/api/datasets", None, 404, "not_found"),
        ("GET", "/api/nothing/", None, 404, "not_found"),
        ("DELETE", "/api/datasets/", None, 405, "method_not_allowed"),
        ("POST", "/api/datasets/", b"{", 400, "malformed"),
        ("POST", "/api/datasets/", b"[]", 400, "invalid"),
        ("POST", "/api/datasets/", b'"text"', 400, "invalid"),
        ("POST", "/api/datasets/", b'{"name": "\\ud800"}', 400, "malformed"),
        ("POST", "/api/datasets/", b"\xff", 400, "malformed"),
        ("POST", "/api/schemas/", b"[]", 400, "invalid"),
        ("POST", "/api/schemas/", b"", 400, "invalid"),
    ],
)
def test_whatever_goes_wrong_is_a_problem_document(
    ada: Account, method: str, path: str, body: bytes | None, status: int, code: str
) -> None:
    answer = ada.call(method, path, body)
    assert (answer.status, answer.code) == (status, code)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/api/records/search/", 405),
        ("POST", "/api/records/ingest/", 405),
        ("POST", "/api/jobs/upload/", 404),
        ("POST", "/api/files/", 404),
        ("GET", "/api/keyring/", 404),
        ("POST", "/api/schemas/infer/", 405),
    ],
)
def test_a_request_for_a_proxy_is_told_so(
    ada: Account, method: str, path: str, status: int
) -> None:
    answer = ada.call(method, path, None if method == "GET" else b"{}")
    assert answer.status == status
    assert json.loads(answer.body)["hint"].startswith("send it to a proxy")
    other = json.loads(ada.call("DELETE", "/api/datasets/").body)
    assert other["hint"].startswith("its methods are GET, POST")


def test_only_json_is_read(ada: Account) -> None:
    form = ada.call(
        "POST", "/api/datasets/", b"name=x", **{"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert (form.status, form.code) == (415, "unsupported_media_type")


def test_any_accept_header_gets_the_one_format_there_is(ada: Account) -> None:
    answer = ada.call("GET", "/api/datasets/", Accept="text/html")
    assert answer.headers["Content-Type"] == "application/json"


def test_a_request_id_is_returned_or_made(api: Api) -> None:
    sent = api.call("GET", "/api/status/", headers={"X-Request-ID": "abc-1.2_3"})
    assert sent.headers["X-Request-ID"] == "abc-1.2_3"
    for odd in ("has space", "x" * 65, "quote\"'"):
        made = api.call("GET", "/api/status/", headers={"X-Request-ID": odd}).headers
        assert re.fullmatch(r"[0-9a-f]{32}", made["X-Request-ID"])
    missing = api.call("GET", "/nothing", headers={"X-Request-ID": "on-errors-too"})
    assert missing.headers["X-Request-ID"] == "on-errors-too"
    assert "[on-errors-too]" in api.log.read_text()


def test_an_unknown_host_is_refused(api: Api) -> None:
    refused = api.call("GET", "/api/status/", headers={"Host": "evil.example"})
    assert (refused.status, refused.code) == (421, "unknown_host")


def test_bodies_over_the_limit_are_refused_before_they_are_read(api: Api, ada: Account) -> None:
    with socket.create_connection(("127.0.0.1", api.port)) as connection:
        # Of the body not one byte is sent: an answer that waited for it would never come.
        connection.sendall(
            b"POST /api/datasets/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2097153\r\n"
            b"Content-Type: application/json\r\nAuthorization: Bearer %s\r\n\r\n"
            % ada.token.encode()
        )
        connection.settimeout(30)
        answer = b""
        while b"too_large" not in answer and (part := connection.recv(4096)):
            answer += part
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"too_large" in answer


def test_a_body_without_its_length_is_refused(api: Api) -> None:
    with socket.create_connection(("127.0.0.1", api.port)) as connection:
        connection.sendall(
            b"POST /api/token/ HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            b"Content-Type: application/json\r\nConnection: close\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
        )
        answer = b""
        while part := connection.recv(4096):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"length_required" in answer


def test_answers_are_not_cached_and_not_framed(ada: Account) -> None:
    headers = ada.call("GET", "/api/users/self/").headers
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "same-origin"
    assert "Strict-Transport-Security" not in headers


def test_logs_hold_no_credential_query_or_body(api: Api, ada: Account) -> None:
    secret = "unmistakable-needle"
    ada.call("GET", f"/api/datasets/?name={secret}")
    ada.call("POST", "/api/datasets/", {"name": secret, "organization": secret})
    api.call("GET", "/api/datasets/", headers=basic(secret, secret))
    api.call("POST", "/api/token/", {"email": secret, "password": secret})
    log = api.log.read_text()
    assert "GET '/api/datasets/' 200" in log
    for hidden in (secret, PASSWORD, ada.token, ada.email):
        assert hidden not in log


def test_the_openapi_document_covers_every_path(ada: Account) -> None:
    document = json.loads(ada.call("GET", "/api/openapi.json").body)
    assert document["openapi"].startswith("3.1")
    assert {
        *("/api/status/", "/api/csrf/", "/api/users/{id}/", "/api/token/", "/api/token/refresh/"),
        *("/api/token/verify/", "/api/accounts/login/", "/api/accounts/logout/"),
        *("/api/accounts/register/", "/api/accounts/verify-registration/"),
        *("/api/accounts/change-password/", "/api/accounts/send-reset-password-link/"),
        *("/api/accounts/reset-password/", "/api/organizations/", "/api/organizations/{id}/"),
        *("/api/datasets/", "/api/datasets/{id}/", "/api/schemas/", "/api/schemas/{id}/"),
        *("/api/schemas/{schema_id}/manifest/", "/api/schemas/{schema_id}/pages/"),
        *("/api/schemas/{schema_id}/rows/", "/api/commits/", "/api/records/"),
        "/api/records/{id}/",
    } <= set(document["paths"])
    definition = document["components"]["schemas"]["Schema"]["properties"]
    assert definition["schema"]["type"] == "object"
    assert definition["dataset"]["type"] == "string"

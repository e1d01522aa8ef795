"""What goes out to the API: a list of things, whatever is asked of the proxy."""

from __future__ import annotations

import base64
import os
import socket
import uuid
from urllib.parse import urlencode, urlsplit

import pytest

from encrypted_records.crypto.keys import RootKey
from encrypted_records.model import credentials
from encrypted_records.model.credentials import ServiceKey
from encrypted_records.model.forwarded import MAX_BODY_BYTES, SMALL_BODY_BYTES
from encrypted_records.model.ids import new_id, to_text
from tests.proxy.forwarding.place import SELF, Place
from tests.support.service import ANSWER_SECONDS


def test_the_api_sees_no_header_beyond_a_list(place: Place) -> None:
    secret = credentials.generate_device_secret().text
    answer = place.call(
        "GET",
        SELF,
        X_ERS_Device=secret,
        X_ERS_Door=secret,
        X_ERS_Challenge="thedoor0." + "n" * 20,
        X_Forwarded_Proto="https",
        X_Forwarded_Host="evil.example",
        X_Forwarded_For="192.0.2.7, the name is Ada",
        Forwarded="for=1.2.3.4",
        User_Agent="somebody",
        Accept="text/html",
        Accept_Language="eo",
        If_None_Match='"x"',
        X_HTTP_Method_Override="DELETE",
        X_Request_ID="abc-123",
        Referer=f"{place.proxy}/records/secret/",
        Cookie="sessionid=abc123; other=1; csrftoken=abc; sessionid2=x; ers_8080=" + secret,
    )
    assert answer.status == 200
    sent = {name.lower(): value for name, value in place.last.headers.items()}
    assert sent.pop("host") == urlsplit(place.front.url).netloc
    assert sent == {
        "accept-encoding": "identity",
        "authorization": place.account.auth,
        "cookie": "sessionid=abc123; csrftoken=abc",
        "referer": f"{place.front.url}/",
        "x-forwarded-for": "192.0.2.7, unknown, unknown",
        "x-request-id": "abc-123",
    }


@pytest.mark.parametrize(
    "form", ["{0}:{1}:{2}", "{0}:{1}:{2}:{2}", "{0}:{2}", "{0}:{1}:{2}x", "{2}"]
)
def test_no_device_secret_reaches_the_api_in_basic_credentials(place: Place, form: str) -> None:
    secret = credentials.generate_device_secret().text
    pair = form.format(place.account.email, place.account.password, secret).encode()
    right = form == "{0}:{1}:{2}"
    for sent in (pair, pair.replace(b"@", b"\xf6@", 1)):
        for encoded in (base64.b64encode(sent).decode(), base64.b64encode(sent).decode() + "!"):
            answer = place.call("GET", SELF, auth=f"Basic {encoded}")
            fits = right and sent == pair and not encoded.endswith("!")
            assert answer.status == (200 if fits else 401)
    for asked in place.front.asked:
        authorization = asked.headers.get("Authorization", "")
        kept = base64.b64decode(authorization.removeprefix("Basic "))
        assert b"ersd1_" not in kept.lower()
        assert secret not in str(asked)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/token/", "password"),
        ("/api/token/", "email"),
        ("/api/accounts/login/", "password"),
        ("/api/token/refresh/", "refresh"),
    ],
)
def test_no_service_string_reaches_the_api_in_a_body(place: Place, path: str, name: str) -> None:
    secret = os.urandom(32)
    string = ServiceKey(RootKey(secret).service_id, secret).text
    place.front.forget()
    for shown in (string, f" {string}", string[:20]):
        body = {"email": place.account.email, "password": "x", name: shown}
        answer = place.call("POST", path, body)
        assert (answer.status, answer.json()["code"]) == (401, "bad_token")
        assert string.encode() not in answer.body
    assert not place.front.asked


def test_no_proof_reaches_the_api_in_a_body(place: Place) -> None:
    place.front.forget()
    sent = {"email": place.account.email, "proof": {"password": "that of the account"}}
    answer = place.call("POST", "/api/token/", sent)
    assert (answer.status, answer.json()["errors"][0]["pointer"]) == (400, "/proof")
    assert b"that of the account" not in answer.body
    assert not place.front.asked


@pytest.mark.parametrize("auth", ["Bearer ers1_AAAA", "Job abc", "Digest x", "Service x", "Bearer"])
def test_other_credentials_stay_here(place: Place, auth: str) -> None:
    assert place.call("GET", SELF, auth=auth).status == 401
    assert not any("Authorization" in asked.headers for asked in place.front.asked)
    device = credentials.generate_device_secret().text
    assert place.call("GET", SELF, auth=f"Bearer {device}").status == 401
    assert device not in str(place.last)


@pytest.mark.parametrize(
    ("sent", "status"),
    [("*", 200), ('"a"', 412), ('"a", W/"b"', 412), ("a", 400), ('"a"; x', 400), ('"é"', 400)],
)
def test_only_etags_are_sent_on_as_if_match(place: Place, sent: str, status: int) -> None:
    body = {"name": "data", "organization": place.account.organization}
    made = place.call("POST", "/api/datasets/", body).json()
    place.front.forget()
    answer = place.call("PATCH", made["url"], {"description": "new"}, If_Match=sent)
    assert answer.status == status
    asked = [one.headers["If-Match"] for one in place.front.asked]
    assert asked == ([] if status == 400 else [sent])


def test_any_number_of_blanks_may_follow_the_scheme(place: Place) -> None:
    for blanks in (" ", "   "):
        place.call("GET", SELF, auth=f"Bearer{blanks}abc.def")
        assert place.last.headers["Authorization"] == "Bearer abc.def"


@pytest.mark.parametrize(
    ("method", "path", "parameter", "code"),
    [
        ("GET", "/api/datasets/?limit=5&limit=6", "limit", "invalid_parameter"),
        ("GET", "/api/jobs/?limit=5&limit=6", "limit", "invalid_parameter"),
        ("DELETE", "/api/records/?id=x&id=y&erase=true&erase=false", "erase", "invalid_parameter"),
        ("DELETE", "/api/records/2JZrJDyoRq79GsVSz23bp6/?erase=yes", "erase", "invalid_parameter"),
        ("POST", "/api/records/search/?limit=5", "limit", "unknown_parameter"),
        ("POST", "/api/records/aggregate/?group_by=name", "group_by", "unknown_parameter"),
        ("POST", "/api/records/export/?format=csv", "format", "unknown_parameter"),
        ("POST", "/api/records/explain/?limit=5", "limit", "unknown_parameter"),
        ("POST", "/api/records/why/?limit=5", "limit", "unknown_parameter"),
        ("POST", "/api/records/columns/?limit=5", "limit", "unknown_parameter"),
        ("POST", "/api/records/ingest/?schema=people", "schema", "unknown_parameter"),
        ("POST", "/api/datasets/people/search/?limit=5", "limit", "unknown_parameter"),
        ("POST", "/api/schemas/infer/?enmu=true", "enmu", "unknown_parameter"),
        ("POST", "/api/readings/detect/?keep=false", "keep", "unknown_parameter"),
    ],
)
def test_no_parameter_is_ignored(
    place: Place, method: str, path: str, parameter: str, code: str
) -> None:
    path = path.replace("/people/", "/2JZrJDyoRq79GsVSz23bp6/")
    answer = place.call(method, path, {} if method == "POST" else None)
    assert (answer.status, answer.json()["code"]) == (400, "invalid_query")
    assert answer.json()["errors"] == [
        {"parameter": parameter, "code": code, "detail": answer.json()["errors"][0]["detail"]}
    ]


def test_the_methods_of_a_path_are_in_the_hint(place: Place) -> None:
    answer = place.call("GET", "/api/records/search/")
    assert (answer.status, answer.json()["hint"]) == (405, "this path has POST")


def test_parameters_are_those_of_the_path_and_written_anew(place: Place) -> None:
    name = "a b&c=%2F#+?"
    found = place.call("GET", "/api/datasets/?name=a%20b%26c=%252F%23%2B%3f&limit=5")
    assert found.status == 200
    assert place.last.path == "/api/datasets/?name=a+b%26c%3D%252F%23%2B%3F&limit=5"
    place.front.forget()
    for path in ("/api/datasets/?age=50", f"{SELF}?x", "/api/datasets/?limit=5&Limit=5"):
        answer = place.call("GET", path)
        assert (answer.status, answer.json()["code"]) == (400, "invalid_query"), path
        assert answer.json()["errors"][0]["code"] == "unknown_parameter"
    assert place.code("POST", "/api/datasets/?name=x", {"name": name}) == (400, "invalid_query")
    assert place.code("GET", "/api/datasets/?name=%ff") == (400, "invalid")
    assert not place.front.asked


def test_a_parameter_may_name_something_by_an_address_of_the_proxys(place: Place) -> None:
    [mine] = place.call("GET", "/api/organizations/").json()["results"]
    me = place.call("GET", SELF).json()["url"]
    for path, name, value in (
        ("/api/datasets/", "organization", mine["url"]),
        (f"{mine['url']}audit-log/", "user", me),
    ):
        answer = place.call("GET", f"{path}?{name}={place.proxy}{value}")
        assert answer.status == 200, answer.json()
        # A roster may be read again behind it.
        assert f"{path}?{urlencode({name: value})}" in [asked.path for asked in place.front.asked]


@pytest.mark.parametrize(
    ("body", "kind", "outcome"),
    [
        (b'[{"schema": "x", "data": {"age": 50}}]', "application/json", (400, "malformed")),
        (b'{"age": 50}\n{"age": 51}', "application/json", (400, "malformed")),
        (b"age,name\n50,Ada", "application/json", (400, "malformed")),
        (b"age,name\n50,Ada", "text/csv", (415, "unsupported_media_type")),
        (b"name=Ada", "application/x-www-form-urlencoded", (415, "unsupported_media_type")),
        (b"--x--", "multipart/form-data; boundary=x", (415, "unsupported_media_type")),
        (b"{}", "application/vnd.encrypted-records.frames", (415, "unsupported_media_type")),
        (b" " * SMALL_BODY_BYTES + b"{}", "application/json", (413, "too_large")),
    ],
)
def test_a_body_that_is_none_of_the_apis_goes_nowhere(
    place: Place, body: bytes, kind: str, outcome: tuple[int, str]
) -> None:
    for path in ("/api/token/", "/api/accounts/register/"):
        assert place.code("POST", path, body, Content_Type=kind) == outcome
    assert not place.front.asked


def test_a_long_definition_passes_and_what_is_longer_does_not(place: Place) -> None:
    dataset = place.call(
        "POST", "/api/datasets/", {"name": "d", "organization": place.account.organization}
    ).json()["url"]
    definition = {"type": "object", "description": "", "properties": {"a": {"type": "string"}}}
    body = {"name": "long", "dataset": dataset, "schema": definition}
    definition["description"] = "x" * 1_000_000
    made = place.call("POST", "/api/schemas/", body)
    assert made.status == 201, made.body
    # Longer than what is checked before it is sent on, as lists of such are.
    assert place.call("GET", made.json()["url"]).json()["schema"] == definition
    place.front.forget()
    for much in (b" " * (MAX_BODY_BYTES + 1), b" " * (3 << 20)):
        assert place.code("POST", "/api/schemas/", much) == (413, "too_large")
    assert not place.front.asked


def test_a_body_where_none_belongs_is_left_here(place: Place) -> None:
    session = place.anybody("POST", "/api/accounts/logout/", {"diagnosis": "plaintext"})
    assert session.status == 401
    place.call("GET", SELF, {"diagnosis": "plaintext"})
    assert [asked.body for asked in place.front.asked] == [b"", b""]
    assert not any("Content-Type" in asked.headers for asked in place.front.asked)


def test_another_method_is_405_and_names_those_that_there_are(place: Place) -> None:
    schema = f"/api/schemas/{to_text(new_id())}/"
    expected = {
        ("POST", schema): "DELETE, GET, HEAD, PATCH, PUT",
        ("PUT", f"{schema}merge/"): "POST",
        ("OPTIONS", "/api/datasets/"): "GET, HEAD, POST",
        ("TRACE", "/api/token/"): "POST",
        ("PROPFIND", "/api/jobs/upload/"): "POST",
        # As paths go, a record or a job might have that name.
        ("GET", "/api/records/ingest/"): "POST",
        ("DELETE", "/api/records/search/"): "POST",
        ("PUT", "/api/records/status/"): "GET, HEAD",
        ("DELETE", "/api/devices/code/"): "POST",
        ("GET", "/api/jobs/upload/"): "POST",
        ("PUT", f"/api/jobs/{uuid.uuid4()}/"): "DELETE, GET, HEAD",
        ("GET", "/api/keyring/rotate/"): "POST",
        ("DELETE", "/api/keyring/"): "GET, HEAD",
        ("POST", "/api/openapi.json"): "GET, HEAD",
        ("POST", "/api/status/"): "GET, HEAD",
        ("POST", "/api/records/"): "DELETE, GET, HEAD, PUT",
    }
    for (method, path), allowed in expected.items():
        answer = place.call(method, path, b'{"age": 50}')
        assert (answer.status, answer.json()["code"]) == (405, "method_not_allowed"), path
        assert answer.headers["Allow"] == allowed
    assert not place.front.asked


# --- a body that never comes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("POST /api//records/ingest/", 404),
        ("POST /api/v1/records/ingest/", 404),
        ("POST /api/Records/ingest/", 404),
        ("PUT /api/jobs/upload/", 405),
        ("DELETE /api/token/", 405),
        ("POST /api/datasets/?where=x", 400),
        ("POST /api/commits/", 404),
    ],
)
@pytest.mark.parametrize("length", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
def test_a_refusal_needs_no_byte_of_the_body(
    place: Place, line: str, status: int, length: str
) -> None:
    address = urlsplit(place.proxy)
    assert address.hostname is not None
    with socket.create_connection(
        (address.hostname, address.port), timeout=ANSWER_SECONDS
    ) as connection:
        connection.sendall(
            f"{line} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
            f"{length}\r\n\r\n".encode()
        )
        answer = connection.recv(65_536)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert not place.front.asked


def test_a_body_that_is_announced_as_too_long_is_not_waited_for(place: Place) -> None:
    address = urlsplit(place.proxy)
    assert address.hostname is not None
    with socket.create_connection(
        (address.hostname, address.port), timeout=ANSWER_SECONDS
    ) as connection:
        connection.sendall(
            f"POST /api/token/ HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json"
            f"\r\nContent-Length: {SMALL_BODY_BYTES + 1}\r\n\r\n".encode()
        )
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")
    assert not place.front.asked

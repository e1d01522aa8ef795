"""What holds for every request: version, credentials, spellings of a path, the method meant."""

from __future__ import annotations

import pytest

from encrypted_records.model.ids import new_id, to_text
from tests.proxy.tus.client import BYTES, FILES, Client, some_bytes

#: A request of every kind that has one, to the creation URL or to an upload.
REQUESTS = [
    ("POST", False, {"Upload-Length": "5"}),
    ("HEAD", True, {}),
    ("PATCH", True, BYTES | {"Upload-Offset": "0"}),
    ("DELETE", True, {}),
]
each_request = pytest.mark.parametrize(("method", "on_upload", "headers"), REQUESTS, ids=str)


@each_request
@pytest.mark.parametrize("version", [None, "0.2.2", "1.0.1", "2.0.0", ""])
def test_another_version_is_refused_and_nothing_is_done(
    tus: Client, method: str, on_upload: bool, headers: dict[str, str], version: str | None
) -> None:
    upload = tus.create(5)
    asking = Client(tus.service, tus.account, {} if version is None else {"Tus-Resumable": version})
    answer = asking.send(method, upload if on_upload else FILES, headers)
    assert answer.status == 412
    assert answer.headers["Tus-Version"] == "1.0.0"
    assert "Location" not in answer.headers
    assert tus.offset(upload) == 0


@each_request
def test_nobody_is_told_anything_without_credentials(
    tus: Client, method: str, on_upload: bool, headers: dict[str, str]
) -> None:
    upload = tus.create(5)
    answer = Client(tus.service, None).send(method, upload if on_upload else FILES, headers)
    assert answer.status == 401
    assert "Upload-Offset" not in answer.headers
    assert tus.offset(upload) == 0


@pytest.mark.parametrize(
    ("method", "headers"), [(method, headers) for method, on, headers in REQUESTS if on]
)
@pytest.mark.parametrize("whose", ["a stranger's", "nobody's", "of no form"])
def test_an_upload_that_is_not_ones_own_does_not_exist(
    tus: Client, stranger: Client, method: str, headers: dict[str, str], whose: str
) -> None:
    upload = {
        "a stranger's": stranger.create(5),
        "nobody's": FILES + to_text(new_id()),
        "of no form": FILES + "upload",
    }[whose]
    answer = tus.send(method, upload, headers)
    assert answer.status == 404
    assert "Upload-Offset" not in answer.headers
    if whose == "a stranger's":
        assert stranger.offset(upload) == 0


@pytest.mark.parametrize("slash", ["", "/"])
def test_paths_work_with_and_without_the_final_slash(tus: Client, slash: str) -> None:
    created = tus.send("POST", FILES.rstrip("/") + slash, {"Upload-Length": "5"})
    assert created.status == 201
    upload = tus.create(5) + slash
    assert tus.patch(upload, 0, b"hello").status == 204
    assert tus.offset(upload) == 5
    assert tus.send("DELETE", upload).status == 204


@pytest.mark.parametrize(
    "request_",
    [
        ("GET", FILES, {}),
        ("PUT", FILES, {}),
        ("HEAD", FILES, {}),
        ("PATCH", FILES, BYTES | {"Upload-Offset": "0"}),
        ("DELETE", FILES, {}),
        ("POST", "an upload", {"Upload-Length": "5"}),
        ("GET", "an upload", {}),
    ],
    ids=lambda one: f"{one[0]} {one[1]}",
)
def test_other_methods_are_refused_with_those_there_are(
    tus: Client, request_: tuple[str, str, dict[str, str]]
) -> None:
    method, path, headers = request_
    answer = tus.send(method, tus.create(5) if path == "an upload" else path, headers)
    assert answer.status == 405
    assert answer.headers["Tus-Resumable"] == "1.0.0"
    named = set(answer.headers["Allow"].split(", "))
    assert named == (
        {"OPTIONS", "POST"} if path == FILES else {"OPTIONS", "HEAD", "PATCH", "DELETE"}
    )


@pytest.mark.parametrize("actual", ["POST", "PUT", "GET", "DELETE"])
@pytest.mark.parametrize("header", ["X-HTTP-Method-Override", "x-http-method-override"])
def test_the_overriding_method_counts_and_not_the_real_one(
    tus: Client, actual: str, header: str
) -> None:
    upload = tus.create(11)
    headers = BYTES | {"Upload-Offset": "0", header: "PATCH"}
    answer = tus.send(actual, upload, headers, b"hello")
    assert answer.status == 204
    assert answer.headers["Upload-Offset"] == "5"
    answer = tus.send(actual, upload, {header: "HEAD"})
    assert answer.status == 200
    assert answer.headers["Upload-Offset"] == "5"
    assert tus.send("POST", upload, {header: "DELETE"}).status == 204
    assert tus.head(upload).status == 410


@pytest.mark.parametrize("actual", ["POST", "GET"])
def test_a_page_of_another_site_cannot_change_anything_under_another_method(
    tus: Client, actual: str
) -> None:
    upload = tus.create(5)
    for override in ("DELETE", "GET"):
        headers = {"X-HTTP-Method-Override": override, "Origin": "https://elsewhere.example"}
        answer = tus.send(actual, upload, headers)
        assert answer.status == (405 if (actual, override) == ("GET", "GET") else 403)
    assert tus.offset(upload) == 0


def test_every_answer_names_the_version_and_is_not_to_be_cached(
    tus: Client, stranger: Client
) -> None:
    upload = tus.create(5)
    answers = [
        tus.send("OPTIONS", FILES),
        tus.send("POST", FILES, {"Upload-Length": "5"}),
        tus.send("POST", FILES),
        tus.head(upload),
        stranger.head(upload),
        tus.patch(upload, 0, b"he"),
        tus.patch(upload, 0, b"he"),
        Client(tus.service, None).head(upload),
        Client(tus.service, tus.account, {}).head(upload),
        tus.send("DELETE", upload),
        tus.head(upload),
    ]
    assert [answer.status for answer in answers] == [
        204,
        201,
        400,
        200,
        404,
        204,
        409,
        401,
        412,
        204,
        410,
    ]
    for answer in answers:
        assert answer.headers["Tus-Resumable"] == "1.0.0"
        assert answer.headers["Cache-Control"] == "no-store"


#: Refusals that need no byte of the body, of which none is ever sent here.
REFUSED: dict[str, tuple[dict[str, str], int]] = {
    "no credentials": ({"Authorization": ""}, 401),
    "bad credentials": ({"Authorization": "Basic bm9ib2R5OnNlY3JldA=="}, 401),
    "another version": ({"Tus-Resumable": "0.2.2"}, 412),
    "another type": ({"Content-Type": "text/csv"}, 415),
    "another offset": ({"Upload-Offset": "3"}, 409),
    "no offset": ({"Upload-Offset": "-"}, 400),
    "too much": ({"Content-Length": "6"}, 413),
    "an unknown checksum": ({"Upload-Checksum": "crc32 AAAA"}, 400),
    "another length": ({"Upload-Length": "6"}, 400),
    "another site": ({"Origin": "https://elsewhere.example"}, 403),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_refusal_comes_before_the_body(tus: Client, why: str) -> None:
    headers, status = REFUSED[why]
    upload = tus.create(5)
    named = {name.replace("-", "_"): value for name, value in headers.items()}
    sending = tus.begin(upload, 0, 5, **named)
    assert sending.answer().status == status
    sending.break_off()
    assert tus.offset(upload) == 0


def test_a_client_that_expects_to_be_told_goes_on_only_when_told(tus: Client) -> None:
    upload = tus.create(5)
    refused = tus.begin(upload, 3, 5, Expect="100-continue")
    assert refused.answer().status == 409
    taken = tus.begin(upload, 0, 5, Expect="100-continue")
    assert taken.connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    taken.send(some_bytes(5))
    assert taken.answer().status == 204

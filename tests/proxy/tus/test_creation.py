"""POST makes an upload: its length, what is said of it, and perhaps its first bytes."""

from __future__ import annotations

import re
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from tests.proxy.tus.client import BYTES, FILES, PARTIAL, Client, encoded, some_bytes


def test_an_upload_is_made_at_an_absolute_address_with_an_offset_of_zero(tus: Client) -> None:
    answer = tus.send("POST", FILES, {"Upload-Length": "100"})
    assert answer.status == 201
    location = answer.headers["Location"]
    assert location.startswith(tus.service.proxy_url + FILES)
    assert not location.endswith("/")
    assert tus.offset(urlsplit(location).path) == 0


def test_a_creation_names_the_job_that_the_upload_is_for(tus: Client) -> None:
    answer = tus.send("POST", FILES, {"Upload-Length": "100"})
    job = answer.headers["X-Job-Id"]
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", job)
    base = tus.service.proxy_url
    assert answer.headers["X-Job-Status-Url"] == f"{base}/api/jobs/{job}/"
    socket = base.replace("http://", "ws://")
    assert answer.headers["X-Job-Websocket-Url"] == f"{socket}/api/ws/jobs/{job}/"


def test_two_creations_are_two_uploads(tus: Client) -> None:
    assert tus.create(5) != tus.create(5)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Upload-Length": ""},
        {"Upload-Length": "-1"},
        {"Upload-Length": "+1"},
        {"Upload-Length": "1.0"},
        {"Upload-Length": "0x10"},
        {"Upload-Length": "ten"},
        {"Upload-Length": "1e3"},
        {"Upload-Length": "99999999999999999999"},
        {"Upload-Length": "5", "Upload-Defer-Length": "1"},
        {"Upload-Defer-Length": "0"},
        {"Upload-Defer-Length": "2"},
        {"Upload-Defer-Length": "true"},
        {"Upload-Length": "5", "Upload-Defer-Length": "0"},
    ],
    ids=str,
)
def test_a_length_that_is_none_is_refused(tus: Client, headers: dict[str, str]) -> None:
    answer = tus.send("POST", FILES, headers)
    assert answer.status == 400
    assert "Location" not in answer.headers
    assert answer.json()["code"] == "invalid_header"


def test_more_than_the_largest_size_is_refused(tus: Client) -> None:
    most = int(tus.send("OPTIONS", FILES).headers["Tus-Max-Size"])
    answer = tus.send("POST", FILES, {"Upload-Length": str(most + 1)})
    assert answer.status == 413
    assert answer.json()["code"] == "upload_too_large"


def test_more_than_the_disk_has_room_for_is_refused_up_front(tus: Client) -> None:
    most = int(tus.send("OPTIONS", FILES).headers["Tus-Max-Size"])
    answer = tus.send("POST", FILES, {"Upload-Length": str(most)})
    assert answer.status == 507
    assert answer.json()["code"] == "out_of_space"


METADATA = [
    encoded(filename="people.csv", filetype="text/csv"),
    "filename cGVvcGxlLmNzdg==",
    "filename cGVvcGxlLmNzdg==,is_confidential",
    "filename cGVvcGxlLmNzdg==,is_confidential ",
    "is_confidential",
    "a YQ==,b Yg==,c,d ",
    "filename cGVvcGxlLmNzdg==, filetype dGV4dC9jc3Y=",
    "UPPER YQ==,lower YQ==,MiXeD_1-2.3 YQ==",
    "name " + "Zm9v" * 900,
    "n\u00e4me YQ==",
]


@pytest.mark.parametrize("sent", METADATA, ids=lambda sent: sent[:40])
def test_what_is_said_of_an_upload_comes_back_as_it_was_sent(tus: Client, sent: str) -> None:
    upload = tus.create(5, Upload_Metadata=sent)
    assert tus.head(upload).headers["Upload-Metadata"].strip() == sent.strip()


@pytest.mark.parametrize(
    "sent",
    [
        "filename not-base64!",
        "filename cGVvcGxlLmNzdg",
        "filename a b",
        "filename YQ==,filename Yg==",
        ",",
        "filename YQ==,,b YQ==",
        " YQ==,b YQ==,",
        "filename YQ==;b YQ==",
    ],
)
def test_metadata_of_another_form_is_refused(tus: Client, sent: str) -> None:
    answer = tus.send("POST", FILES, {"Upload-Length": "5", "Upload-Metadata": sent})
    assert answer.status == 400
    assert answer.json()["code"] == "invalid_header"


def test_metadata_without_end_is_refused(tus: Client) -> None:
    headers = {"Upload-Length": "5", "Upload-Metadata": "name " + "Zm9v" * 15_300}
    answer = tus.send("POST", FILES, headers)
    assert answer.status == 413
    assert answer.json()["code"] == "metadata_too_large"


def test_names_of_files_are_neither_in_the_log_nor_in_the_clear_on_disk(tus: Client) -> None:
    name = "ada-lovelace-diagnosis-2026.csv"
    upload = tus.create(5, Upload_Metadata=encoded(filename=name))
    assert tus.send("POST", FILES, {"Upload-Metadata": encoded(filename=name)}).status == 400
    tus.patch(upload, 0, b"12345")
    sent = encoded(filename=name).partition(" ")[2]
    contents = [tus.service.log.encode()]
    for path in tus.service.data_dir.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):  # a database's journal comes and goes
            contents.append(path.read_bytes())
    assert len(contents) > 10
    for content in contents:
        assert name.encode() not in content
        assert sent.encode() not in content


@pytest.mark.parametrize("size", [1, 5, 300_000])
def test_the_first_bytes_may_come_with_the_creation(tus: Client, size: int) -> None:
    body = some_bytes(size)
    answer = tus.send("POST", FILES, BYTES | PARTIAL | {"Upload-Length": "300000"}, body)
    assert answer.status == 201
    assert answer.headers["Upload-Offset"] == str(size)
    assert tus.offset(urlsplit(answer.headers["Location"]).path) == size


def test_bytes_that_come_in_chunks_with_the_creation_are_taken(tus: Client) -> None:
    headers = BYTES | PARTIAL | {"Upload-Length": "9"}
    answer = tus.send("POST", FILES, headers, iter([b"abc", b"def"]))
    assert answer.status == 201
    assert answer.headers["Upload-Offset"] == "6"


@pytest.mark.parametrize("body", [b"too long", iter([b"too ", b"long"])], ids=["sized", "chunked"])
def test_a_creation_with_more_bytes_than_its_length_is_refused(tus: Client, body: object) -> None:
    answer = tus.send("POST", FILES, BYTES | PARTIAL | {"Upload-Length": "3"}, body)
    assert answer.status == 413
    assert "Location" not in answer.headers


@pytest.mark.parametrize("kind", [None, "text/csv", "application/octet-stream"])
def test_the_first_bytes_must_come_under_their_own_type(tus: Client, kind: str | None) -> None:
    headers = {"Upload-Length": "5"} | ({} if kind is None else {"Content-Type": kind})
    answer = tus.send("POST", FILES, headers, b"hello")
    assert answer.status == 415
    assert "Location" not in answer.headers


def test_an_upload_of_no_bytes_is_complete_at_once(tus: Client) -> None:
    answer = tus.head(tus.create(0))
    assert answer.headers["Upload-Offset"] == answer.headers["Upload-Length"] == "0"

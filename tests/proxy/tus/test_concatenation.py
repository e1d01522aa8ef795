"""Partial uploads, sent side by side, are one when they are concatenated."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from encrypted_records.model.ids import new_id, to_text
from tests.proxy.tus.client import BYTES, FILES, Client, encoded


def partial(tus: Client, data: bytes, **headers: str) -> str:
    upload = tus.create(len(data), Upload_Concat="partial", **headers)
    if data:
        assert tus.patch(upload, 0, data).status == 204
    return upload


def concatenate(tus: Client, *parts: str, **headers: str) -> str:
    return tus.create(None, Upload_Concat="final;" + " ".join(parts), **headers)


def test_a_partial_upload_says_so_and_has_no_job(tus: Client) -> None:
    answer = tus.send("POST", FILES, {"Upload-Length": "5", "Upload-Concat": "partial"})
    assert answer.status == 201
    assert not [name for name in answer.headers if name.lower().startswith("x-job")]
    head = tus.head(urlsplit(answer.headers["Location"]).path)
    assert head.headers["Upload-Concat"] == "partial"
    assert head.headers["Upload-Offset"] == "0"
    assert head.headers["Upload-Length"] == "5"
    assert "Upload-Expires" in head.headers


@pytest.mark.parametrize("form", ["path", "slash", "absolute"])
def test_a_final_upload_has_the_length_of_its_parts_and_is_complete(tus: Client, form: str) -> None:
    parts = [partial(tus, b"hello"), partial(tus, b" world")]
    if form == "slash":
        parts = [f"{part}/" for part in parts]
    if form == "absolute":
        parts = [tus.service.proxy_url + part for part in parts]
    final = concatenate(tus, *parts, Upload_Metadata=encoded(filename="hello.txt"))
    answer = tus.head(final)
    assert answer.headers["Upload-Length"] == answer.headers["Upload-Offset"] == "11"
    assert answer.headers["Upload-Concat"] == "final;" + " ".join(parts)
    assert answer.headers["Upload-Metadata"] == encoded(filename="hello.txt")
    assert "Upload-Expires" not in answer.headers


def test_what_was_said_of_the_parts_is_not_said_of_the_whole(tus: Client) -> None:
    part = partial(tus, b"hello", Upload_Metadata=encoded(filename="part.csv"))
    assert "Upload-Metadata" not in tus.head(concatenate(tus, part)).headers


def test_parts_are_concatenated_in_the_order_of_the_list(tus: Client) -> None:
    """The job that reads them says so: in another order they are no JSON."""
    parts = [partial(tus, one) for one in (b"[]", b"  ", b"]", b"[")]
    jobs = [
        concatenate(tus, *(parts[one] for one in order), Upload_Metadata=encoded(filename="a.json"))
        for order in ([3, 1, 2], [2, 1, 3])
    ]
    assert [tus.ended(upload)["status"] for upload in jobs] == ["completed", "failed"]


def test_a_part_may_be_used_again_and_twice(tus: Client) -> None:
    part = partial(tus, b"hello")
    assert tus.offset(concatenate(tus, part, part)) == 10
    assert tus.offset(concatenate(tus, part)) == 5


def test_a_final_upload_outlives_its_parts(tus: Client) -> None:
    part = partial(tus, b"hello")
    final = concatenate(tus, part)
    assert tus.send("DELETE", part).status == 204
    assert tus.offset(final) == 5


def test_a_final_upload_takes_no_bytes(tus: Client) -> None:
    final = concatenate(tus, partial(tus, b"hello"))
    for offset, body in ((5, b"!"), (0, b"jello"), (5, b"")):
        answer = tus.patch(final, offset, body)
        assert answer.status == 403
        assert answer.json()["code"] == "upload_final"
    assert tus.offset(final) == 5
    parts = f"final;{partial(tus, b'hello')}"
    answer = tus.send("POST", FILES, BYTES | {"Upload-Concat": parts}, b"hello")
    assert answer.status == 403


def test_parts_that_are_not_complete_are_not_concatenated(tus: Client) -> None:
    part = tus.create(5, Upload_Concat="partial")
    tus.patch(part, 0, b"hel")
    deferred = tus.create(Upload_Concat="partial", Upload_Defer_Length="1")
    for one in (part, deferred):
        answer = tus.send("POST", FILES, {"Upload-Concat": f"final;{one}"})
        assert answer.status == 409
        assert answer.json()["code"] == "upload_unfinished"


@pytest.mark.parametrize(
    "value",
    ["", "final", "final;", "final; ", "Partial", "partial;", "whole", "final /api/files/x"],
)
def test_a_value_of_another_form_is_refused(tus: Client, value: str) -> None:
    headers = {"Upload-Length": "5", "Upload-Concat": value}
    assert tus.send("POST", FILES, headers).status == 400


@pytest.mark.parametrize("header", ["Upload-Length", "Upload-Defer-Length"])
def test_a_final_upload_does_not_name_a_length(tus: Client, header: str) -> None:
    part = partial(tus, b"h")
    answer = tus.send("POST", FILES, {"Upload-Concat": f"final;{part}", header: "1"})
    assert answer.status == 400


def test_only_ones_own_partial_uploads_are_parts(tus: Client, stranger: Client) -> None:
    mine = partial(tus, b"hello")
    whole = tus.create(0, Upload_Metadata=encoded(filename="empty.csv"))
    for other, status in (
        (partial(stranger, b"hello"), 404),
        (FILES + to_text(new_id()), 404),
        ("https://elsewhere.example" + mine, 400),
        ("/api/jobs/" + to_text(new_id()), 400),
        (whole, 400),
        (concatenate(tus, mine), 400),
    ):
        answer = tus.send("POST", FILES, {"Upload-Concat": f"final;{mine} {other}"})
        assert answer.status == status, other

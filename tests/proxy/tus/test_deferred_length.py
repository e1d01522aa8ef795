"""The length of an upload may come later, once, and before it is complete."""

from __future__ import annotations

import pytest

from tests.proxy.tus.client import Client


@pytest.fixture
def upload(tus: Client) -> str:
    return tus.create(Upload_Defer_Length="1")


def test_an_upload_says_that_its_length_is_deferred_until_it_is_known(
    tus: Client, upload: str
) -> None:
    tus.patch(upload, 0, b"hel")
    answer = tus.head(upload)
    assert answer.headers["Upload-Defer-Length"] == "1"
    assert "Upload-Length" not in answer.headers
    assert answer.headers["Upload-Offset"] == "3"
    assert tus.patch(upload, 3, b"", Upload_Length="5").status == 204
    answer = tus.head(upload)
    assert answer.headers["Upload-Length"] == "5"
    assert "Upload-Defer-Length" not in answer.headers


def test_the_length_may_come_with_the_last_bytes(tus: Client, upload: str) -> None:
    tus.patch(upload, 0, b"hel")
    assert tus.patch(upload, 3, b"lo", Upload_Length="5").headers["Upload-Offset"] == "5"
    assert tus.head(upload).headers["Upload-Length"] == "5"


def test_a_length_once_known_is_not_changed(tus: Client, upload: str) -> None:
    tus.patch(upload, 0, b"he", Upload_Length="5")
    for length in ("4", "6", "2"):
        answer = tus.patch(upload, 2, b"l", Upload_Length=length)
        assert answer.status == 400
        assert answer.json()["code"] == "length_fixed"
    assert tus.head(upload).headers["Upload-Length"] == "5"


@pytest.mark.parametrize(
    ("length", "status"),
    [("2", 400), ("-5", 400), ("five", 400), (str(2**62), 413), ("4", 413)],
)
def test_a_length_that_cannot_be_is_refused_and_stays_deferred(
    tus: Client, upload: str, length: str, status: int
) -> None:
    tus.patch(upload, 0, b"hel")
    assert tus.patch(upload, 3, b"lo", Upload_Length=length).status == status
    answer = tus.head(upload)
    assert answer.headers["Upload-Defer-Length"] == "1"
    assert answer.headers["Upload-Offset"] == "3"

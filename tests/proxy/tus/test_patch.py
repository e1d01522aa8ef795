"""PATCH appends, at the offset and nowhere else."""

from __future__ import annotations

import pytest

from tests.proxy.tus.client import BYTES, Client, some_bytes


def test_bytes_in_several_requests_add_up(tus: Client) -> None:
    upload, offset = tus.create(1_000_007), 0
    for size in (1, 65_536, 300_000, 634_470):
        answer = tus.patch(upload, offset, some_bytes(size))
        offset += size
        assert answer.status == 204
        assert answer.body == b""
        assert answer.headers["Upload-Offset"] == str(offset)
    assert tus.offset(upload) == 1_000_007


def test_a_body_in_chunks_needs_no_length(tus: Client) -> None:
    upload = tus.create(9)
    answer = tus.patch(upload, 0, iter([b"abc", b"def"]))
    assert answer.status == 204
    assert answer.headers["Upload-Offset"] == "6"


def test_a_body_of_nothing_changes_nothing(tus: Client) -> None:
    upload = tus.create(5)
    for offset, body in ((0, b""), (0, b"hello"), (5, b"")):
        assert tus.patch(upload, offset, body).status == 204
    assert tus.offset(upload) == 5


@pytest.mark.parametrize("kind", ["", "application/json", "application/octet-stream", "text/csv"])
def test_another_type_is_refused(tus: Client, kind: str) -> None:
    upload = tus.create(5)
    answer = tus.patch(upload, 0, b"hello", Content_Type=kind)
    assert answer.status == 415
    assert answer.json()["code"] == "unsupported_media_type"
    assert tus.offset(upload) == 0


@pytest.mark.parametrize("offset", ["", "-1", "1.0", "zero", "0x0", "0,0"])
def test_an_offset_that_is_none_is_refused(tus: Client, offset: str) -> None:
    upload = tus.create(5)
    answer = tus.patch(upload, 0, b"hello", Upload_Offset=offset)
    assert answer.status == 400
    assert tus.offset(upload) == 0


def test_a_missing_offset_is_refused(tus: Client) -> None:
    upload = tus.create(5)
    assert tus.send("PATCH", upload, BYTES, b"hello").status == 400
    assert tus.offset(upload) == 0


@pytest.mark.parametrize("offset", [0, 1, 3, 5, 9])
def test_another_offset_than_the_uploads_is_a_conflict_and_changes_nothing(
    tus: Client, offset: int
) -> None:
    upload = tus.create(5)
    tus.patch(upload, 0, b"he")
    answer = tus.patch(upload, offset, b"llo")
    assert answer.status == 409
    assert answer.json()["code"] == "offset_mismatch"
    assert tus.offset(upload) == 2


@pytest.mark.parametrize("chunked", [False, True])
def test_bytes_beyond_the_length_are_refused_and_none_is_kept(tus: Client, chunked: bool) -> None:
    upload = tus.create(5)
    tus.patch(upload, 0, b"he")
    answer = tus.patch(upload, 2, iter([b"ll", b"o!"]) if chunked else b"llo!")
    assert answer.status == 413
    assert answer.json()["code"] == "beyond_length"
    assert tus.offset(upload) == 2
    assert tus.patch(upload, 2, b"llo").status == 204


def test_a_complete_upload_takes_no_more(tus: Client) -> None:
    upload = tus.create(2)
    tus.patch(upload, 0, b"he")
    assert tus.patch(upload, 2, b"l").status == 413
    assert tus.patch(upload, 0, b"he").status == 409


def test_the_length_of_an_upload_cannot_be_changed(tus: Client) -> None:
    upload = tus.create(5)
    for length, status in (("6", 400), ("4", 400), ("5", 204)):
        assert tus.patch(upload, 0, b"", Upload_Length=length).status == status
    assert tus.head(upload).headers["Upload-Length"] == "5"

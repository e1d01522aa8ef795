"""A body that is not what its checksum says is as if it had not come."""

from __future__ import annotations

import base64
import hashlib

import pytest

from tests.proxy.tus.client import BYTES, FILES, PARTIAL, Client, some_bytes


def checksum(algorithm: str, data: bytes) -> str:
    digest = hashlib.new(algorithm, data).digest()
    return f"{algorithm} {base64.b64encode(digest).decode()}"


each_algorithm = pytest.mark.parametrize("algorithm", ["sha1", "sha256", "md5"])


@each_algorithm
@pytest.mark.parametrize("size", [5, 3_000_000])
def test_a_body_with_its_checksum_is_taken(tus: Client, algorithm: str, size: int) -> None:
    data = some_bytes(size)
    upload = tus.create(size)
    answer = tus.patch(upload, 0, data, Upload_Checksum=checksum(algorithm, data))
    assert answer.status == 204
    assert answer.headers["Upload-Offset"] == str(size)


@each_algorithm
@pytest.mark.parametrize("size", [5, 20_000_000])
def test_a_body_with_another_checksum_leaves_the_offset_where_it_was(
    tus: Client, algorithm: str, size: int
) -> None:
    data = some_bytes(size)
    upload = tus.create(2 + size)
    tus.patch(upload, 0, b"he")
    answer = tus.patch(upload, 2, data, Upload_Checksum=checksum(algorithm, b"another"))
    assert answer.status == 460
    assert answer.json()["code"] == "checksum_mismatch"
    assert tus.offset(upload) == 2
    again = tus.patch(upload, 2, data, Upload_Checksum=checksum(algorithm, data))
    assert again.headers["Upload-Offset"] == str(2 + size)


@pytest.mark.parametrize(
    "sent",
    [
        "crc32 AAAAAA==",
        "SHA1 " + "A" * 27 + "=",
        "sha1",
        "sha1 not-base64",
        "",
        " ",
    ],
)
def test_a_checksum_that_is_none_is_refused_before_the_body(tus: Client, sent: str) -> None:
    upload = tus.create(5)
    answer = tus.patch(upload, 0, b"hello", Upload_Checksum=sent)
    assert answer.status == 400
    assert tus.offset(upload) == 0


@pytest.mark.parametrize("sent", ["sha1 AAAA", "sha256 " + "A" * 27 + "=", "md5 " + "A" * 44])
def test_a_digest_that_no_body_can_have_is_a_mismatch_before_the_body(
    tus: Client, sent: str
) -> None:
    upload = tus.create(5)
    sending = tus.begin(upload, 0, 5, Upload_Checksum=sent)
    assert sending.answer().status == 460
    sending.break_off()
    assert tus.offset(upload) == 0


def test_the_bytes_that_come_with_a_creation_may_have_a_checksum(tus: Client) -> None:
    headers = (
        BYTES | PARTIAL | {"Upload-Length": "9", "Upload-Checksum": checksum("sha1", b"hello")}
    )
    assert tus.send("POST", FILES, headers, b"hello").status == 201
    answer = tus.send("POST", FILES, headers, b"jello")
    assert answer.status == 460
    assert "Location" not in answer.headers


def test_a_body_that_breaks_off_before_its_checksum_is_compared_is_not_kept(tus: Client) -> None:
    upload = tus.create(5)
    sending = tus.begin(upload, 0, 5, Upload_Checksum=checksum("sha1", b"hello"))
    sending.send(b"hel")
    sending.break_off()
    assert tus.offset(upload) == 0
    answer = tus.resume(upload, b"hello", Upload_Checksum=checksum("sha1", b"hello"))
    assert answer.status == 204

"""HEAD says how far an upload is."""

from __future__ import annotations

from tests.proxy.tus.client import Client


def test_offset_and_length_are_there_from_the_beginning_to_the_end(tus: Client) -> None:
    upload = tus.create(5)
    for sent, expected in ((b"", 0), (b"hel", 3), (b"lo", 5)):
        if sent:
            tus.patch(upload, tus.offset(upload), sent)
        answer = tus.head(upload)
        assert answer.status in (200, 204)
        assert answer.body == b""
        assert answer.headers["Upload-Offset"] == str(expected)
        assert answer.headers["Upload-Length"] == "5"
        assert answer.headers["Cache-Control"] == "no-store"
        assert "Upload-Defer-Length" not in answer.headers
        assert answer.headers["Upload-Concat"] == "partial"
        assert "Upload-Metadata" not in answer.headers


def test_an_upload_that_is_not_there_has_no_offset(tus: Client) -> None:
    upload = tus.create(5)
    tus.send("DELETE", upload)
    answer = tus.head(upload)
    assert answer.status == 410
    assert "Upload-Offset" not in answer.headers

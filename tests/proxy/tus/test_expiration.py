"""What is abandoned expires, and says so."""

from __future__ import annotations

import sqlite3
import time
from datetime import datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import pytest

from encrypted_records.model.ids import from_text
from tests.proxy.tus.client import FILES, Client


def change(tus: Client, upload: str, assignment: str) -> None:
    """Change what the proxy knows of ``upload``, in SQL."""
    database = sqlite3.connect(tus.service.data_dir / "proxy" / "uploads.sqlite3")
    with database:
        name = from_text(upload.strip("/").rpartition("/")[2])
        database.execute(f"UPDATE upload SET {assignment} WHERE id = ?", (name,))
    database.close()


def let_time_pass(tus: Client, upload: str) -> None:
    """The time of ``upload`` is over."""
    change(tus, upload, f"expires = {time.time() - 1}")


def test_every_answer_about_an_unfinished_upload_says_when_it_expires(tus: Client) -> None:
    created = tus.send("POST", FILES, {"Upload-Length": "5"})
    upload = urlsplit(created.headers["Location"]).path
    for answer in (created, tus.head(upload), tus.patch(upload, 0, b"hel"), tus.head(upload)):
        expires = answer.headers["Upload-Expires"]
        assert expires.endswith(" GMT")
        assert parsedate_to_datetime(expires).timestamp() > time.time() + 86_400
    assert "Upload-Expires" not in tus.patch(upload, 3, b"lo").headers


@pytest.mark.parametrize("method", ["HEAD", "PATCH", "DELETE"])
def test_an_expired_upload_is_gone_with_its_bytes(tus: Client, method: str) -> None:
    upload = tus.create(5)
    tus.patch(upload, 0, b"hel")
    let_time_pass(tus, upload)
    headers = {"Content-Type": "application/offset+octet-stream", "Upload-Offset": "3"}
    for _ in range(2):
        answer = tus.send(method, upload, headers)
        assert answer.status == 410
        assert "Upload-Offset" not in answer.headers
    spool = tus.service.data_dir / "proxy" / "spool"
    assert not (spool / f"{upload.rpartition('/')[2]}.spool").exists()


def test_an_upload_that_goes_on_lives_on(tus: Client) -> None:
    upload = tus.create(5)

    def expires() -> datetime:
        return parsedate_to_datetime(tus.head(upload).headers["Upload-Expires"])

    before = expires()
    change(tus, upload, "expires = expires - 3600")
    assert expires() < before
    tus.patch(upload, 0, b"h")
    assert expires() >= before

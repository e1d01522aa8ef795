"""DELETE ends an upload and frees what it took."""

from __future__ import annotations

import pytest

from tests.proxy.tus.client import Client, some_bytes


def spooled(tus: Client) -> set[str]:
    return {path.name for path in (tus.service.data_dir / "proxy" / "spool").iterdir()}


@pytest.mark.parametrize("sent", [0, 3, 5])
def test_an_upload_that_was_terminated_is_gone_with_its_bytes(tus: Client, sent: int) -> None:
    before = spooled(tus)
    upload = tus.create(5)
    if sent:
        tus.patch(upload, 0, b"hello"[:sent])
    answer = tus.send("DELETE", upload)
    assert answer.status == 204
    assert answer.body == b""
    assert spooled(tus) <= before
    for again in (tus.head(upload), tus.patch(upload, sent, b""), tus.send("DELETE", upload)):
        assert again.status == 410


def test_an_upload_is_terminated_while_its_bytes_come_in(tus: Client) -> None:
    upload = tus.create(10)
    sending = tus.begin(upload, 0, 10, Expect="100-continue")
    assert sending.connection.recv(25).endswith(b"\r\n\r\n")
    sending.send(some_bytes(4))
    assert tus.send("DELETE", upload).status == 204
    assert sending.answer().status == 400
    assert tus.head(upload).status == 410

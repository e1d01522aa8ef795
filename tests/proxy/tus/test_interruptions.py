"""Broken connections, stops, two at once: what was acknowledged stays, and it goes on. Proxies that
are killed are simulated (``tests/simulation/scenarios/uploads.py``)."""

from __future__ import annotations

import socket
import uuid
from pathlib import Path

import pytest

from encrypted_records.model.ids import from_text
from tests.proxy.tus.client import Client, encoded, some_bytes
from tests.support.eventually import eventually
from tests.support.service import Service, running_service

TOLD = b"HTTP/1.1 100 Continue\r\n\r\n"


def until(tus: Client, upload: str, offset: int) -> int:
    """Wait for the upload to be at ``offset`` at least; where it is then."""
    eventually(lambda: tus.offset(upload) >= offset, f"the upload is at {offset}")
    return tus.offset(upload)


def test_what_came_before_the_connection_broke_is_kept(tus: Client) -> None:
    """But for the last piece, which the web server may have had in hand."""
    size = 4 << 20
    upload, data = tus.create(size + 5), some_bytes(size + 5)
    sending = tus.begin(upload, 0, size + 5, Expect="100-continue")
    assert sending.connection.recv(len(TOLD)) == TOLD
    sending.send(data[:size])
    sending.break_off()
    until(tus, upload, size - (512 << 10))
    assert tus.resume(upload, data).status == 204


def test_a_job_says_that_its_upload_was_interrupted_until_it_goes_on(tus: Client) -> None:
    upload = tus.create(10, Upload_Metadata=encoded(filename="people.csv"))
    job = str(uuid.UUID(bytes=from_text(upload.rpartition("/")[2])))

    def waits() -> str | None:
        told: str | None = tus.send("GET", f"/api/jobs/{job}/about/").json()["waits"]
        return told

    assert waits() == "its upload was interrupted; send the same file again to continue it"
    sending = tus.begin(upload, 0, 10, Expect="100-continue")
    assert sending.connection.recv(len(TOLD)) == TOLD
    assert waits() is None
    sending.send(b"hello")
    sending.break_off()
    eventually(lambda: waits() is not None, "the proxy has noticed the break")


def test_a_second_request_is_refused_at_once_while_the_first_goes_on(tus: Client) -> None:
    upload = tus.create(10)
    sending = tus.begin(upload, 0, 10, Expect="100-continue")
    assert sending.connection.recv(len(TOLD)) == TOLD
    answer = tus.patch(upload, 0, b"hello")
    assert answer.status == 423
    assert answer.json()["code"] == "locked"
    assert tus.offset(upload) == 0
    sending.send(b"helloworld")
    assert sending.answer().status == 204
    assert tus.offset(upload) == 10


def test_a_stalled_request_gives_way_to_the_next_and_keeps_what_it_had(tus: Client) -> None:
    """The connection stays open and brings nothing: the client's network has gone away."""
    upload = tus.create(10)
    stalled = tus.begin(upload, 0, 10, Expect="100-continue")
    assert stalled.connection.recv(len(TOLD)) == TOLD
    stalled.send(b"hello")
    assert until(tus, upload, 5) == 5
    answer = tus.patch(upload, 5, b"world")
    assert answer.status == 204
    assert answer.headers["Upload-Offset"] == "10"
    assert stalled.answer().status == 400


def test_others_are_answered_while_much_comes_in(tus: Client) -> None:
    upload = tus.create(16 << 20)
    sending = tus.begin(upload, 0, 16 << 20)
    block = some_bytes(1 << 20)
    seen = []
    for _ in range(16):
        sending.send(block)
        seen.append(tus.offset(upload))
    assert sending.answer().status == 204
    assert seen == sorted(seen)
    assert seen[-1] > 0
    assert tus.offset(upload) == 16 << 20


def test_a_proxy_that_is_asked_to_stop_waits_for_no_upload_that_is_under_way(
    tmp_path: Path, uploading: Service
) -> None:
    environment = {"ERS_BASE_URL": uploading.base_url}
    with running_service(tmp_path / "data", command="proxy", environment=environment) as service:
        tus = Client(service, uploading.new_account())
        sending = tus.begin(tus.create(10), 0, 10, Expect="100-continue")
        assert sending.connection.recv(len(TOLD)) == TOLD
        assert service.stop() == 0  # in time


@pytest.mark.parametrize("junk", [b"\x00" * 40, b"PATCH /api/files/ HTTP/1.1\r\nHost: \r\n\r\n"])
def test_what_is_no_request_is_refused(tus: Client, junk: bytes) -> None:
    with socket.create_connection(tus.address, 10) as connection:
        connection.sendall(junk)
        assert connection.recv(12).startswith(b"HTTP/1.1 4")

"""Large bodies are taken apart a few at a time, so that memory is bounded; nobody small waits."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.errors import Overloaded
from encrypted_records.server.gateway.admission import MEMORY_BYTES, HeldBody, Room
from tests.server.gateways import THREADS, Start, code, starting, status
from tests.support.eventually import eventually


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as begin:
        yield begin


def test_large_bodies_take_turns_at_memory_and_have_no_thread_while_they_wait(
    start: Start,
) -> None:
    api = start(turns=2_000_000)
    large = b"x" * 1_500_000
    assert status(api.ask("/x", large, Authorization="right")) == 200
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(api.ask, "/wait", large, Authorization="right")
        eventually(lambda: api.app.calls[-1] == "/wait")
        others = [
            pool.submit(api.ask, "/large", large, Authorization="right") for _ in range(THREADS)
        ]
        eventually(lambda: api.room.turns.waiting == THREADS)
        assert [status(api.ask("/small", b"x" * 1000)) for _ in range(5)] == [200] * 5
        assert "/large" not in api.app.calls
        api.app.gate.set()
        assert [status(one.result()) for one in (first, *others)] == [200] * (1 + THREADS)
    assert (api.room.turns.held, api.room.memory.left) == (0, MEMORY_BYTES)


def test_senders_take_turns_from_their_first_large_body_on(start: Start) -> None:
    """Who waits with many keeps nobody else waiting for more than one of them."""
    api = start(turns=2_000_000)
    api.app.names_senders = True
    large = b"x" * 1_500_000
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(api.ask, "/hold", large, Authorization="ada")
        eventually(lambda: api.app.calls[-1:] == ["/hold"] and api.room.turns.held > 0)
        sent = []
        for path, who in (("/a", "ada"), ("/b", "ada"), ("/c", "eve")):
            sent.append(pool.submit(api.ask, path, large, Authorization=who))
            eventually(lambda: api.room.turns.waiting == len(sent))
        api.app.calls.clear()
        api.app.gate.set()
        assert [status(one.result()) for one in (first, *sent)] == [200] * 4
    assert api.app.calls == ["/a", "/c", "/b"]


def test_no_more_bodies_have_a_turn_than_their_sender_may_have_threads(start: Start) -> None:
    """However small they are: those would wait for a thread, and hold what others wait for."""
    api = start(turns=100_000_000)
    api.app.names_senders = True
    with ThreadPoolExecutor(4) as pool:
        sent = [
            pool.submit(api.ask, "/hold", b"x" * 1_500_000, Authorization="ada") for _ in range(4)
        ]
        eventually(lambda: api.room.turns.waiting == 4 - THREADS)
        assert api.room.turns.held == 100_000_000
        api.app.gate.set()
        assert [status(one.result()) for one in sent] == [200] * 4


def test_a_large_body_that_waits_for_too_long_is_told_to_come_back(start: Start) -> None:
    api = start(turns=2_000_000, wait_seconds=1.0)
    large = b"x" * 1_500_000
    assert status(api.ask("/x", large, Authorization="right")) == 200
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(api.ask, "/wait", large, Authorization="right")
        eventually(lambda: api.app.calls[-1] == "/wait")
        refused = api.ask("/large", large, Authorization="right")
        assert (status(refused), code(refused)) == (503, "overloaded")
        api.app.gate.set()
        assert status(first.result()) == 200
    assert "/large" not in api.app.calls
    assert status(api.ask("/large", large, Authorization="right")) == 200
    assert (api.room.turns.held, api.room.memory.left) == (0, MEMORY_BYTES)


def test_a_body_larger_than_all_turns_has_them_all(start: Start) -> None:
    api = start(turns=1_000_000)
    for _ in range(2):
        assert status(api.ask("/x", b"x" * 1_500_000, Authorization="right")) == 200
    assert api.room.turns.held == 0


def test_a_body_in_memory_is_there_once_and_gone_with_its_request(tmp_path: Path) -> None:
    held = HeldBody(Room(tmp_path), on_disk=True)
    for _ in range(30):
        held.write(b"x" * 65_537)
    body = held.rewind()
    assert isinstance(body, io.BytesIO)
    whole = body.read(held.size)
    assert len(whole) == held.size == 30 * 65_537
    assert body.getvalue() is whole
    held.close()
    # Whoever still refers to it has nothing of it.
    assert body.getvalue() == b""


#: A request refers to itself, so it stays until cycles are looked for: here, never.
_TAKEN = """
import gc, sys
import django
django.setup()
gc.disable()
from rest_framework.request import Request
from rest_framework.test import APIRequestFactory
from encrypted_records.model import wire
from encrypted_records.server.http.bodies import FramesParser, body_of
sent = b"x" * 1_000_000
made = APIRequestFactory().generic("POST", "/", sent, content_type=wire.MEDIA_TYPE)
request = Request(made, parsers=[FramesParser()])
body = body_of(request)
assert body == sent
print([one for one in gc.get_referrers(body) if one is not globals()], sys.getrefcount(body))
"""


class NearlyFull(io.FileIO):
    """A file on a disk that takes parts, and at last nothing."""

    def write(self, data: Any) -> int:
        if self.tell() >= 200_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data[:1000])


def test_a_body_on_a_disk_that_is_nearly_full_is_whole_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(tmp_path, memory=0)
    monkeypatch.setattr(room, "file", lambda: NearlyFull(tmp_path / "body", "w+"))
    body = HeldBody(room, on_disk=True)
    pieces = [os.urandom(70_000) for _ in range(2)]
    for piece in pieces:
        body.write(piece)
    assert body.rewind().read() == b"".join(pieces)
    body.rewind().seek(0, os.SEEK_END)
    with pytest.raises(Overloaded):
        body.write(os.urandom(70_000))
    body.close()


def test_a_request_has_its_frames_until_they_are_taken(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _TAKEN],
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "encrypted_records.server.settings",
            "ERS_DATA_DIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    # Of this body there is the one that was taken, and who counts.
    assert done.stdout == "[] 2\n", done.stderr

"""A form with a file is read as it comes, and nothing odd in it does harm."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from encrypted_records.errors import BadInput, ErsError, TooLarge
from encrypted_records.proxy.pages.page import MAX_FIELDS_BYTES, FileForm

BOUNDARY = "----a boundary"


def part(name: str, content: bytes, filename: str | None = None) -> bytes:
    file = "" if filename is None else f'; filename="{filename}"'
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
    return head.encode() + content + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()


def form_of(pieces: Sequence[bytes], kind: str = "") -> FileForm:
    return form_from(list(pieces), kind)


def form_from(waiting: list[bytes], kind: str = "") -> FileForm:
    """A form whose bytes are taken from the list as they are read."""

    async def receive() -> Message:
        body = waiting.pop(0) if waiting else b""
        return {"type": "http.request", "body": body, "more_body": bool(waiting)}

    media_type = kind or f'multipart/form-data; boundary="{BOUNDARY}"'
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "headers": [(b"content-type", media_type.encode())],
    }
    return FileForm(Request(scope, receive))


async def read(form: FileForm) -> bytes:
    await form.open()
    return b"".join([piece async for piece in form.file()])


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_fields_and_file_come_out_however_the_bytes_come_in(size: int) -> None:
    file = os.urandom(5000) + b"\r\n--" + BOUNDARY[:-1].encode() + b"\r\n"
    body = part("csrf", "t\u00f6ken".encode()) + part("file", file, "a b.csv") + END
    form = form_of([body[at : at + size] for at in range(0, len(body), size)])

    assert asyncio.run(read(form)) == file
    assert form.fields == {"csrf": "t\u00f6ken"}
    assert form.filename == "a b.csv"


def test_the_file_is_not_read_before_it_is_asked_for() -> None:
    waiting = [part("csrf", b"x"), part("file", b"1" * 1000, "a.csv")[:-2]]
    waiting += [b"2" * 1000] * 50 + [b"\r\n" + END]
    form = form_from(waiting)

    async def go() -> int:
        await form.open()
        assert form.fields == {"csrf": "x"}
        assert len(waiting) == 51
        return sum([len(piece) async for piece in form.file()])

    assert asyncio.run(go()) == 1000 + 50 * 1000


def test_no_file_was_chosen() -> None:
    form = form_of([part("csrf", b"x") + part("file", b"", "") + END])
    assert asyncio.run(read(form)) == b""
    assert form.filename == ""


@pytest.mark.parametrize(
    "pieces",
    [
        [b""],
        [b"no form at all"],
        [os.urandom(1 << 20)],
        [part("csrf", b"x")],
        [part("csrf", b"x") + part("file", b"cut off", "a.csv")],
        [f"--{BOUNDARY}\r\n".encode() + b"A: b\r\n" * 100_000],
        [f"--{BOUNDARY}\r\nContent-Disposition: ".encode() + b"x" * (1 << 20)],
    ],
    ids=["nothing", "text", "noise", "no end", "cut off", "many headers", "a long header"],
)
def test_what_is_no_form_is_refused(pieces: list[bytes]) -> None:
    with pytest.raises(BadInput):
        asyncio.run(read(form_of(pieces)))


def test_fields_that_are_too_long_are_refused_before_they_are_all_there() -> None:
    body = part("csrf", b"x" * (MAX_FIELDS_BYTES + 1))
    many = b"".join(part(f"f{number}", b"") for number in range(10_001))
    for sent in (body, many):
        with pytest.raises(TooLarge):
            asyncio.run(read(form_of([sent, END])))


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary="])
def test_a_form_without_a_boundary_is_refused(kind: str) -> None:
    with pytest.raises(ErsError):
        asyncio.run(read(form_of([b""], kind)))

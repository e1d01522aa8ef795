"""A form with a file in it (multipart/form-data), read as it comes: its fields, then the file.

The file is the form's last part, and may be of any size: it is handed on in pieces and never held
as a whole, in memory or on disk. All fields stand before it in the page, so they are known when its
first byte is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from encrypted_records.errors import BadInput, TooLarge

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MEDIA_TYPE = "multipart/form-data"
#: All fields together; the file does not count.
MAX_FIELDS_BYTES = 4 << 20
MAX_PARTS = 10_000


@dataclass
class _Part:
    name: str = ""
    filename: str | None = None
    content: bytearray = field(default_factory=bytearray, repr=False)


class FileForm:
    """``fields`` has what stood before the file; ``filename`` is empty where none was chosen."""

    def __init__(self, request: Request) -> None:
        """
        Raises:
            BadInput: the request is no such form.
        """
        _, options = parse_options_header(request.headers.get("content-type"))
        boundary = options.get(b"boundary")
        if not boundary:
            raise _no_form()
        self.fields: dict[str, str] = {}
        self.filename = ""
        self._stream = request.stream()
        self._pieces: deque[bytes] = deque()
        self._part = _Part()
        self._header: tuple[bytearray, bytearray] = (bytearray(), bytearray())
        self._size = self._count = 0
        self._in_file = self._complete = False
        self._parser = MultipartParser(boundary, _callbacks(self))

    async def open(self) -> None:
        """Read up to the file's first bytes, or to the end of a form without one.

        Raises:
            BadInput: it is not well formed.
            TooLarge: its fields are.
        """
        while not (self._in_file or self._complete) and await self._feed():
            pass

    async def file(self) -> AsyncIterator[bytes]:
        """The file's bytes; nothing where none was chosen."""
        while True:
            while self._pieces:
                yield self._pieces.popleft()
            if not await self._feed():
                break
        if not self._complete:
            raise _no_form()

    async def _feed(self) -> bool:
        async for chunk in self._stream:
            if not chunk:
                continue
            try:
                self._parser.write(chunk)
            except FormParserError:
                raise _no_form() from None
            if self._size > MAX_FIELDS_BYTES or self._count > MAX_PARTS:
                raise TooLarge("the form's fields are too long")
            return True
        return False

    # --- what the parser calls ----------------------------------------------------------------

    def on_part_begin(self) -> None:
        self._part = _Part()
        self._count += 1
        self._in_file = False

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header[0].extend(data[start:end])

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1].extend(data[start:end])

    def on_header_end(self) -> None:
        name, value = (bytes(part) for part in self._header)
        self._header = (bytearray(), bytearray())
        if name.lower() == b"content-disposition":
            _, options = parse_options_header(value)
            self._part.name = options.get(b"name", b"").decode(errors="replace")
            if b"filename" in options:
                self._part.filename = options[b"filename"].decode(errors="replace")

    def on_headers_finished(self) -> None:
        if self._part.filename:
            self.filename = self._part.filename
            self._in_file = True

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self._pieces.append(data[start:end])
            return
        self._part.content += data[start:end]
        self._size += end - start

    def on_part_end(self) -> None:
        if self._part.filename is None:
            self.fields[self._part.name] = self._part.content.decode(errors="replace")

    def on_end(self) -> None:
        self._complete = True


def _callbacks(form: FileForm) -> MultipartCallbacks:
    return {
        "on_part_begin": form.on_part_begin,
        "on_header_field": form.on_header_field,
        "on_header_value": form.on_header_value,
        "on_header_end": form.on_header_end,
        "on_headers_finished": form.on_headers_finished,
        "on_part_data": form.on_part_data,
        "on_part_end": form.on_part_end,
        "on_end": form.on_end,
    }


def _no_form() -> BadInput:
    return BadInput("this is not a form of this proxy", hint="use the form of the page")

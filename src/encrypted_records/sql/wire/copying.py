"""`COPY (SELECT ...) TO STDOUT`: rows as text, CSV or PostgreSQL's binary file format."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import pyarrow

from encrypted_records.sql.wire.results import RowEncoder
from encrypted_records.sql.wire.statements import Copy
from encrypted_records.sql.wire.types import BINARY_FORM, TEXT_FORM

_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_ABSENT = struct.pack("!i", -1)
_ESCAPES = str.maketrans(
    {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
)


class CopyWriter:
    """
    Attributes:
        form: 0 for text and CSV, 1 for binary.
        head, tail: what comes before and after the rows.
    """

    def __init__(self, copy: Copy, columns: Sequence[tuple[str, str]]) -> None:
        self._copy = copy
        self.form = BINARY_FORM if copy.form == "binary" else TEXT_FORM
        self._encoder = RowEncoder(columns, [self.form] * len(columns))
        self._count = struct.pack("!h", len(columns))
        self.head, self.tail = b"", b""
        if self.form == BINARY_FORM:
            self.head, self.tail = _SIGNATURE, struct.pack("!h", -1)
        elif copy.header:
            names = [self._quoted(name.encode()) for name, _ in columns]
            self.head = self._line(names)

    def rows(self, batch: pyarrow.RecordBatch) -> list[bytes]:
        """The rows of a batch, each by itself: ADBC reads one of each message."""
        columns = self._encoder.values(batch)
        if self.form == BINARY_FORM:
            sized = [[_sized(value) for value in column] for column in columns]
            return [self._count + b"".join(row) for row in zip(*sized, strict=True)]
        null = self._copy.null.encode()
        write: Callable[[bytes], bytes] = self._quoted
        written = [
            [null if value is None else write(value) for value in column] for column in columns
        ]
        return [self._line(row) for row in zip(*written, strict=True)]

    def _line(self, values: Sequence[bytes]) -> bytes:
        return self._copy.delimiter.encode().join(values) + b"\n"

    def _quoted(self, value: bytes) -> bytes:
        text, delimiter = value.decode(), self._copy.delimiter
        if self._copy.form == "text":
            escaped = text.translate(_ESCAPES)
            if delimiter != "\t":
                escaped = escaped.replace(delimiter, f"\\{delimiter}")
            return escaped.encode()
        # A value that reads like NULL, or ends the data, is quoted, as PostgreSQL does.
        if text in (self._copy.null, "\\.") or any(
            sign in text for sign in (delimiter, '"', "\n", "\r")
        ):
            return ('"' + text.replace('"', '""') + '"').encode()
        return value


def _sized(value: bytes | None) -> bytes:
    return _ABSENT if value is None else struct.pack("!i", len(value)) + value

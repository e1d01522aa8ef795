"""Files of this machine that are sent: opened once, and their kind of records.

A path may lead to a pipe, whose bytes come once, and may lead elsewhere the next time it is opened.
So a file is opened once: the bytes that are sent are those that were looked at.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Self

from encrypted_records.errors import InvalidSetting
from encrypted_records.model.record_formats import Format

#: The bytes at either end of a file by which a proxy knows it again; the first ones also show what
#: kind of records it holds.
END_BYTES = 64 << 10
#: Bytes that are read at once.
_PIECE_BYTES = 1 << 20


class LocalFile:
    """A file that is open for reading.

    Args:
        path: of the file, or a name for ``stream``.
        stream: bytes to read instead, such as standard input.

    Attributes:
        start: the first 64 KiB.
        size: in bytes; None of a pipe, and of anything else that only reading measures.

    Raises:
        InvalidSetting: it cannot be read.
    """

    def __init__(self, path: Path, stream: IO[bytes] | None = None) -> None:
        self.path = path
        self._lent = stream is not None
        self._size, self._changed = 0, 0
        with reading(path):
            self._file = path.open("rb") if stream is None else stream
            if stream is None:
                status = os.fstat(self._file.fileno())
                # The files of /proc are regular, and none has a size.
                self._size = status.st_size if stat.S_ISREG(status.st_mode) else 0
                self._changed = status.st_mtime_ns
            self.start = self._file.read(END_BYTES)
        self.size = self._size or None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._lent:
            self._file.close()

    @property
    def media_type(self) -> str:
        """The media type by the file's name, or else by its first bytes."""
        return Format.of_file(str(self.path), self.start).media_type

    @property
    def mark(self) -> str:
        """A mark by which a regular file is recognised; a changed file has another mark."""
        return f"{self._size} {self._changed} {self.path.resolve()}"

    @property
    def changed(self) -> int:
        """The time of the last change, in milliseconds since 1970."""
        return self._changed // 1_000_000

    def require_size(self, why: str) -> int:
        """The size of a regular file, in bytes.

        Args:
            why: what cannot be done with another.

        Raises:
            InvalidSetting: it is a pipe, or empty.
        """
        if self.size is None:
            raise InvalidSetting(
                f"{self.path} is empty, or is a pipe, and {why}",
                hint="write it into a file first, and give that",
            )
        return self.size

    def pieces(self) -> Iterator[bytes]:
        """All of its bytes, once.

        Raises:
            InvalidSetting: it cannot be read any further.
        """
        if self.start:
            yield self.start
        with reading(self.path):
            while piece := self._file.read(_PIECE_BYTES):
                yield piece

    def read_at(self, offset: int, size: int) -> bytes:
        """Bytes of a regular file from any place in it.

        Raises:
            InvalidSetting: it cannot be read, or was changed since it was opened.
        """
        with reading(self.path):
            piece = os.pread(self._file.fileno(), size, offset)
        if not piece:
            self._refuse_change()
        return piece

    def require_unchanged(self) -> None:
        """
        Raises:
            InvalidSetting: a regular file was changed since it was opened.
        """
        with reading(self.path):
            status = os.fstat(self._file.fileno())
        if (status.st_size, status.st_mtime_ns) != (self._size, self._changed):
            self._refuse_change()

    def _refuse_change(self) -> None:
        raise InvalidSetting(
            f"{self.path} was changed while it was sent",
            hint="nothing was stored; send it again when no other program is writing to it",
        )

    def digest_of_ends(self) -> str:
        """SHA-256 of the first and the last 64 KiB of a regular file, in hexadecimal."""
        last = max(self._size - END_BYTES, 0)
        ends = self.start + self.read_at(last, self._size - last)
        return hashlib.sha256(ends).hexdigest()

    def rewind(self) -> IO[bytes]:
        """The open file at its first byte, for a library that reads where it likes."""
        self._file.seek(0)
        return self._file


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """
    Raises:
        InvalidSetting: the file cannot be read.
    """
    try:
        yield
    except OSError as error:
        why = (error.strerror or "it fails").lower()
        raise InvalidSetting(f"{file} cannot be read: {why}") from error

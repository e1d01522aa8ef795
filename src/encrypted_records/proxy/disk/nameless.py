"""A file without a name: other processes do not find it, and it is gone with its process, however
that ends.

So no sweep is needed. Only encrypted data is written to it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from encrypted_records.errors import OutOfSpace
from encrypted_records.proxy.disk.errors import disk_errors

#: Bytes between two looks at how much room the disk has left.
_LOOK_BYTES = 64 << 20


class NamelessFile:
    """A file without a name in ``folder``; ``keep_free`` bytes of the disk stay free. ``work`` is
    what it is for, in errors."""

    def __init__(self, folder: Path, keep_free: int, work: str) -> None:
        self._folder = folder
        self._work = work
        self._keep_free = keep_free
        self._unlooked = _LOOK_BYTES
        self._size = 0
        with self._named_errors():
            file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 # kept
            self._file: IO[bytes] = file

    def close(self) -> None:
        """Give its room back to the disk."""
        self._file.close()

    def append(self, data: bytes | bytearray) -> int:
        """Append data, and return the offset at which it begins.

        Raises:
            OutOfSpace: the disk has no room for it.
            Unavailable: the disk fails.
        """
        with self._named_errors():
            self._unlooked += len(data)
            if self._unlooked >= _LOOK_BYTES:
                self._unlooked = 0
                if shutil.disk_usage(self._folder).free < self._keep_free + _LOOK_BYTES:
                    raise OutOfSpace(f"the disk has no space for {self._work}")
            at, left = self._size, memoryview(data)
            while left:
                written = os.pwrite(self._file.fileno(), left, at + len(data) - len(left))
                left = left[written:]
        self._size += len(data)
        return at

    def read(self, at: int, size: int) -> bytes:
        with self._named_errors():
            return os.pread(self._file.fileno(), size, at)

    def empty(self) -> None:
        with self._named_errors():
            os.ftruncate(self._file.fileno(), 0)
        self._size = 0

    def _named_errors(self) -> AbstractContextManager[None]:
        return disk_errors(f"the disk failed under {self._work}", code="spool_failed")

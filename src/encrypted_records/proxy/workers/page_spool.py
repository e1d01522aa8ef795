"""Where a worker keeps what does not fit into memory: files without a name (docs/SPEC.md, 11.1).

Nobody else finds them, and they are gone with the process, however it ends. What is not sealed yet
is sealed under a key that only this process has, and that is never written anywhere.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from array import array
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from encrypted_records.crypto.scratch import ScratchKey
from encrypted_records.errors import OutOfSpace
from encrypted_records.model.records import PAGE_BYTES, Page
from encrypted_records.proxy.disk.errors import disk_errors

#: Bytes between two looks at how much room the disk has left.
_LOOK_BYTES = 64 << 20
_MERGE = "a merge"


class _Nameless:
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

    def append(self, data: bytes) -> int:
        """Where ``data`` begins.

        Raises:
            OutOfSpace: the disk has no room for it.
            Unavailable: the disk fails.
        """
        with self._named_errors():
            self._unlooked += len(data)
            if self._unlooked >= _LOOK_BYTES:
                self._unlooked = 0
                if shutil.disk_usage(self._folder).free < self._keep_free + _LOOK_BYTES:
                    raise OutOfSpace(f"the disk has no room for {self._work}")
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
        return disk_errors(f"the disk fails under {self._work}", code="spool_failed")


class SpooledContents:
    """Contents of a new segment's pages, until its uid is known, and before that what they are made
    of: one after the other, each sealed.

    As ``index.segments.contents`` has them.
    """

    def __init__(self, folder: Path, keep_free: int, work: str = _MERGE) -> None:
        self._file = _Nameless(folder, keep_free, work)
        self._key = ScratchKey()
        #: where each begins, and the last one ends
        self._starts = array("Q", [0])

    def __len__(self) -> int:
        return len(self._starts) - 1

    def add(self, content: bytes) -> None:
        sealed = self._key.seal(len(self), content)
        self._starts.append(self._file.append(sealed) + len(sealed))

    def read(self, number: int) -> bytes:
        start, end = self._starts[number], self._starts[number + 1]
        return self._key.open(number, self._file.read(start, end - start))


class FetchedPages:
    """Sealed pages of one column of the inputs, as the API has them."""

    def __init__(self, folder: Path, keep_free: int) -> None:
        self._file = _Nameless(folder, keep_free, _MERGE)
        self._places: dict[tuple[bytes, int], int] = {}

    def replace(self, pages: Iterable[Page]) -> None:
        """Keep these instead of those of the column before."""
        self._places.clear()
        self._file.empty()
        for page in pages:
            self._places[page.segment, page.number] = self._file.append(page.data)

    def read(self, segment: bytes, number: int) -> bytes:
        return self._file.read(self._places[segment, number], PAGE_BYTES)

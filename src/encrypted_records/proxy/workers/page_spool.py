"""Unnamed temporary files for a worker's data that does not fit into memory (docs/SPEC.md, section
11.1).

Other processes do not find them, and they disappear with this process, however it ends.
Plaintext is encrypted under a key that exists only in this process and is never stored.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from pathlib import Path

from encrypted_records.crypto.spooling import ScratchKey
from encrypted_records.model.records import PAGE_BYTES, Page
from encrypted_records.proxy.disk import NamelessFile

_MERGE = "a merge"


class SpooledContents:
    """Contents of a new segment's pages, until its uid is known, and before that what they are made
    of: one after the other, each sealed.

    As ``index.segments.contents`` has them.
    """

    def __init__(self, folder: Path, keep_free: int, work: str = _MERGE) -> None:
        self._file = NamelessFile(folder, keep_free, work)
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
        self._file = NamelessFile(folder, keep_free, _MERGE)
        self._places: dict[tuple[bytes, int], int] = {}

    def replace(self, pages: Iterable[Page]) -> None:
        """Keep these instead of those of the column before."""
        self._places.clear()
        self._file.empty()
        for page in pages:
            self._places[page.segment, page.number] = self._file.append(page.data)

    def read(self, segment: bytes, number: int) -> bytes:
        return self._file.read(self._places[segment, number], PAGE_BYTES)

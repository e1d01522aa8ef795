"""Temporary storage for the contents of a new segment's pages until its last column is cut.

Pages cannot be sealed earlier, because the segment's uid, from which its keys are derived, covers
all contents.
"""

from __future__ import annotations

from typing import Protocol


class Contents(Protocol):
    """Contents of pages, by the number under which they were added: 0, 1, 2, ..."""

    def __len__(self) -> int: ...

    def add(self, content: bytes) -> None: ...

    def read(self, number: int) -> bytes: ...


class ContentsInMemory:
    """For segments as large as an ingest or a small merge makes them."""

    def __init__(self) -> None:
        self._every: list[bytes] = []

    def __len__(self) -> int:
        return len(self._every)

    def add(self, content: bytes) -> None:
        self._every.append(content)

    def read(self, number: int) -> bytes:
        return self._every[number]

    def free(self, number: int) -> None:
        """It is not read again."""
        self._every[number] = b""

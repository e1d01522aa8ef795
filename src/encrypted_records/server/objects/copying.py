"""Collaborators of a cache of blocks (:mod:`.block_cache`): what it asks, and what tells it to
keep.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal, Protocol

from encrypted_records.server.objects.protocol import Range

#: Ranges, of which some may be kept as well.
Spare = Callable[[], Sequence[Range]]
#: What lies around a range that is read, of so many bytes with it.
Ahead = Callable[[Range, int], Iterable[Range]]


class Registry(Protocol):
    """Access to the tables of cache files, of all APIs, and of objects."""

    def begin(self, cache: str, /) -> int: ...

    def end(self, cache: str, number: int, /) -> bool: ...

    def leave(self, cache: str, /) -> None: ...

    def known(self, names: Collection[str], /) -> Collection[str]: ...


class Counts(Protocol):
    """Counters of what becomes of ranges, and of the bytes that are kept."""

    def looked_up(self, hits: int, misses: int, /) -> None: ...

    def dropped(self, reason: Literal["gone", "room"], ranges: int, /) -> None: ...

    def holds(self, size: int, /) -> None: ...


class Uncounted:
    """Counters that count nothing."""

    def looked_up(self, hits: int, misses: int, /) -> None:
        pass

    def dropped(self, reason: Literal["gone", "room"], ranges: int, /) -> None:
        pass

    def holds(self, size: int, /) -> None:
        pass

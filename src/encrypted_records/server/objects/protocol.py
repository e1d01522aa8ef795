"""The interface of a store of objects.

An object is written once under a name that no other ever had, and never changed. A store believes
nothing and decides nothing: what is there, and whether it may go, is in the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from encrypted_records.errors import ObjectLost

#: Ranges that lie no further apart than this are read as one.
NEIGHBOURS = 4 << 10

#: And what is asked of a store that is far away, where its client reads over what lies between: a
#: request costs more than these bytes. What is read over can be kept (:mod:`.block_cache`).
JOINED_BYTES = 2 << 20
#: Of one read, no more than so many bytes lie between what is asked for.
READ_OVER_BYTES = 64 << 20


class Range(NamedTuple):
    """Bytes of an object, from ``start`` to below ``end``."""

    name: str
    start: int
    end: int


class BulkStore(Protocol):
    """Objects by name. All of it may be called by several threads at once."""

    def put(self, name: str, data: bytes) -> None:
        """Store an object, so that it outlasts a power cut once this returns.

        Raises:
            StoreFull: there is no room.
            StoreUnavailable: the store is away or fails; whether the object is there is not known.
        """

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        """The bytes of each range, in that order.

        Raises:
            ObjectLost: an object is not there, or is shorter than it was.
            StoreUnavailable: the store is away or fails.
        """

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects, permanently once this returns. Those that are not there are no mistake.

        Raises:
            StoreUnavailable: some may be there still.
        """

    def listing(self) -> Iterator[tuple[str, int]]:
        """Name and size in bytes of everything in the store, including objects that are not ours.

        Raises:
            StoreUnavailable: the store is unavailable or fails.
        """

    def free(self) -> int | None:
        """Bytes for which there is room; None where the store does not say.

        Raises:
            StoreUnavailable: the store is away or fails.
        """

    def keeps_versions(self, name: str) -> bool:
        """Whether this object will still be there, as an old version, when it is deleted. Only as
        far as the store says.

        Raises:
            StoreUnavailable: the store is away or fails.
        """


def join_neighbours(ranges: Sequence[Range], reach: int = NEIGHBOURS) -> list[Range]:
    """Fewer ranges that contain all of these: those no further apart than ``reach`` in one, each
    object's in order."""
    joined: list[Range] = []
    for span in sorted(set(ranges)):
        last = joined[-1] if joined else None
        if last and last.name == span.name and span.start - last.end <= reach:
            joined[-1] = last._replace(end=max(last.end, span.end))
        else:
            joined.append(span)
    return joined


def find_reach(ranges: Sequence[Range]) -> int:
    """The gap in bytes up to which a far store reads ranges as one: :data:`JOINED_BYTES`, or less
    where too much would lie between them in all.
    """
    gaps = sorted(
        behind.start - before.end
        for before, behind in pairwise(sorted(set(ranges)))
        if before.name == behind.name and 0 < behind.start - before.end <= JOINED_BYTES
    )
    over = 0
    for gap in gaps:
        over += gap
        if over > READ_OVER_BYTES:
            return gap - 1
    return JOINED_BYTES


def cut_joined(
    ranges: Sequence[Range], joined: Sequence[Range], contents: Sequence[bytes]
) -> list[bytes]:
    """The bytes of each range, from those of :func:`join_neighbours`.

    Raises:
        ObjectLost: an object is shorter than it was.
    """
    by_range: dict[Range, bytes] = {}
    wanted = iter(sorted(set(ranges)))
    own = next(wanted, None)
    for whole, data in zip(joined, contents, strict=True):
        if len(data) != whole.end - whole.start:
            raise lost(whole.name)
        while own is not None and own.name == whole.name and own.end <= whole.end:
            by_range[own] = data[own.start - whole.start : own.end - whole.start]
            own = next(wanted, None)
    return [by_range[span] for span in ranges]


def lost(name: str) -> ObjectLost:
    return ObjectLost(f"an object is missing from the bulk store, or truncated: {name}")

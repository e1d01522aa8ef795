"""Two stores while objects move from one to the other.

Everything new goes to the new one; what is read lies in either. So an API serves while somebody
moves the objects, and needs no table of where each of them is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from encrypted_records.errors import ObjectLost
from encrypted_records.server.objects.protocol import BulkStore, Range


class Both:
    """``new``, and ``before`` for what has not moved yet."""

    def __init__(self, new: BulkStore, before: BulkStore) -> None:
        self.new, self.before = new, before

    def put(self, name: str, data: bytes) -> None:
        self.new.put(name, data)

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        try:
            return self.new.read(ranges)
        except ObjectLost:
            pass
        found: dict[Range, bytes] = {}
        for _, some in groupby(sorted(set(ranges)), lambda one: one.name):
            own = list(some)
            found.update(zip(own, self._read_one(own), strict=True))
        return [found[span] for span in ranges]

    def _read_one(self, ranges: Sequence[Range]) -> list[bytes]:
        # What moves between the two questions is in the new one then.
        for store in (self.new, self.before):
            try:
                return store.read(ranges)
            except ObjectLost:
                continue
        return self.new.read(ranges)

    def free(self) -> int | None:
        return self.new.free()

    def keeps_versions(self, name: str) -> bool:
        return self.new.keeps_versions(name)

    def delete(self, names: Sequence[str]) -> None:
        self.before.delete(names)
        self.new.delete(names)

    def listing(self) -> Iterator[tuple[str, int]]:
        # The old one first: what moves meanwhile is seen there, or later here.
        listed = dict(self.before.listing())
        for name, size in self.new.listing():
            # Of a move that goes on or was killed: what is cut off is not what is read.
            listed[name] = max(size, listed.get(name, 0))
        yield from listed.items()

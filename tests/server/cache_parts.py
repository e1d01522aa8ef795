"""What a cache of blocks works with: a database, a store and metrics, each without a server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from encrypted_records.server.objects.stores import Files, Range


class Known:
    """What a database knows, without one."""

    def __init__(self, objects: Collection[str] = ()) -> None:
        self.objects = set(objects)
        self.files: dict[str, int] = {}

    def begin(self, cache: str) -> int:
        self.files[cache] = self.files.get(cache, 0) + 1
        return self.files[cache]

    def end(self, cache: str, number: int) -> bool:
        return self.files.get(cache, 0) >= number

    def leave(self, cache: str) -> None:
        self.files.pop(cache, None)

    def known(self, names: Collection[str]) -> Collection[str]:
        return self.objects.intersection(names)


class Slow(Files):
    """A store of files, of which something happens while it reads."""

    def __init__(self, folder: Path, meanwhile: Callable[[], object]) -> None:
        super().__init__(folder)
        self._meanwhile = meanwhile

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        data = super().read(ranges)
        self._meanwhile()
        return data


class Counting(Files):
    """A store of files that knows of each request how many bytes it was for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.asked: list[int] = []

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        self.asked.append(sum(span.end - span.start for span in ranges))
        return super().read(ranges)


class Counted:
    """Counts as the metrics of an API do."""

    def __init__(self) -> None:
        self.hits = self.misses = self.gone = self.room = self.size = 0

    def looked_up(self, hits: int, misses: int) -> None:
        self.hits += hits
        self.misses += misses

    def dropped(self, reason: str, ranges: int) -> None:
        setattr(self, reason, getattr(self, reason) + ranges)

    def holds(self, size: int) -> None:
        self.size = size

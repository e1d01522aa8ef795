"""The two lanes of a proxy's merges: a long one does not hold up those that take a second or two.

In each lane one merge runs at a time. A merge belongs to one of them by how many rows it has, and
takes its segments before it begins, so the two never merge the same one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from encrypted_records.index.segments.merge import ORDINARY_ROWS

#: A user's id and a schema's: others of a proxy would only race for what one of them merges.
MergeKey = tuple[bytes, bytes]


class Tasks:
    """What runs in the background, one for each user and schema."""

    def __init__(self) -> None:
        self.running: dict[MergeKey, asyncio.Task[None]] = {}

    def start(self, key: MergeKey, work: Coroutine[Any, Any, None]) -> None:
        task = self.running[key] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self.running.pop(key))


class Lane(Tasks):
    """Merges of so many ``rows``; each holds ``lock``."""

    def __init__(self, rows: range) -> None:
        super().__init__()
        self.rows = rows
        self.lock = asyncio.Lock()


class Lanes:
    """``ordinary`` merges, and ``large`` ones that have more than ``most`` rows."""

    def __init__(self, most: int = ORDINARY_ROWS) -> None:
        self.ordinary = Lane(range(most + 1))
        self.large = Lane(range(most + 1, 1 << 32))

    @property
    def both(self) -> tuple[Lane, Lane]:
        return self.ordinary, self.large

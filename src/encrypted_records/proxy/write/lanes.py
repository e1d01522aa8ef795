"""Merge queues: three lanes, so that long merges do not delay short ones.

Each lane runs one merge at a time. The number of rows of a merge determines its lane. A merge
claims its segments before it begins, so that no two merges use the same segment.

After a failure, a large or huge merge pauses before a commit may start it again: it may take
minutes, and the cause (a full disk, an altered page) is seldom gone by the next commit. A huge
merge also pauses if another proxy was faster: otherwise two proxies that write to one schema would
do all huge merges twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from encrypted_records import runtime
from encrypted_records.errors import Conflict, ErsError
from encrypted_records.index.segments.merge_policy import LARGE_ROWS, ORDINARY_ROWS
from encrypted_records.proxy.process.background import MERGES, Background

log = logging.getLogger(__name__)

#: Seconds for which a merge rests at least, and at most, after it failed.
LEAST_REST, MOST_REST = 2.0, 900.0

#: A user's id and a schema's: others of a proxy would only race for what one of them merges.
MergeKey = tuple[bytes, bytes]


class Tasks:
    """Background tasks, at most one for each user and schema."""

    def __init__(self) -> None:
        self.running: dict[MergeKey, asyncio.Task[None]] = {}

    def start(
        self, background: Background, key: MergeKey, work: Callable[[], Awaitable[None]]
    ) -> None:
        async def run() -> None:
            # Its end shows at once, and not a turn of the loop later: who comes in between would
            # leave to it what it looks for no more.
            try:
                await work()
            finally:
                self._end(key, asyncio.current_task())

        task = self.running[key] = background.start(MERGES, run)
        task.add_done_callback(partial(self._end, key))  # cancelled before it began

    def _end(self, key: MergeKey, task: asyncio.Task[Any] | None) -> None:
        if self.running.get(key) is task:
            del self.running[key]


@dataclass(frozen=True, slots=True)
class Rest:
    """The number of consecutive failures, and the end of the pause by the lane's clock."""

    failures: int
    until: float


class Lane(Tasks):
    """The queue of merges with a number of rows in ``rows``; each merge holds ``lock``."""

    def __init__(
        self,
        rows: range,
        clock: Callable[[], float] = runtime.monotonic,
        *,
        yields: bool = False,
    ) -> None:
        """
        Args:
            yields: whether a merge that lost to another proxy's rests as one that failed.
        """
        super().__init__()
        self.rows = rows
        self.lock = asyncio.Lock()
        self._clock = clock
        self._yields = yields
        self._rests: dict[MergeKey, Rest] = {}

    @contextmanager
    def attempt(self, key: MergeKey) -> Iterator[None]:
        """Run one merge in the block. If it fails, merges of its schema pause for as long as it
        took, and for twice as long after each further failure. A conflict with data that others
        have stored is not a failure unless the lane yields.
        """
        began = self._clock()
        try:
            yield
        except Exception as error:
            if isinstance(error, Conflict) and not self._yields:
                raise
            now = self._clock()
            # What has rested for long is as good as new, and nobody may ask for it again.
            kept = {
                lane: rest for lane, rest in self._rests.items() if now < rest.until + MOST_REST
            }
            failures = kept[key].failures + 1 if key in kept else 1
            pause = max(LEAST_REST, now - began) * 2 ** min(failures - 1, 10)
            self._rests = kept | {key: Rest(failures, now + min(pause, MOST_REST))}
            raise
        self._rests.pop(key, None)

    def rests(self, key: MergeKey) -> bool:
        """Whether merges of this schema pause after a recent failure. Ordinary merges are not
        checked: they take a second or two, and writers may wait for them.
        """
        return key in self._rests and self._clock() < self._rests[key].until


class Lanes:
    """``ordinary`` merges, ``large`` ones of more than ``most`` rows, and ``huge`` ones of more
    than ``most_large``."""

    def __init__(
        self,
        most: int = ORDINARY_ROWS,
        most_large: int = LARGE_ROWS,
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        """
        Args:
            clock: seconds that never go back.
        """
        self.ordinary = Lane(range(most + 1), clock)
        self.large = Lane(range(most + 1, most_large + 1), clock)
        self.huge = Lane(range(most_large + 1, 1 << 32), clock, yields=True)

    @property
    def beside(self) -> tuple[Lane, Lane]:
        """The lanes whose merges have a process of their own."""
        return self.large, self.huge

    @property
    def every(self) -> tuple[Lane, ...]:
        return self.ordinary, *self.beside


@contextmanager
def log_errors() -> Iterator[None]:
    """Only log errors: the records are stored, whether merging succeeds or not."""
    try:
        yield
    except ErsError as error:
        log.warning("merging failed, and a later ingest will try again: %s", error.message)
    except Exception as error:
        log.error("merging failed because of an internal error: %s", type(error).__name__)  # noqa: TRY400

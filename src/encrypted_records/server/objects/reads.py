"""Ranges that threads read from a store, so that others wait for them instead of reading them too.

Who has waited looks in the cache again, and reads what is not there. Nothing else passes from one
to another, and no error does. Nobody waits while they have claimed something.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from encrypted_records.server.objects.protocol import Range

#: Nobody waits longer for what others read. It is far more than a read takes as a rule; and who
#: then finds a store that fails has time left to try it, before the proxy gives this API up.
MOST_SECONDS = 2.0


class Reads:
    """Used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Range, threading.Event] = {}

    @contextmanager
    def claim(self, ranges: Collection[Range]) -> Iterator[Mapping[Range, threading.Event]]:
        """Have others wait for these until the block ends, but for those that somebody reads.

        Yields:
            The latter, each with what tells that they have ended.
        """
        ended = threading.Event()
        with self._lock:
            theirs = {one: self._under_way[one] for one in ranges if one in self._under_way}
            own = set(ranges) - theirs.keys()
            self._under_way |= dict.fromkeys(own, ended)
        try:
            yield theirs
        finally:
            with self._lock:
                for one in own:
                    del self._under_way[one]
            ended.set()


def wait_for(reads: Collection[threading.Event]) -> None:
    """Wait until all of these have ended, or for :data:`MOST_SECONDS`."""
    deadline = time.monotonic() + MOST_SECONDS
    for one in set(reads):
        one.wait(max(0.0, deadline - time.monotonic()))

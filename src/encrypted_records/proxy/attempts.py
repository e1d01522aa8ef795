"""Wrong passphrases slow down whoever types them; nobody is ever locked out for good."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from encrypted_records.errors import Throttled

#: The wait after the first wrong passphrase; it doubles with each further one, up to the longest.
FIRST_SECONDS = 1.0
LONGEST_SECONDS = 300.0


class Attempts:
    """Counts by user. Its caller lets one attempt of a user end before the next begins."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: how many were wrong in a row, and when the next is looked at
        self._wrong: dict[bytes, tuple[int, float]] = {}

    def check(self, user: bytes) -> None:
        """Refuse an attempt that comes too early.

        Raises:
            Throttled: it does; with the seconds to wait.
        """
        _, until = self._wrong.get(user, (0, 0.0))
        wait = until - self._clock()
        if wait > 0:
            raise Throttled("too many wrong passphrases", retry_after=math.ceil(wait))

    def wrong(self, user: bytes) -> None:
        count = self._wrong.get(user, (0, 0.0))[0] + 1
        # The exponent is bounded, so that no number of attempts overflows it.
        wait = min(FIRST_SECONDS * 2.0 ** min(count - 1, 30), LONGEST_SECONDS)
        self._wrong[user] = (count, self._clock() + wait)

    def right(self, user: bytes) -> None:
        self._wrong.pop(user, None)

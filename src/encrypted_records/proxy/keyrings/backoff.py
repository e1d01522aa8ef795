"""Wrong passphrases and proofs slow their senders down; nobody is locked out permanently."""

from __future__ import annotations

import math
from collections.abc import Callable

from encrypted_records import runtime
from encrypted_records.errors import Throttled

#: The wait after the first wrong passphrase; it doubles with each further one, up to the longest.
FIRST_SECONDS = 1.0
LONGEST_SECONDS = 300.0


class Attempts:
    """Counts by name. Its caller lets one attempt of a name end before the next begins.

    Args:
        message: of the error for an attempt that comes too early.
    """

    def __init__(
        self,
        message: str = "too many wrong passphrases",
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        self._message = message
        self._clock = clock
        #: how many were wrong in a row, and when the next is looked at
        self._wrong: dict[bytes, tuple[int, float]] = {}

    def check(self, name: bytes) -> None:
        """Refuse an attempt that comes too early.

        Raises:
            Throttled: it does; with the seconds to wait.
        """
        _, until = self._wrong.get(name, (0, 0.0))
        wait = until - self._clock()
        if wait > 0:
            raise Throttled(self._message, retry_after=math.ceil(wait))

    def wrong(self, name: bytes) -> None:
        count = self._wrong.get(name, (0, 0.0))[0] + 1
        # The exponent is bounded, so that no number of attempts overflows it.
        wait = min(FIRST_SECONDS * 2.0 ** min(count - 1, 30), LONGEST_SECONDS)
        self._wrong[name] = (count, self._clock() + wait)

    def right(self, name: bytes) -> None:
        self._wrong.pop(name, None)

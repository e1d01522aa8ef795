"""Draws that follow from the test's name: each run of it has the same ones."""

from __future__ import annotations

import os
import random
import threading
import uuid

from encrypted_records.runtime import Computer

#: Has every test draw other bytes than it does by itself.
SEED = os.environ.get("TEST_SEED", "")


class Seeded(Computer):
    """This computer with its clocks, and with bytes that can be foreseen.

    What several threads draw at once is the same all together; which of them gets which part is
    not.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(f"{SEED} {seed}")
        self._lock = threading.Lock()
        #: milliseconds and the 74 bits beside them of the last identifier
        self._last = (0, 0)

    def random_bytes(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def uuid7(self, nanoseconds: int | None) -> uuid.UUID:
        now = (self.wall_ns() if nanoseconds is None else nanoseconds) // 1_000_000
        with self._lock:
            value = now, self._random.getrandbits(73)
            if nanoseconds is None:
                # Those of one millisecond sort as they were drawn, as the real ones do.
                before, bits = self._last
                if now <= before:
                    value = before, bits + 1 + self._random.getrandbits(32)
                self._last = value
        milliseconds, bits = value
        high, low = bits >> 62, bits & (1 << 62) - 1
        return uuid.UUID(int=milliseconds << 80 | 7 << 76 | high << 64 | 2 << 62 | low)

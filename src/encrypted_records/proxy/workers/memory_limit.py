"""Limits on what a worker may take while it reads a file that may unfold."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Bytes that reading a file may take, beside what the process has already.
MOST_BYTES = 2 << 30
#: Seconds of computing after which the process ends.
MOST_SECONDS = 600


@contextmanager
def limited() -> Iterator[None]:
    """Within, more memory than :data:`MOST_BYTES` is a MemoryError, or ends the process. Systems
    without such limits, as macOS, go on without. A library that finds no end ends the process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _present() + MOST_BYTES
    if soft != resource.RLIM_INFINITY:
        most = min(most, soft)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _present() -> int:
    """Bytes of addresses that this process has."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    return MOST_BYTES

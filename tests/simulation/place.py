"""Where runs keep their files: in memory, and removed also behind a process that was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "ers-simulation-"
_IN_MEMORY = Path("/dev/shm")


@contextmanager
def place(base: Path | None = None) -> Iterator[Path]:
    """A folder for this process and its forks; those whose processes are gone are removed.

    Args:
        base: where it is made; in memory, where there is such a place.

    Each folder is locked by who made it, and a lock ends with the last process that has it. Who
    makes or removes a folder locks the base meanwhile, so that none is seen before it is locked.
    """
    base = base or (_IN_MEMORY if _IN_MEMORY.is_dir() else Path(tempfile.gettempdir()))
    turn = os.open(base, os.O_RDONLY)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        for left in sorted(base.glob(f"{_PREFIX}*")):
            _remove_left(left)
        made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        held = os.open(made, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
    finally:
        os.close(turn)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(held)


def _remove_left(folder: Path) -> None:
    """Remove a folder that no process holds; another user's stays."""
    with suppress(OSError):
        held = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(held)

"""Folders in memory, where a commit waits for no disk. They are removed also behind a process that
was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "ers-tests-"
_IN_MEMORY = Path("/dev/shm")
#: Bytes that must be free there: containers often have 64 MiB.
_LEAST = 4 << 30


@contextmanager
def place(base: Path | None = None) -> Iterator[Path]:
    """A folder for this process and its forks; those whose processes are gone are removed.

    Args:
        base: where it is made; in memory, where there is room.

    Each folder is locked by who made it, and a lock ends with the last process that has it. Who
    makes or removes a folder locks the base meanwhile, so that none is seen before it is locked.
    """
    base = base or memory() or Path(tempfile.gettempdir())
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


def memory() -> Path | None:
    """The folder in memory, where there is one with room."""
    has_room = _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > _LEAST
    return _IN_MEMORY if has_room and _takes_attributes() else None


def _takes_attributes() -> bool:
    """Whether files there have attributes, which Swift needs: since Linux 6.6."""
    try:
        with tempfile.TemporaryFile(dir=_IN_MEMORY) as file:
            os.setxattr(file.fileno(), "user.tried", b"")
    except OSError:
        return False
    return True


def _remove_left(folder: Path) -> None:
    """Remove a folder that no process holds; another user's stays."""
    with suppress(OSError):
        held = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(held)

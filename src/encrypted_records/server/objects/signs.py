"""Empty files by which the processes that use a folder see which of the others run.

Each has one, locked for as long as it runs, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_SIGNS = "blocks-*.lock"


def sign_of(folder: Path, cache: str) -> Path:
    """That of the process whose copies have this name."""
    return folder / _SIGNS.replace("*", cache)


def locked(path: Path) -> int:
    """A file that nobody else has locked, locked until this process ends.

    Raises:
        OSError: somebody has.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def find_dead(folder: Path, own: str) -> Iterator[str]:
    """The names of those that were killed. The file of each goes when the next one is asked for."""
    before, behind = _SIGNS.split("*")
    for path in folder.glob(_SIGNS):
        cache = path.name.removeprefix(before).removesuffix(behind)
        if cache == own:
            continue
        with suppress(OSError):
            sign = locked(path)
            try:
                yield cache
                path.unlink(missing_ok=True)
            finally:
                os.close(sign)

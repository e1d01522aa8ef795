"""A file without content whose only use is its size: the room that a start needs on a full disk.

SQLite cannot open a database without some room for its log and its shared memory. A proxy that
was restarted on a full disk would therefore not even answer questions, which need no room. While
there is room, it keeps some in this file. A start that finds too little deletes the file first.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

NAME = "ballast"
#: The size of the file, in bytes: several times what the proxy's databases take while nothing is
#: written, and their logs while a proxy catches up with the logs of its schemas.
BYTES = 2 << 20
_ZEROS = bytes(1 << 20)


def drop_if_full(folder: Path) -> None:
    """Give the room of the file back where the disk has less room than it.

    Raises:
        OSError: the folder cannot be used.
    """
    if shutil.disk_usage(folder).free >= BYTES:
        return
    with suppress(FileNotFoundError):
        (folder / NAME).unlink()
        log.warning("the disk of %s is nearly full: the room kept for a start is used", folder)


def keep(folder: Path) -> None:
    """Make the file where the disk has at least as much room beside it. Errors are ignored:
    without the file the proxy starts as long as the disk has room."""
    path = folder / NAME
    with suppress(OSError):
        if path.exists() and path.stat().st_size == BYTES:
            return
        if shutil.disk_usage(folder).free < 2 * BYTES:
            return
        # Not by ftruncate: a file with a hole takes no room.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            for _ in range(BYTES // len(_ZEROS)):
                file.write(_ZEROS)

"""The data folder: made once, for its owner alone, used by one service at a time.

``format`` holds the number of the folder's layout. A folder of a newer layout is refused rather
than guessed at, and so is a folder that holds something and none of it ours.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from encrypted_records.errors import Startup

#: The layout that this version writes; docs/operations.md lists it.
FORMAT = 1


def prepare(folder: Path) -> None:
    """Make the folder ready for use, on the first run and on every other.

    Raises:
        Startup: it cannot be made or written, others can read it, it is of a newer version, or
            it is somebody else's.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_format(folder)
        _close_to_others(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Startup(
            f"the data folder {folder} cannot be used: {(error.strerror or str(error)).lower()}",
            hint="choose another with --data-dir, or let this user write there",
        ) from None


def _check_format(folder: Path) -> None:
    marker = folder / "format"
    if not marker.exists():
        if any(folder.iterdir()):
            raise Startup(
                f"{folder} holds files and is no data folder of this service",
                hint="name a new or empty folder with --data-dir",
            )
        with open(marker, "x", opener=for_owner) as file:
            file.write(f"{FORMAT}\n")
        return
    text = marker.read_text(errors="replace").strip()
    if not text.isdecimal():
        raise Startup(
            f"{marker} should hold a number and does not",
            hint="restore the data folder from a backup, or name another with --data-dir",
        )
    if int(text) > FORMAT:
        raise Startup(
            f"the data folder {folder} is of a newer version: format {text},"
            f" and this version knows up to {FORMAT}",
            hint="update encrypted-records, or name another folder with --data-dir",
        )


def _close_to_others(folder: Path) -> None:
    if folder.stat().st_mode & 0o077:
        with suppress(PermissionError):
            folder.chmod(0o700)
    if folder.stat().st_mode & 0o077:
        raise Startup(
            f"others can open the data folder {folder}, which holds keys",
            hint=f"let its owner run: chmod 700 {folder}",
        )


def for_owner(path: str, flags: int) -> int:
    """An ``opener`` of :func:`open` whose new files nobody else can open."""
    return os.open(path, flags, 0o600)


@contextmanager
def held(folder: Path, role: str) -> Iterator[None]:
    """Hold the folder as the only ``role`` (up, api or proxy) while the block runs.

    The operating system lets go of it whenever this process ends, however it ends.

    Raises:
        Startup: another process holds it.
    """
    path = folder / f"{role}.lock"
    with open(path, "a+", opener=for_owner) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(20).strip() or "unknown"
            raise Startup(
                f"another ers {role} (process {holder}) is using the data folder {folder}",
                hint="stop it first, or name another folder with --data-dir",
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield

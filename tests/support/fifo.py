"""Pipes with names: paths whose bytes come once."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def fifo(path: Path, content: bytes) -> Iterator[Path]:
    """A pipe at ``path`` that gives ``content`` to the first who opens it, and to nobody else."""
    os.mkfifo(path)

    def write() -> None:
        with path.open("wb") as pipe:
            path.unlink()  # a second opening fails, and does not wait forever
            try:
                pipe.write(content)
            except BrokenPipeError:
                return

    writing = threading.Thread(target=write, name="fifo", daemon=True)
    writing.start()
    try:
        yield path
    finally:
        if writing.is_alive() and path.exists():  # nobody has opened it
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        writing.join(timeout=30)

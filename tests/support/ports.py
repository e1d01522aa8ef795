"""Ports for servers that tests start, each of which nobody else gets.

A port that the system chooses is free again until its server listens, and the system may give it to
another process meanwhile: to a server of another worker, or to one end of any connection. So these
are ports that the system never chooses by itself. They come in blocks, and a block is locked for as
long as this process runs.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

#: The first port; what servers of many kinds have by default is below.
_LEAST = 12_000
_BLOCK = 100
#: Where the system leaves fewer blocks than these, it chooses the ports.
_ENOUGH = 40
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Ports that are free, and stay so for whoever asked."""
    return [free_port() for _ in range(count)]


def free_port() -> int:
    with _asking:
        for port in _ports:
            if _is_free(port):
                return port
    raise AssertionError("there is no free port")


def _of_this_process() -> Iterator[int]:
    blocks = range(_LEAST, _least_of_the_system() - _BLOCK, _BLOCK)
    if len(blocks) < _ENOUGH:
        while True:
            yield _chosen_by_the_system()
    for block in random.sample(blocks, len(blocks)):
        if _lock(block):
            yield from range(block, block + _BLOCK)


_ports, _asking = _of_this_process(), threading.Lock()


def _least_of_the_system() -> int:
    """The first port that the system chooses by itself."""
    with suppress(OSError, ValueError, IndexError):
        return int(_RANGE.read_text().split()[0])
    return 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: what remains of a connection that was closed keeps no port taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _lock(block: int) -> bool:
    """Whether a block is this process's from now on, until it ends."""
    folder = Path(tempfile.gettempdir()) / f"ers-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    file = os.open(folder / str(block), os.O_CREAT | os.O_RDWR, 0o600)
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True  # the file stays open, and locked
    os.close(file)
    return False


def _chosen_by_the_system() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

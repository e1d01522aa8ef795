"""A worker's end of the pipes to the proxy: its stdin and stdout, with :mod:`.messages` in them.

Also limits the resources of a worker while it reads a file that may unfold.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from encrypted_records.proxy.workers import messages

_results: IO[bytes] = sys.stdout.buffer


def separate() -> IO[str]:
    """A file for the log: the stderr that the process was started with. Any other output from now
    on is discarded, because a library may quote a record as it fails."""
    global _results  # noqa: PLW0603 - there is one such pipe in a process
    _results = os.fdopen(os.dup(1), "wb")
    for_log = os.fdopen(os.dup(2), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    return for_log


def read() -> messages.ToWorker | None:
    """The proxy's next message; None when the proxy has ended, or has closed the pipe."""
    head = sys.stdin.buffer.read(messages.LENGTH_BYTES)
    if len(head) < messages.LENGTH_BYTES:
        return None
    body = sys.stdin.buffer.read(int.from_bytes(head, "big"))
    message: messages.ToWorker = messages.decode_to_worker(body)
    return message


def write(message: messages.FromWorker) -> None:
    """
    Raises:
        BrokenPipeError: the proxy has ended.
    """
    data = messages.encode(message)
    _results.write(len(data).to_bytes(messages.LENGTH_BYTES, "big"))
    _results.write(data)
    _results.flush()


def ask(
    request: messages.DefinitionRequest
    | messages.PagesRequest
    | messages.RowsRequest
    | messages.GroupsRequest,
) -> messages.ToWorker:
    """The proxy's reply.

    Raises:
        BrokenPipeError: as :func:`write`.
    """
    write(request)
    reply = read()
    if reply is None:
        raise BrokenPipeError
    return reply


#: Bytes that reading a file may take, in addition to the process's current memory.
MOST_BYTES = 2 << 30
#: Seconds of computing after which the process ends.
MOST_SECONDS = 600


@contextmanager
def limited() -> Iterator[None]:
    """Limit the block: more memory than :data:`MOST_BYTES` is a MemoryError, or ends the process,
    and so does a library that never returns. Systems without memory limits, as macOS, have none."""
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
    """The size of this process's address space in bytes."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    return MOST_BYTES

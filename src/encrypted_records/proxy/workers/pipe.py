"""A worker's end of the pipes to the proxy: its stdin and stdout, with :mod:`.messages` in them."""

from __future__ import annotations

import os
import sys
from typing import IO

from encrypted_records.proxy.workers import messages

_results: IO[bytes] = sys.stdout.buffer


def separate() -> IO[str]:
    """A file for the log, which is the stderr that the process was started with. Anything else
    that is printed from now on goes nowhere: a library may quote a record as it fails."""
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

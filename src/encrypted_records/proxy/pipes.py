"""A worker's end of the pipes to the proxy: stdin and stdout. What passes, :mod:`.tasks` says."""

from __future__ import annotations

import sys

from encrypted_records.proxy import tasks


def read() -> tasks.ToWorker | None:
    """The proxy's next word; None where it has ended, or ended us."""
    head = sys.stdin.buffer.read(tasks.LENGTH_BYTES)
    if len(head) < tasks.LENGTH_BYTES:
        return None
    found: tasks.ToWorker = tasks.decode_request(sys.stdin.buffer.read(int.from_bytes(head, "big")))
    return found


def write(answer: tasks.Answer) -> None:
    """
    Raises:
        BrokenPipeError: the proxy is gone.
    """
    data = tasks.encode(answer)
    sys.stdout.buffer.write(len(data).to_bytes(tasks.LENGTH_BYTES, "big"))
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def asked(question: tasks.Wanted | tasks.Fetch) -> tasks.ToWorker:
    """The proxy's reply.

    Raises:
        BrokenPipeError: as :func:`write`.
    """
    write(question)
    reply = read()
    if reply is None:
        raise BrokenPipeError
    return reply

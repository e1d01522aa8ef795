"""A worker's end of the pipes to the proxy: its stdin and stdout, with :mod:`.messages` in them."""

from __future__ import annotations

import sys

from encrypted_records.proxy.workers import messages


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
    sys.stdout.buffer.write(len(data).to_bytes(messages.LENGTH_BYTES, "big"))
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


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

"""The head of an answer goes out with the beginning of its body.

uvicorn writes them one after the other, and each write is a packet that the other end wakes up for.
A body that does not come at once keeps no head back: what was held goes out when the event loop has
done what it is at.
"""

from __future__ import annotations

import asyncio


class Joining:
    """The target of one answer: a connection's transport, as far as uvicorn's answers use it.

    Args:
        transport: of the connection, which writes what it gets at once.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""
        self._flushing: asyncio.Handle | None = None
        self._has_begun = False

    def write(self, data: bytes) -> None:
        if self._has_begun:
            self._transport.write(data)
        elif self._held:
            self._begin([self._held, data])
        else:
            self._held = data
            self._flushing = self._loop.call_soon(self._flush)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._held and not self._transport.is_closing():
            self._begin([self._held])

    def _begin(self, parts: list[bytes]) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
        self._has_begun, self._held, self._flushing = True, b"", None
        self._transport.writelines(parts)

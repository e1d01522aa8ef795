"""How bytes come off a connection: into one buffer, over and over.

Otherwise the event loop makes an object of every read, a quarter of a MiB of fresh memory that is
copied from once. For uploads that was a tenth of all processor time. What is read is uvicorn's
to understand.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: What is read at once, at most. Memory that no read has reached yet costs nothing.
READ_BYTES = 256 << 10


class Reading(asyncio.BufferedProtocol):
    """A connection before uvicorn's HTTP protocol, which copies what it keeps.

    One that becomes a WebSocket leaves this behind.
    """

    def __init__(self, **connection: Any) -> None:
        self._http = HttpToolsProtocol(**connection)
        self._buffer = memoryview(bytearray(READ_BYTES))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._http.connection_made(cast("asyncio.Transport", transport))

    def connection_lost(self, exc: Exception | None) -> None:
        self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        # Its parser takes any buffer, and copies out of it before it returns.
        self._http.data_received(self._buffer[:nbytes])  # type: ignore[arg-type]

    def eof_received(self) -> None:
        self._http.eof_received()

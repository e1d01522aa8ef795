"""The I/O of a connection: messages in, answers out, both bounded."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress

from encrypted_records.sql.limits import WireLimits
from encrypted_records.sql.wire.messages import First, FrontendReader, Message

_PIECE = 65_536


class ClientGone(Exception):
    """The client has closed the connection, or was too slow."""


class Channel:
    """
    Args:
        reader, writer: of the connection; the channel closes it.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: WireLimits
    ) -> None:
        self._reader, self._writer, self._limits = reader, writer, limits
        self._frontend = FrontendReader(limits.message_bytes)
        self._arrived, self._room = asyncio.Event(), asyncio.Event()
        self._ended = False
        #: Whether the server waits for the client to read.
        self.waits = False
        self._pump: asyncio.Task[None] | None = None
        self.on_end: Callable[[], None] | None = None
        writer.transport.set_write_buffer_limits(high=limits.buffer_bytes)

    @property
    def peer(self) -> str:
        address = self._writer.get_extra_info("peername")
        return str(address[0]) if isinstance(address, tuple) else ""

    @property
    def encrypted(self) -> bool:
        return self._writer.get_extra_info("ssl_object") is not None

    async def first(self) -> First:
        """The first message of a connection, or the next after a request for encryption.

        Raises:
            ProtocolViolation: the bytes are not a valid message.
            ClientGone: the connection ended before a message.
        """
        while (message := self._frontend.next_first()) is None:
            data = await self._read()
            if not data:
                raise ClientGone
            self._frontend.feed(data)
        return message

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(_PIECE)
        except OSError:  # resets, and failures of TLS
            return b""

    @property
    def has_more(self) -> bool:
        """Whether unparsed bytes have arrived."""
        return self._frontend.held > 0

    async def start_tls(self, context: ssl.SSLContext) -> None:
        """
        Raises:
            ClientGone: the handshake fails.
        """
        try:
            await self._writer.start_tls(context)
        except (OSError, ssl.SSLError):
            raise ClientGone from None
        self._writer.transport.set_write_buffer_limits(high=self._limits.buffer_bytes)

    def start_reading(self) -> None:
        """Read ahead from now on, so that a disconnect is noticed while a statement runs."""
        self._pump = asyncio.create_task(self._read_ahead())  # noqa: TID251 # close() ends it

    def log_in(self) -> None:
        """Accept messages of the full length from now on."""
        self._frontend.log_in()
        self._room.set()

    async def _read_ahead(self) -> None:
        while data := await self._read():
            self._frontend.feed(data)
            self._arrived.set()
            while self._frontend.held > self._frontend.most:
                self._room.clear()
                await self._room.wait()
        self._ended = True
        self._arrived.set()
        if self.on_end is not None:
            self.on_end()

    async def receive(self) -> Message:
        """The next message.

        Raises:
            ProtocolViolation: the bytes are not a message.
            ClientGone: the connection ended before a message.
        """
        while True:
            self._arrived.clear()
            message = self._frontend.next()
            if message is not None:
                self._room.set()
                return message
            if self._ended:
                raise ClientGone
            await self._arrived.wait()

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def flush(self) -> None:
        """Wait until the unread data is below the limit.

        Raises:
            ClientGone: the connection has ended.
        """
        self.waits = True
        try:
            await self._writer.drain()
        except OSError:
            raise ClientGone from None
        finally:
            self.waits = False

    def abort(self) -> None:
        """End the connection at once; waiting calls raise `ClientGone`."""
        self._writer.transport.abort()

    async def close(self, *, seconds: float = 5.0) -> None:
        """Send buffered data, and end the connection."""
        if self._pump is not None:
            self._pump.cancel()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(seconds):
                self._writer.close()
                await self._writer.wait_closed()
                return
        self.abort()

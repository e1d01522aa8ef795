"""The protocol of a WebSocket, on a server that has some: an API has none, and not the library."""

from __future__ import annotations

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class Socket(WebSocketsSansIOProtocol):
    """uvicorn's, which forgets the handshake once it is over."""

    def start_keepalive(self) -> None:
        # The last step of a handshake; what parses frames has the request as well.
        self.request.headers.clear()
        del self.request, self.response
        super().start_keepalive()

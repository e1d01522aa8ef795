"""The protocol of WebSockets, for a proxy: an API has none, and does not install the library."""

from __future__ import annotations

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from encrypted_records.errors import Stopping
from encrypted_records.http import problem
from encrypted_records.listening.connections import RETRY_SECONDS, raw_answer

_STOPPING = raw_answer(problem.of_error(Stopping("the service is stopping")), RETRY_SECONDS)


class Socket(WebSocketsSansIOProtocol):
    """uvicorn's protocol, which forgets the handshake when it is over."""

    def start_keepalive(self) -> None:
        # The last step of a handshake. The frame parser refers to the request, too.
        self.request.headers.clear()
        del self.request, self.response
        super().start_keepalive()

    def send_500_response(self) -> None:
        # A stop calls this during a handshake; if an application fails, LastAnswers has answered
        # before.
        if not (self.initial_response or self.handshake_complete):
            self.transport.write(_STOPPING)

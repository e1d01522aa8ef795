"""What a WebSocket takes of a server."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import Receive, Scope, Send
from websockets.sync.client import connect

from tests.listening.conftest import SHORT, Running


async def greet(_scope: Scope, receive: Receive, send: Send) -> None:
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": "hello"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


def test_it_has_no_compressor_though_the_client_offers_one(start: Callable[..., Running]) -> None:
    server = start(greet, SHORT, "websockets-sansio")
    with connect(f"ws://127.0.0.1:{server.port}/", proxy=None) as socket:
        assert socket.request is not None
        assert "permessage-deflate" in socket.request.headers["Sec-WebSocket-Extensions"]
        assert socket.recv() == "hello"
        assert socket.response is not None
        assert "Sec-WebSocket-Extensions" not in socket.response.headers

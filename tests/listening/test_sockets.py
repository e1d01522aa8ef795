"""What a WebSocket takes of a server, and what it leaves behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from starlette.types import Receive, Scope, Send
from websockets.sync.client import ClientConnection, connect

from encrypted_records.listening.connections import _Http
from encrypted_records.listening.serving import go_on_with
from encrypted_records.listening.socket_protocol import Socket
from tests.listening.conftest import PATIENT, Running
from tests.support.eventually import eventually


async def greet(_scope: Scope, receive: Receive, send: Send) -> None:
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": "hello"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


def opened(server: Running) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{server.port}/a?b=c", proxy=None)


@contextmanager
def no_search_for_cycles() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def living(kind: type) -> list[Any]:
    return [one for one in gc.get_objects() if type(one) is kind]


def test_it_has_no_compressor_though_the_client_offers_one(start: Callable[..., Running]) -> None:
    server = start(greet, PATIENT, sockets=True)
    with opened(server) as socket:
        assert socket.request is not None
        assert "permessage-deflate" in socket.request.headers["Sec-WebSocket-Extensions"]
        assert socket.recv() == "hello"
        assert socket.response is not None
        assert "Sec-WebSocket-Extensions" not in socket.response.headers


def test_of_its_handshake_nothing_stays(start: Callable[..., Running]) -> None:
    server = start(greet, PATIENT, sockets=True)
    with no_search_for_cycles(), ExitStack() as stack:
        before = len(living(_Http))
        sockets = [stack.enter_context(opened(server)) for _ in range(5)]
        assert [socket.recv() for socket in sockets] == ["hello"] * 5
        assert len(living(_Http)) == before
        ours = [one for one in living(Socket) if one in server.server.server_state.connections]
        assert len(ours) == 5
        assert not any(hasattr(our, "request") or hasattr(our, "response") for our in ours)
    eventually(lambda: server.connections == 0)


class _Layer:
    """Something that an application has while it runs."""


def test_of_an_application_that_leaves_a_socket_to_others_nothing_stays(
    start: Callable[..., Running],
) -> None:
    layers: list[weakref.ref[_Layer]] = []
    scopes: list[Scope] = []

    async def rest(receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            if message["text"] == "enough":
                await send({"type": "websocket.send", "text": "goodbye"})
                await send({"type": "websocket.close", "code": 1000})
                return
            await send({"type": "websocket.send", "text": message["text"] * 2})

    async def leave(scope: Scope, receive: Receive, send: Send) -> None:
        layer = _Layer()
        layers.append(weakref.ref(layer))
        scope["layer"] = layer
        scopes.append(scope)
        await receive()
        await send({"type": "websocket.accept"})
        go_on_with(scope, rest)

    server = start(leave, PATIENT, sockets=True)
    with no_search_for_cycles(), opened(server) as socket:
        for said in ("a", "b"):
            socket.send(said)
            assert socket.recv() == said * 2
        assert [layer() for layer in layers] == [None]
        assert "headers" not in scopes[0]
        assert scopes[0]["path"] == "/a"
        socket.send("enough")
        assert list(socket) == ["goodbye"]
    eventually(lambda: server.connections == 0)


def test_what_goes_on_is_done_though_a_layer_hands_on_a_copy_of_the_scope(
    start: Callable[..., Running],
) -> None:
    async def rest(_receive: Receive, send: Send) -> None:
        await send({"type": "websocket.send", "text": "goodbye"})

    async def leave(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        go_on_with(scope, rest)

    async def layer(scope: Scope, receive: Receive, send: Send) -> None:
        await leave(dict(scope), receive, send)

    with opened(start(layer, PATIENT, sockets=True)) as socket:
        assert socket.recv() == "goodbye"

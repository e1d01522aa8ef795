"""A WebSocket that lasts, in little memory.

One that says a word in a minute would keep what its handshake was made of, and a frame of each
layer of the application, 30 KiB in all. So an application may return when it has accepted a socket,
and say what goes on with it (:func:`go_on_with`); only that stays.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Receive, Scope, Send

#: Told and asked as an ASGI application is, of a socket that was accepted.
Rest = Callable[[Receive, Send], Awaitable[None]]

_REST = "ers.rest"
#: What uvicorn may say of a socket still.
_KEPT = ("type", "client", "path", "raw_path", "root_path", "query_string")


def go_on_with(scope: Scope, rest: Rest) -> None:
    """Run ``rest`` after the application has returned; the socket is closed at its end."""
    scope[_REST].append(rest)


class GoingOn:
    """ASGI: the outermost layer; no layer of the application is there any more for what goes on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A list, since layers between hand on copies of the scope.
        rests: list[Rest] = []
        scope[_REST] = rests
        await self._app(scope, receive, send)
        if rests:
            kept = {name: scope[name] for name in _KEPT if name in scope}
            scope.clear()
            scope.update(kept)
            await rests[0](receive, send)

"""Header names as people and documents spell them: ``X-Job-ID``, not ``x-job-id``.

HTTP does not mind (RFC 9110, section 5.1), but ``grep X-Job-ID`` and maps with case do. Frameworks
hand over names in lower case, and uvicorn writes the lower case of what it gets. So a name is made
here that compares as uvicorn expects, and is its own lower case.
"""

from __future__ import annotations

from functools import lru_cache

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_STARTS = frozenset({"http.response.start", "websocket.http.response.start"})
#: Those that are not spelled with a capital at the beginning of each word alone.
_OTHERS = {
    name.lower(): name
    for name in (
        b"ETag",
        b"WWW-Authenticate",
        b"X-ERS-Answer",
        b"X-Request-ID",
    )
}


class _Name(bytes):
    """A header's name, equal to any spelling of it."""

    def lower(self) -> _Name:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bytes) and bytes.lower(self) == bytes.lower(other)

    def __hash__(self) -> int:
        return hash(bytes.lower(self))


@lru_cache(1024)
def spell(name: bytes) -> bytes:
    """The name as it is usually spelled; one that has capitals already is left as it is."""
    if not name.islower():
        return _Name(name)
    return _Name(_OTHERS.get(name) or name.title())


class Spelling:
    """ASGI: the outermost layer, nothing changes a header after it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answering(message: Message) -> None:
            if message["type"] in _STARTS:
                headers = [(spell(name), value) for name, value in message.get("headers", ())]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, answering)

"""What the objects of a client share: the way to the proxy, and for a synchronous one its loop.

A synchronous client runs the same coroutines as an asynchronous one, in a thread with an event loop
of its own. So it works wherever it is called, in a notebook too, whose thread has a loop already.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from encrypted_records.client import DEFAULT_PROXY
from encrypted_records.client.names import Names
from encrypted_records.client.proxy import ProxyClient
from encrypted_records.client.transport import Authorization

T = TypeVar("T")


class AsyncLink:
    """A proxy, and what is named there.

    Args:
        organization: where names are looked for; None is everywhere.
    """

    def __init__(
        self,
        proxy_url: str = DEFAULT_PROXY,
        *,
        email: str | None = None,
        password: str | None = None,
        auth: Authorization | None = None,
        organization: str | None = None,
    ) -> None:
        self.proxy = ProxyClient(proxy_url, email=email, password=password, auth=auth)
        self.names = Names(self.proxy, organization)

    async def close(self) -> None:
        await self.proxy.close()


class Link(AsyncLink):
    """The same, for those who wait for each answer."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, asked: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; Ctrl-C cancels it."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
        future: Future[T] = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def each(self, found: AsyncIterator[T]) -> Iterator[T]:
        """What an asynchronous iterator gives."""

        async def following() -> tuple[T] | None:
            async for one in found:
                return (one,)
            return None

        while (one := self.run(following())) is not None:
            yield one[0]

    def close(self) -> None:  # type: ignore[override] # as everything here, it is waited for
        if self._loop is None or self._thread is None:
            return
        self.run(super().close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

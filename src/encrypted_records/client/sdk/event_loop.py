"""The shared part of a client's objects: the connection, and the event loop of a synchronous
client.

A synchronous client runs the same coroutines as an asynchronous one, in a thread with an event loop
of its own. So it works wherever it is called, in a notebook too, whose thread has a loop already.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

from encrypted_records.client import DEFAULT_PROXY
from encrypted_records.client.limits import STANDARD, ClientLimits
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.client.proxy.transport import Device
from encrypted_records.client.sdk.calls import AsyncCalls, Calls
from encrypted_records.client.sdk.names import Names
from encrypted_records.client.transport import Authorization
from encrypted_records.errors import ClientClosed

T = TypeVar("T")


class AsyncLink:
    """A proxy, and what is named there.

    Args:
        organization: where names are looked for; None is everywhere.

    Attributes:
        told: whose it is and where it leads, for people.
    """

    def __init__(
        self,
        proxy_url: str = DEFAULT_PROXY,
        *,
        email: str | None = None,
        password: str | None = None,
        token: str | None = None,
        auth: Authorization | None = None,
        device: Device | str | None = None,
        organization: str | None = None,
        limits: ClientLimits = STANDARD,
    ) -> None:
        self.told = f"{f'of {email} ' if email else ''}at {_show(proxy_url)}"
        self.proxy = ProxyClient(
            proxy_url,
            email=email,
            password=password,
            token=token,
            auth=auth,
            device=device,
            limits=limits,
        )
        self.names = Names(self.proxy, organization)

    @property
    def calls(self) -> AsyncCalls:
        return self.proxy

    async def close(self) -> None:
        await self.proxy.close()


class Link(AsyncLink):
    """The synchronous counterpart of :class:`AsyncLink`.

    If it is not closed, as in a notebook, it ends when it is garbage-collected, or with the
    program.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: weakref.finalize[..., Link] | None = None

    def run(self, asked: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; Ctrl-C cancels it.

        Raises:
            ClientClosed: it was closed.
        """
        if self._closed:
            asked.close()
            raise ClientClosed("this client is closed")
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            thread = threading.Thread(  # noqa: TID251 - a loop of its own
                target=self._loop.run_forever, daemon=True
            )
            thread.start()
            self._end = weakref.finalize(self, _end, self.proxy, self._loop, thread)
        future: Future[T] = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    @property
    def calls(self) -> Calls:  # type: ignore[override] # as everything here, it is waited for
        return Calls(self)

    @contextmanager
    def within(self, asked: AbstractAsyncContextManager[AsyncIterator[T]]) -> Iterator[Iterator[T]]:
        """The items of a stream, which ends with the block."""
        entered = self.run(_enter(asked))
        try:
            yield self.each(entered)
        except BaseException as error:
            if not self.run(_leave(asked, error)):
                raise
        else:
            self.run(_leave(asked, None))

    def each(self, things: AsyncIterator[T]) -> Iterator[T]:
        """Items of an asynchronous iterator."""

        async def following() -> tuple[T] | None:
            async for thing in things:
                return (thing,)
            return None

        while (thing := self.run(following())) is not None:
            yield thing[0]

    def close(self) -> None:  # type: ignore[override] # as everything here, it is waited for
        self._closed = True
        if self._end is not None:
            self._end()


async def _enter(asked: AbstractAsyncContextManager[T]) -> T:
    return await asked.__aenter__()


async def _leave(asked: AbstractAsyncContextManager[Any], error: BaseException | None) -> bool:
    if error is None:
        return bool(await asked.__aexit__(None, None, None))
    return bool(await asked.__aexit__(type(error), error, error.__traceback__))


def _end(
    proxy: ProxyClient,
    loop: asyncio.AbstractEventLoop,
    thread: threading.Thread,  # noqa: TID251 - the loop's own
) -> None:
    """Close the connections, and end the loop and its thread."""

    async def closing() -> None:
        try:
            await proxy.close()
        finally:
            loop.stop()

    asyncio.run_coroutine_threadsafe(closing(), loop)
    # Garbage is collected in any thread, and a loop cannot wait for itself.
    if threading.current_thread() is not thread:
        thread.join()
        if not loop.is_running():  # as it seems to be in a fork, which has no thread for it
            loop.close()


def _show(url: str) -> str:
    """A URL without what may be a password in it."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"

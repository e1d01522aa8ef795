"""Holds: the API keeps the data of one version of a log during a long read."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Self, TypeVar

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.client.erasure import ErasureApi
from encrypted_records.errors import ErsError
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.background import attempt
from encrypted_records.proxy.search.upstream import Upstream

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds between two renewals; a hold counts for five minutes.
RENEW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class VersionHold:
    """A hold on one version of a schema's log, as read by ``caller``; ``reason`` is
    one that the API knows.
    """

    api: Api
    caller: Holder
    schema: bytes
    version: int
    reason: str
    uid: uuid.UUID = field(default_factory=runtime.uuid4)

    @classmethod
    def of_export(cls, upstream: Upstream) -> VersionHold:
        """The snapshot that an export reads."""
        version = upstream.snapshot.version
        return cls(upstream.api, upstream.caller, upstream.state.id, version, "export")

    async def begin(self) -> None:
        """Hold it, or go on holding it. Where that fails, what is read may be erased meanwhile,
        which then has a name of its own."""
        erasures = ErasureApi(self.api.transport)
        try:
            await erasures.hold(self.schema, self.uid, self.version, self.reason, self.caller.auth)
        except ErsError as error:
            log.warning("a version is not held at the API: %s", error.message)

    @asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        """Renew it, once it has begun, as long as the block runs; it ends with that."""
        renewal = asyncio.create_task(self._renew())  # noqa: TID251 # ends with its request
        try:
            yield
        finally:
            renewal.cancel()
            # Also where the request was cancelled, because its client went away.
            await asyncio.shield(self.end())

    async def end(self) -> None:
        """Hold it no longer; where that fails, it ends by itself."""
        with suppress(ErsError):
            erasures = ErasureApi(self.api.transport)
            await erasures.release(self.schema, self.uid, self.caller.auth)

    async def _renew(self) -> None:
        while True:
            await runtime.sleep(RENEW_SECONDS)
            await attempt("renewing a hold", self.begin)


class DeferredHold:
    """A hold that begins only when data is going to be read later; it ends with the block."""

    def __init__(self, hold: VersionHold) -> None:
        self._hold, self._renewal = hold, AsyncExitStack()
        self._begun = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._renewal.aclose()

    async def begin(self) -> None:
        """Hold it until the block ends, if it is not held yet."""
        if not self._begun:
            self._begun = True
            await self._hold.begin()
            await self._renewal.enter_async_context(self._hold.renewed())


async def holding(hold: VersionHold, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The items, while the hold is renewed; it ends with them, and they are closed with this."""
    async with hold.renewed(), aclosing(items):
        async for item in items:
            yield item

"""The time limit of a request: some seconds without a byte, and a lowest rate of bytes."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Patience:
    """A block that ends by ``TimeoutError`` when nothing has moved for ``seconds``, or too little.

    What has moved at ``least_rate`` bytes a second or more is in time, whatever its size.
    """

    def __init__(self, seconds: float, least_rate: float) -> None:
        self._seconds = seconds
        self._least_rate = least_rate
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + seconds
        self._timeout = asyncio.timeout_at(self._end)
        self._is_on = True

    def note(self, count: int) -> None:
        """Record that ``count`` more bytes were sent or received."""
        self._end += count / self._least_rate
        if self._is_on:
            self._timeout.reschedule(min(self._end, self._loop.time() + self._seconds))

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_on = False
        await self._timeout.__aexit__(kind, error, trace)

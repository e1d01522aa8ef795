"""Wait until a schema's log grows: one request a second to the API, no matter how many callers
wait.

The waiting requests take turns at asking, each with its own credentials. So no request relies on
the rights of another user for long, and a user who has lost the right to read the schema learns it
at the next turn.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from encrypted_records import runtime
from encrypted_records.errors import Unavailable

#: Between two questions about one schema, in seconds.
ASK_SECONDS = 1.0


class WatchedSchema:
    """A watched schema. Belongs to the event loop.

    Attributes:
        newest: the newest version of its log that any request of this proxy has seen.
        waiting: the number of waiting requests.
    """

    def __init__(self) -> None:
        self.newest = 0
        self.waiting = 0
        self._asked_at = -math.inf
        self._is_asked = False
        self._line: deque[asyncio.Future[None]] = deque()

    def see(self, version: int) -> None:
        """The log is at a version."""
        if version > self.newest:
            self.newest = version
            self._call(len(self._line))

    async def wait(self, since: int, until: float, ask: Callable[[], Awaitable[int]]) -> None:
        """Wait until the log goes beyond version ``since``, or until a time.

        Args:
            ask: brings the state of the one who waits to the newest version; that.

        Raises:
            Unavailable: the API could not be asked at the end.
            ErsError: as ``ask``.
        """
        self.waiting += 1
        failed: Unavailable | None = None
        try:
            while self.newest <= since and (left := until - runtime.monotonic()) > 0:
                if self._is_asked:
                    await self._wait_for_turn(left)
                    continue
                self._is_asked = True
                try:
                    due = self._asked_at + ASK_SECONDS - runtime.monotonic()
                    await runtime.sleep(min(left, max(0.0, due)))
                    if due <= left:
                        self._asked_at = runtime.monotonic()
                        self.see(await ask())
                    failed = None
                except Unavailable as error:
                    failed = error  # it may be back before the end
                finally:
                    self._is_asked = False
                    self._call(1)
                    # The others go first.
                    await runtime.sleep(0)
        finally:
            self.waiting -= 1
            if not self._is_asked:
                self._call(1)  # it may have been this one's turn
        if failed is not None and self.newest <= since:
            raise failed

    async def _wait_for_turn(self, seconds: float) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await turn
        finally:
            if turn in self._line:
                self._line.remove(turn)

    def _call(self, count: int) -> None:
        for _ in range(min(count, len(self._line))):
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)

"""One statement while it runs, from outside its process: its deadline, and how it is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from encrypted_records.errors import SqlError
from encrypted_records.sql import failures
from encrypted_records.sql.limits import SqlLimits
from encrypted_records.sql.process import (
    ColumnFeed,
    ColumnsBroken,
    Process,
    ProcessEnded,
    abandon,
    lost,
)

T = TypeVar("T")


class StatementRun:
    """Work on one statement; ``versions`` are those of the tables' logs, by their numbers."""

    def __init__(self, limits: SqlLimits) -> None:
        self.limits = limits
        self.versions: dict[int, int] = {}
        self.process: Process | None = None
        self._loop = asyncio.get_running_loop()
        self._waits: asyncio.Timeout | None = None
        self._reason: SqlError | None = None
        self._closed = False
        self._feeds: list[ColumnFeed] = []
        self._timer = self._loop.call_later(limits.seconds, self._expire)

    def cancel(self) -> None:
        """End it: whatever waits for it raises 57014."""
        self._end(
            failures.sql_error(
                failures.CANCELED, "the statement was cancelled", code="sql_canceled"
            )
        )

    def _expire(self) -> None:
        seconds = self.limits.seconds
        self._end(
            failures.sql_error(
                failures.CANCELED,
                f"the statement took longer than {seconds:g} seconds",
                code="sql_time",
                hint="narrow the statement with WHERE",
            )
        )

    def _end(self, reason: SqlError) -> None:
        if self._closed:
            return
        self._reason = self._reason or reason
        if self._waits is not None:
            with suppress(RuntimeError):  # it has expired already
                self._waits.reschedule(self._loop.time())

    @property
    def closed(self) -> bool:
        return self._closed

    async def close(self) -> None:
        """End it, and free its memory."""
        if self._closed:
            return
        self.forget()
        await self.drop_columns()

    def forget(self) -> None:
        """End its deadline; the process has nothing of it."""
        self._closed = True
        self._timer.cancel()

    async def drop_columns(self) -> None:
        """Discard the statement's data in the process."""
        feeds, self._feeds = self._feeds, []
        self.versions.clear()
        if self.process is not None:
            await abandon(self.process, feeds)

    async def wait(self, asked: Coroutine[Any, Any, T]) -> T:
        """The result of something that the statement needs.

        Raises:
            SqlError: 57014; or 53200 where the process has ended by itself.
            ErsError: the error of columns that broke off.
        """
        try:
            async with asyncio.timeout(None) as self._waits:
                if self._reason is not None or self._closed:
                    asked.close()
                    raise self._reason or failures.ended()
                return await asked
        except TimeoutError:
            if self._reason is None:
                raise
            raise self._reason from None
        except ProcessEnded:
            raise self._reason or lost() from None
        except ColumnsBroken:
            errors = [feed.error for feed in self._feeds if feed.error is not None]
            raise (errors or [failures.broken_stream()])[0] from None
        finally:
            self._waits = None

    async def call(self, method: str, *arguments: object) -> tuple[Any, bytes]:
        """The process's reply.

        Raises:
            SqlError: the statement's error; and as :meth:`wait`.
            ErsError: as :meth:`wait`.
        """
        assert self.process is not None
        return await self.wait(self.process.call(method, *arguments))

    async def take(self, feed: ColumnFeed, number: int, *, keep: bool) -> None:
        """Make the process read a table's columns from ``feed``.

        Args:
            keep: all of them now, instead of while the statement runs.

        Raises:
            TableChanged: the table has other columns.
            SqlError, ErsError: as :meth:`call`.
        """
        self._feeds.append(feed)
        self.versions[number], _ = await self.call("take", number, keep)

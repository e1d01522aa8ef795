"""The DuckDB process, seen from its parent: sends requests, receives replies, passes columns on.

DuckDB neither limits nor interrupts much of the work of a single function (``repeat('x', 10**10)``,
or a nested ``list_transform``), even during planning. So each engine has its own process, with a
memory limit; it is killed if a statement does not end by its deadline. The process has no login and
no network access: this side requests columns from the proxy and passes them on.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

from encrypted_records.errors import ErsError, SqlError, Unavailable
from encrypted_records.model import strict_json
from encrypted_records.sql import failures
from encrypted_records.sql.limits import SqlLimits

#: Bytes of replies read ahead, and of columns in transit.
_BUFFER_BYTES = 1 << 20
#: Bytes of a frame's length prefix. For columns, two lengths are markers.
LENGTH_BYTES, END, BROKEN = 4, 0, 2**32 - 1
#: Bytes of rows per reply, unless a single row has more; and maximum bytes of these.
PIECE_BYTES, ROW_BYTES = 4 << 20, 128 << 20
#: Time limit for a process to abandon a result.
_ENDING_SECONDS = 5.0


class TableChanged(Exception):
    """The table was deleted, or its columns differ from the catalogue."""


class ColumnsBroken(Exception):
    """The stream of columns ended before its end marker."""


class ProcessEnded(Exception):
    """The process ended unexpectedly, or was killed."""


class Process:
    """A process that runs :mod:`.worker`, or a module that extends it.

    Attributes:
        ended: whether it was killed here, or found dead.
    """

    def __init__(self, process: asyncio.subprocess.Process, columns: socket.socket) -> None:
        self.ended = False
        self._process, self._columns = process, columns

    @classmethod
    async def start(cls, module: str) -> Process:
        """
        Raises:
            Unavailable: ``worker_lost``; the process cannot be started.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        try:
            process = await asyncio.create_subprocess_exec(  # noqa: TID251
                *(sys.executable, "-P", "-m", module, str(theirs.fileno())),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={},
                limit=_BUFFER_BYTES,
                # Ctrl-C is handled by the parent, which decides how a statement ends.
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            reason = (error.strerror or "it fails").lower()
            raise Unavailable(
                f"a process for SQL cannot be started: {reason}", code="worker_lost"
            ) from None
        finally:
            theirs.close()
        return cls(process, ours)

    async def call(self, method: str, *arguments: object) -> tuple[Any, bytes]:
        """The reply to a request: plain values, and Arrow bytes or none.

        Raises:
            SqlError: an error of the statement.
            TableChanged, ColumnsBroken: an error of the columns that it reads.
            ProcessEnded: the process ended before it replied.
        """
        if self.ended:
            raise ProcessEnded
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            request = pickle.dumps((method, arguments))
            self._process.stdin.write(len(request).to_bytes(LENGTH_BYTES, "big") + request)
            await self._process.stdin.drain()
            head = await self._part()
            body = await self._part()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.kill()
            raise ProcessEnded from None
        except BaseException:
            self.kill()  # it is in the middle of a request
            raise
        reply = strict_json.loads(head)
        match reply.get("error"):
            case None:
                return reply["value"], body
            case "moved":
                raise TableChanged
            case "broken":
                raise ColumnsBroken
            case state:
                error = SqlError(reply["message"], code=reply["code"], hint=reply["hint"])
                error.sqlstate = state
                if error.reason == "sql_memory":
                    self.kill()  # its freed memory is fragmented
                raise error

    async def _part(self) -> bytes:
        assert self._process.stdout is not None
        length = int.from_bytes(await self._process.stdout.readexactly(2 * LENGTH_BYTES), "big")
        if length > 2 * ROW_BYTES:  # a process that DuckDB no longer controls
            raise ConnectionError
        return await self._process.stdout.readexactly(length)

    async def send(self, piece: bytes | int) -> None:
        """Send bytes of columns, or the marker after the last ones.

        Raises:
            ConnectionError: the process has ended.
        """
        loop = asyncio.get_running_loop()
        length = piece if isinstance(piece, int) else len(piece)
        await loop.sock_sendall(self._columns, length.to_bytes(LENGTH_BYTES, "big"))
        if isinstance(piece, bytes):
            await loop.sock_sendall(self._columns, piece)

    def kill(self) -> None:
        """Kill the process, whatever it does."""
        if not self.ended:
            self.ended = True
            with suppress(ProcessLookupError):
                self._process.kill()

    async def close(self) -> None:
        self.kill()
        await self._process.wait()
        self._columns.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
            with suppress(ConnectionError):  # which asyncio would print if nobody waited for it
                await self._process.stdin.wait_closed()


class ColumnFeed:
    """Columns in transit from the proxy to a process.

    Attributes:
        error: the proxy's error, if the columns broke off.
    """

    def __init__(
        self, process: Process, pieces: AsyncIterator[bytes], stack: AsyncExitStack
    ) -> None:
        self.error: ErsError | None = None
        self._process, self._pieces, self._stack = process, pieces, stack
        self._asks = self._stopped = False
        self._task = asyncio.ensure_future(self._pass_on())  # noqa: TID251 - ends in close()

    async def _pass_on(self) -> None:
        mark = BROKEN
        with suppress(ConnectionError):
            try:
                while piece := await self._next():
                    await self._process.send(piece)
                mark = BROKEN if self._stopped else END
            except ErsError as error:
                self.error = error
            except asyncio.CancelledError:
                if not self._stopped:
                    raise
            await self._process.send(mark)

    async def _next(self) -> bytes:
        """The next piece; empty at the end."""
        if self._stopped:
            return b""
        self._asks = True
        try:
            return await anext(self._pieces, b"")
        finally:
            self._asks = False

    def stop(self) -> None:
        """Stop requesting columns from the proxy; the process gets a marker instead."""
        self._stopped = True
        if self._asks:
            self._task.cancel()

    async def close(self) -> None:
        """End the feed, once the process has stopped reading."""
        self._stopped = True
        if self._process.ended:
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._stack.aclose()


async def abandon(process: Process, feeds: list[ColumnFeed]) -> None:
    """End the statement of a process, in any state; kill the process if it does not stop."""
    for feed in feeds:
        feed.stop()
    if not process.ended:
        try:
            async with asyncio.timeout(_ENDING_SECONDS):
                await process.call("end")
        except (TimeoutError, ProcessEnded, SqlError):
            process.kill()
    for feed in feeds:
        await feed.close()


def lost() -> SqlError:
    """The error of a process that ended unexpectedly, for example without memory."""
    return failures.sql_error(
        failures.OUT_OF_MEMORY,
        "the statement ended the process that ran it, as too much memory does",
        code="sql_memory",
        hint=failures.NARROWER,
    )


T = TypeVar("T")


class StatementRun:
    """Execution of one statement; ``versions`` are the versions of the tables' logs, by number."""

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
        """Cancel it: all waiting calls raise 57014."""
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
        if self._waits is None and self.process is not None:
            self.process.kill()  # the caller does not ask for its rows, which take memory

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
        """Cancel its deadline; the process has no data of it."""
        self._closed = True
        self._timer.cancel()

    async def drop_columns(self) -> None:
        """Discard the statement's data in the process."""
        feeds, self._feeds = self._feeds, []
        self.versions.clear()
        if self.process is not None:
            await abandon(self.process, feeds)

    async def wait(self, operation: Coroutine[Any, Any, T]) -> T:
        """Wait for an operation of the statement.

        Raises:
            SqlError: 57014; or 53200 if the process ended unexpectedly.
            ErsError: the error of columns that broke off.
        """
        try:
            async with asyncio.timeout(None) as self._waits:
                if self._reason is not None or self._closed:
                    operation.close()
                    raise self._reason or failures.ended()
                return await operation
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
            keep: load all of them now, instead of streaming them while the statement runs.

        Raises:
            TableChanged: the table has other columns.
            SqlError, ErsError: as :meth:`call`.
        """
        self._feeds.append(feed)
        self.versions[number], _ = await self.call("take", number, keep)

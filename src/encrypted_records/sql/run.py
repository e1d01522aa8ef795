"""One statement while it runs: its connection, its deadline, and how it is ended."""

from __future__ import annotations

import asyncio
import re
from asyncio import CancelledError
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import duckdb
import pyarrow

from encrypted_records.errors import ErsError, SqlError
from encrypted_records.sql import failures
from encrypted_records.sql.catalogue import Catalogue, Column
from encrypted_records.sql.connections import lock, open_closed, source_of, views
from encrypted_records.sql.limits import SqlLimits
from encrypted_records.sql.planner import Parameters, Plan, Planner
from encrypted_records.sql.source import Stream, read_all

T = TypeVar("T")
#: Types whose values DuckDB hands on changed: without their zone, negative from 2^127 on, as bytes.
_CHANGED = re.compile(r"\b(?:TIME WITH TIME ZONE|UHUGEINT|BIT)\b")
#: Between interrupts of work that has not ended: some of DuckDB's takes notice between rows only.
_AGAIN = 0.5


class Run:
    """Work on one statement, in threads, one step at a time."""

    def __init__(self, limits: SqlLimits) -> None:
        self.limits = limits
        self._loop = asyncio.get_running_loop()
        self._planner: Planner | None = None
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._step: asyncio.Future[Any] | None = None
        self._waits: asyncio.Timeout | None = None
        self._reason: SqlError | None = None
        self._closed = False
        #: by the numbers of their tables: what is read, and what is here as a whole
        self.streams: dict[int, Stream] = {}
        self._kept: dict[int, Any] = {}
        self._timer = self._loop.call_later(limits.seconds, self._expire)

    # --- ending -----------------------------------------------------------------------------------

    def cancel(self) -> None:
        """End it: the step that runs raises 57014."""
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
        self._interrupt()

    def _interrupt(self) -> None:
        """Interrupt DuckDB until the step has ended."""
        if self._step is None or self._step.done():
            return
        if self._connection is not None:
            self._connection.interrupt()
        self._loop.call_later(_AGAIN, self._interrupt)

    async def close(self) -> None:
        """End it, wait until it has, and free its memory."""
        self._closed = True
        self._timer.cancel()
        self._interrupt()
        await self.close_streams()
        if self._step is not None:
            with suppress(Exception):
                await asyncio.shield(self._step)
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    async def close_streams(self) -> None:
        for stream in self.streams.values():
            await stream.close()
        self.streams.clear()
        self._kept.clear()

    # --- working ----------------------------------------------------------------------------------

    async def wait(self, asked: Coroutine[Any, Any, T]) -> T:
        """The result of something that takes no thread.

        Raises:
            SqlError: 57014.
        """
        try:
            async with asyncio.timeout(None) as self._waits:
                if self._reason is not None:
                    asked.close()
                    raise self._reason
                return await asked
        except TimeoutError:
            if self._reason is None:
                raise
            raise self._reason from None
        finally:
            self._waits = None

    async def step(self, work: Callable[[], T]) -> T:
        """The result of work in a thread.

        Raises:
            SqlError: DuckDB's error, or why the work was ended.
        """
        if self._closed:
            raise failures.sql_error(
                failures.CANCELED, "the statement has ended", code="sql_canceled"
            )
        if self._reason is not None:
            raise self._reason
        self._step = self._loop.run_in_executor(None, work)
        try:
            result: T = await asyncio.shield(self._step)
        except (duckdb.Error, pyarrow.ArrowException, OSError) as error:
            raise self._told(error) from None
        except CancelledError:
            # A stream was closed under the thread; or the caller has gone.
            if self._reason is None:
                raise
            raise self._reason from None
        if self._reason is not None:
            raise self._reason
        return result

    def _told(self, error: Exception) -> ErsError:
        if self._reason is not None:
            return self._reason
        broken = (stream.error for stream in self.streams.values())
        if (first := next(filter(None, broken), None)) is not None:
            return first
        if self._planner is None:
            return failures.translate(error, Catalogue((), ()), None)
        return failures.translate(error, self._planner.catalogue, self._planner.dataset)

    # --- DuckDB; in a thread ----------------------------------------------------------------------

    def keep(self, number: int) -> None:
        """Read all rows of a stream.

        Raises:
            SqlError: 53200.
            OSError: as :meth:`Stream.batches`.
        """
        left = self.limits.memory_bytes - sum(kept.nbytes for kept in self._kept.values())
        self._kept[number] = read_all(self.streams[number], left)

    def start(
        self, planner: Planner, plan: Plan, statement: str, parameters: Parameters
    ) -> tuple[tuple[Column, ...], Any]:
        """Begin to execute a statement over the streams of all tables that ``plan`` scans.

        Returns:
            the result's columns and its reader.
        """
        self._planner = planner
        connection = self._connection = open_closed(self.limits)
        for number, stream in self.streams.items():
            rows = self._kept.get(number)
            if rows is None:
                rows = pyarrow.RecordBatchReader.from_batches(stream.schema, stream.batches())
            connection.register(source_of(number), rows)
        here = {number: scan.columns for number, scan in plan.scans.items()}
        # Without a table's rows, tables of their own names say more to those who list them.
        setup = views(planner.catalogue, planner.dataset, here) if here else planner.tables
        lock(connection, setup)
        relation = connection.sql(statement, params=parameters or None)
        kinds = zip(relation.columns, relation.types, strict=True)
        columns = tuple(Column(name, _type_name(kind)) for name, kind in kinds)
        for column in columns:
            if _CHANGED.search(column.type):
                raise failures.sql_error(
                    failures.NOT_SUPPORTED,
                    f"values of {column.type[:100]} cannot be carried unchanged",
                    code="sql_invalid",
                    hint="cast them to VARCHAR",
                )
        return columns, relation.to_arrow_reader(self.limits.batch_rows)


def _type_name(kind: object) -> str:
    return str(kind).strip('"')

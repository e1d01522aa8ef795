"""Answers to queries: from the engine, over records, or from the catalogues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pyarrow

from encrypted_records import runtime
from encrypted_records.sql.catalogue import Catalogue
from encrypted_records.sql.engine import Engine
from encrypted_records.sql.failures import Failure
from encrypted_records.sql.wire.parameters import (
    Description,
    ParameterValues,
    SessionFacts,
    parameter_type,
)
from encrypted_records.sql.wire.types import TEXT, ColumnType

#: The module of a session's process.
WORKER = "encrypted_records.sql.wire.worker"


class QueryRows:
    """The rows of a query, some at a time.

    Attributes:
        columns: names with DuckDB's types.
        sent: the number of rows that `next` has returned.
    """

    def __init__(
        self,
        columns: Sequence[tuple[str, str]],
        batches: AsyncIterator[pyarrow.RecordBatch],
        close: Callable[[], Any],
    ) -> None:
        self.columns, self.sent = columns, 0
        self._batches, self._end = batches, close
        self._batch: pyarrow.RecordBatch | None = None
        self.closed = False

    async def next(self, most: int) -> pyarrow.RecordBatch | None:
        """Up to ``most`` rows; None after the last.

        Raises:
            Failure: another statement has ended this query.
            SqlError, ErsError: as raised by the engine.
        """
        if self.closed:
            raise Failure(
                "55000",
                "a later statement has ended this cursor",
                hint="read a cursor to its end, or open another connection",
            )
        while self._batch is None or self._batch.num_rows == 0:
            self._batch = await anext(self._batches, None)
            if self._batch is None:
                return None
        batch = self._batch.slice(0, most)
        self._batch = self._batch.slice(batch.num_rows)
        self.sent += batch.num_rows
        return batch

    async def close(self) -> None:
        """End the query, even before its last row."""
        if not self.closed:
            self.closed = True
            self._batch = None
            await self._end()


class StatementAnswers:
    """
    Args:
        engine: open, with its dataset and :data:`WORKER`.
        user: the login's e-mail.
        settings: the session's settings for the catalogues.
        process: the connection's number.
        fresh_seconds: how long the catalogues are cached.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        user: str,
        settings: Callable[[], Mapping[str, str]],
        process: int,
        fresh_seconds: float,
    ) -> None:
        self._engine = engine
        self._user, self._settings, self._process = user, settings, process
        self._current: QueryRows | None = None
        self._fresh_seconds, self._read_at = fresh_seconds, runtime.monotonic()

    @property
    def catalogue(self) -> Catalogue:
        """The tables as they were last read."""
        return self._engine.catalogue

    def _session(self) -> SessionFacts:
        return SessionFacts(self._user, self._settings(), self._process)

    async def describe(self, sql: str, oids: Sequence[int]) -> Description:
        """The parameters and columns of a query.

        Raises:
            Failure, SqlError: it cannot be bound.
        """

        async def call_worker() -> tuple[bool, list[int], list[list[str]]]:
            reply, _ = await self._engine.call("describe", self._session(), sql, oids)
            return reply  # type: ignore[no-any-return] # WireWorker's

        by_catalogues, kinds, columns = await call_worker()
        if by_catalogues and await self._refreshed():
            by_catalogues, kinds, columns = await call_worker()
        types = [parameter_type(oid) or ColumnType(TEXT) for oid in kinds]
        return Description(types, [(name, kind) for name, kind in columns])

    async def _refreshed(self) -> bool:
        """Refresh the catalogue if some seconds have passed, because tables or the login may have
        changed; returns whether it was read again.
        """
        if runtime.monotonic() < self._read_at + self._fresh_seconds:
            return False
        await self._engine.refresh()
        self._read_at = runtime.monotonic()
        return True

    async def run(
        self, sql: str, described: Description | None, parameters: Sequence[tuple[int, Any]]
    ) -> QueryRows:
        """The rows of a query. The previous query is ended if it has rows left.

        Raises:
            Failure, SqlError: it is refused, or fails.
            ErsError: the proxy's error.
        """
        if self._current is not None:
            await self._current.close()
        types = described.parameters if described is not None else ()
        given = ParameterValues(sql, [kind.oid for kind in types], parameters)
        columns, rows = await self._engine.call("ask", self._session(), given)
        if columns is not None and await self._refreshed():
            columns, rows = await self._engine.call("ask", self._session(), given)
        if columns is not None:
            self._current = _from_catalogues(columns, rows)
        else:
            result = await self._engine.execute(sql, given)
            listed = [(column.name, column.type) for column in result.columns]
            self._current = QueryRows(listed, aiter(result.batches()), result.close)
        return self._current

    async def prepare(self) -> None:
        """Prepare for a query: starting a process takes longer than many queries."""
        if not self._engine.prepared:
            await self._engine.call("prepare", self._session())

    def interrupt(self) -> None:
        """End the running query, if any."""
        self._engine.cancel()

    async def close(self) -> None:
        if self._current is not None:
            await self._current.close()
        await self._engine.close()


def _from_catalogues(columns: Sequence[Sequence[str]], rows: bytes) -> QueryRows:
    async def batches() -> AsyncIterator[pyarrow.RecordBatch]:
        for batch in pyarrow.ipc.open_stream(rows):
            yield batch

    async def close() -> None:
        pass

    return QueryRows([(name, kind) for name, kind in columns], batches(), close)

"""Answers to queries: the engine's, over records, or the catalogues'."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar

import duckdb
import pyarrow

from encrypted_records import runtime
from encrypted_records.sql import failures
from encrypted_records.sql.engine import Engine
from encrypted_records.sql.limits import SqlLimits
from encrypted_records.sql.wire.catalog import PgCatalog, with_oids
from encrypted_records.sql.wire.failures import Failure
from encrypted_records.sql.wire.parameters import Description, describe
from encrypted_records.sql.wire.statements import Statement
from encrypted_records.sql.wire.types import INTERVAL, NUMERIC, ColumnType, Interval

T = TypeVar("T")
#: Bytes of rows that are encoded in one step, unless one row has more.
_STEP_BYTES = 1 << 20


class Answer:
    """The rows of a query, some at a time.

    Attributes:
        columns: names with DuckDB's types.
        sent: rows that `next` has given.
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
        """At most so many rows, fewer of wide ones; None after the last.

        Raises:
            Failure: another statement has ended this one.
            SqlError, ErsError: as the engine.
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
        while batch.num_rows > 1 and batch.nbytes > _STEP_BYTES:
            batch = batch.slice(0, batch.num_rows // 2)
        self._batch = self._batch.slice(batch.num_rows)
        self.sent += batch.num_rows
        return batch

    async def close(self) -> None:
        """End the query, also before its last row."""
        if not self.closed:
            self.closed = True
            self._batch = None
            await self._end()


class Answers:
    """
    Args:
        engine: open, with its dataset.
        user: the login's e-mail.
        settings: what catalogues say of the session's.
        process: the connection's number.
        fresh_seconds: for which the catalogues say what they said before.
    """

    def __init__(
        self,
        engine: Engine,
        limits: SqlLimits,
        *,
        user: str,
        settings: Callable[[], Mapping[str, str]],
        process: int,
        fresh_seconds: float,
    ) -> None:
        self._engine, self._limits = engine, limits
        self._user, self._settings, self._process = user, settings, process
        self._catalog: PgCatalog | None = None
        self._current: Answer | None = None
        self._on_catalog = self._interrupted = False
        self._fresh_seconds, self._read_at = fresh_seconds, runtime.monotonic()

    async def describe(self, statement: Statement, oids: Sequence[int]) -> Description:
        """The parameters and columns of a query.

        Raises:
            Failure, SqlError: it cannot be bound.
        """
        catalog, asked = await self._asked(statement)
        try:
            if asked is None:
                # Whether it only reads is the engine's to say.
                return await self._in_thread(catalog, describe, statement, oids, str, self._check)
            return await self._in_thread(catalog, describe, asked, oids, with_oids, self._check)
        except duckdb.Error as error:
            raise failures.translate(error, self._engine.catalogue, self._engine.dataset) from None

    async def run(
        self, statement: Statement, described: Description | None, parameters: Sequence[Any]
    ) -> Answer:
        """The rows of a query. The one before, if it has any left, is ended.

        Raises:
            Failure, SqlError: it is refused, or fails.
            ErsError: as the proxy answers.
        """
        if self._current is not None:
            await self._current.close()
        types = described.parameters if described is not None else ()
        named = _named(statement, types, parameters)
        catalog, asked = await self._asked(statement)
        if asked is None:
            result = await self._engine.execute(statement.sql, named)
            columns = [(column.name, column.type) for column in result.columns]
            self._current = Answer(columns, aiter(result.batches()), result.close)
        else:
            self._current = await self._from_catalog(catalog, asked, named)
        return self._current

    async def _from_catalog(
        self, catalog: PgCatalog, statement: Statement, named: Mapping[str, Any]
    ) -> Answer:
        def work(connection: duckdb.DuckDBPyConnection) -> tuple[Any, pyarrow.Table]:
            # Kept apart from settings and tables: only SELECT, and one.
            (parsed,) = connection.extract_statements(statement.sql)
            if parsed.type != duckdb.StatementType.SELECT:
                raise Failure("25006", "catalogues are read only")
            relation = connection.sql(statement.sql, params=dict(named) or None)
            kinds = zip(relation.columns, relation.types, strict=True)
            columns = [(name, with_oids(str(kind).strip('"'))) for name, kind in kinds]
            return columns, relation.to_arrow_table()

        try:
            columns, table = await self._in_thread(catalog, work)
        except duckdb.Error as error:
            raise failures.translate(error, self._engine.catalogue, self._engine.dataset) from None

        async def batches() -> AsyncIterator[pyarrow.RecordBatch]:
            for batch in table.to_batches():
                yield batch

        async def close() -> None:
            pass

        return Answer(columns, batches(), close)

    async def _in_thread(self, catalog: PgCatalog, work: Callable[..., T], *arguments: Any) -> T:
        """Work with the catalogues' connection, which `interrupt` ends."""

        def alone() -> T:
            with catalog.guard:
                return work(catalog.connection, *arguments)

        self._on_catalog, self._interrupted = True, False
        try:
            return await runtime.in_thread(alone)
        finally:
            self._on_catalog = False

    def _check(self) -> None:
        """
        Raises:
            duckdb.InterruptException: the statement is to end.
        """
        if self._interrupted:
            raise duckdb.InterruptException("the statement was cancelled")

    async def _asked(self, statement: Statement) -> tuple[PgCatalog, Statement | None]:
        """The catalogues, and the statement in DuckDB's words if they are to answer it. They are
        read again after some seconds: there may be new tables, and the login may have ended."""
        catalog = await self._catalogues()
        asked = catalog.answers(statement)
        if asked is not None and runtime.monotonic() >= self._read_at + self._fresh_seconds:
            await self._engine.refresh()
            self._read_at = runtime.monotonic()
            catalog = await self._catalogues()
            asked = catalog.answers(statement)
        return catalog, asked

    async def _catalogues(self) -> PgCatalog:
        """The catalogues of the engine's tables as it has last seen them."""
        catalogue, dataset = self._engine.catalogue, self._engine.dataset
        assert dataset is not None
        if self._catalog is None or self._catalog.catalogue != catalogue:
            self._drop_catalog()

            def make() -> PgCatalog:
                return PgCatalog(
                    catalogue,
                    dataset,
                    self._limits,
                    user=self._user,
                    settings=self._settings(),
                    process=self._process,
                )

            self._catalog = await runtime.in_thread(make)
        return self._catalog

    def interrupt(self) -> None:
        """End the query that runs, if one does."""
        self._engine.cancel()
        if self._on_catalog and self._catalog is not None:
            self._interrupted = True
            self._catalog.connection.interrupt()

    def _drop_catalog(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    async def close(self) -> None:
        if self._current is not None:
            await self._current.close()
        await self._engine.close()
        self._drop_catalog()


def _named(
    statement: Statement, types: Sequence[ColumnType], values: Sequence[Any]
) -> dict[str, Any]:
    """The parameters that a statement has, by their numbers, of exactly their types.

    Raises:
        Failure: a value is missing.
    """
    used = {token.number for token in statement.words if token.kind == "parameter"}
    for number in used:
        if not 1 <= number <= len(types):
            raise Failure("42P02", f"there is no parameter ${number}")
    return {str(number): _value(types[number - 1], values[number - 1]) for number in sorted(used)}


def _value(kind: ColumnType, value: Any) -> Any:
    if value is None or isinstance(value, str) or kind.element is NUMERIC:
        return value
    if kind.element is INTERVAL and isinstance(value, Interval):
        return duckdb.Value(value.text, "INTERVAL")
    if kind.is_array:
        return [item.text if isinstance(item, Interval) else item for item in value]
    return duckdb.Value(value, kind.duckdb)

"""The SQL engine: executes a statement, returns Arrow batches.

::

    async with Engine(client, dataset="medical") as engine:
        async with await engine.execute("SELECT ... WHERE city = $1", ["Oslo"]) as result:
            async for batch in result.batches():
                ...

DuckDB runs in a separate process (:mod:`.process`). It plans the statement over empty tables to
find the columns that it needs; the proxy sends these; DuckDB then runs the whole statement over
them. An engine belongs to one caller and one event loop, and runs one statement at a time;
:meth:`Engine.cancel` ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Protocol, Self

import pyarrow

from encrypted_records.client.messages import Closing
from encrypted_records.errors import InvalidQuery, NotFound, SqlError
from encrypted_records.sql import failures
from encrypted_records.sql.catalogue import Catalogue, Lists, SqlColumn, SqlTable, load_catalogue
from encrypted_records.sql.limits import STANDARD, SqlLimits
from encrypted_records.sql.process import ColumnFeed, Process, StatementRun, TableChanged

#: The module of a process that only runs statements.
WORKER = "encrypted_records.sql.worker"


class ProxySource(Lists, Protocol):
    """A proxy, such as a :class:`~encrypted_records.client.proxy.client.ProxyClient`."""

    def columns(
        self,
        schema: str,
        fields: Sequence[str],
        where: Mapping[str, Any] | None = None,
        **members: Any,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...


class StatementResult(Closing):
    """The rows of a statement, read once; close it, or use it as a context manager.

    Attributes:
        columns: names, which may repeat, and DuckDB's types.
        versions: for each table that was read, by its path, the version of its log (the proxy's
            ``X-Log-Version``). All rows of a table are of the same version.
    """

    def __init__(
        self,
        run: StatementRun,
        columns: Sequence[SqlColumn],
        schema: pyarrow.Schema,
        versions: dict[str, int],
    ) -> None:
        self.columns = columns
        #: Arrow's schema, with the columns in order; uuids are texts
        self.schema = schema
        self.versions = versions
        self._run = run

    async def batches(self) -> AsyncIterator[pyarrow.RecordBatch]:
        """The rows, some at a time.

        Raises:
            SqlError: 57014 cancelled or out of time; 53200 out of memory; 54000 too many rows; or
                an error of the statement itself, such as 22P02.
            ErsError: the proxy's error.
        """
        rows = 0
        while (found := await self._run.call("next"))[0]:
            for batch in pyarrow.ipc.open_stream(found[1]):
                rows += batch.num_rows
                if rows > self._run.limits.rows:
                    raise failures.sql_error(
                        failures.TOO_MUCH,
                        f"the result has more than {self._run.limits.rows:,} rows",
                        code="sql_rows",
                        hint="add LIMIT, or narrow the statement with WHERE",
                    )
                yield batch

    async def table(self) -> pyarrow.Table:
        """All rows.

        Raises:
            SqlError, ErsError: as :meth:`batches`.
        """
        return pyarrow.Table.from_batches([batch async for batch in self.batches()], self.schema)

    async def close(self) -> None:
        """End the statement, if it still runs, and free its memory."""
        await self._run.close()


class Engine(Closing):
    """
    Args:
        client: the caller's; its proxy makes every decision about rights.
        dataset: the slug of the dataset whose tables need no qualification; None for all, where
            tables whose name two datasets share need qualification: ``medical.patient``.
        organization: the id of the organization whose datasets are included; None for all.
        worker: the module that the process runs.
    """

    def __init__(
        self,
        client: ProxySource,
        *,
        dataset: str | None = None,
        organization: str | None = None,
        limits: SqlLimits = STANDARD,
        worker: str = WORKER,
    ) -> None:
        self._client = client
        self._wanted, self._worker = dataset, worker
        self._filters = {} if organization is None else {"organization": organization}
        self._limits = limits
        self._tables: tuple[Catalogue, str | None] | None = None
        self._open_tables: object = None
        self._process: Process | None = None
        self._run: StatementRun | None = None
        self._request: StatementRun | None = None
        self._used = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        try:
            await self.refresh()
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._process is not None:
            self._process.kill()
        await self._end_last()
        if self._process is not None:
            await self._process.close()
            self._process = None

    async def refresh(self) -> None:
        """Read the catalogue again. A statement with an unknown name does this automatically.

        Raises:
            SqlError: 3D000; there is no such dataset for this caller.
            ErsError: the proxy's error.
        """
        await self._living()  # starts while the proxy answers
        catalogue = await load_catalogue(self._client, self._filters)
        tables = catalogue, self._named(catalogue)
        if self._tables != tables:
            self._tables = tables

    def _named(self, catalogue: Catalogue) -> str | None:
        if self._wanted is None:
            return catalogue.datasets[0] if len(catalogue.datasets) == 1 else None
        for slug in catalogue.datasets:
            if slug.casefold() == self._wanted.casefold():
                return slug
        raise failures.sql_error(
            failures.UNKNOWN_DATABASE,
            f"there is no dataset {self._wanted}",
            code="sql_unknown",
            hint="datasets: " + (", ".join(catalogue.datasets) or "none"),
        )

    @property
    def dataset(self) -> str | None:
        """The slug of the dataset whose tables need no qualification."""
        return self._ready[1]

    @property
    def catalogue(self) -> Catalogue:
        """All datasets and tables, as of the last :meth:`refresh`."""
        return self._ready[0]

    def tables(self) -> list[SqlTable]:
        """The tables of the dataset, or of all datasets if none was named."""
        found = self.catalogue
        return list(found.tables) if self.dataset is None else found.in_dataset(self.dataset)

    @property
    def _ready(self) -> tuple[Catalogue, str | None]:
        assert self._tables is not None, "an engine is a context"
        return self._tables

    async def split(self, text: str) -> list[str]:
        """The statements of a text.

        Raises:
            SqlError: 42601.
        """
        found, _ = await self.call("split", text)
        return list(found)

    async def call(self, method: str, *arguments: object) -> tuple[Any, bytes]:
        """The reply of the process to a request outside a statement, with the same limits.

        Raises:
            SqlError: as :meth:`execute`.
        """
        run = self._request = StatementRun(self._limits)
        try:
            return await run.wait(self._call(run, method, *arguments))
        finally:
            self._request = None
            run.forget()

    @property
    def prepared(self) -> bool:
        """Whether a process is ready for a statement; the last process may have been killed."""
        return (
            self._process is not None
            and not self._process.ended
            and self._open_tables is self._tables
        )

    async def _prepared(self) -> Process:
        """A process that has the newest catalogue."""
        process = await self._living()
        if self._open_tables is not self._ready:
            await process.call("open", *self._ready, self._limits)
            self._open_tables = self._ready
        return process

    async def _call(self, run: StatementRun, method: str, *arguments: object) -> tuple[Any, bytes]:
        run.process = await self._prepared()
        return await run.process.call(method, *arguments)

    def _end_idle(self) -> None:
        """End a process that was idle for a while and that no open result needs."""
        loop, idle = asyncio.get_running_loop(), self._limits.idle_seconds
        needed = self._request is not None or not (self._run is None or self._run.closed)
        if self._process is not None and not needed and loop.time() >= self._used + idle:
            self._process.kill()
        else:
            self._idle_timer = loop.call_later(idle, self._end_idle)

    async def _living(self) -> Process:
        loop = asyncio.get_running_loop()
        self._used = loop.time()
        if self._process is None or self._process.ended:
            if self._process is not None:
                await self._process.close()
            self._open_tables = None
            self._process = await Process.start(self._worker)
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            self._idle_timer = loop.call_later(self._limits.idle_seconds, self._end_idle)
        return self._process

    async def execute(self, statement: str, parameters: object = ()) -> StatementResult:
        """Run a SELECT. A statement that still runs is ended first.

        Args:
            statement: SQL, with ``$1``, ``?`` or ``$name`` for parameters.
            parameters: by position or by name, as Python values.

        Raises:
            SqlError: 42601; 25006 if it is not a SELECT; 42P01, 42703, 42883 for unknown names; and
                as :meth:`StatementResult.batches`.
            ErsError: the proxy's error; :func:`failures.state_of` gives its SQLSTATE.
        """
        await self._end_last()
        run = self._run = StatementRun(self._limits)
        try:
            return await self._start(run, statement, parameters)
        except BaseException:
            await run.close()
            raise

    async def _start(
        self, run: StatementRun, statement: str, parameters: object
    ) -> StatementResult:
        scans = await self._planned(run, statement, parameters)
        try:
            await self._bring(run, scans)
            outdated = False
        except (TableChanged, InvalidQuery, NotFound):
            # A definition changed after the catalogue was read, or a table was deleted.
            outdated = True
        if outdated:  # outside the except: errors of planning are not the API's
            await run.drop_columns()
            await run.wait(self.refresh())
            scans = await self._planned(run, statement, parameters)
            try:
                await self._bring(run, scans)
            except TableChanged:
                raise failures.moved() from None
        listed, schema = await run.call("start")
        columns = [SqlColumn(name, kind) for name, kind in listed]
        tables = self.catalogue.tables
        versions = {tables[number].schema: version for number, version in run.versions.items()}
        return StatementResult(
            run, columns, pyarrow.ipc.read_schema(pyarrow.py_buffer(schema)), versions
        )

    async def _planned(self, run: StatementRun, statement: str, parameters: object) -> list[Any]:
        """The scans of a statement; refreshes the catalogue once if a name is unknown."""

        async def planned() -> list[Any]:
            found, _ = await run.wait(self._call(run, "plan", statement, parameters))
            return list(found)

        try:
            return await planned()
        except SqlError as error:
            if error.reason != "sql_unknown":
                raise
        await run.wait(self.refresh())
        return await planned()

    async def _bring(self, run: StatementRun, scans: list[Any]) -> None:
        """Request all columns that a plan needs. A single table that is read once is streamed;
        several tables are loaded before the statement starts, so that none is left waiting half
        read.
        """
        for number, columns, where, once, first in scans:
            table = self.catalogue.tables[number]
            fields = [table.columns[at].field for at in columns]
            feed = await run.wait(self._open(run, table, fields, where, _first_rows(table, first)))
            await run.take(feed, number, keep=len(scans) > 1 or not once)

    async def _open(
        self,
        run: StatementRun,
        table: SqlTable,
        fields: list[str],
        where: Mapping[str, Any] | None,
        first: Mapping[str, Any],
    ) -> ColumnFeed:
        assert run.process is not None
        stack = AsyncExitStack()
        try:
            stream = self._client.columns(table.schema, fields, where, **first)
            pieces = await stack.enter_async_context(stream)
        except InvalidQuery:
            # For example a sort or a test of more long texts than the proxy decrypts per query.
            if first:
                return await self._open(run, table, fields, where, {})
            if where is None:
                raise
            return await self._open(run, table, fields, None, {})
        return ColumnFeed(run.process, pieces, stack)

    def cancel(self) -> None:
        """Cancel the running statement, if any: it raises 57014."""
        for run in (self._run, self._request):
            if run is not None:
                run.cancel()

    async def _end_last(self) -> None:
        if self._run is not None:
            await self._run.close()
            self._run = None


def _first_rows(table: SqlTable, first: Any) -> Mapping[str, Any]:
    """The members of the request for only the first rows of an order, if these are enough."""
    if first is None:
        return {}
    order, limit, offset = first
    order_by = [
        {
            "field": table.columns[column].field,
            "descending": descending,
            "nulls": "first" if nulls_first else "last",
        }
        for column, descending, nulls_first in order
    ]
    return {"order_by": order_by, "limit": limit, "offset": offset}

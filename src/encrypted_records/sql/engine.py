"""The engine: a statement in, columns of Arrow out.

::

    async with Engine(client, dataset="medical") as engine:
        async with await engine.execute("SELECT ... WHERE city = $1", ["Oslo"]) as result:
            async for batch in result.batches():
                ...

DuckDB plans the statement over empty tables, so that it is known which columns of which tables it
needs; the proxy sends these; DuckDB then runs the whole statement over them. An engine belongs to
one caller and one event loop, and runs one statement at a time; :meth:`Engine.cancel` ends it.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

import pyarrow

from encrypted_records import runtime
from encrypted_records.client.messages import Closing
from encrypted_records.errors import InvalidQuery, NotFound, SqlError
from encrypted_records.sql import failures, pushdown, source
from encrypted_records.sql.catalogue import Catalogue, Column, Table, load_catalogue
from encrypted_records.sql.limits import STANDARD, SqlLimits
from encrypted_records.sql.planner import Parameters, Plan, Planner, Scan
from encrypted_records.sql.run import Run

if TYPE_CHECKING:
    from encrypted_records.client.proxy.client import ProxyClient

T = TypeVar("T")


class Result(Closing):
    """The rows of a statement, read once; to be closed, or used as a context.

    Attributes:
        columns: names, of which two may be the same, and DuckDB's types.
        versions: of each table that was read, by its path, the version of its log (the proxy's
            ``X-Log-Version``). Rows of one table are all of one version.
    """

    def __init__(
        self,
        run: Run,
        columns: tuple[Column, ...],
        reader: pyarrow.RecordBatchReader,
        versions: dict[str, int],
    ) -> None:
        self.columns = columns
        self.versions = versions
        self._run = run
        self._reader = reader

    @property
    def schema(self) -> pyarrow.Schema:
        """Arrow's, whose fields are the columns in their order; a uuid is a text there."""
        return self._reader.schema

    async def batches(self) -> AsyncIterator[pyarrow.RecordBatch]:
        """The rows, some at a time.

        Raises:
            SqlError: 57014 cancelled or out of time; 53200 out of memory; 54000 too many rows; or
                what the statement itself does wrong, such as 22P02.
            ErsError: as the proxy answers.
        """
        rows = 0
        while (batch := await self._run.step(self._next)) is not None:
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

    def _next(self) -> pyarrow.RecordBatch | None:
        try:
            return self._reader.read_next_batch()
        except StopIteration:
            return None

    async def close(self) -> None:
        """End the statement, if it still runs, and free its memory."""
        await self._run.close()


class Engine(Closing):
    """
    Args:
        client: of the caller; every decision about rights is its proxy's.
        dataset: the slug of the dataset whose tables need no qualification; None is all, where
            names of tables that two datasets have need their dataset: ``medical.patient``.
        organization: the id of the organization whose datasets count; None is all.
    """

    def __init__(
        self,
        client: ProxyClient,
        *,
        dataset: str | None = None,
        organization: str | None = None,
        limits: SqlLimits = STANDARD,
    ) -> None:
        self._client = client
        self._wanted = dataset
        self._filters = {} if organization is None else {"organization": organization}
        self._limits = limits
        self._planner: Planner | None = None
        self._run: Run | None = None

    async def __aenter__(self) -> Self:
        await self.refresh()
        return self

    async def close(self) -> None:
        await self._end_last()
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    async def refresh(self) -> None:
        """Read the catalogue again. A statement that names something unknown does so by itself.

        Raises:
            SqlError: 3D000; there is no such dataset, or not for this caller.
            ErsError: as the proxy answers.
        """
        catalogue = await load_catalogue(self._client, self._filters)
        dataset = self._named(catalogue)
        planner = await runtime.in_thread(Planner, catalogue, dataset, self._limits)
        if self._planner is not None:
            self._planner.close()
        self._planner = planner

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
        return self._ready.dataset

    @property
    def catalogue(self) -> Catalogue:
        """All datasets and tables, as of the last :meth:`refresh`."""
        return self._ready.catalogue

    def tables(self) -> list[Table]:
        """The tables of the dataset, or of all where none was named."""
        found = self.catalogue
        return list(found.tables) if self.dataset is None else found.in_dataset(self.dataset)

    @property
    def _ready(self) -> Planner:
        assert self._planner is not None, "an engine is a context"
        return self._planner

    async def split(self, text: str) -> list[str]:
        """The statements of a text.

        Raises:
            SqlError: 42601.
        """
        return await self._with_planner(lambda planner: planner.split(text))

    async def execute(self, statement: str, parameters: Parameters = ()) -> Result:
        """Run a SELECT. The statement before, if it still runs, is ended.

        Args:
            statement: with ``$1``, ``?`` or ``$name`` where parameters are to be.
            parameters: by position or by name, of Python's types.

        Raises:
            SqlError: 42601; 25006 where it is no SELECT; 42P01, 42703, 42883 for unknown names; and
                as :meth:`Result.batches`.
            ErsError: as the proxy answers: :func:`failures.state_of` has its SQLSTATE.
        """
        await self._end_last()
        run = self._run = Run(self._limits)
        try:
            return await self._start(run, statement, parameters)
        except BaseException:
            await run.close()
            raise

    async def _start(self, run: Run, statement: str, parameters: Parameters) -> Result:

        def work(planner: Planner) -> tuple[Planner, str, Plan]:
            only = planner.only(statement)
            return planner, only, planner.plan(only, parameters)

        planner, only, plan = await run.wait(self._planned(work))
        try:
            await self._bring(run, planner, plan)
        except (source.Moved, InvalidQuery, NotFound):
            # A definition has changed since the catalogue was read, or a table is gone.
            await run.wait(self.refresh())
            planner, only, plan = await run.wait(self._planned(work))
            try:
                await self._bring(run, planner, plan)
            except source.Moved:
                raise failures.moved() from None
        columns, reader = await run.step(partial(run.start, planner, plan, only, parameters))
        versions = {
            planner.catalogue.tables[number].schema: stream.version
            for number, stream in run.streams.items()
        }
        return Result(run, columns, reader, versions)

    async def _bring(self, run: Run, planner: Planner, plan: Plan) -> None:
        """Ask for all columns that a plan needs. One table that is read once is read as it comes;
        several are here before the statement starts, so that none waits half read."""
        await run.close_streams()
        for number, scan in plan.scans.items():
            table = planner.catalogue.tables[number]
            where = await runtime.in_thread(_condition, planner, number, scan)
            run.streams[number] = await run.wait(self._open(table, scan, where))
            if len(plan.scans) > 1 or not scan.once:
                await run.step(partial(run.keep, number))

    async def _open(self, table: Table, scan: Scan, where: pushdown.Where | None) -> source.Stream:
        stream = source.Stream(table, scan.columns)
        try:
            await stream.open(self._client, where)
        except BaseException as error:
            await stream.close()
            if where is None or not isinstance(error, InvalidQuery):
                raise
            # Such as a test of more long texts than the proxy opens for one question.
            return await self._open(table, scan, None)
        return stream

    async def _planned(self, work: Callable[[Planner], T]) -> T:
        """Work with the catalogue; where it names something unknown, again with a new one."""
        try:
            return await self._with_planner(work)
        except SqlError as error:
            if error.reason != "sql_unknown":
                raise
        await self.refresh()
        return await self._with_planner(work)

    async def _with_planner(self, work: Callable[[Planner], T]) -> T:
        planner = self._ready
        try:
            return await runtime.in_thread(work, planner)
        except CancelledError:
            # Its thread goes on, and has the planner to itself.
            planner.interrupt()
            raise

    def cancel(self) -> None:
        """End the statement that runs, if one does: it raises 57014."""
        if self._run is not None:
            self._run.cancel()

    async def _end_last(self) -> None:
        if self._run is not None:
            await self._run.close()
            self._run = None


def _condition(planner: Planner, number: int, scan: Scan) -> pushdown.Where | None:
    return pushdown.condition_of(planner.catalogue.tables[number], scan.filters, planner.expression)

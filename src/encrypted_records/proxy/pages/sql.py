"""The SQL page: a SELECT statement, its first rows, all rows as a file, and the history of
statements.

DuckDB runs in a separate process, which receives columns and has no login; the page requests them
like any page, on behalf of the visitor. Statements contain values: they are sent in the form's
body, and those of a session are kept in memory until it ends. The number of concurrent statements
is limited.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from encrypted_records.client.proxy.connection import Named, ShownSchema
from encrypted_records.errors import ErsError, NotAuthenticated, Overloaded, SqlError
from encrypted_records.model import strict_json
from encrypted_records.proxy.http.messages import Download
from encrypted_records.proxy.pages.formatting import shortened
from encrypted_records.proxy.pages.page import Visit, file_headers, page
from encrypted_records.proxy.process import put_first
from encrypted_records.proxy.services import services_of
from encrypted_records.sql.catalogue import Catalogue, SqlTable, load_catalogue, quoted
from encrypted_records.sql.limits import SqlLimits, require_sql

if TYPE_CHECKING:
    from encrypted_records.sql.engine import Engine, StatementResult

#: Rows and characters of a value that the page shows.
SHOWN_ROWS, SHOWN_CHARACTERS = 100, 500
#: Maximum tables that are listed with their columns, and columns of each.
LISTED_TABLES, LISTED_COLUMNS = 30, 60
#: Statements of a session that can be recalled.
REMEMBERED = 20
#: Characters of a statement.
LONGEST = 100_000
LIMITS = SqlLimits(memory_bytes=1 << 30, seconds=60.0, rows=10_000_000)
#: Maximum seconds that a statement waits for others.
WAIT_SECONDS = 30.0
#: Kinds of types whose values are right-aligned.
_NUMBERS = ("BIGINT", "INTEGER", "DECIMAL", "DOUBLE", "FLOAT", "HUGEINT", "SMALLINT", "TINYINT")


class _InternalProxy:
    """The proxy for an engine, which is this proxy."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit

    async def read_all(self, kind: type[Named], /, **filters: str) -> AsyncIterator[Named]:
        for item in await self._visit.every(kind, **filters):
            yield item

    def columns(
        self,
        schema: str,
        fields: Sequence[str],
        where: Mapping[str, Any] | None = None,
        **members: Any,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        request = {"schema": schema, "fields": list(fields), "where": where, **members}
        body = {name: value for name, value in request.items() if value is not None}
        return self._visit.stream("/api/records/columns/", body)


@dataclass(slots=True)
class StatementHistory:
    """Statements of a session by number, the newest first. A page of another tab may be older than
    the newest statement, but its numbers still mean the same statements.
    """

    statements: dict[int, str] = field(default_factory=dict, repr=False)
    _numbers: Iterator[int] = field(default_factory=count, repr=False)

    def add(self, statement: str) -> None:
        if not statement or len(statement) > LONGEST:
            return
        known = {text: number for number, text in self.statements.items()}
        number = known[statement] if statement in known else next(self._numbers)
        newest = {number: statement} | self.statements
        self.statements = dict(islice(newest.items(), REMEMBERED))


@dataclass(frozen=True, slots=True)
class ResultRows:
    """The first rows of a result; ``more`` is whether there are more rows."""

    columns: list[tuple[str, str, bool]]
    rows: list[list[str | None]]
    more: bool


async def show(visit: Visit) -> Response:
    """The statement box; after it is sent, with the rows or the error."""
    history = visit.desk.item(("statements",), StatementHistory)
    statement, found = visit.text("statement").strip(), None
    if visit.sends and (again := visit.text("again")).isdecimal():
        recalled = history.statements.get(int(again[:9]), statement)
        history.add(statement)  # typed and not run yet
        statement = recalled
    elif visit.sends:
        try:
            found = await _first_rows(visit, statement)
        except NotAuthenticated:
            raise
        except ErsError as error:
            visit.refusal = error
        history.add(statement)
        # Back, and a reload, show it again.
        visit.desk.put(("statement", visit.path), statement[:LONGEST])
    schema, catalogue = await _around(visit)
    if not visit.has_form:
        last = visit.desk.find(("statement", visit.path), str)
        statement = last or ("" if schema is None else _sample(catalogue, schema.url))
    return visit.render(
        "sql.html",
        schema=schema,
        tables=catalogue.tables[:LISTED_TABLES],
        others=max(0, len(catalogue.tables) - LISTED_TABLES),
        columns_listed=LISTED_COLUMNS,
        statement=statement,
        found=found,
        again=history.statements,
        shown=SHOWN_ROWS,
        missing=_missing(),
    )


async def _around(visit: Visit) -> tuple[ShownSchema | None, Catalogue]:
    """The schema in the page's address, if any, and all tables."""
    schema = None
    if "id" in visit.request.path_params:
        schema = await visit.read(ShownSchema)
    return schema, await load_catalogue(_InternalProxy(visit), {})


def _missing() -> ErsError | None:
    """An error that explains how to install the requirements of SQL, if they are missing."""
    try:
        require_sql()
    except ErsError as error:
        return error
    return None


def _sample(catalogue: Catalogue, url: str) -> str:
    """An example statement about the schema with this path."""
    table = next((table for table in catalogue.tables if table.schema == url), None)
    return "" if table is None else f"SELECT *\nFROM {_written(table)}\nLIMIT 10"


def _written(table: SqlTable) -> str:
    return ".".join(map(quoted, (table.dataset, table.name)))


async def _first_rows(visit: Visit, statement: str) -> ResultRows:
    """
    Raises:
        ErsError: the statement is refused, or fails.
    """
    from encrypted_records.sql.rendering import values_of  # noqa: PLC0415 - optional

    async with AsyncExitStack() as stack:
        result = await _run(visit, statement, stack)
        rows: list[list[str | None]] = []
        async for batch in result.batches():
            first = batch.slice(0, SHOWN_ROWS + 1 - len(rows))
            values = zip(*map(values_of, first.columns), strict=True)
            rows += [[_shown(value) for value in row] for row in values]
            if len(rows) > SHOWN_ROWS:
                break
        columns = [
            (column.name, column.type, column.type.startswith(_NUMBERS))
            for column in result.columns
        ]
        return ResultRows(columns, rows[:SHOWN_ROWS], len(rows) > SHOWN_ROWS)


async def _run(visit: Visit, statement: str, stack: AsyncExitStack) -> StatementResult:
    """A statement that runs until the stack is closed.

    Raises:
        NotInstalled: the extra is missing.
        Overloaded: too many statements are running.
        SqlError, ErsError: as :meth:`Engine.execute`.
    """
    require_sql()
    from encrypted_records.sql.engine import Engine  # noqa: PLC0415 - optional

    if len(statement) > LONGEST:
        raise SqlError(f"the statement has more than {LONGEST:,} characters")
    turns = services_of(visit.request).sql_turns
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await stack.enter_async_context(turns.take(visit.user.encode(), LIMITS.memory_bytes))
    except TimeoutError:
        raise Overloaded("too many statements are already running", retry_after=10) from None
    engine: Engine = await stack.enter_async_context(Engine(_InternalProxy(visit), limits=LIMITS))
    return await stack.enter_async_context(await engine.execute(statement))


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else strict_json.encode(value).decode()
    return shortened(text, SHOWN_CHARACTERS)


async def download(visit: Visit) -> Response:
    """All rows as a CSV file, which is streamed; a refusal is shown on the page."""
    lines = _lines(visit, visit.text("statement").strip(), safe=visit.text("safe_cells") == "yes")
    try:
        first = await anext(lines)
    except NotAuthenticated:
        raise
    except ErsError as error:
        return visit.problem(error)
    response = Download(put_first(first, lines), "text/csv; charset=utf-8; header=present")
    response.headers.update(file_headers("result.csv"))
    return response


async def _lines(visit: Visit, statement: str, *, safe: bool) -> AsyncGenerator[bytes, None]:
    """Lines of CSV; the header comes with the first line, so that most errors precede it."""
    async with AsyncExitStack() as stack:
        result = await _run(visit, statement, stack)
        from encrypted_records.sql.rendering import csv_row, unique_names, values_of  # noqa: PLC0415 - optional

        head = csv_row(unique_names(column.name for column in result.columns), safe=safe)
        async for batch in result.batches():
            values = zip(*map(values_of, batch.columns), strict=True)
            yield head + b"".join(csv_row(row, safe=safe) for row in values)
            head = b""
        if head:
            yield head


routes = [
    page("/sql/", show, methods=("GET", "POST"), changes=False),
    page("/sql/download/", download, methods=("POST",), changes=False),
    page("/schemas/{id}/sql/", show, methods=("GET", "POST"), changes=False),
]

"""The DuckDB process, seen from inside: it plans a statement, receives the columns that the plan
needs, and returns the rows of the result.

It has two pipes for requests and replies and a socket for columns, and opens nothing else. The
parent process pickles requests. Replies are JSON and Arrow, so that a statement that breaks out of
DuckDB controls only this process.
"""

from __future__ import annotations

import os
import pickle
import queue
import re
import resource
import socket
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import duckdb
import pyarrow

from encrypted_records.errors import SqlError
from encrypted_records.heap import forbid_dumps
from encrypted_records.model import strict_json
from encrypted_records.sql import failures, pushdown
from encrypted_records.sql.catalogue import Catalogue, SqlColumn, SqlTable
from encrypted_records.sql.connections import StatementDatabase
from encrypted_records.sql.limits import SqlLimits
from encrypted_records.sql.planner import (
    Parameters,
    Planner,
    ScanPlan,
    SelectStatement,
    TableScan,
    translate,
)
from encrypted_records.sql.process import (
    BROKEN,
    END,
    LENGTH_BYTES,
    PIECE_BYTES,
    ROW_BYTES,
    ColumnsBroken,
    TableChanged,
)


class Stream:
    """The rows of one table at one version, with columns called ``c<number>``.

    Args:
        file: the columns of all tables, each as frames up to an end marker.

    Attributes:
        version: the version of the schema's log.
        broken: whether the rows ended before their end marker.
    """

    closed = False

    def __init__(self, file: BinaryIO, table: SqlTable, columns: Collection[int]) -> None:
        self.version, self.broken = 0, False
        self._file, self._table = file, table
        self._left = memoryview(b"")
        self._at_end = False
        self._columns = sorted(columns)
        self._reader: Any = None

    def open(self) -> None:
        """Read the schema.

        Raises:
            TableChanged: the table has other columns.
            ColumnsBroken: the data does not have the expected form.
        """
        table = self._table
        try:
            self._reader = pyarrow.ipc.open_stream(self)
        except (pyarrow.ArrowException, OSError):
            raise ColumnsBroken from None
        metadata = self._reader.schema.metadata
        self.version = int(metadata[b"log_version"])
        sent = [_named(kind) for kind in self._reader.schema.types]
        known = [table.columns[at].arrow for at in self._columns]
        # No column was requested for a field that was added: SELECT * would lack it.
        if sent != known or metadata[b"definition"].decode() != table.digest:
            raise TableChanged

    @property
    def schema(self) -> pyarrow.Schema:
        """The schema of the batches; a table without needed columns has a column of nulls."""
        if not self._columns:
            return pyarrow.schema([("rows", pyarrow.int8())])
        names = (f"c{at}" for at in self._columns)
        return pyarrow.schema(list(zip(names, self._reader.schema.types, strict=True)))

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        """The rows.

        Raises:
            OSError: the rows broke off.
        """
        schema = self.schema
        for batch in self._reader:
            if self._columns:
                yield pyarrow.RecordBatch.from_arrays(batch.columns, schema=schema)
            else:
                rows = pyarrow.nulls(batch.num_rows, pyarrow.int8())
                yield pyarrow.RecordBatch.from_arrays([rows], schema=schema)

    def all(self, left: int) -> pyarrow.Table:
        """All rows.

        Args:
            left: bytes that the rows may use.

        Raises:
            SqlError: 53200; they use more.
            OSError: as :meth:`batches`.
        """
        batches: list[pyarrow.RecordBatch] = []
        for batch in self.batches():
            left -= batch.nbytes
            if left < 0:
                raise failures.sql_error(
                    failures.OUT_OF_MEMORY,
                    "the columns of the statement take more memory than it may have",
                    code="sql_memory",
                    hint=failures.NARROWER,
                )
            batches.append(batch)
        return pyarrow.Table.from_batches(batches, self.schema)

    # --- as the file that pyarrow reads -----------------------------------------------------------

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts: list[memoryview] = []
        wanted = size
        while wanted:
            if not self._left and not self._next():
                # A reader stops asking after the marker that ends a complete stream.
                self.broken = True
                raise OSError("the proxy's answer broke off")
            part = self._left[:wanted] if wanted > 0 else self._left
            self._left = self._left[len(part) :]
            parts.append(part)
            wanted -= len(part) if wanted > 0 else 0
        return b"".join(parts)

    def finish(self) -> None:
        """Read the rest, up to the end marker: the next table's columns follow."""
        while self._next():
            pass

    def _next(self) -> bool:
        """Advance to the next frame; whether there was one."""
        if self._at_end:
            return False
        length = int.from_bytes(self._file.read(LENGTH_BYTES), "big")
        self._at_end = length in (END, BROKEN)
        self._left = memoryview(b"" if self._at_end else self._file.read(length))
        return not self._at_end


def _named(kind: Any) -> str:
    """The name of an Arrow type, as in :meth:`FieldType.column_type`."""
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return "uuid" if isinstance(kind, pyarrow.UuidType) else str(kind)


#: Plain values, and Arrow bytes or none.
Reply = tuple[object, bytes | memoryview]
#: Types whose values DuckDB exports changed: without their zone, negative from 2^127 on, as bytes.
_CHANGED = re.compile(r"\b(?:TIME WITH TIME ZONE|UHUGEINT|BIT)\b")
#: Memory of the process in addition to its statement's: stacks, plans, copies in transit.
_BESIDE_BYTES = 512 << 20
#: A database is closed after this many seconds without a request, if the process has grown by this
#: many bytes since it was opened: only then is memory that DuckDB freed returned.
_REST_SECONDS, _RESTING_BYTES = 1.0, 32 << 20


class Worker:
    """Runs one statement at a time; each public method is a request of :meth:`Process.call`.

    Args:
        columns: the columns of the tables that statements read, in the order of :meth:`take`.
    """

    def __init__(self, columns: BinaryIO) -> None:
        self._columns = columns
        self._planner: Planner | None = None
        self._limits: SqlLimits | None = None
        #: for the next statement: no statement in it has failed, was ended or may have changed it
        self._database: StatementDatabase | None = None
        self._running: StatementDatabase | None = None
        self._resident = 0
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._statement: tuple[SelectStatement, Parameters, ScanPlan] | None = None
        self._is_complete = False
        self._streams: dict[int, Stream] = {}
        self._kept: dict[int, pyarrow.Table] = {}
        self._reader: Any = None
        self._rest: pyarrow.RecordBatch | None = None

    @property
    def planner(self) -> Planner:
        assert self._planner is not None, "open comes first"
        return self._planner

    def open(self, catalogue: Catalogue, dataset: str | None, limits: SqlLimits) -> Reply:
        """Use these tables from now on."""
        if self._limits is None:
            self._limits = limits
            _limit_memory(limits.memory_bytes + _BESIDE_BYTES)
        if self._planner is not None:
            self._planner.close()
        self._drop_database()
        self._planner = Planner(catalogue, dataset, limits)
        return None, b""

    def split(self, text: str) -> Reply:
        return self.planner.split(text), b""

    def bound(self, parameters: Any) -> Parameters:
        """Values of parameters in DuckDB's types."""
        return parameters  # type: ignore[no-any-return] # passed on unchanged

    def plan(self, text: str, given: object) -> Reply:
        """The tables that a statement reads, by number; for each, the numbers of its columns, a
        condition that the proxy can evaluate, whether the table is read once, and the first rows
        that are enough.
        """
        parameters = self.bound(given)
        statement = self.planner.only(text)
        plan = self.planner.plan(statement, parameters)
        self._statement = statement, parameters, plan
        tables = self.planner.catalogue.tables
        return [
            [number, sorted(scan.columns), *self._request_of(tables[number], scan)]
            for number, scan in plan.scans.items()
        ], b""

    def _request_of(self, table: SqlTable, scan: TableScan) -> list[object]:
        condition = pushdown.condition_of(table, scan.filters, self.planner.expression)
        first = scan.first if condition.exact else None
        rows = None
        if first is not None:
            order = [[rank.column, rank.descending, rank.nulls_first] for rank in first.order]
            rows = [order, first.limit, first.offset]
        return [condition.where, scan.once, rows]

    def take(self, number: int, keep: bool) -> Reply:
        """Begin to read the columns of a table; returns the version of its log."""
        assert self._statement is not None
        assert self._limits is not None
        _, _, plan = self._statement
        table = self.planner.catalogue.tables[number]
        stream = self._streams[number] = Stream(self._columns, table, plan.scans[number].columns)
        stream.open()
        if keep:
            kept_bytes = sum(table.nbytes for table in self._kept.values())
            self._kept[number] = stream.all(self._limits.memory_bytes - kept_bytes)
            stream.finish()
        return stream.version, b""

    def start(self) -> Reply:
        """Begin to execute the statement; returns names and types of its columns, and Arrow's
        schema.
        """
        assert self._statement is not None
        assert self._limits is not None
        statement, parameters, plan = self._statement
        planner = self.planner
        self._running, self._database = self._database, None
        if self._running is None:
            with suppress(OSError):
                self._resident = _memory_bytes(1)
            self._running = StatementDatabase(planner.catalogue, planner.dataset, self._limits)
        rows: dict[int, Any] = {}
        for number, stream in self._streams.items():
            rows[number] = self._kept.get(number)
            if rows[number] is None:
                batches = stream.batches()
                rows[number] = pyarrow.RecordBatchReader.from_batches(stream.schema, batches)
        columns_by_table = {number: scan.columns for number, scan in plan.scans.items()}
        connection = self._connection = self._running.connect(rows, columns_by_table)
        relation = connection.sql(statement.text, params=parameters or None)
        kinds = zip(relation.columns, relation.types, strict=True)
        columns = [SqlColumn(name, type_name(kind)) for name, kind in kinds]
        for column in columns:
            if _CHANGED.search(column.type):
                raise failures.sql_error(
                    failures.NOT_SUPPORTED,
                    f"values of {column.type[:100]} cannot be carried unchanged",
                    code="sql_invalid",
                    hint="cast them to VARCHAR",
                )
        self._reader = relation.to_arrow_reader(self._limits.batch_rows)
        listed = [[column.name, column.type] for column in columns]
        return listed, self._reader.schema.serialize().to_pybytes()

    def next(self) -> Reply:
        """Whether there were more rows, and these rows."""
        if not self._rest:
            try:
                self._rest = self._reader.read_next_batch()
            except StopIteration:
                self._is_complete = True
                return False, b""
        batch = self._rest
        while batch.nbytes > PIECE_BYTES and batch.num_rows > 1:
            batch = batch.slice(0, batch.num_rows // 2)
        self._rest = self._rest.slice(batch.num_rows)
        return True, as_stream(batch.schema, [batch])

    def end(self) -> Reply:
        """Discard the statement."""
        keep = (
            self._is_complete and self._statement is not None and self._statement[0].only_computes
        )
        self._reader = self._statement = self._rest = None
        self._is_complete = False
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.interrupt()
            connection.close()
        if self._running is not None:
            database, self._running = self._running, None
            if keep:
                self._database = database
            else:
                database.close()
        for stream in self._streams.values():
            stream.finish()
        self._streams.clear()
        self._kept.clear()
        return None, b""

    def rest(self) -> None:
        """Return memory during an idle period."""
        with suppress(OSError):
            if _memory_bytes(1) < self._resident + _RESTING_BYTES:
                return
        self._drop_database()

    def _drop_database(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def failed(self, error: Exception) -> dict[str, str]:
        """The reply for an error."""
        broken = any(stream.broken for stream in self._streams.values())
        if broken or isinstance(error, ColumnsBroken):
            return {"error": "broken"}
        if isinstance(error, TableChanged):
            return {"error": "moved"}
        if isinstance(error, MemoryError):
            error = failures.sql_error(
                failures.OUT_OF_MEMORY,
                "the statement takes more memory than it may have",
                code="sql_memory",
                hint=failures.NARROWER,
            )
        elif isinstance(error, duckdb.Error | pyarrow.ArrowException | OSError):
            error = translate(error, self.planner.catalogue, self.planner.dataset)
        if isinstance(error, SqlError):
            fields = {"message": error.message, "code": error.reason, "hint": error.hint}
            return {"error": error.sqlstate, **fields}
        # The exception's text may contain a value.
        message = f"the statement failed because of an internal error: {type(error).__name__}"
        return {"error": failures.INTERNAL, "message": message, "code": "sql_invalid", "hint": ""}


def as_stream(schema: pyarrow.Schema, batches: Sequence[pyarrow.RecordBatch]) -> memoryview:
    """Batches as an Arrow stream.

    Raises:
        SqlError: 54000; they are too large.
    """
    if sum(batch.nbytes for batch in batches) > ROW_BYTES:
        raise failures.sql_error(
            failures.TOO_MUCH,
            f"a row of the result has more than {ROW_BYTES >> 20} MiB",
            code="sql_rows",
            hint="select fewer columns, or parts of values: substr(value, 1, 1000)",
        )
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return memoryview(sink.getvalue())


def type_name(kind: object) -> str:
    return str(kind).strip('"')


def _limit_memory(more: int) -> None:
    """Limit the memory of the process to ``more`` bytes above its present use. On systems without
    such a limit, such as macOS, only DuckDB's own limit applies.
    """
    with suppress(OSError, ValueError):
        present = _memory_bytes(5)
        resource.setrlimit(resource.RLIMIT_DATA, (present + more, present + more))


def _memory_bytes(column: int) -> int:
    """Memory of the process from a column of ``/proc/self/statm``: 1 resident, 5 data.

    Raises:
        OSError: there is no such file, as on macOS.
    """
    return int(Path("/proc/self/statm").read_text().split()[column]) * resource.getpagesize()


def _requests(pipe: BinaryIO, found: queue.SimpleQueue[bytes]) -> None:
    """Read requests until the parent process has ended; then exit, whatever runs."""
    while len(length := pipe.read(LENGTH_BYTES)) == LENGTH_BYTES:
        found.put(pipe.read(int.from_bytes(length, "big")))
    os._exit(0)


def _write(pipe: BinaryIO, head: object, body: bytes | memoryview) -> None:
    for part in (strict_json.encode(head), body):
        pipe.write(len(part).to_bytes(2 * LENGTH_BYTES, "big"))
        pipe.write(part)
    pipe.flush()


def serve(kind: type[Worker]) -> None:
    """Answer requests until the parent process has ended."""
    forbid_dumps()  # a fault of DuckDB would write the rows to a file
    replies = os.fdopen(os.dup(1), "wb")
    # A library that prints would corrupt replies.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # others reserve gigabytes in advance
    columns = socket.socket(fileno=int(sys.argv[1]))
    worker = kind(cast("BinaryIO", columns.makefile("rb", buffering=1 << 20)))
    found: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    reader = threading.Thread(  # noqa: TID251 - no event loop is here
        target=_requests, args=(sys.stdin.buffer, found), daemon=True
    )
    reader.start()
    while True:
        try:
            request = found.get(timeout=_REST_SECONDS)
        except queue.Empty:
            worker.rest()
            request = found.get()
        method, arguments = pickle.loads(request)  # noqa: S301 - of the process above this one
        try:
            value, body = getattr(worker, method)(*arguments)
            head = {"value": value}
        except Exception as error:
            head, body = worker.failed(error), b""
        _write(replies, head, body)


if __name__ == "__main__":
    serve(Worker)

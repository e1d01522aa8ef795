"""The rows of tables, from a proxy, as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pyarrow

from encrypted_records import runtime
from encrypted_records.errors import ErsError
from encrypted_records.sql import failures
from encrypted_records.sql.catalogue import Table

if TYPE_CHECKING:
    from encrypted_records.client.proxy.client import ProxyClient


class Moved(Exception):
    """The table has other columns than the catalogue says, or is gone."""


class Stream:
    """The rows of one table: of one moment, with its columns called ``c<number>``.

    Attributes:
        version: of the schema's log.
        error: of the proxy, where the rows broke off.
    """

    def __init__(self, table: Table, columns: Collection[int]) -> None:
        self.version = 0
        self.error: ErsError | None = None
        self._table = table
        self._columns = sorted(columns)
        self._loop = asyncio.get_running_loop()
        self._pieces: AsyncIterator[bytes]
        self._waits: Future[bytes] | None = None
        self._closed = False
        self._stack = AsyncExitStack()
        self._reader: Any = None

    async def open(self, client: ProxyClient, where: Mapping[str, Any] | None) -> None:
        """Ask for the rows.

        Raises:
            ErsError: as the proxy answers.
            Moved: the table has other columns.
        """
        fields = [self._table.columns[at].field for at in self._columns]
        asked = client.columns(self._table.schema, fields, where)
        self._pieces = await self._stack.enter_async_context(asked)
        try:
            self._reader = await runtime.in_thread(pyarrow.ipc.open_stream, _File(self))
        except (pyarrow.ArrowException, OSError):
            raise self.error or failures.broken_stream() from None
        metadata = self._reader.schema.metadata
        self.version = int(metadata[b"log_version"])
        there = [_named(kind) for kind in self._reader.schema.types]
        known = [self._table.columns[at].arrow for at in self._columns]
        # No column is asked for of a field that was added: SELECT * lacks it.
        if there != known or metadata[b"definition"].decode() != self._table.digest:
            raise Moved

    @property
    def schema(self) -> pyarrow.Schema:
        """The schema of the batches; a table of which no column is needed has a column of nulls."""
        if not self._columns:
            return pyarrow.schema([("rows", pyarrow.int8())])
        names = (f"c{at}" for at in self._columns)
        return pyarrow.schema(list(zip(names, self._reader.schema.types, strict=True)))

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        """The rows; in a thread other than the event loop's.

        Raises:
            OSError: they break off, as :attr:`error` says.
        """
        schema = self.schema
        for batch in self._reader:
            if self._columns:
                yield pyarrow.RecordBatch.from_arrays(batch.columns, schema=schema)
            else:
                rows = pyarrow.nulls(batch.num_rows, pyarrow.int8())
                yield pyarrow.RecordBatch.from_arrays([rows], schema=schema)

    def read(self) -> bytes:
        """The next piece; nothing at the end. In a thread."""
        if self._closed:
            raise OSError("the statement has ended")
        self._waits = asyncio.run_coroutine_threadsafe(self._next(), self._loop)
        try:
            return self._waits.result()
        except ErsError as error:
            self.error = error
            raise OSError("the proxy's answer broke off") from None

    def broken(self) -> OSError:
        """The error of rows that end before their mark."""
        self.error = failures.broken_stream()
        return OSError("the proxy's answer broke off")

    async def _next(self) -> bytes:
        return await anext(self._pieces, b"")

    async def close(self) -> None:
        """End the request; a thread that reads it gets an error."""
        self._closed = True
        if self._waits is not None:
            self._waits.cancel()
        await self._stack.aclose()


class _File:
    """A stream as the file that pyarrow reads."""

    closed = False

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts: list[bytes | memoryview] = []
        wanted = size
        while wanted:
            if not self._left:
                self._left = memoryview(self._stream.read())
                if not self._left:
                    # A reader has no question after the mark that ends a whole stream.
                    raise self._stream.broken()
            part = self._left[:wanted] if wanted > 0 else self._left
            self._left = self._left[len(part) :]
            parts.append(part)
            wanted -= len(part) if wanted > 0 else 0
        return b"".join(parts)


def _named(kind: Any) -> str:
    """A type of Arrow as :meth:`FieldType.column_type` names it."""
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return "uuid" if isinstance(kind, pyarrow.UuidType) else str(kind)


def read_all(stream: Stream, left: int) -> pyarrow.Table:
    """All rows of a stream; in a thread.

    Args:
        left: bytes that they may take.

    Raises:
        SqlError: 53200; they take more.
        OSError: as :meth:`Stream.batches`.
    """
    batches: list[pyarrow.RecordBatch] = []
    for batch in stream.batches():
        left -= batch.nbytes
        if left < 0:
            raise failures.sql_error(
                failures.OUT_OF_MEMORY,
                "the columns of the statement take more memory than it may have",
                code="sql_memory",
                hint=failures.NARROWER,
            )
        batches.append(batch)
    return pyarrow.Table.from_batches(batches, stream.schema)

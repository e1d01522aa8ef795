"""The columns of tables, as they come into the process of DuckDB."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, BinaryIO

import pyarrow

from encrypted_records.sql import failures
from encrypted_records.sql.catalogue import SqlTable
from encrypted_records.sql.process import BROKEN, END, LENGTH_BYTES, ColumnsBroken, TableChanged


class Stream:
    """The rows of one table: of one moment, with its columns called ``c<number>``.

    Args:
        file: the columns of all tables, each in frames up to a mark.

    Attributes:
        version: of the schema's log.
        broken: whether the rows ended before their mark.
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
            ColumnsBroken: what comes is not of the expected form.
        """
        table = self._table
        try:
            self._reader = pyarrow.ipc.open_stream(self)
        except (pyarrow.ArrowException, OSError):
            raise ColumnsBroken from None
        metadata = self._reader.schema.metadata
        self.version = int(metadata[b"log_version"])
        there = [_named(kind) for kind in self._reader.schema.types]
        known = [table.columns[at].arrow for at in self._columns]
        # No column is asked for of a field that was added: SELECT * lacks it.
        if there != known or metadata[b"definition"].decode() != table.digest:
            raise TableChanged

    @property
    def schema(self) -> pyarrow.Schema:
        """The schema of the batches; a table of which no column is needed has a column of nulls."""
        if not self._columns:
            return pyarrow.schema([("rows", pyarrow.int8())])
        names = (f"c{at}" for at in self._columns)
        return pyarrow.schema(list(zip(names, self._reader.schema.types, strict=True)))

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        """The rows.

        Raises:
            OSError: they break off.
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
            left: bytes that they may take.

        Raises:
            SqlError: 53200; they take more.
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
                # A reader has no question after the mark that ends a whole stream.
                self.broken = True
                raise OSError("the proxy's answer broke off")
            part = self._left[:wanted] if wanted > 0 else self._left
            self._left = self._left[len(part) :]
            parts.append(part)
            wanted -= len(part) if wanted > 0 else 0
        return b"".join(parts)

    def finish(self) -> None:
        """Read what is left, up to the mark: the next table's columns follow."""
        while self._next():
            pass

    def _next(self) -> bool:
        """Whether there was another frame."""
        if self._at_end:
            return False
        length = int.from_bytes(self._file.read(LENGTH_BYTES), "big")
        self._at_end = length in (END, BROKEN)
        self._left = memoryview(b"" if self._at_end else self._file.read(length))
        return not self._at_end


def _named(kind: Any) -> str:
    """A type of Arrow as :meth:`FieldType.column_type` names it."""
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return "uuid" if isinstance(kind, pyarrow.UuidType) else str(kind)

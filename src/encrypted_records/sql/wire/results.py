"""Batches of Arrow as rows of the protocol, and of `COPY (SELECT ...) TO STDOUT`: text, CSV or
PostgreSQL's binary file format.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

import pyarrow
from pyarrow import compute

from encrypted_records.sql.failures import Failure, Unrepresentable
from encrypted_records.sql.wire.messages import ResultColumn, data_rows
from encrypted_records.sql.wire.statements import Copy
from encrypted_records.sql.wire.types import (
    BINARY_FORM,
    DATE,
    INTERVAL,
    ISO_INTERVAL,
    NESTED,
    TEXT,
    TEXT_FORM,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    ColumnType,
    column_type,
)

#: Types encoded from whole numbers (days or microseconds), with their bits.
_COUNTED = {DATE.oid: 32, TIME.oid: 64, TIMESTAMP.oid: 64, TIMESTAMPTZ.oid: 64}


#: PostgreSQL's limit (MaxTupleAttributeNumber).
MOST_COLUMNS = 1664


class RowEncoder:
    """
    Args:
        columns: names with DuckDB's types.
        forms: the format of each column; empty means text for all.
        iso_intervals: whether the session's `IntervalStyle` is iso_8601.

    Raises:
        Failure: there are too many columns.

    Attributes:
        described: the columns for RowDescription.
        oids: their types.
    """

    def __init__(
        self,
        columns: Sequence[tuple[str, str]],
        forms: Sequence[int],
        *,
        iso_intervals: bool = False,
    ) -> None:
        if len(columns) > MOST_COLUMNS:
            raise Failure("54011", f"a result has {MOST_COLUMNS} columns at most")
        self.types = [column_type(kind) or _shown_as(kind) for _, kind in columns]
        if iso_intervals:
            self.types = [
                replace(kind, element=ISO_INTERVAL) if kind.element is INTERVAL else kind
                for kind in self.types
            ]
        self._forms = list(forms) or [0] * len(columns)
        self.oids = [kind.oid for kind in self.types]
        self.described = [
            ResultColumn(name, kind.oid, kind.size, kind.modifier, form)
            for (name, _), kind, form in zip(columns, self.types, self._forms, strict=True)
        ]

    def rows(self, batch: pyarrow.RecordBatch) -> list[bytes]:
        """DataRow messages.

        Raises:
            Unrepresentable: the protocol cannot represent a value.
        """
        return data_rows(self.values(batch), batch.num_rows)

    def values(self, batch: pyarrow.RecordBatch) -> list[list[bytes | None]]:
        """The bytes of a batch's values, column by column; None is NULL."""
        return [
            _encoded(column, kind, form)
            for column, kind, form in zip(batch.columns, self.types, self._forms, strict=True)
        ]


def _shown_as(duckdb: str) -> ColumnType:
    """The type for a DuckDB type without a counterpart: JSON for nested types, otherwise text."""
    nested = duckdb.startswith(("STRUCT", "MAP", "UNION")) or duckdb.endswith("]")
    return ColumnType(NESTED if nested else TEXT)


def _encoded(column: pyarrow.Array, kind: ColumnType, form: int) -> list[bytes | None]:
    encode = kind.encoder(form)
    if pyarrow.types.is_dictionary(column.type):
        # Each distinct text is encoded only once.
        words = [None if word is None else encode(word) for word in column.dictionary.to_pylist()]
        return [None if at is None else words[at] for at in column.indices.to_pylist()]
    return [None if value is None else encode(value) for value in _values(column, kind)]


def _values(column: pyarrow.Array, kind: ColumnType) -> list[object]:
    if isinstance(column, pyarrow.ExtensionArray):
        column = column.storage if kind.element is not TEXT else column
    bits = _COUNTED.get(kind.element.oid)
    if pyarrow.types.is_null(column.type):
        return [None] * len(column)
    if kind.is_array and bits is not None:
        element = ColumnType(kind.element)
        return [_values(item.values, element) if item.is_valid else None for item in column]
    if kind.element is TEXT and not kind.is_array and not _is_text(column.type):
        column = _as_text(column)
    elif bits is not None and pyarrow.types.is_temporal(column.type):
        # A view, so that infinite times and times BC are numbers, too.
        column = _in_microseconds(column).view(pyarrow.int32() if bits == 32 else pyarrow.int64())
    try:
        values: list[object] = column.to_pylist()
    except (OverflowError, ValueError):
        raise Unrepresentable("a nested date is beyond the years 1 to 9999: cast it") from None
    return values


def _is_text(kind: pyarrow.DataType) -> bool:
    return bool(
        pyarrow.types.is_string(kind)
        or pyarrow.types.is_large_string(kind)
        or pyarrow.types.is_string_view(kind)
    )


def _as_text(column: pyarrow.Array) -> pyarrow.Array:
    try:
        return compute.cast(column, pyarrow.string())
    except pyarrow.ArrowException:
        raise Unrepresentable("a column's type has no counterpart: cast it to VARCHAR") from None


def _in_microseconds(column: pyarrow.Array) -> pyarrow.Array:
    kind = column.type
    if not pyarrow.types.is_date(kind) and kind.unit != "us":
        wanted = (
            pyarrow.time64("us")
            if pyarrow.types.is_time(kind)
            else pyarrow.timestamp("us", kind.tz)
        )
        return column.cast(wanted)
    return column


_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_ABSENT = struct.pack("!i", -1)
_ESCAPES = str.maketrans(
    {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
)


class CopyWriter:
    """
    Attributes:
        form: 0 for text and CSV, 1 for binary.
        head, tail: the data before and after the rows.
    """

    def __init__(
        self, copy: Copy, columns: Sequence[tuple[str, str]], *, iso_intervals: bool
    ) -> None:
        """
        Raises:
            Failure: a column whose values are always quoted does not exist.
        """
        self._copy = copy
        self.form = BINARY_FORM if copy.form == "binary" else TEXT_FORM
        self._encoder = RowEncoder(columns, [self.form] * len(columns), iso_intervals=iso_intervals)
        self._count = struct.pack("!h", len(columns))
        names = [name.lower() for name, _ in columns]
        forced = names if copy.forced == ["*"] else [name.lower() for name in copy.forced]
        for name in forced:
            if name not in names:
                raise Failure("42703", f'FORCE_QUOTE column "{name}" does not exist')
        self._forced = [name in forced for name in names]
        self.head, self.tail = b"", b""
        if self.form == BINARY_FORM:
            self.head, self.tail = _SIGNATURE, struct.pack("!h", -1)
        elif copy.header:
            self.head = self._line([self._quoted(name.encode(), False) for name, _ in columns])

    def rows(self, batch: pyarrow.RecordBatch) -> list[bytes]:
        """The rows of a batch, each separately: ADBC expects one row per message."""
        columns = self._encoder.values(batch)
        if self.form == BINARY_FORM:
            sized = [[_sized(value) for value in column] for column in columns]
            return [self._count + b"".join(row) for row in zip(*sized, strict=True)]
        null = self._copy.null.encode()
        written = [
            [null if value is None else self._quoted(value, forced) for value in column]
            for column, forced in zip(columns, self._forced, strict=True)
        ]
        return [self._line(row) for row in zip(*written, strict=True)]

    def _line(self, values: Sequence[bytes]) -> bytes:
        return self._copy.delimiter.encode().join(values) + b"\n"

    def _quoted(self, value: bytes, forced: bool) -> bytes:
        text, delimiter, quote = value.decode(), self._copy.delimiter, self._copy.quote
        if self._copy.form == "text":
            escaped = text.translate(_ESCAPES)
            if delimiter != "\t":
                escaped = escaped.replace(delimiter, f"\\{delimiter}")
            return escaped.encode()
        # A value that equals NULL's text, or the end marker, is quoted, as in PostgreSQL.
        needed = text in (self._copy.null, "\\.") or any(
            sign in text for sign in (delimiter, quote, "\n", "\r")
        )
        if forced or needed:
            for sign in dict.fromkeys((self._copy.escape, quote)):
                text = text.replace(sign, self._copy.escape + sign)
            return f"{quote}{text}{quote}".encode()
        return value


def _sized(value: bytes | None) -> bytes:
    return _ABSENT if value is None else struct.pack("!i", len(value)) + value

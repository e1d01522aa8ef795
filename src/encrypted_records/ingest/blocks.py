"""The output of upload parsers: blocks of records, each with the start of its first record.

An upload may be larger than memory, so a parser accepts bytes as they arrive and returns blocks of
some hundred records. Parsing can restart at the start of any block, so a worker finds the records
that it encrypts without reading earlier records.

A :class:`Grid` has the beginnings and ends of the cells of CSV rows. The texts of cells are decoded
on demand. Most checks of cells against a field use their bytes, for a whole column at once, so
checking an upload decodes hardly any text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from encrypted_records.errors import Flaw, TooLarge
from encrypted_records.model.definition import FieldSpec, SchemaDefinition
from encrypted_records.model.field_types.base import MAX_STRING_BYTES, KeyKind, ValueRefused

_COMMA, _LINE_END = b",\n"
_MINUS, _ZERO = b"-0"
#: Maximum digits of numbers that are parsed as a column; all of them fit 64 bits.
_DIGITS = 18
#: Characters of a uuid as text; the class of each byte value, and the expected class at each place.
_UUID_TEXT = 36
_DIGIT, _DASH = 1, 2
_UUID_BYTES = np.zeros(256, np.uint8)
_UUID_BYTES[list(b"0123456789abcdefABCDEF")] = _DIGIT
_UUID_BYTES[ord("-")] = _DASH
_UUID_PLACES = np.full(_UUID_TEXT, _DIGIT, np.uint8)
_UUID_PLACES[[8, 13, 18, 23]] = _DASH
_POWERS = 10 ** np.arange(_DIGITS, dtype=np.int64)

Places = NDArray[np.int64]


class Grid(Mapping[str, Sequence[str | None]]):
    """The columns of rows by field, absent cells None."""

    def __init__(self, rows: bytes, ends: Places, fields: Sequence[str | None]) -> None:
        self._rows = rows
        self._ends = ends
        self._fields = fields
        self._place = {name: at for at, name in enumerate(fields) if name is not None}
        self._width = len(fields)

    @classmethod
    def of(cls, rows: bytes, fields: Sequence[str | None]) -> Self | None:
        """The grid of rows without quotes that each end in a line feed; None if there are no rows,
        a row has another number of cells than ``fields``, or the bytes are not UTF-8.

        Args:
            fields: the field of each column; None for a column that is not read.
        """
        width = len(fields)
        data = np.frombuffer(rows, np.uint8)
        ends = np.flatnonzero((data == _COMMA) | (data == _LINE_END))
        lines = ends[width - 1 :: width]
        if not len(ends) or len(ends) != width * len(lines) or len(lines) != rows.count(b"\n"):
            return None
        # A row with a single empty cell is a blank line.
        if width == 1 and (rows.startswith(b"\n") or b"\n\n" in rows):
            return None
        if not np.all(data[lines] == _LINE_END):
            return None
        if not rows.isascii():
            try:
                rows.decode()
            except UnicodeDecodeError:
                return None
        return cls(rows, ends, fields)

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self._ends) // self._width

    def part(self, begin: int, end: int) -> Grid:
        """The rows ``begin`` to ``end - 1``; not empty."""
        ends = self._ends[begin * self._width : end * self._width]
        first = int(self._ends[begin * self._width - 1]) + 1 if begin else 0
        return Grid(self._rows[first : int(ends[-1]) + 1], ends - first, self._fields)

    def __getitem__(self, name: str) -> Sequence[str | None]:
        cells = slice(self._place[name], None, self._width)
        column = self._cells[cells]
        return column if self._sizes[cells].all() else [cell or None for cell in column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)

    @cached_property
    def _cells(self) -> list[str]:
        return self._rows[:-1].replace(b"\n", b",").decode().split(",")

    @cached_property
    def _begins(self) -> Places:
        return np.concatenate((np.zeros(1, np.int64), self._ends[:-1] + 1))

    @cached_property
    def _sizes(self) -> Places:
        return self._ends - self._begins

    def integers(self, name: str) -> list[int | None]:
        """The values of a column that :meth:`fits` found to be integers within bounds."""
        cells = slice(self._place[name], None, self._width)
        is_there = self._sizes[cells] > 0
        values = self._numbers(self._begins[cells][is_there], self._ends[cells][is_there])
        assert values is not None
        present: list[int | None] = values.tolist()
        if len(present) == len(is_there):
            return present
        given = iter(present)
        return [next(given) if there else None for there in is_there.tolist()]

    def fits(self, definition: SchemaDefinition) -> bool:
        """Whether the bytes alone show that every record is accepted. False does not mean that a
        record is refused."""
        if not self._rows.isascii() or definition.required - self._place.keys():
            return False
        specs = [(name, definition.fields.get(name)) for name in self._place]
        return all(
            spec is not None and self._fits(name, spec, required=name in definition.required)
            for name, spec in specs
        )

    def _fits(self, name: str, spec: FieldSpec, *, required: bool) -> bool:
        cells = slice(self._place[name], None, self._width)
        begins, ends, sizes = self._begins[cells], self._ends[cells], self._sizes[cells]
        if not sizes.all():
            if required:
                return False
            present = sizes > 0
            begins, ends, sizes = begins[present], ends[present], sizes[present]
            if not len(sizes):
                return True
        if spec.kind is KeyKind.UUID:
            return self._are_uuids(begins, sizes)
        if spec.only_lengths:
            return self._has_lengths(spec, begins, sizes)
        if spec.kind is KeyKind.TEXT and spec.allowed is not None:
            rows, places = self._rows, zip(begins.tolist(), ends.tolist(), strict=True)
            return spec.allowed.issuperset(map(bytes.decode, {rows[a:b] for a, b in places}))
        return spec.only_bounds and self._has_bounds(spec, begins, ends)

    @cached_property
    def _data(self) -> NDArray[np.uint8]:
        return np.frombuffer(self._rows, np.uint8)

    def _are_uuids(self, begins: Places, sizes: Places) -> bool:
        if not np.all(sizes == _UUID_TEXT):
            return False
        texts = self._data[begins[:, None] + np.arange(_UUID_TEXT)]
        return bool(np.all(_UUID_BYTES[texts] & _UUID_PLACES))

    def _has_lengths(self, spec: FieldSpec, begins: Places, sizes: Places) -> bool:
        least, most = int(sizes.argmin()), int(sizes.argmax())
        if sizes[most] > MAX_STRING_BYTES:
            return False
        for at in (least, most):
            text = self._rows[begins[at] : begins[at] + sizes[at]].decode()
            try:
                spec.string.check(text)
            except ValueRefused:
                return False
        return True

    def _has_bounds(self, spec: FieldSpec, begins: Places, ends: Places) -> bool:
        values = self._numbers(begins, ends)
        if values is None:
            return False
        rules = spec.numbers
        return bool(rules.lowest <= int(values.min()) and int(values.max()) <= rules.highest)

    def _numbers(self, begins: Places, ends: Places) -> Places | None:
        """The integers in these cells: digits, optionally after a minus. None if a cell has other
        characters or too many digits."""
        is_negative = self._data[begins] == _MINUS
        digits = ends - begins - is_negative
        most = int(digits.max(initial=0))
        if not digits.all() or most > _DIGITS:
            return None
        values: Places = np.zeros(len(digits), np.int64)
        for at in range(most):
            # Bytes before a shorter number count as zero.
            digit = self._data[np.maximum(ends - 1 - at, 0)] - np.uint8(_ZERO)
            has = digits > at
            if np.any(digit[has] > 9):
                return None
            values += np.where(has, digit, 0) * _POWERS[at]
        return np.where(is_negative, -values, values)


#: Maximum size of a record in an upload, in bytes as sent.
MAX_RECORD_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record object as it was sent. ``row`` counts from 1."""

    row: int
    schema: Any
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class UnreadRow:
    """A record that cannot be read, between records that can."""

    row: int
    error: Flaw


@dataclass(frozen=True, slots=True)
class RecordStart:
    """The start of a record: its offset in the upload, in bytes, and its row number."""

    offset: int
    row: int


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Consecutive records, from ``start`` on."""

    start: RecordStart
    records: list[RawRecord | UnreadRow]

    @property
    def count(self) -> int:
        return len(self.records)

    def part(self, first: int, last: int) -> RecordBlock:
        """The records of the block numbered ``first`` to ``last``; a parser finds them from this
        block's start.
        """
        begin = max(0, first - self.start.row)
        end = max(0, last + 1 - self.start.row)
        row = self.start.row + begin
        return RecordBlock(RecordStart(self.start.offset, row), self.records[begin:end])


@dataclass(frozen=True, slots=True)
class CellBlock:
    """A block of ``count`` CSV rows by column: the text of each cell, None if absent.

    Every row is valid CSV of the header's width; cells are not checked yet.
    """

    start: RecordStart
    schema: Any
    columns: Mapping[str, Sequence[str | None]]
    count: int

    @property
    def records(self) -> list[RawRecord | UnreadRow]:
        """The records row by row, as in a :class:`RecordBlock`."""
        names = tuple(self.columns)
        return [
            RawRecord(
                row,
                self.schema,
                {name: cell for name, cell in zip(names, cells, strict=True) if cell is not None},
            )
            for row, cells in enumerate(zip(*self.columns.values(), strict=True), self.start.row)
        ]

    def part(self, first: int, last: int) -> CellBlock:
        """The records ``first`` to ``last``, like :meth:`RecordBlock.part`."""
        if first <= self.start.row and self.start.row + self.count <= last + 1:
            return self
        begin = max(0, first - self.start.row)
        end = max(begin, min(self.count, last + 1 - self.start.row))
        start = RecordStart(self.start.offset, self.start.row + begin)
        columns: Mapping[str, Sequence[str | None]]
        if isinstance(self.columns, Grid) and begin < end:
            columns = self.columns.part(begin, end)
        else:
            columns = {name: cells[begin:end] for name, cells in self.columns.items()}
        return CellBlock(start, self.schema, columns, end - begin)


class Parser(Protocol):
    """Bytes in, blocks out. An error that hides the beginning of the next record is raised."""

    def feed(self, data: bytes) -> Sequence[RecordBlock | CellBlock]: ...

    def finish(self) -> Sequence[RecordBlock | CellBlock]:
        """The last blocks, after all bytes."""
        ...


def bad_row(row: int, code: str, detail: str) -> UnreadRow:
    return UnreadRow(row, Flaw(code, detail, row=row))


def record_too_large(row: int) -> TooLarge:
    return TooLarge(
        f"record {row} is larger than {MAX_RECORD_BYTES >> 20} MiB, or does not end",
        hint="look for a quote or bracket that is not closed",
    )

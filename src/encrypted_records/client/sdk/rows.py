"""Rows of a program -> pieces of JSON lines, and records found -> frames.

Rows are taken as they are needed, in the thread of the caller. No number changes on its
way: what JSON cannot say, such as NaN, is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import isfinite
from typing import Any, Protocol

from encrypted_records.client import MAX_DIRECT
from encrypted_records.client.proxy.connection import encode
from encrypted_records.client.sdk.frames import plain, refuse, rows_of
from encrypted_records.errors import BadInput, Flaw, InvalidRecords, InvalidSetting

#: Field name to value; absent fields are left out, or None.
Row = Mapping[str, Any]


class Frame(Protocol):
    """A table of columns: of pandas, Polars or Arrow (the Arrow PyCapsule interface)."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> object: ...


Rows = Iterable[Row] | Frame
AsyncRows = Iterable[Row] | AsyncIterable[Row] | Frame


@dataclass
class Piece:
    """
    Attributes:
        rows: of the piece, where there are no others and few enough for one request; else empty.
        is_last: whether nothing follows.
    """

    body: bytes
    rows: list[Row]
    is_last: bool


@dataclass
class _Gathering:
    piece_bytes: int
    count: int = 0
    few: list[Row] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)

    def add(self, row: Row) -> Iterator[Piece]:
        self.count += 1
        row, line = encode_row(row, self.count)
        if self.count <= MAX_DIRECT:
            self.few.append(row)
        self.body += line
        if len(self.body) >= self.piece_bytes and self.count > MAX_DIRECT:
            yield Piece(bytes(self.body), [], is_last=False)
            self.body.clear()

    def end(self) -> Piece:
        return Piece(bytes(self.body), self.few if self.count <= MAX_DIRECT else [], is_last=True)


def encode_row(row: Row, number: int) -> tuple[Row, bytes]:
    """A row as it is sent: with values of its own libraries, and as a JSON line.

    Args:
        number: of the row, from 1, for the error.

    Raises:
        InvalidRecords: it is not a record, or holds what cannot be stored.
    """
    check(row, number)
    try:
        return row, encode({"data": row}) + b"\n"
    except BadInput:
        row = plain(row, number)
    check(row, number)
    return row, _encode(row, number) + b"\n"


def _encode(row: Row, number: int) -> bytes:
    for name, value in row.items():
        try:
            encode(value)
        except BadInput as error:
            raise refuse(number, name, error.message) from None
    return encode({"data": row})


def pieces(rows: Rows, piece_bytes: int) -> Iterator[Piece]:
    """Rows as they are sent, in pieces of about so many bytes.

    Raises:
        InvalidRecords: a row is not a record, or holds what is not a number.
    """
    gathering = _Gathering(piece_bytes)
    data = rows_of(rows)
    if not isinstance(data, Iterable):
        raise InvalidRecords("these are no rows", hint="give dicts, or a frame or table")
    for row in data:
        yield from gathering.add(row)
    yield gathering.end()


async def async_pieces(rows: AsyncRows, piece_bytes: int) -> AsyncIterator[Piece]:
    """As :func:`pieces`, of rows that may have to be waited for."""
    if not isinstance(rows, AsyncIterable):
        for piece in pieces(rows, piece_bytes):
            yield piece
        return
    gathering = _Gathering(piece_bytes)
    async for row in rows:
        for piece in gathering.add(row):
            yield piece
    yield gathering.end()


def check(data: object, row: int) -> None:
    """
    Raises:
        InvalidRecords: the row is no object, or has a number that JSON cannot say.
    """
    if not isinstance(data, Mapping):
        flaw = Flaw("record", "expected field names and values", row=row)
        raise InvalidRecords("a row is no record", flaws=(flaw,), hint="nothing was stored")
    for name, value in data.items():
        decimal = isinstance(value, Decimal) and not value.is_finite()
        if decimal or (isinstance(value, float) and not isfinite(value)):
            raise InvalidRecords(
                "a value is no number",
                flaws=(Flaw("type", "NaN and infinities cannot be stored", row=row, field=name),),
                hint="nothing was stored; make it None, which is an absent value; of a pandas frame"
                " give the frame itself",
            )


def to_arrow(records: Sequence[Row], definition: Mapping[str, Any]) -> Any:
    """A ``pyarrow.Table`` with a column for each field: exact, absent values as nulls.

    Raises:
        InvalidSetting: pyarrow is not installed.
    """
    try:
        import pyarrow  # noqa: PLC0415 - optional
    except ImportError:
        raise _missing("pyarrow") from None

    enforced = "formats" in definition

    def kind(spec: Mapping[str, Any]) -> Any:
        if enforced and spec.get("format") == "boolean":
            return pyarrow.bool_()
        if spec["type"] == "string":
            return pyarrow.string()
        digits = max(len(str(abs(int(spec[end])))) for end in ("minimum", "maximum"))
        places = int(spec["precision"]) if spec["type"] == "number" else 0
        if not places and digits <= 18:
            return pyarrow.int64()
        return pyarrow.decimal128(digits + places, places)

    columns = {
        name: pyarrow.array([one.get(name) for one in records], kind(spec))
        for name, spec in definition["properties"].items()
    }
    return pyarrow.table(columns)


def to_pandas(records: Sequence[Row], definition: Mapping[str, Any]) -> Any:
    """A ``pandas.DataFrame`` with a column for each field: integers as Int64, other numbers as
    float64, which may round them, absent values as what pandas calls missing.

    Raises:
        InvalidSetting: pandas is not installed.
    """
    try:
        import pandas  # noqa: PLC0415 - optional
    except ImportError:
        raise _missing("pandas") from None
    kinds = {"string": "string", "integer": "Int64", "number": "float64"}
    enforced = "formats" in definition

    def kind(spec: Mapping[str, Any]) -> str:
        is_boolean = enforced and spec.get("format") == "boolean"
        return "boolean" if is_boolean else kinds[spec["type"]]

    return pandas.DataFrame(
        {
            name: pandas.Series([one.get(name) for one in records], dtype=kind(spec))
            for name, spec in definition["properties"].items()
        }
    )


def to_polars(records: Sequence[Row], definition: Mapping[str, Any]) -> Any:
    """A ``polars.DataFrame``, as exact as :func:`to_arrow`.

    Raises:
        InvalidSetting: Polars or pyarrow is not installed.
    """
    try:
        import polars  # noqa: PLC0415 - optional
    except ImportError:
        raise _missing("polars") from None
    return polars.from_arrow(to_arrow(records, definition))


def _missing(library: str) -> InvalidSetting:
    return InvalidSetting(f"{library} is not installed", hint=f"pip install {library}")

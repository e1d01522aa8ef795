"""Rows of a program -> pieces of JSON lines, and records found -> frames.

Rows are taken as they are needed, in the thread of whoever gives them. No number changes on its
way: what JSON cannot say, such as NaN, is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from encrypted_records.client import MAX_DIRECT
from encrypted_records.client.connection import encoded
from encrypted_records.errors import Flaw, InvalidRecords, InvalidSetting

#: Field name to value; absent fields are left out, or None.
Row = Mapping[str, Any]
Rows = Iterable[Row]
AsyncRows = Iterable[Row] | AsyncIterable[Row]

_PIECE_BYTES = 4 << 20


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
    count: int = 0
    few: list[Row] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)

    def add(self, row: Row) -> Iterator[Piece]:
        self.count += 1
        check(row, self.count)
        if self.count <= MAX_DIRECT:
            self.few.append(row)
        self.body += encoded({"data": row}) + b"\n"
        if len(self.body) >= _PIECE_BYTES and self.count > MAX_DIRECT:
            yield Piece(bytes(self.body), [], is_last=False)
            self.body.clear()

    def end(self) -> Piece:
        return Piece(bytes(self.body), self.few if self.count <= MAX_DIRECT else [], is_last=True)


def pieces(rows: Rows) -> Iterator[Piece]:
    """
    Raises:
        InvalidRecords: a row is none, or holds what is no number.
    """
    gathering = _Gathering()
    for row in rows:
        yield from gathering.add(row)
    yield gathering.end()


async def async_pieces(rows: AsyncRows) -> AsyncIterator[Piece]:
    """As :func:`pieces`, of rows that may have to be waited for."""
    if not isinstance(rows, AsyncIterable):
        for piece in pieces(rows):
            yield piece
        return
    gathering = _Gathering()
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
        if isinstance(value, float) and not -float("inf") < value < float("inf"):
            raise InvalidRecords(
                "a value is no number",
                flaws=(Flaw("type", "NaN and infinities cannot be stored", row=row, field=name),),
                hint="nothing was stored; make it null, which is an absent value",
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

    def kind(spec: Mapping[str, Any]) -> Any:
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
    return pandas.DataFrame(
        {
            name: pandas.Series([one.get(name) for one in records], dtype=kinds[spec["type"]])
            for name, spec in definition["properties"].items()
        }
    )


def _missing(library: str) -> InvalidSetting:
    return InvalidSetting(f"{library} is not installed", hint=f"pip install {library}")

"""Frames and tables of other libraries -> rows of values that Python has, and declared fields.

No library is imported: who has a frame has imported it. What a library calls missing is an absent
value: in pandas also NaN, since its columns have nothing else for that. In Polars and Arrow NaN is
a number, which cannot be stored. Indexes of pandas are left out. Columns of Parquet and Arrow
declare the types of their fields.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import partial
from math import isfinite
from typing import Any
from zoneinfo import ZoneInfo

from encrypted_records.client.proxy.connection import NO_NUMBER, duration_of, instant_of, time_of
from encrypted_records.client.proxy.transport import explain
from encrypted_records.errors import Flaw, InvalidRecords, InvalidSetting
from encrypted_records.model import field_types
from encrypted_records.model.field_types import TYPES
from encrypted_records.model.field_types.base import FieldType

#: Rows that are turned at once, and bytes of those that share texts.
_ROWS = 10_000
#: How the names of types of nanoseconds begin, in Arrow and Polars; and those of times of day.
_TIMES = ("time64", "Time")
_NANOSECONDS = (
    *("timestamp[ns", "time64[ns", "duration[ns", "Datetime(time_unit='ns'"),
    *("Duration(time_unit='ns'", "Time"),
)
_OFFSET = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})")
_SLICE_BYTES = 32 << 20

Row = Mapping[str, Any]


def rows_of(data: Any) -> Iterable[Row] | AsyncIterable[Row]:
    """The rows of a frame, as they are needed; anything else as it is.

    Raises:
        InvalidRecords: columns have no names, or names that are no texts.
    """
    if is_of(data, "pandas", "DataFrame"):
        return _of_pandas(data)
    if is_of(data, "polars", "LazyFrame"):
        return _of_polars(data.collect())
    if is_of(data, "polars", "DataFrame"):
        return _of_polars(data)
    if is_of(data, "pyarrow", "Table", "RecordBatch", "RecordBatchReader"):
        return _of_arrow(data)
    return data  # type: ignore[no-any-return]  # what a row is, is looked at one by one


def is_frame(data: object) -> bool:
    return (
        is_of(data, "pandas", "DataFrame")
        or is_of(data, "polars", "DataFrame", "LazyFrame")
        or is_of(data, "pyarrow", "Table", "RecordBatch", "RecordBatchReader")
    )


def is_of(value: object, library: str, *kinds: str) -> bool:
    """Whether a value is of a kind of a library, which nothing imports for that."""
    module = sys.modules.get(library)
    return any(isinstance(value, getattr(module, kind, ())) for kind in kinds)


def _of_pandas(frame: Any) -> Iterator[Row]:
    import pandas  # noqa: PLC0415 - whose frame it is

    names = _names(frame.columns)
    of_arrow = [
        frame.iloc[:, at].array.__arrow_array__()
        for at, kind in enumerate(frame.dtypes)
        if hasattr(kind, "pyarrow_dtype")
    ]
    at_once = min(max(_SLICE_BYTES // max(_folded_bytes(of_arrow), 1), 1), _ROWS)
    for start in range(0, len(frame), at_once):
        part = frame.iloc[start : start + at_once]
        columns = []
        for at, name in enumerate(names):
            column = part.iloc[:, at]
            cells = _cells_of_pandas(column, name, start)
            columns.append(zip(cells, pandas.isna(column).tolist(), strict=True))
        for cells in zip(*columns, strict=True):
            yield {
                name: value
                for name, (value, missing) in zip(names, cells, strict=True)
                if not missing
            }


def _cells_of_pandas(column: Any, name: str, before: int) -> list[Any]:
    if not hasattr(column.dtype, "pyarrow_dtype"):
        return column.tolist()  # type: ignore[no-any-return]
    return cells_of_arrow(column.array.__arrow_array__(), name, before)


def _of_polars(frame: Any) -> Iterator[Row]:
    # Many rows may share a text, of which each gets a copy here.
    longest = sum(map(_longest_of_polars, frame.get_columns()))
    at_once = min(max(_SLICE_BYTES // max(longest, 1), 1), _ROWS)
    for start in range(0, frame.height, at_once):
        part = frame.slice(start, at_once)
        columns = [_cells_of_polars(column) for column in part.iter_columns()]
        for cells in zip(*columns, strict=True):
            pairs = zip(frame.columns, cells, strict=True)
            yield {name: value for name, value in pairs if value is not None}


def _cells_of_polars(column: Any) -> list[Any]:
    kind = column.dtype
    if not _counts_nanoseconds(str(kind)):
        return column.to_list()  # type: ignore[no-any-return]
    return _from_nanoseconds(
        column.to_physical().to_list(), str(kind), getattr(kind, "time_zone", None)
    )


def _longest_of_polars(column: Any) -> int:
    """The bytes of the longest text or binary of a column; 0 of other kinds."""
    import polars  # noqa: PLC0415 - whose column it is

    kind = column.dtype
    if kind in (polars.Categorical, polars.Enum):
        column, kind = column.unique().cast(polars.String), polars.String
    if kind == polars.String:
        return column.str.len_bytes().max() or 0
    return (column.bin.size().max() or 0) if kind == polars.Binary else 0


def _of_arrow(table: Any) -> Iterator[Row]:
    names = _names(table.schema.names)
    batches = [table] if hasattr(table, "slice") and hasattr(table, "num_rows") else table
    before = 0
    for batch in batches:
        at_once = min(max(_SLICE_BYTES // max(_folded_bytes(batch.columns), 1), 1), _ROWS)
        for start in range(0, batch.num_rows, at_once):
            part = batch.slice(start, at_once)
            columns = [
                cells_of_arrow(part.column(at), name, before + start)
                for at, name in enumerate(names)
            ]
            for cells in zip(*columns, strict=True):
                pairs = zip(names, cells, strict=True)
                yield {name: value for name, value in pairs if value is not None}
        before += batch.num_rows


def _folded_bytes(columns: Iterable[Any]) -> int:
    """The most bytes that a row takes beyond those in the columns of Arrow themselves: of texts
    that many rows share, each gets a copy."""
    import pyarrow  # noqa: PLC0415 - whose columns they are
    from pyarrow import types  # noqa: PLC0415

    total = 0
    for column in columns:
        chunks = column.chunks if isinstance(column, pyarrow.ChunkedArray) else [column]
        longest = 0
        for chunk in chunks:
            if types.is_dictionary(chunk.type):
                shared = chunk.dictionary
            elif types.is_run_end_encoded(chunk.type):
                shared = chunk.values
            else:
                shared = chunk
                if not (types.is_string_view(chunk.type) or types.is_binary_view(chunk.type)):
                    continue
            longest = max(longest, _longest(shared))
        total += longest
    return total


def _longest(texts: Any) -> int:
    """The bytes of the longest text or binary of an array; 0 of other kinds."""
    from pyarrow import compute, types  # noqa: PLC0415 - whose array it is

    kind = texts.type
    if types.is_string_view(kind) or types.is_binary_view(kind):
        # Each view has 16 bytes, of which the first four say how long its text is.
        lengths = memoryview(texts.buffers()[1]).cast("B").cast("i")[::4]
        return max(lengths[texts.offset : texts.offset + len(texts)], default=0)
    if types.is_fixed_size_binary(kind):
        return int(kind.byte_width)
    dense = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    if any(is_dense(kind) for is_dense in dense):
        return compute.max(compute.binary_length(texts)).as_py() or 0
    return 0


def cells_of_arrow(column: Any, name: str, before: int) -> list[Any]:
    """The values of a column of Arrow.

    Args:
        name: of the column, and ``before`` the number of rows before the first of these, for the
            error.

    Raises:
        InvalidRecords: Python has no such instant.
    """
    import pyarrow  # noqa: PLC0415 - whose column it is

    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if _counts_nanoseconds(str(kind)):
        counts = column.cast(pyarrow.int64()).to_pylist()
        return _from_nanoseconds(counts, str(kind), getattr(kind, "tz", None))
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError, pyarrow.ArrowException):
        for row, cell in enumerate(column, before + 1):
            try:
                cell.as_py()
            except (ValueError, OverflowError, pyarrow.ArrowException):
                raise refuse(row, name, f"a {kind} is outside the range of Python's type") from None
        raise


def _counts_nanoseconds(kind: str) -> bool:
    """Whether values of a type of Arrow or Polars, by its name, are nanoseconds, which Python's
    dates and times do not have: their libraries leave them out there without a word."""
    return kind.startswith(_NANOSECONDS)


def _from_nanoseconds(counts: list[int | None], kind: str, zone: str | None) -> list[Any]:
    """Values of Python where they are of whole microseconds, else texts."""
    made: Callable[[int], Any]
    if kind.lower().startswith("duration"):
        made = duration_of
    elif kind.startswith(_TIMES):
        made = time_of
    else:
        made = partial(instant_of, zone=None if zone is None else _zone(zone))
    return [None if count is None else made(count) for count in counts]


def _zone(name: str) -> tzinfo:
    if offset := _OFFSET.fullmatch(name):
        minutes = 60 * int(offset[2]) + int(offset[3])
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    return UTC if name.upper() == "UTC" else ZoneInfo(name)


def _names(columns: Iterable[Any]) -> list[str]:
    names = list(columns)
    wrong = [at for at, name in enumerate(names, 1) if not isinstance(name, str)]
    wrong += [at for at, name in enumerate(names, 1) if name in names[: at - 1]]
    if wrong:
        raise explain(
            InvalidRecords(
                "a column of the frame has no name, or a repeated one",
                flaws=(
                    Flaw("record", f"column {wrong[0]}: expected a text that no other column has"),
                ),
                hint="nothing was stored; name the columns after the fields of the schema",
            )
        )
    return names


def refuse(row: int, field: str | None, detail: str) -> InvalidRecords:
    number = detail == NO_NUMBER
    hint = "nothing was stored; make it None, which is an absent value"
    if not number:
        hint = "nothing was stored; texts, numbers, dates, times and uuids can be, and booleans"
    flaw = Flaw("record" if field is None else "type", detail, row=row, field=field)
    message = "a value is not a number" if number else "a value cannot be stored"
    return explain(InvalidRecords(message, flaws=(flaw,), hint=hint))


_PADDED = 31


@dataclass(slots=True)
class ColumnFacts:
    """Facts about a column's values that its type does not tell.

    Attributes:
        digits: before the point, the most of all numbers.
        decimals: of floats, the most as they are shortest written.
        longest: bytes of the longest text.
        odd: whether a time is finer than microseconds.
        present: whether there is any.
    """

    digits: int = 1
    decimals: int = 0
    longest: int = 0
    odd: bool = False
    present: bool = False

    def add(self, column: Any, declared: Any) -> None:
        from pyarrow import compute, types  # noqa: PLC0415 - optional, and slow to import

        kind = declared.type
        self.present |= column.null_count < len(column)
        if types.is_dictionary(kind):
            column, kind = column.dictionary, kind.value_type
        if types.is_integer(kind) or types.is_decimal(kind):
            extremes = compute.min_max(column).as_py()
            numbers = [extreme for extreme in extremes.values() if extreme is not None]
            self.digits = max(
                [self.digits, *(Decimal(number).adjusted() + 1 for number in numbers)]
            )
        elif types.is_floating(kind):
            for value in compute.unique(column).to_pylist():
                if value is not None and isfinite(value):
                    self._add_float(value)
        elif _is_text(kind):
            self.longest = max(self.longest, _longest_of_field(column))
        elif types.is_temporal(kind) and getattr(kind, "unit", "") == "ns" and not self.odd:
            self.odd = _is_finer_than_microseconds(column, declared.name)

    def _add_float(self, value: float) -> None:
        number = Decimal(repr(value)).normalize()
        exponent = number.as_tuple().exponent
        assert isinstance(exponent, int)
        self.digits = max(self.digits, number.adjusted() + 1)
        self.decimals = max(self.decimals, -exponent)


def field_of(declared: Any, seen: ColumnFacts) -> tuple[dict[str, Any], str | None]:
    """The field that a column becomes, and what to look at.

    Args:
        declared: a field of Arrow.

    Raises:
        InvalidSetting: there are values of a type that cannot be stored.
    """
    from pyarrow import types  # noqa: PLC0415 - optional, and slow to import

    kind = declared.type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_decimal(kind) or types.is_floating(kind):
        field = _number(kind, seen)
        if field is None:
            return field_types.propose_text(_PADDED), "more than 18 digits: kept as text"
        if types.is_floating(kind):
            return field, f"a value with more than {field.get('precision', 0)} decimals is refused"
        return field, None
    if seen.odd:
        return field_types.propose_text(_PADDED), "finer than microseconds: kept as text"
    if (named := _type_of(kind)) is not None:
        return named.propose(), named.frame.note
    if _is_text(kind):
        return field_types.propose_text(seen.longest), None
    if seen.present:
        raise InvalidSetting(
            f"{declared.name}: values of type {kind} cannot be stored",
            hint="leave the column out, or turn it into texts",
        )
    return field_types.propose_text(_PADDED), f"{kind}: kept as text"


def _number(kind: Any, seen: ColumnFacts) -> dict[str, Any] | None:
    """A number field for an Arrow type of numbers; None if a field cannot have that many digits."""
    from pyarrow import types  # noqa: PLC0415 - optional, and slow to import

    if types.is_floating(kind):
        return field_types.propose_decimal(seen.digits, seen.decimals)
    if types.is_decimal(kind):
        if kind.precision > field_types.MAX_DIGITS or not 0 <= kind.scale <= kind.precision:
            return None
        return field_types.propose_number(kind.scale, kind.precision - kind.scale)
    if seen.digits > field_types.MAX_DIGITS:
        return None
    signed = types.is_signed_integer(kind)
    most = 2 ** (kind.bit_width - signed)
    return field_types.propose_whole_number(-most if signed else 0, most - 1)


def _type_of(kind: Any) -> FieldType | None:
    """The type that all columns of this type of Arrow become."""
    printed = str(kind)
    taken = ((kind, kind.frame.taken) for kind in TYPES)
    return next((type_ for type_, form in taken if form and re.fullmatch(form, printed)), None)


def _is_text(kind: Any) -> bool:
    from pyarrow import types  # noqa: PLC0415 - optional, and slow to import

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _longest_of_field(texts: Any) -> int:
    from pyarrow import compute, types  # noqa: PLC0415 - optional, and slow to import

    if types.is_string_view(texts.type):
        return max(
            (len(text.encode()) for text in texts.to_pylist() if text is not None), default=0
        )
    return compute.max(compute.binary_length(texts)).as_py() or 0


def _is_finer_than_microseconds(column: Any, name: str) -> bool:
    return any(isinstance(cell, str) for cell in cells_of_arrow(column, name, 0))

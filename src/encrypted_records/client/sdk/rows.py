"""Rows of a program -> pieces of JSON lines, records found -> frames, and answers to aggregates.

An aggregate is a number, numbers by their measures, or groups.

Rows are taken as they are needed, in the thread of the caller. No number changes on its way: what
JSON cannot say, such as NaN, is refused.
"""

from __future__ import annotations

import traceback
import warnings
from collections import Counter
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, is_dataclass
from dataclasses import fields as dataclass_fields
from itertools import takewhile
from math import isfinite
from typing import Any, ClassVar, Protocol, overload

import msgspec

from encrypted_records import errors
from encrypted_records.client import MAX_DIRECT, MAX_DIRECT_BYTES
from encrypted_records.client.proxy.connection import AS_IT_IS, encode_plain, plain
from encrypted_records.client.proxy.records import require_record_id, tell_rounding
from encrypted_records.client.proxy.transport import explain
from encrypted_records.client.sdk.frames import is_of, refuse, rows_of
from encrypted_records.model.field_types import type_in


class Measures(Mapping[str, Any]):
    """Results by the texts of their measures. ``raw`` is the whole answer."""

    def __init__(self, results: Mapping[str, Any], raw: Mapping[str, Any]) -> None:
        self._results = results
        self.raw = raw

    def __getitem__(self, measure: str) -> Any:
        return self._results[measure]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        return f"<Measures {', '.join(self._results)}>"


class Groups(Sequence[Mapping[str, Any]]):
    """Groups in order, each with the values of its fields and its results by measure. A measure is
    called ``measure count`` if a field is called ``count``.

    Attributes:
        columns: the fields and measures of each group.
        total: number of groups, including those beyond ``limit``.
        raw: the whole answer.
    """

    def __init__(
        self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], raw: Mapping[str, Any]
    ) -> None:
        self._rows = list(rows)
        self.columns = list(columns)
        self.raw = raw
        self.total = int(raw["total"])

    @overload
    def __getitem__(self, at: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, at: int | slice) -> Any:
        return self._rows[at]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<Groups: {len(self)} of {self.total}, with {', '.join(self.columns)}>"

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each group; numbers keep their kind."""
        return _library("pandas").DataFrame(self._rows, columns=self.columns)

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table`` with a row for each group, exact."""
        columns = {name: [row.get(name) for row in self._rows] for name in self.columns}
        return _library("pyarrow").table(columns)

    def to_polars(self) -> Any:
        """A ``polars.DataFrame`` with a row for each group."""
        return _library("polars").from_arrow(self.to_arrow())


def check_record_id(text: str) -> None:
    """
    Raises:
        NotFound: ``text`` cannot be the id of a record.
    """
    try:
        require_record_id(text, "schema.search() returns records with their id")
    except errors.NotFound as error:
        raise explain(error) from None


def require_etag(etag: str | None) -> str:
    """
    Raises:
        BadInput: a search found the record, whose answer has no ETags.
    """
    if etag is None:
        raise explain(
            errors.BadInput(
                "a record of a search does not know whether it has changed since",
                hint="nothing was changed; read it with schema.get(id), and change that record",
            )
        )
    return etag


def _library(name: str) -> Any:
    import importlib  # noqa: PLC0415 - only frames need it

    try:
        return importlib.import_module(name)
    except ImportError:
        raise errors.InvalidSetting(
            f"{name} is not installed", hint=f"pip install {name}"
        ) from None


def own_column(name: str, kind: str, fields: Collection[str]) -> str:
    """The name of a column that is not among ``fields``: ``name``, or ``kind`` and ``name`` if a
    field has that name, such as ``record id``."""
    while name in fields:
        name = f"{kind} {name}"
    return name


def name_measures(texts: Iterable[str], fields: Collection[str]) -> dict[str, str]:
    """The name of each measure's column in a table of groups: the measure's text, or ``measure
    count`` if a field is called ``count``."""
    return {text: own_column(text, "measure", fields) for text in texts}


def read_answer(answer: Mapping[str, Any], texts: Sequence[str], group_by: Any) -> Any:
    """The result of an aggregation: for one measure its result, for several :class:`Measures`, for
    groups :class:`Groups`.

    Args:
        texts: the measures, as they were written.
        group_by: the fields of the groups; None without groups.

    Raises:
        ApiFailed: the answer is not of the expected form.
    """
    try:
        if group_by is None:
            results = measured(answer, texts)
            return results[texts[0]] if len(texts) == 1 else Measures(results, answer)
        fields = [
            grouping if isinstance(grouping, str) else grouping["field"] for grouping in group_by
        ]
        named = name_measures(texts, fields)
        names = [named[text] for text in texts]
        rows = [{**group["group"], **measured(group, names)} for group in answer["groups"]]
        return Groups(rows, [*fields, *named.values()], answer)
    except (KeyError, TypeError, ValueError):
        raise errors.ApiFailed("the aggregate is not of the expected form") from None


def measured(answer: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The results of an aggregate, or of a group of it, by the names of its measures."""
    results = [
        {name: measure[name] for name in measure if name not in ("op", "field")}
        for measure in answer["measures"]
    ]
    short = [result["value"] if set(result) == {"value"} else result for result in results]
    return dict(zip(names, short, strict=True))


#: Field name to value; absent fields are left out, or None.
Row = Mapping[str, Any]
#: Digits that decimals of Arrow have in 128 bits, and those of Polars at most.
_DECIMAL_DIGITS = 38
_MIDNIGHT = "T00:00:00"


class Frame(Protocol):
    """A table of columns: of pandas, Polars or Arrow (the Arrow PyCapsule interface)."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> object: ...


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


class _Model(Protocol):
    """A Pydantic model, which yields the names and values of its fields."""

    def __iter__(self) -> Iterator[tuple[str, Any]]: ...


#: A row, or an object that has the fields of one: a dataclass, or a model of msgspec or Pydantic.
Record = Row | _Dataclass | msgspec.Struct | _Model
Rows = Iterable[Record] | Frame
AsyncRows = Iterable[Record] | AsyncIterable[Record] | Frame


@dataclass
class Piece:
    """
    Attributes:
        rows: all rows, if they fit in one request; otherwise empty.
        is_last: whether no piece follows.
    """

    body: bytes
    rows: list[Row]
    is_last: bool


@dataclass
class _PieceBuilder:
    piece_bytes: int
    days: Collection[str]
    count: int = 0
    #: all rows so far, as long as they fit in one request
    few: list[Row] = field(default_factory=list)
    fits: bool = True
    body: bytearray = field(default_factory=bytearray)

    def add(self, row: object) -> Iterator[Piece]:
        self.count += 1
        sent, line = encode_row(row, self.count, self.days)
        self.body += line
        if self.fits:
            self.few.append(sent)
            if self.count > MAX_DIRECT or len(self.body) > MAX_DIRECT_BYTES:
                self.fits = False
                self.few.clear()
        if len(self.body) >= self.piece_bytes and not self.fits:
            yield Piece(bytes(self.body), [], is_last=False)
            self.body.clear()

    def end(self) -> Piece:
        return Piece(bytes(self.body), self.few, is_last=True)


def encode_row(
    row: object, number: int, days: Collection[str] = ()
) -> tuple[dict[str, Any], bytes]:
    """Encode a row: with plain values, and as a JSON line.

    Args:
        number: number of the row, from 1, for errors.
        days: fields whose values are days; a midnight without time zone becomes its day.

    Raises:
        InvalidRecords: it is not a record, or contains a value that cannot be stored. The error
            names the value's type, never the value.
    """
    fields = _fields_of(row)
    if fields is None:
        raise refuse(number, None, "expected field names and values")
    values: dict[str, Any] = {}
    for name, value in fields.items():
        if not isinstance(name, str):
            raise refuse(number, None, "expected texts as field names")
        kind = type(value)
        if kind in AS_IT_IS or (kind is float and isfinite(value)):
            values[name] = value  # what most are, without a call
            continue
        try:
            sent = plain(value)
        except errors.BadInput as error:
            raise refuse(number, name, error.message) from None
        is_day = name in days and isinstance(sent, str) and not isinstance(value, str)
        values[name] = sent.removesuffix(_MIDNIGHT) if is_day else sent
    try:
        return values, encode_plain({"data": values}) + b"\n"
    except errors.BadInput as error:
        raise _find_unsayable(values, number) or refuse(number, None, error.message) from None


def _fields_of(row: object) -> Mapping[Any, Any] | None:
    """The fields of a row; None if it has none."""
    if isinstance(row, Mapping):
        return row
    if isinstance(row, msgspec.Struct):
        names = zip(row.__struct_encode_fields__, row.__struct_fields__, strict=True)
        values = {name: getattr(row, member) for name, member in names}
        return {name: value for name, value in values.items() if value is not msgspec.UNSET}
    if is_dataclass(row):
        return {
            dataclass_field.name: getattr(row, dataclass_field.name)
            for dataclass_field in dataclass_fields(row)
        }
    return dict(row) if is_of(row, "pydantic", "BaseModel") else None  # type: ignore[call-overload] # gives pairs


def _find_unsayable(values: Row, number: int) -> errors.InvalidRecords | None:
    for name, value in values.items():
        try:
            encode_plain({name: value})
        except errors.BadInput as error:
            return refuse(number, name, error.message)
    return None


def pieces(rows: Rows, piece_bytes: int, definition: Mapping[str, Any]) -> Iterator[Piece]:
    """Split rows into pieces of about ``piece_bytes`` bytes for upload.

    Args:
        definition: the definition of the rows' schema.

    Raises:
        InvalidRecords: a row is not a record, or has a value that cannot be stored.
    """
    gathering = _PieceBuilder(piece_bytes, _days(definition))
    data = rows_of(rows)
    if not isinstance(data, Iterable):
        raise explain(
            errors.InvalidRecords("these are not rows", hint="give dicts, or a frame or table")
        )
    for row in data:
        yield from gathering.add(row)
    yield gathering.end()


async def async_pieces(
    rows: AsyncRows, piece_bytes: int, definition: Mapping[str, Any]
) -> AsyncIterator[Piece]:
    """Split rows like :func:`pieces`, from a source that may be asynchronous."""
    if not isinstance(rows, AsyncIterable):
        for piece in pieces(rows, piece_bytes, definition):
            yield piece
        return
    gathering = _PieceBuilder(piece_bytes, _days(definition))
    async for row in rows:
        for piece in gathering.add(row):
            yield piece
    yield gathering.end()


def _days(definition: Mapping[str, Any]) -> frozenset[str]:
    """The fields whose values are days."""
    return frozenset(name for name in definition["properties"] if type_in(definition, name).is_day)


@dataclass(frozen=True, slots=True)
class _FrameColumn:
    """
    Attributes:
        arrow: as :attr:`.FrameTypes.arrow`; None of numbers that need decimals of Arrow, which have
            ``digits`` before the point and ``places`` behind it.
    """

    name: str
    values: list[Any]
    arrow: str | None
    pandas: str
    digits: int = 0
    places: int = 0


def _columns(
    records: Sequence[Row], definition: Mapping[str, Any], fields: Iterable[str]
) -> Iterator[_FrameColumn]:
    for name in fields:
        kind = type_in(definition, name)
        values = [kind.to_frame(value) for value in (record.get(name) for record in records)]
        if not kind.is_number:
            yield _FrameColumn(name, values, kind.frame.arrow, kind.frame.pandas)
            continue
        spec = definition["properties"][name]
        low, high = int(spec["minimum"]), int(spec["maximum"])
        digits = max(len(str(abs(end))) for end in (low, high))
        if kind.has_decimals:
            yield _FrameColumn(
                name, values, None, kind.frame.pandas, digits, int(spec["precision"])
            )
        elif low >= -(2**63) and high < 2**63:
            yield _FrameColumn(name, values, "int64", "Int64")
        elif low >= 0 and high < 2**64:
            yield _FrameColumn(name, values, "uint64", "UInt64")
        else:
            yield _FrameColumn(name, values, None, "object", digits)


def warn_of_rounding(fields: Iterable[str] | Mapping[str, int] | None) -> None:
    """Warn the caller of one of our methods if values were rounded.

    Args:
        fields: the field of each rounded value, or the number of rounded values by field; None if
            unknown.
    """
    warning = "all records are stored; whether values were rounded is not known"
    if fields is not None:
        warning = tell_rounding(Counter(fields))
    if warning:
        warnings.warn(warning, errors.ValuesRounded, stacklevel=_depth_of_caller())


def _depth_of_caller() -> int:
    """The number of frames from the function that calls this to the first outside this package."""
    names = (str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_stack(None))
    inside = takewhile(lambda name: name.startswith("encrypted_records."), names)
    return len(list(inside))


def to_arrow(
    records: Sequence[Row], definition: Mapping[str, Any], fields: Iterable[str] | None = None
) -> Any:
    """A ``pyarrow.Table`` with a column for each field: exact, absent values as nulls.

    Args:
        definition: the whole definition; types of fields may depend on its root.
        fields: the requested fields; None is all.

    Raises:
        InvalidSetting: pyarrow is not installed.
    """
    try:
        import pyarrow  # noqa: PLC0415 - optional
    except ImportError:
        raise _missing("pyarrow") from None

    def type_of(column: _FrameColumn) -> Any:
        if column.arrow is not None:
            return pyarrow.type_for_alias(column.arrow)
        width = column.digits + column.places
        made = pyarrow.decimal128 if width <= _DECIMAL_DIGITS else pyarrow.decimal256
        return made(width, column.places)

    columns = _columns(records, definition, fields or definition["properties"])
    return pyarrow.table(
        {column.name: pyarrow.array(column.values, type_of(column)) for column in columns}
    )


def to_pandas(
    records: Sequence[Row], definition: Mapping[str, Any], fields: Iterable[str] | None = None
) -> Any:
    """A ``pandas.DataFrame`` with a column for each field: integers as Int64 or UInt64, or as
    objects if they exceed 64 bits; other numbers as float64, which may round them; absent values
    as missing values of pandas.

    Args:
        definition, fields: as for :func:`to_arrow`.

    Raises:
        InvalidSetting: pandas is not installed.
    """
    try:
        import pandas  # noqa: PLC0415 - optional
    except ImportError:
        raise _missing("pandas") from None
    columns = _columns(records, definition, fields or definition["properties"])
    return pandas.DataFrame(
        {column.name: pandas.Series(column.values, dtype=column.pandas) for column in columns}
    )


def to_polars(
    records: Sequence[Row], definition: Mapping[str, Any], fields: Iterable[str] | None = None
) -> Any:
    """A ``polars.DataFrame``, as exact as :func:`to_arrow`.

    Args:
        definition, fields: as for :func:`to_arrow`.

    Raises:
        InvalidSetting: Polars or pyarrow is not installed, or a field's numbers have more digits
            than Polars supports.
    """
    try:
        import polars  # noqa: PLC0415 - optional
    except ImportError:
        raise _missing("polars") from None
    table = to_arrow(records, definition, fields)
    for column in table.schema:
        if str(column.type).startswith("decimal256"):
            raise errors.InvalidSetting(
                f"Polars has no type for numbers with as many digits as {column.name}",
                hint=f"at most {_DECIMAL_DIGITS}; name the other fields in the search's fields, or"
                " ask for an Arrow table",
            )
    return polars.from_arrow(table)


def _missing(library: str) -> errors.InvalidSetting:
    return errors.InvalidSetting(f"{library} is not installed", hint=f"pip install {library}")

"""Frames and tables of other libraries -> rows, and their values -> values that can be stored.

No library is imported: who has a frame has imported it. What a library calls missing is an absent
value: in pandas also NaN, since its columns have nothing else for that. In Polars and Arrow NaN is
a number, which cannot be stored. Indexes of pandas are left out.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from typing import Any

from encrypted_records.errors import Flaw, InvalidRecords

#: Rows that are turned at once.
_ROWS = 10_000

Row = Mapping[str, Any]


def rows_of(data: Any) -> Iterable[Row] | AsyncIterable[Row]:
    """The rows of a frame, as they are needed; anything else as it is.

    Raises:
        InvalidRecords: columns have no names, or names that are no texts.
    """
    if _is(data, "pandas", "DataFrame"):
        return _of_pandas(data)
    if _is(data, "polars", "LazyFrame"):
        return _of_polars(data.collect())
    if _is(data, "polars", "DataFrame"):
        return _of_polars(data)
    if _is(data, "pyarrow", "Table", "RecordBatch", "RecordBatchReader"):
        return _of_arrow(data)
    return data  # type: ignore[no-any-return]  # what a row is, is looked at one by one


def _is(value: object, library: str, *kinds: str) -> bool:
    module = sys.modules.get(library)
    return any(isinstance(value, getattr(module, kind, ())) for kind in kinds)


def _of_pandas(frame: Any) -> Iterator[Row]:
    import pandas  # noqa: PLC0415 - whose frame it is

    names = _names(frame.columns)
    for start in range(0, len(frame), _ROWS):
        part = frame.iloc[start : start + _ROWS]
        columns = []
        for at in range(len(names)):
            column = part.iloc[:, at]
            columns.append(zip(column.tolist(), pandas.isna(column).tolist(), strict=True))
        for cells in zip(*columns, strict=True):
            yield {
                name: value
                for name, (value, missing) in zip(names, cells, strict=True)
                if not missing
            }


def _of_polars(frame: Any) -> Iterator[Row]:
    for row in frame.iter_rows(named=True, buffer_size=_ROWS):
        yield {name: value for name, value in row.items() if value is not None}


def _of_arrow(table: Any) -> Iterator[Row]:
    names = _names(table.schema.names)
    batches = [table] if hasattr(table, "slice") and hasattr(table, "num_rows") else table
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS):
            part = batch.slice(start, _ROWS)
            columns = [_plainly(part.column(at)).to_pylist() for at in range(len(names))]
            for cells in zip(*columns, strict=True):
                pairs = zip(names, cells, strict=True)
                yield {name: value for name, value in pairs if value is not None}


def _plainly(column: Any) -> Any:
    """Times of nanoseconds, which Python does not have, as microseconds, or else as texts."""
    import pyarrow  # noqa: PLC0415 - whose column it is

    kind = column.type
    if not pyarrow.types.is_timestamp(kind) or kind.unit != "ns":
        return column
    try:
        return column.cast(pyarrow.timestamp("us", kind.tz))
    except pyarrow.ArrowInvalid:
        return column.cast(pyarrow.string())


def _names(columns: Iterable[Any]) -> list[str]:
    names = list(columns)
    wrong = [at for at, name in enumerate(names, 1) if not isinstance(name, str)]
    wrong += [at for at, name in enumerate(names, 1) if name in names[: at - 1]]
    if wrong:
        raise InvalidRecords(
            "a column of the frame has no name of its own",
            flaws=(Flaw("record", f"column {wrong[0]}: expected a text that no other has"),),
            hint="nothing was stored; name the columns after the fields of the schema",
        )
    return names


def plain(row: Row, number: int) -> dict[str, Any]:
    """A row whose values came from another library, such as one of ``iterrows``.

    Raises:
        InvalidRecords: one cannot be stored. Its kind is named, never the value.
    """
    values: dict[str, Any] = {}
    for name, value in row.items():
        if not isinstance(name, str):
            raise refuse(number, None, "expected texts as field names")
        kind = type(value)
        library = kind.__module__.partition(".")[0]
        if library == "numpy" and hasattr(value, "item") and not getattr(value, "shape", ()):
            values[name] = value.item()
        elif library == "pandas" and kind.__name__ in ("NAType", "NaTType"):
            continue
        elif library == "pandas":
            detail = f"a {kind.__name__} cannot be stored; make it a text or a number"
            raise refuse(number, name, detail)
        else:
            values[name] = value
    return values


def refuse(row: int, field: str | None, detail: str) -> InvalidRecords:
    return InvalidRecords(
        "a value cannot be stored",
        flaws=(Flaw("type", detail, row=row, field=field),),
        hint="nothing was stored; strings and numbers can be, and None is an absent value",
    )

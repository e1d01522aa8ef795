"""Results as JSON values and as lines for people."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

import pyarrow

from encrypted_records.model import record_formats, strict_json
from encrypted_records.sql import failures
from encrypted_records.sql.catalogue import SqlTable, in_sql


def unique_names(names: Iterable[str]) -> list[str]:
    """Column names, with numbers appended to repeated names."""
    taken: set[str] = set()
    found = []
    for wanted in names:
        name, number = wanted, 0
        while name in taken:
            number += 1
            name = f"{wanted}_{number}"
        taken.add(name)
        found.append(name)
    return found


def rows_of(batch: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of an Arrow batch as JSON values: numbers exact, times as ISO 8601.

    Args:
        names: the column names, all different.

    Raises:
        SqlError: as :func:`values_of`.
    """
    columns = [values_of(column) for column in batch.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def values_of(column: Any) -> list[Any]:
    """The values of an Arrow column as JSON values.

    Raises:
        SqlError: 22003; a time is outside the years 1 to 9999, or finer than microseconds.
    """
    try:
        return [plain(value) for value in column.to_pylist()]
    except (OverflowError, ValueError):
        raise failures.sql_error(
            failures.OUT_OF_RANGE,
            "a time is beyond the years 1 to 9999, or finer than microseconds",
            code="sql_invalid",
            hint="cast it to VARCHAR",
        ) from None


def csv_row(values: Iterable[Any], *, safe: bool) -> bytes:
    """A line of CSV with JSON values; lists and structures are written as JSON.

    Args:
        safe: as for :func:`.record_formats.csv_line`.
    """
    cells = (
        strict_json.encode(value).decode() if isinstance(value, list | dict) else value
        for value in values
    )
    return record_formats.csv_line(cells, safe=safe)


def plain(value: Any) -> Any:
    """A Python value as a JSON value."""
    match value:
        case None | bool() | int() | str() | Decimal():
            return value
        case float():
            return value if isfinite(value) else str(value)
        case datetime():
            text = value.isoformat()
            return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
        case date() | time():
            return value.isoformat()
        case timedelta():
            return _duration(0, value.days, value.seconds * 10**6 + value.microseconds)
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(name): plain(item) for name, item in value.items()}
        case pyarrow.MonthDayNano():
            return _duration(value.months, value.days, value.nanoseconds // 1000)
        case list() | tuple():
            return [plain(item) for item in value]
    return str(value)


def _duration(months: int, days: int, microseconds: int) -> str:
    """ISO 8601; each part has its own sign, as in SQL intervals."""
    parts = [f"{months}M"] if months else []
    parts += [f"{days}D"] if days else []
    seconds = Decimal(microseconds).scaleb(-6).normalize()
    clock = f"T{seconds:f}S" if microseconds or not parts else ""
    return f"P{''.join(parts)}{clock}"


def as_durations(column: Any) -> Any:
    """An Arrow column whose intervals are durations, as Parquet and Polars have them; a column of
    other values, and one with months, is unchanged.
    """
    if column.type != pyarrow.month_day_nano_interval():
        return column
    values = column.to_pylist()
    if any(value is not None and (value.months or abs(value.days) > 10**8) for value in values):
        return column
    return pyarrow.array(
        [value and value.days * 86_400_000_000 + value.nanoseconds // 1000 for value in values],
        pyarrow.duration("us"),
    )


def describe_tables(tables: Sequence[SqlTable]) -> list[dict[str, Any]]:
    """Lines of ``\\dt``, with names as statements have them."""
    return [
        {
            "dataset": in_sql(table.dataset),
            "table": in_sql(table.name),
            "columns": len(table.columns),
            "description": table.description,
        }
        for table in tables
    ]


def describe_columns(table: SqlTable) -> list[dict[str, Any]]:
    """Lines of ``\\d TABLE``, with names as statements have them."""
    return [
        {
            "column": column.in_sql,
            "type": column.type,
            "field": column.field if column.field != column.name else "",
        }
        for column in table.columns
    ]

"""The rows of tables, from a proxy, as Arrow."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow

from encrypted_records.model.field_types.durations import DURATION
from encrypted_records.sql.catalogue import Column, Table

if TYPE_CHECKING:
    from encrypted_records.client.proxy.client import ProxyClient


async def fetch(client: ProxyClient, table: Table, columns: Collection[int]) -> pyarrow.Table:
    """All rows of a table, of one moment, with some of its columns, called ``c<number>``.

    Raises:
        ErsError: as the proxy answers.
    """
    wanted = [(at, table.columns[at]) for at in sorted(columns)]
    values: list[list[Any]] = [[] for _ in wanted]
    rest, rows = b"", 0
    fields = [column.field for _, column in wanted]
    async with client.export(table.schema, fields=fields) as pieces:
        async for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                data = json.loads(line, parse_float=Decimal)["data"]
                rows += 1
                for column, (_, one) in zip(values, wanted, strict=True):
                    column.append(_value(one, data.get(one.field)))
    arrays = {
        f"c{at}": pyarrow.array(column, arrow_type(one.arrow))
        for column, (at, one) in zip(values, wanted, strict=True)
    }
    return pyarrow.table(arrays or {"rows": pyarrow.nulls(rows, pyarrow.int8())})


def arrow_type(name: str) -> pyarrow.DataType:
    """The type that one of :meth:`FieldType.column_type` names."""
    known = {
        "date32[day]": pyarrow.date32(),
        "time64[us]": pyarrow.time64("us"),
        "timestamp[us]": pyarrow.timestamp("us"),
        "timestamp[us, tz=UTC]": pyarrow.timestamp("us", "UTC"),
        "duration[us]": pyarrow.duration("us"),
        "uuid": pyarrow.uuid(),
    }
    if name.startswith("decimal128"):
        digits, decimals = name.removeprefix("decimal128(").removesuffix(")").split(", ")
        return pyarrow.decimal128(int(digits), int(decimals))
    return known[name] if name in known else pyarrow.type_for_alias(name)


def _value(column: Column, value: Any) -> Any:
    if value is None:
        return None
    match column.arrow:
        case "date32[day]":
            return date.fromisoformat(value)
        case "time64[us]":
            return time.fromisoformat(value)
        case "timestamp[us]":
            return datetime.fromisoformat(value)
        case "timestamp[us, tz=UTC]":
            return datetime.fromisoformat(value).astimezone(UTC)
        case "duration[us]":
            return DURATION.read(value)
        case "uuid":
            return UUID(value).bytes
    if column.arrow.startswith("decimal"):
        return Decimal(value)
    return value

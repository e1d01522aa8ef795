"""The service's database from behind: rows of its tables read and exchanged, by plain SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.support.service import Service

Row = dict[str, Any]

#: What names one row of each table.
KEYS = {
    "record_group": ("id",),
    "record_row": ("group_id", "ordinal"),
    "index_segment": ("id",),
    "index_page": ("segment_id", "number"),
    "commit_log": ("schema_id", "version"),
}


class Database:
    """One transaction on either database; SQL marks parameters with %s."""

    def __init__(self, connection: sqlite3.Connection | psycopg.Connection[Any]) -> None:
        self._connection: Any = connection
        self._mark = "?" if isinstance(connection, sqlite3.Connection) else "%s"

    def run(self, statement: str, *parameters: Any) -> list[Row]:
        """The statement's rows by name of column, none where it has none."""
        cursor = self._connection.execute(statement.replace("%s", self._mark), parameters)
        if cursor.description is None:
            return []
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def of_schema(self, table: str, schema: bytes, order: str) -> list[Row]:
        return self.run(f"SELECT * FROM {table} WHERE schema_id = %s ORDER BY {order}", schema)

    def change(self, table: str, row: Row, **values: Any) -> None:
        sets = ", ".join(f"{name} = %s" for name in values)
        where, key = self._place(table, row)
        self.run(f"UPDATE {table} SET {sets} WHERE {where}", *values.values(), *key)

    def exchange(self, table: str, one: Row, other: Row, *columns: str) -> None:
        """Give each of two rows the other's ``columns``."""
        # Both rows leave first: unique columns cannot change places while both are there.
        for row in (one, other):
            where, key = self._place(table, row)
            self.run(f"DELETE FROM {table} WHERE {where}", *key)
        for row, source in ((one, other), (other, one)):
            changed = row | {name: source[name] for name in columns}
            marks = ", ".join(["%s"] * len(changed))
            names = ", ".join(f'"{name}"' for name in changed)
            self.run(f"INSERT INTO {table} ({names}) VALUES ({marks})", *changed.values())

    def _place(self, table: str, row: Row) -> tuple[str, list[Any]]:
        names = KEYS[table]
        return " AND ".join(f"{name} = %s" for name in names), [row[name] for name in names]


@contextmanager
def database_of(service: Service) -> Iterator[Database]:
    """A transaction that is committed when the block ends well."""
    if service.database_url is None:
        file = service.data_dir / "api" / "db.sqlite3"
        with sqlite3.connect(file, timeout=30) as connection:
            yield Database(connection)
        connection.close()
    else:
        with psycopg.connect(service.database_url) as server:
            yield Database(server)

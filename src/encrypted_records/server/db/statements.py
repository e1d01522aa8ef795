"""Statements that are written as SQL, and models made from their rows.

For a query as small as "the login with this id", the ORM takes thirty times longer to build the SQL
than the database takes to answer it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import count
from types import MappingProxyType
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import Field, Model

from encrypted_records.server.db.postgres.base import LOST, DatabaseWrapper


class ModelColumns:
    """Columns of a model's table; other columns are deferred.

    Args:
        names: all columns of the model if empty.
    """

    def __init__(self, model: type[Model], names: Sequence[str] = ()) -> None:
        fields = {field.attname: field for field in model._meta.concrete_fields}
        self.model = model
        self.names = list(names or fields)
        self._fields = [fields[name] for name in self.names]

    def sql(self, alias: str) -> str:
        quote = connection.ops.quote_name
        return ", ".join(f"{alias}.{quote(str(field.column))}" for field in self._fields)

    @cached_property
    def _converters(self) -> list[tuple[int, Callable[..., Any], Any]]:
        found = []
        for at, field in enumerate(self._fields):
            column = field.cached_col
            backend: list[Any] = connection.ops.get_db_converters(column)
            found += [
                (at, converter, column)
                for converter in backend + column.get_db_converters(connection)
            ]
        return found

    def make(self, row: Sequence[Any]) -> Model:
        """The model of a row of these columns."""
        values = list(row)
        for at, convert, column in self._converters:
            values[at] = convert(values[at], column, connection)
        return self.model.from_db(connection.alias, self.names, values)


@dataclass(frozen=True)
class _Written:
    """A statement in the driver's form; ``order`` of its values is None if they are named."""

    sql: str
    order: Sequence[str] | None
    models: Sequence[ModelColumns]


class Statement:
    """A query, for both SQLite and PostgreSQL.

    Args:
        sql: ``{name}`` stands for the columns of the table with this alias, which come before all
            others, ``:name`` for a value.
        columns: by the alias of their table.
        locks: the table whose rows are locked until the transaction ends, like an update of non-key
            columns locks them. SQLite locks the whole database.
    """

    def __init__(
        self,
        sql: str,
        columns: Mapping[str, ModelColumns] = MappingProxyType({}),
        *,
        locks: str = "",
    ) -> None:
        self._sql, self._columns, self._locks = sql, columns, locks

    @cached_property
    def written(self) -> _Written:
        named = re.findall(r"\{(\w+)\}", self._sql)
        sql = self._sql.format_map({name: self._columns[name].sql(name) for name in named})
        models = [self._columns[name] for name in named]
        if connection.vendor == "sqlite":
            return _Written(sql, None, models)
        if self._locks:
            sql += f" FOR NO KEY UPDATE OF {self._locks}"
        values = re.findall(r":(\w+)", sql)
        order = list(dict.fromkeys(values))
        return _Written(
            re.sub(r":(\w+)", lambda found: f"${order.index(found[1]) + 1}", sql), order, models
        )

    def rows(self, **values: Any) -> list[list[Any]]:
        """The models of each row, and then its other columns as the driver returns them."""
        written = self.written
        sent = values if written.order is None else [values[name] for name in written.order]
        with executed(written.sql, sent) as cursor:
            return [_models(written.models, row) for row in cursor.fetchall()]

    def row(self, **values: Any) -> list[Any] | None:
        """The first row, or None."""
        return next(iter(self.rows(**values)), None)


def _models(models: Sequence[ModelColumns], row: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    at = 0
    for columns in models:
        found.append(columns.make(row[at : at + len(columns.names)]))
        at += len(columns.names)
    return [*found, *row[at:]]


@cache
def as_driver_has_it(sql: str) -> str:
    """SQL with the driver's placeholders for values."""
    if connection.vendor == "sqlite":
        return sql.replace("%s", "?")
    numbers = count(1)
    return re.sub("%s", lambda _: f"${next(numbers)}", sql)


@contextmanager
def executed(sql: str, values: Sequence[Any] | Mapping[str, Any]) -> Iterator[Any]:
    """A cursor with the result of a statement that has the driver's placeholders.

    This bypasses Django's cursor, which searches each statement for placeholders and interpolates
    the values for PostgreSQL; that takes longer than to look up a row. PostgreSQL keeps the
    prepared statement with its plan, if it can (:mod:`.postgres.base`).

    Raises:
        django.db.DatabaseError: the database refuses, or fails. ``OperationalError`` if the server
            lost a prepared statement: no statements are prepared after that.
    """
    connection = connections[DEFAULT_DB_ALIAS]
    # As Django does for a cursor: the server may have closed the connection since.
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    is_raw = connection.vendor == "postgresql"
    with _errors_of_driver(connection):
        cursor = (
            psycopg.RawCursor(connection.connection) if is_raw else connection.connection.cursor()
        )
        try:
            cursor.execute(sql, values)
            yield cursor
        finally:
            cursor.close()


@contextmanager
def _errors_of_driver(connection: Any) -> Iterator[None]:
    """Convert the driver's exceptions to Django's."""
    with connection.wrap_database_errors:
        try:
            yield
        except LOST as error:
            if isinstance(connection, DatabaseWrapper):
                connection.stop_preparing()
            raise psycopg.OperationalError("the server lost a statement") from error


def execute(sql: str, values: Sequence[Any]) -> None:
    """Execute a statement that returns no rows; see :func:`executed`."""
    with executed(sql, values):
        pass


def fetch(sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of a query with Django's placeholders."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def run(sql: str, *values: Any) -> int:
    """Execute a statement with Django's placeholders; returns the number of rows it changed."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return int(cursor.rowcount)


def insert(row: Model) -> None:
    """Store a new row, without sending signals. A row without a number gets one from the
    database.
    """
    is_counted = row._meta.auto_field is not None and row.pk is None
    sql, values = _insertion(row, is_counted)
    if is_counted:
        sql = as_driver_has_it(f"{sql} RETURNING {_column(row._meta.pk)}")
        with executed(sql, values) as cursor:
            [row.pk] = cursor.fetchone()
    else:
        execute(as_driver_has_it(sql), values)
    row._state.adding, row._state.db = False, connection.alias


def _insertion(row: Model, is_counted: bool) -> tuple[str, list[Any]]:
    sql, fields = _inserting(type(row), is_counted)
    return sql, [_prepare(field, field.pre_save(row, True)) for field in fields]


@cache
def _inserting(model: type[Model], is_counted: bool) -> tuple[str, list[Field[Any, Any]]]:
    """A statement, and the fields of its values.

    Args:
        is_counted: whether the database assigns the row's number.
    """
    table = connection.ops.quote_name(model._meta.db_table)
    counted = model._meta.auto_field if is_counted else None
    fields = [field for field in model._meta.local_concrete_fields if field is not counted]
    columns = ", ".join(_column(field) for field in fields)
    marks = ", ".join(["%s"] * len(fields))
    return f"INSERT INTO {table} ({columns}) VALUES ({marks})", fields  # noqa: S608  no input


def update(model: type[Model], where: Mapping[str, Any], **values: Any) -> None:
    """Update the rows that match ``where``."""
    sql, fields = _updating(model, tuple(values), tuple(where))
    parameters = [*values.values(), *where.values()]
    pairs = zip(fields, parameters, strict=True)
    execute(as_driver_has_it(sql), [_prepare(column, value) for column, value in pairs])


@cache
def _updating(
    model: type[Model], names: tuple[str, ...], conditions: tuple[str, ...]
) -> tuple[str, list[Field[Any, Any]]]:
    new, old = ([_field(model, name) for name in columns] for columns in (names, conditions))
    sets = ", ".join(f"{_column(column)} = %s" for column in new)
    wheres = " AND ".join(f"{_column(column)} = %s" for column in old)
    table = connection.ops.quote_name(model._meta.db_table)
    return f"UPDATE {table} SET {sets} WHERE {wheres}", [*new, *old]  # noqa: S608  no input


#: Values of these classes are passed to both databases unchanged, for any column; other values are
#: converted by their fields.
_BARE = frozenset({int, bytes, type(None)})


def _prepare(field: Field[Any, Any], value: Any) -> Any:
    """A value of a field, in the driver's form."""
    return value if type(value) in _BARE else field.get_db_prep_save(value, connection)


def _column(field: Field[Any, Any]) -> str:
    return connection.ops.quote_name(str(field.column))


def _field(model: type[Model], name: str) -> Field[Any, Any]:
    field: Field[Any, Any] = model._meta.get_field(name)  # type: ignore[assignment]
    return field

"""Queries that every request makes, compiled once.

For a query as small as "the login of that id", the ORM spends thirty times longer on writing the
SQL than the database on answering it. Here a queryset is compiled the first time it is asked, and
kept; rows still pass through the converters of their fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any, Generic, TypeVar

import psycopg
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import Field, Model, QuerySet

M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class _Compiled:
    sql: str
    #: what comes before the values that are asked for
    constants: tuple[Any, ...]
    converters: tuple[tuple[int, Sequence[Callable[..., Any]], Any], ...]


class Prepared:
    """Rows whose columns have certain values, these being given when it is asked.

    Args:
        make: returns a ``values_list`` queryset; it is called once, and its own parameters stay.
        columns: each ``table.column``, of a table that the queryset reads.
        locks: the table whose rows are locked until the transaction ends, as an update of what is
            no key locks them. SQLite locks all there is.
    """

    def __init__(
        self, make: Callable[[], QuerySet[Any, Any]], *columns: str, locks: str = ""
    ) -> None:
        self._make = make
        self._columns = columns
        self._locks = locks
        self._compiled: _Compiled | None = None

    def rows(self, *wanted: Any) -> list[list[Any]]:
        """The rows in which the columns, in their order, have these values."""
        compiled = self._compiled
        if compiled is None:
            compiled = self._compiled = self._compile()
        with executed(compiled.sql, (*compiled.constants, *wanted)) as cursor:
            rows = [list(row) for row in cursor.fetchall()]
        if rows:
            own = connections[DEFAULT_DB_ALIAS]
            for at, functions, expression in compiled.converters:
                for row in rows:
                    for convert in functions:
                        row[at] = convert(row[at], expression, own)
        return rows

    def _compile(self) -> _Compiled:
        # Names of ours, never of a request.
        conditions = [f"{column} = %s" for column in self._columns]
        wanted = self._make().extra(where=conditions, params=[b""] * len(conditions))  # noqa: S610
        compiler = wanted.query.get_compiler(connection=connection)
        sql, parameters = compiler.as_sql()
        constants = tuple(parameters[: -len(conditions)])
        # Names of rows end the WHERE, and whatever is asked for comes after what is constant.
        assert tuple(parameters) == (*constants, *[b""] * len(conditions)), "they are the last"
        converters = compiler.get_converters([column for column, _, _ in compiler.select])
        if self._locks and connection.features.has_select_for_update:
            sql += f" FOR NO KEY UPDATE OF {connection.ops.quote_name(self._locks)}"
        return _Compiled(
            as_driver_has_it(sql),
            constants,
            tuple((at, *converter) for at, converter in converters.items()),
        )


@cache
def as_driver_has_it(sql: str) -> str:
    """SQL of ours with the marks for values that the driver knows."""
    if connection.vendor == "sqlite":
        return sql.replace("%s", "?")
    numbers = count(1)
    return re.sub("%s", lambda _: f"${next(numbers)}", sql)


@contextmanager
def executed(sql: str, values: Sequence[Any]) -> Iterator[Any]:
    """A cursor that has the outcome of a statement of :func:`as_driver_has_it`.

    The driver is asked itself: Django looks for the marks in a statement each time, and writes the
    values into it for PostgreSQL, which takes longer than to look a row up.
    """
    own = connections[DEFAULT_DB_ALIAS]
    # As Django does for a cursor: the server may have ended the connection since.
    own.close_if_health_check_failed()
    own.ensure_connection()
    own.validate_no_broken_transaction()
    is_raw = own.vendor == "postgresql"
    with own.wrap_database_errors:
        cursor = psycopg.RawCursor(own.connection) if is_raw else own.connection.cursor()
        try:
            cursor.execute(sql, values)
            yield cursor
        finally:
            cursor.close()


def execute(sql: str, values: Sequence[Any]) -> None:
    """As :func:`executed`, of what has no outcome."""
    with executed(sql, values):
        pass


class Lookup(Generic[M]):
    """Rows of one table, as objects, by the values of some of its fields."""

    def __init__(self, model: type[M], *fields: str) -> None:
        self._model = model
        self._fields: list[Field[Any, Any]] = [_field(model, name) for name in fields]
        self._names = [field.attname for field in model._meta.concrete_fields]
        self._prepared = Prepared(
            lambda: model._default_manager.values_list(*self._names),
            *(f"{model._meta.db_table}.{field.column}" for field in self._fields),
        )

    def first(self, *wanted: Any) -> M | None:
        """A row whose fields, in their order, have these values."""
        for row in self._rows(wanted):
            return self._model.from_db(connection.alias, self._names, row)
        return None

    def exists(self, *wanted: Any) -> bool:
        return bool(self._rows(wanted))

    def _rows(self, wanted: Sequence[Any]) -> list[list[Any]]:
        pairs = zip(self._fields, wanted, strict=True)
        return self._prepared.rows(
            *(one.get_db_prep_value(value, connection) for one, value in pairs)
        )


def insert(row: Model) -> None:
    """Store a new row, with the number that the database gives it; no signal is sent."""
    sql, fields = _insertion(type(row))
    values = [one.get_db_prep_save(one.pre_save(row, True), connection) for one in fields]
    with executed(sql, values) as cursor:
        if row._meta.auto_field is not None:
            [row.pk] = cursor.fetchone()
    row._state.adding, row._state.db = False, connection.alias


@cache
def _insertion(model: type[Model]) -> tuple[str, list[Field[Any, Any]]]:
    table = connection.ops.quote_name(model._meta.db_table)
    counted = model._meta.auto_field
    fields = [one for one in model._meta.local_concrete_fields if one is not counted]
    columns = ", ".join(_column(one) for one in fields)
    marks = ", ".join(["%s"] * len(fields))
    sql = f"INSERT INTO {table} ({columns}) VALUES ({marks})"  # noqa: S608  no input
    if counted is not None:
        sql += f" RETURNING {_column(counted)}"
    return as_driver_has_it(sql), fields


def update(model: type[Model], where: Mapping[str, Any], **values: Any) -> int:
    """Set fields of the rows in which others have certain values; how many rows that are."""
    sql, fields = _updating(model, tuple(values), tuple(where))
    every = [*values.values(), *where.values()]
    pairs = zip(fields, every, strict=True)
    prepared = [one.get_db_prep_save(value, connection) for one, value in pairs]
    with executed(sql, prepared) as cursor:
        changed: int = cursor.rowcount
        return changed


@cache
def _updating(
    model: type[Model], names: tuple[str, ...], conditions: tuple[str, ...]
) -> tuple[str, list[Field[Any, Any]]]:
    new, old = ([_field(model, name) for name in some] for some in (names, conditions))
    sets = ", ".join(f"{_column(one)} = %s" for one in new)
    wheres = " AND ".join(f"{_column(one)} = %s" for one in old)
    table = connection.ops.quote_name(model._meta.db_table)
    sql = f"UPDATE {table} SET {sets} WHERE {wheres}"  # noqa: S608  no input
    return as_driver_has_it(sql), [*new, *old]


def _column(field: Field[Any, Any]) -> str:
    return connection.ops.quote_name(str(field.column))


def _field(model: type[Model], name: str) -> Field[Any, Any]:
    field: Field[Any, Any] = model._meta.get_field(name)  # type: ignore[assignment]
    return field

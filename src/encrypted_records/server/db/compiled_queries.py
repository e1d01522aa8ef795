"""Queries that every request makes, compiled once.

For a query as small as "the login of that id", the ORM spends thirty times longer on writing the
SQL than the database on answering it. Here a queryset is compiled the first time it is asked, and
kept; rows still pass through the converters of their fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import Field, Model, QuerySet

from encrypted_records.server.db.postgres.base import LOST, DatabaseWrapper


@dataclass(frozen=True)
class Compiled:
    sql: str
    #: values that are not asked for
    constants: tuple[Any, ...]
    converters: tuple[tuple[int, Sequence[Callable[..., Any]], Any], ...]
    #: how many columns a row has
    width: int

    def rows(self, values: Sequence[Any]) -> list[list[Any]]:
        """The rows of the statement with all its values, as fields have them."""
        own = connections[DEFAULT_DB_ALIAS]
        with executed(self.sql, values) as cursor:
            rows = [list(row) for row in cursor.fetchall()]
        if rows:
            for at, functions, expression in self.converters:
                for row in rows:
                    for convert in functions:
                        row[at] = convert(row[at], expression, own)
        return rows


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
        self._compiled: Compiled | None = None

    def rows(self, *wanted: Any) -> list[list[Any]]:
        """The rows in which the columns, in their order, have these values."""
        compiled = self._compiled
        if compiled is None:
            made = self.compile()
            compiled = self._compiled = replace(made, sql=as_driver_has_it(made.sql))
        return compiled.rows((*compiled.constants, *wanted))

    def compile(self) -> Compiled:
        """The statement, with Django's marks for values."""
        # Names of ours, never of a request.
        conditions = [f"{column} = %s" for column in self._columns]
        wanted = self._make().extra(where=conditions, params=[b""] * len(conditions))  # noqa: S610
        compiler = wanted.query.get_compiler(connection=connection)
        sql, parameters = compiler.as_sql()
        constants = tuple(parameters[: -len(conditions)])
        # Names of rows end the WHERE, and whatever is asked for comes after what is constant.
        assert tuple(parameters) == (*constants, *[b""] * len(conditions)), "they are the last"
        columns = [column for column, _, _ in compiler.select]
        converters = compiler.get_converters(columns)
        if self._locks and connection.features.has_select_for_update:
            sql += f" FOR NO KEY UPDATE OF {connection.ops.quote_name(self._locks)}"
        converting = tuple((at, *converter) for at, converter in converters.items())
        return Compiled(sql, constants, converting, len(columns))


class Together:
    """Several questions as one statement.

    Args:
        rows: of each of these the first row is wanted.
        exist: of each of these, whether there is a row; also SQL of ours, with marks for values.
    """

    def __init__(self, rows: Sequence[Prepared], exist: Sequence[Prepared | str]) -> None:
        self._rows, self._exist = rows, exist
        self._compiled: tuple[list[Compiled], Compiled] | None = None

    def answers(
        self, rows: Sequence[Sequence[Any]], exist: Sequence[Sequence[Any]]
    ) -> tuple[list[bool], list[list[Any] | None]]:
        """Whether there is a row, and the first rows.

        Args:
            rows, exist: the values of each of the questions.
        """
        if self._compiled is None:
            self._compiled = self._compile()
        parts, whole = self._compiled
        values: list[Any] = []
        for part, own in zip(parts, [*exist, *rows], strict=True):
            values += part.constants
            values += own
        (row,) = whole.rows(values)
        found: list[list[Any] | None] = []
        at = len(exist)
        for part in parts[len(exist) :]:
            found.append(row[at + 1 : at + 1 + part.width] if row[at] else None)
            at += 1 + part.width
        return [bool(one) for one in row[: len(exist)]], found

    def _compile(self) -> tuple[list[Compiled], Compiled]:
        """Of each part, those that say whether first, and the statement."""
        exist = [
            Compiled(one, (), (), 1) if isinstance(one, str) else one.compile()
            for one in self._exist
        ]
        rows = [one.compile() for one in self._rows]
        columns = [f"EXISTS({one.sql})" for one in exist]
        converters = []
        width = at = len(columns)
        tables = "(SELECT 1 AS one) AS always"
        for number, one in enumerate(rows):
            columns.append(f"r{number}.*")
            tables += (
                f" LEFT JOIN (SELECT 1 AS is_there, q.* FROM ({one.sql}) AS q LIMIT 1)"  # noqa: S608  no input
                f" AS r{number} ON 1 = 1"
            )
            converters += [(at + 1 + column, *more) for column, *more in one.converters]
            at += 1 + one.width
        sql = f"SELECT {', '.join(columns)} FROM {tables}"  # noqa: S608  no input
        whole = Compiled(as_driver_has_it(sql), (), tuple(converters), width)
        return [*exist, *rows], whole


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
    values into it for PostgreSQL, which takes longer than to look a row up. PostgreSQL keeps such a
    statement with its plan, where it can (:mod:`.postgres.base`).

    Raises:
        django.db.DatabaseError: the database refuses, or fails. ``OperationalError`` where the
            server lost a statement that it had kept: none is kept after that.
    """
    own = connections[DEFAULT_DB_ALIAS]
    # As Django does for a cursor: the server may have ended the connection since.
    own.close_if_health_check_failed()
    own.ensure_connection()
    own.validate_no_broken_transaction()
    is_raw = own.vendor == "postgresql"
    with _errors_of_driver(own):
        cursor = psycopg.RawCursor(own.connection) if is_raw else own.connection.cursor()
        try:
            cursor.execute(sql, values)
            yield cursor
        finally:
            cursor.close()


@contextmanager
def _errors_of_driver(own: Any) -> Iterator[None]:
    """Have what the driver raises be an error of Django's."""
    with own.wrap_database_errors:
        try:
            yield
        except LOST as error:
            if isinstance(own, DatabaseWrapper):
                own.stop_preparing()
            raise psycopg.OperationalError("the server lost a statement") from error


def execute(sql: str, values: Sequence[Any]) -> None:
    """As :func:`executed`, of what has no outcome."""
    with executed(sql, values):
        pass


def field_of(model: type[Model], name: str) -> Field[Any, Any]:
    field: Field[Any, Any] = model._meta.get_field(name)  # type: ignore[assignment]
    return field

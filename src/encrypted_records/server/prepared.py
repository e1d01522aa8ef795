"""Queries that every request makes, compiled once.

For a query as small as "the login of that id", the ORM spends thirty times longer on writing the
SQL than the database on answering it. Here a queryset is compiled the first time it is asked, and
kept; rows still pass through the converters of their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import QuerySet


@dataclass(frozen=True)
class _Compiled:
    sql: str
    converters: tuple[tuple[int, Sequence[Callable[..., Any]], Any], ...]


class Prepared:
    """Rows whose columns have certain values, these being given when it is asked.

    Args:
        make: returns a ``values_list`` queryset without parameters; it is called once.
        columns: each ``table.column``, of a table that the queryset reads.
    """

    def __init__(self, make: Callable[[], QuerySet[Any, Any]], *columns: str) -> None:
        self._make = make
        self._columns = columns
        self._compiled: _Compiled | None = None

    def rows(self, *wanted: bytes) -> list[list[Any]]:
        """The rows in which the columns, in their order, have these values."""
        compiled = self._compiled
        if compiled is None:
            compiled = self._compiled = self._compile()
        with connection.cursor() as cursor:
            cursor.execute(compiled.sql, wanted)
            rows = [list(row) for row in cursor.fetchall()]
        for row in rows:
            for at, functions, expression in compiled.converters:
                for convert in functions:
                    row[at] = convert(row[at], expression, connection)
        return rows

    def _compile(self) -> _Compiled:
        # Names of ours, never of a request.
        conditions = [f"{column} = %s" for column in self._columns]
        wanted = self._make().extra(where=conditions, params=[b""] * len(conditions))  # noqa: S610
        compiler = wanted.query.get_compiler(connection=connection)
        sql, parameters = compiler.as_sql()
        assert len(parameters) == len(conditions), "the values are the only parameters"
        converters = compiler.get_converters([column for column, _, _ in compiler.select])
        return _Compiled(sql, tuple((at, *found) for at, found in converters.items()))

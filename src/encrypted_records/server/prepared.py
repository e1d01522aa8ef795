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
    """Rows of a table whose column has a value, the value being given when it is asked.

    Args:
        make: returns a ``values_list`` queryset; it is called once.
        column: ``table.column``, of a table that the queryset reads.
    """

    def __init__(self, make: Callable[[], QuerySet[Any, Any]], column: str) -> None:
        self._make = make
        self._column = column
        self._compiled: _Compiled | None = None

    def rows(self, value: bytes) -> list[list[Any]]:
        compiled = self._compiled
        if compiled is None:
            compiled = self._compiled = self._compile()
        with connection.cursor() as cursor:
            cursor.execute(compiled.sql, [value])
            rows = [list(row) for row in cursor.fetchall()]
        for row in rows:
            for at, functions, expression in compiled.converters:
                for convert in functions:
                    row[at] = convert(row[at], expression, connection)
        return rows

    def _compile(self) -> _Compiled:
        condition = f"{self._column} = %s"  # a name of ours, never of a request
        wanted = self._make().extra(where=[condition], params=[b""])  # noqa: S610
        compiler = wanted.query.get_compiler(connection=connection)
        sql, parameters = compiler.as_sql()
        assert len(parameters) == 1, "the value is the only parameter"
        converters = compiler.get_converters([column for column, _, _ in compiler.select])
        return _Compiled(sql, tuple((at, *found) for at, found in converters.items()))

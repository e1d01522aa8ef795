"""Rows that are stored and changed, by statements that are written once (as
:mod:`.compiled_queries`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from django.db import connection
from django.db.models import Field, Model

from encrypted_records.server.db.compiled_queries import (
    as_driver_has_it,
    execute,
    executed,
    field_of,
)


def insert(row: Model) -> None:
    """Store a new row; no signal is sent. One without a number gets it from the database, and has
    it then."""
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
    return sql, [_prepare(one, one.pre_save(row, True)) for one in fields]


@cache
def _inserting(model: type[Model], is_counted: bool) -> tuple[str, list[Field[Any, Any]]]:
    """A statement, and the fields of its values.

    Args:
        is_counted: whether the database gives the row its number.
    """
    table = connection.ops.quote_name(model._meta.db_table)
    counted = model._meta.auto_field if is_counted else None
    fields = [one for one in model._meta.local_concrete_fields if one is not counted]
    columns = ", ".join(_column(one) for one in fields)
    marks = ", ".join(["%s"] * len(fields))
    return f"INSERT INTO {table} ({columns}) VALUES ({marks})", fields  # noqa: S608  no input


def update(model: type[Model], where: Mapping[str, Any], **values: Any) -> None:
    """Set fields of the rows in which others have certain values."""
    sql, fields = _updating(model, tuple(values), tuple(where))
    every = [*values.values(), *where.values()]
    pairs = zip(fields, every, strict=True)
    execute(as_driver_has_it(sql), [_prepare(one, value) for one, value in pairs])


@cache
def _updating(
    model: type[Model], names: tuple[str, ...], conditions: tuple[str, ...]
) -> tuple[str, list[Field[Any, Any]]]:
    new, old = ([field_of(model, name) for name in some] for some in (names, conditions))
    sets = ", ".join(f"{_column(one)} = %s" for one in new)
    wheres = " AND ".join(f"{_column(one)} = %s" for one in old)
    table = connection.ops.quote_name(model._meta.db_table)
    return f"UPDATE {table} SET {sets} WHERE {wheres}", [*new, *old]  # noqa: S608  no input


#: Values of these classes go to both databases as they are, whatever columns they are for; others
#: by what their fields make of them.
_BARE = frozenset({int, bytes, type(None)})


def _prepare(field: Field[Any, Any], value: Any) -> Any:
    """A value of a field, as the driver takes it."""
    return value if type(value) in _BARE else field.get_db_prep_save(value, connection)


def _column(field: Field[Any, Any]) -> str:
    return connection.ops.quote_name(str(field.column))

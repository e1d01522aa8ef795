"""Rows of tables with a key of two numbers, by their keys: in bounded statements, and with plans
that do not read a whole table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

from django.db import connection

T = TypeVar("T")
Key = tuple[int, int]
#: Keys per query; two parameters each, far below what either database takes.
_KEYS_PER_QUERY = 500


def rows_at(columns: str, table: str, keys: Sequence[Key]) -> Iterator[tuple[Any, ...]]:
    """The rows of these keys; ``columns`` begins with the two parts of the key."""
    by_first: dict[int, list[int]] = {}
    for first, second in keys:
        by_first.setdefault(first, []).append(second)
    if connection.vendor != "postgresql" or (len(by_first) > 1 and not _is_divided(table)):
        yield from select(lambda wanted: lookup(columns, table, wanted), keys)
        return
    one, two = columns.split(", ")[:2]
    statement = f"SELECT {columns} FROM {table} WHERE {one} = %s AND {two} = ANY(%s::bigint[])"  # noqa: S608
    for first, every in by_first.items():
        for some in cut(every):
            with connection.cursor() as cursor:
                cursor.execute(statement, [first, list(some)])
                yield from cursor.fetchall()


@cache
def _is_divided(table: str) -> bool:
    """Whether a table is in partitions, or Citus is there, which may have distributed it. A join
    with the keys would ask all of them, and to name the first parts in it beside the keys makes
    PostgreSQL choose far slower plans where there are many."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_class WHERE oid = %s::regclass AND relkind = 'p')"
            " OR to_regclass('pg_dist_partition') IS NOT NULL",
            [table],
        )
        (found,) = cursor.fetchone()
    return bool(found)


def select(statement: Callable[[str], str], keys: Sequence[Key]) -> Iterator[tuple[Any, ...]]:
    """What a statement gives of a bounded number of keys at a time.

    Args:
        statement: SQL, around the SQL that selects the keys.
    """
    for some in cut(keys):
        parameters: list[Any]
        if connection.vendor == "postgresql":
            # Two arrays: psycopg takes longer to read a statement with a thousand parameters than
            # the database takes to answer it.
            wanted = "SELECT * FROM unnest(%s::bigint[], %s::bigint[])"
            parameters = [[key[0] for key in some], [key[1] for key in some]]
        else:
            wanted = pairs(len(some))
            parameters = [part for key in some for part in key]
        with connection.cursor() as cursor:
            cursor.execute(statement(wanted), parameters)
            yield from cursor.fetchall()


def pairs(count: int) -> str:
    """SQL for so many keys, two parameters each."""
    return f"VALUES {', '.join(['(%s, %s)'] * count)}"


def lookup(columns: str, table: str, wanted: str) -> str:
    """SQL for the rows of the keys that ``wanted`` selects; ``columns`` begins with the two parts.

    The keys are a table that is joined: for (...) IN (VALUES ...) SQLite reads the whole table.
    """
    first, second = columns.split(", ")[:2]
    return (
        f"WITH wanted (one, two) AS ({wanted})"  # noqa: S608  no input
        f" SELECT {columns} FROM wanted JOIN {table} ON {first} = one AND {second} = two"
    )


def cut(keys: Sequence[T], size: int = _KEYS_PER_QUERY) -> Iterator[Sequence[T]]:
    """A bounded number of keys at a time."""
    for start in range(0, len(keys), size):
        yield keys[start : start + size]

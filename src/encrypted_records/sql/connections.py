"""Connections of DuckDB that reach no file, no network and no setting, and the tables in them.

Each table of the catalogue has a number, and its columns have one each: ``_columns.t3 (c0, c1)`` is
what plans name, whatever the names of people are; views give the names. So nothing in a field's
name can be taken for SQL.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import duckdb

from encrypted_records.sql.catalogue import INTERNAL, Catalogue, SqlTable, quoted
from encrypted_records.sql.limits import SqlLimits

#: Optimizers that let a scan of an empty table vanish, or that look at its (missing) values.
#: A plan without them names each scan that the statement needs.
_DISABLED = (
    "statistics_propagation",
    "empty_result_pullup",
    "join_filter_pushdown",
    "late_materialization",
    "common_subplan",
    "compressed_materialization",
)


def open_closed(limits: SqlLimits, *, plans: bool = False) -> duckdb.DuckDBPyConnection:
    """A database in memory that reaches nothing outside; :func:`lock` follows its making.

    Args:
        plans: whether it only plans, over empty tables.
    """
    connection = duckdb.connect(
        ":memory:",
        config={
            "threads": limits.threads,
            "memory_limit": f"{limits.memory_bytes}B",
            "temp_directory": "",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "python_enable_replacements": "false",
        },
    )
    connection.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = true")
    if plans:
        connection.execute(f"SET disabled_optimizers = '{','.join(_DISABLED)}'")
    connection.execute("SET enable_external_access = false")
    return connection


def lock(connection: duckdb.DuckDBPyConnection, setup: str) -> None:
    """Run ``setup``, and let no statement change a setting from then on."""
    connection.execute(setup)
    connection.execute("SET lock_configuration = true")


def real_tables(catalogue: Catalogue, dataset: str | None) -> str:
    """Statements that make every table, empty, under its own name: what clients list."""
    parts = [_schemas(catalogue)]
    for table in catalogue.tables:
        columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in table.columns)
        parts.append(f"CREATE TABLE {_name(table)} ({columns});")
    parts += [_alias(table) for table in _unqualified(catalogue, dataset)]
    parts.append(_search_path(dataset))
    return "\n".join(parts)


def views(
    catalogue: Catalogue, dataset: str | None, sent: Mapping[int, Collection[int]] | None = None
) -> str:
    """Statements that make every table as a view of its numbered columns.

    Args:
        sent: of each table that has rows here, the columns of :func:`source_of`. To read another
            column of it is an error, never an absent value.
    """
    parts = [f"CREATE SCHEMA {INTERNAL};", _schemas(catalogue)]
    for number, table in enumerate(catalogue.tables):
        here = None if sent is None else sent.get(number)
        if here is None:
            columns = ", ".join(f"c{at} {column.type}" for at, column in enumerate(table.columns))
            parts.append(f"CREATE TABLE {INTERNAL}.t{number} ({columns});")
        else:
            listed = ", ".join(
                f"c{at}"
                if at in here
                else f"error('a column was not planned')::{column.type} AS c{at}"
                for at, column in enumerate(table.columns)
            )
            source = f"temp.main.{quoted(source_of(number))}"
            parts.append(_view(f"{INTERNAL}.t{number}", listed, source))
        named = ", ".join(
            f"c{at} AS {quoted(column.name)}" for at, column in enumerate(table.columns)
        )
        parts.append(_view(_name(table), named, f"{INTERNAL}.t{number}"))
    parts += [_alias(table) for table in _unqualified(catalogue, dataset)]
    parts.append(_search_path(dataset))
    return "\n".join(parts)


def source_of(number: int) -> str:
    """The name of a table's rows. It is looked up before all tables, so no slug can be it."""
    return f"rows of {number}"


def _view(name: str, listed: str, source: str) -> str:
    # Names of people are quoted; all others are numbers.
    return f"CREATE VIEW {name} AS SELECT {listed} FROM {source};"  # noqa: S608


def _name(table: SqlTable) -> str:
    return f"memory.{quoted(table.dataset)}.{quoted(table.name)}"


def _alias(table: SqlTable) -> str:
    return f"CREATE VIEW memory.main.{quoted(table.name)} AS FROM {_name(table)};"


def _unqualified(catalogue: Catalogue, dataset: str | None) -> list[SqlTable]:
    """Without a dataset, the tables whose name no other has: they need no dataset's name."""
    if dataset is not None:
        return []
    names = [table.name.casefold() for table in catalogue.tables]
    return [
        table
        for table in catalogue.tables
        if names.count(table.name.casefold()) == 1 and table.dataset.casefold() != "main"
    ]


def _schemas(catalogue: Catalogue) -> str:
    return "\n".join(
        f"CREATE SCHEMA IF NOT EXISTS memory.{quoted(dataset)};" for dataset in catalogue.datasets
    )


def _search_path(dataset: str | None) -> str:
    path = quoted(dataset or "main").replace("'", "''")
    return f"SET search_path = '{path}'"

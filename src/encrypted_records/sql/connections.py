"""DuckDB connections without access to files, network and settings, and their tables.

Tables of the catalogue and their columns are numbered: plans refer to ``_columns.t3 (c0, c1)``,
independent of users' names; views add the names. So no field name can be interpreted as SQL.

Statements run in another database, which has all tables, empty, under their real names. It is
reused for the next statement: each statement gets a new connection, and replaces the tables that it
reads with views of its rows, in a transaction that is never committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import duckdb

from encrypted_records.sql.catalogue import INTERNAL, Catalogue, SqlTable, quoted
from encrypted_records.sql.limits import SqlLimits

#: Optimizers that remove scans of empty tables, or use their (missing) values. Without them, a plan
#: names each scan that the statement needs.
_DISABLED = (
    "statistics_propagation",
    "empty_result_pullup",
    "join_filter_pushdown",
    "late_materialization",
    "common_subplan",
    "compressed_materialization",
)


def open_closed(limits: SqlLimits, *, plans: bool = False) -> duckdb.DuckDBPyConnection:
    """A database in memory without outside access; call :func:`lock` after setting it up.

    Args:
        plans: whether it is used only for planning, over empty tables.
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
    # GLOBAL: each statement gets its own connection.
    connection.execute("SET GLOBAL TimeZone = 'UTC'; SET preserve_insertion_order = true")
    if plans:
        connection.execute(f"SET disabled_optimizers = '{','.join(_DISABLED)}'")
    connection.execute("SET enable_external_access = false")
    return connection


def lock(connection: duckdb.DuckDBPyConnection, setup: str) -> None:
    """Run ``setup``, then forbid statements to change settings."""
    connection.execute(setup)
    connection.execute("SET lock_configuration = true")


class StatementDatabase:
    """The database in which statements of one caller run one after another.

    Settings, temporary names, the state of ``random()`` and transactions belong to a connection,
    and end with it.
    """

    def __init__(self, catalogue: Catalogue, dataset: str | None, limits: SqlLimits) -> None:
        self._catalogue = catalogue
        self._path = _search_path(dataset)
        self._database = open_closed(limits)
        # A new connection has no search path. :meth:`connect` sets it; statements cannot.
        setup = "SET allowed_configs = ['search_path']"
        lock(self._database, f"{real_tables(catalogue, dataset)};\n{setup}")

    def connect(
        self, rows: Mapping[int, object], columns: Mapping[int, Collection[int]]
    ) -> duckdb.DuckDBPyConnection:
        """A connection for one statement; close it before the next one.

        Args:
            rows: Arrow data by table number, with columns called ``c<number>``; other tables are
                empty.
            columns: the numbers of these columns. Reading another column of such a table is an
                error, never an absent value.
        """
        connection = self._database.cursor()
        try:
            for number, source in rows.items():
                connection.register(_source_of(number), source)
            parts = [self._path, "BEGIN"]
            for number in rows:
                parts += _replaced(self._catalogue.tables[number], number, columns[number])
            connection.execute(";\n".join(parts))
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        self._database.close()


def _replaced(table: SqlTable, number: int, columns: Collection[int]) -> list[str]:
    """SQL that replaces a table by a view of the rows that are available."""
    listed = (
        f"c{at} AS {quoted(column.name)}"
        if at in columns
        else f"error('a column was not planned')::{column.type} AS {quoted(column.name)}"
        for at, column in enumerate(table.columns)
    )
    source = f"temp.main.{quoted(_source_of(number))}"
    return [f"DROP TABLE {_name(table)}", _view(_name(table), ", ".join(listed), source)]


def _source_of(number: int) -> str:
    return f"rows of {number}"


def real_tables(catalogue: Catalogue, dataset: str | None) -> str:
    """SQL that creates every table, empty, under its real name, for clients that list tables."""
    parts = [_schemas(catalogue)]
    for table in catalogue.tables:
        columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in table.columns)
        parts.append(f"CREATE TABLE {_name(table)} ({columns});")
    parts += [_alias(table) for table in _unqualified(catalogue, dataset)]
    parts.append(_search_path(dataset))
    return "\n".join(parts)


def views(catalogue: Catalogue, dataset: str | None) -> str:
    """SQL that creates every table as a view of numbered columns, which are empty."""
    parts = [f"CREATE SCHEMA {INTERNAL};", _schemas(catalogue)]
    for number, table in enumerate(catalogue.tables):
        columns = ", ".join(f"c{at} {column.type}" for at, column in enumerate(table.columns))
        parts.append(f"CREATE TABLE {INTERNAL}.t{number} ({columns});")
        named = ", ".join(
            f"c{at} AS {quoted(column.name)}" for at, column in enumerate(table.columns)
        )
        parts.append(_view(_name(table), named, f"{INTERNAL}.t{number}") + ";")
    parts += [_alias(table) for table in _unqualified(catalogue, dataset)]
    parts.append(_search_path(dataset))
    return "\n".join(parts)


def _view(name: str, listed: str, source: str) -> str:
    # Users' names are quoted; all other names are numbers.
    return f"CREATE VIEW {name} AS SELECT {listed} FROM {source}"  # noqa: S608


def _name(table: SqlTable) -> str:
    return f"memory.{quoted(table.dataset)}.{quoted(table.name)}"


def _alias(table: SqlTable) -> str:
    return f"CREATE VIEW memory.main.{quoted(table.name)} AS FROM {_name(table)};"


def _unqualified(catalogue: Catalogue, dataset: str | None) -> list[SqlTable]:
    """Without a dataset, the tables with unique names: they need no qualification."""
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

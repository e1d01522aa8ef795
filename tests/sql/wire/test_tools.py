"""What tools ask when they connect and look for tables is answered, and answered rightly."""

from __future__ import annotations

from functools import cache
from typing import Any

import psycopg
import pytest

from tests.sql.wire.tool_statements import TOOLS
from tests.support.listener import Running


@cache
def answered(listener: Running, tool: str) -> list[list[tuple[Any, ...]]]:
    """The rows of each statement of a tool, which is asked once."""
    found = []
    with listener.connect(autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        for statement in TOOLS[tool]:
            cursor = connection.execute(statement)
            found.append(cursor.fetchall() if cursor.description else [])
    return found


@pytest.mark.parametrize("tool", TOOLS)
def test_every_statement_of_a_tool_is_answered(listener: Running, tool: str) -> None:
    assert len(answered(listener, tool)) == len(TOOLS[tool])


def test_metabase_finds_tables_and_the_types_of_their_columns(listener: Running) -> None:
    _, _, tables, privileges, fields, keys = answered(listener, "Metabase")
    assert [row[:3] for row in tables] == [
        ("clinic", "patient", "TABLE"),
        ("clinic", "visit", "TABLE"),
    ]
    assert (None, "clinic", "patient", False, True, False) in privileges
    types = {row[0]: row[1] for row in fields if row[4] == "patient"}
    assert types == {
        "id": "int8",
        "name": "text",
        "born": "date",
        "weight": "numeric",
        "seen": "timestamptz",
        "insured": "bool",
        "key": "uuid",
        "stay": "interval",
    }
    assert keys == []


def test_grafana_finds_tables_and_columns_by_the_search_path(listener: Running) -> None:
    version, _, schemas, tables, columns = answered(listener, "Grafana")
    assert version == [(1500,)]
    assert schemas == [("clinic",)]
    assert tables == [("patient",), ("visit",)]
    assert ("seen", "timestamp with time zone") in columns


def test_node_finds_its_schema_tables_and_columns(listener: Running) -> None:
    schema, database, tables, columns = answered(listener, "TypeORM")
    assert (schema, database) == ([("clinic",)], [("clinic",)])
    assert [name for name, _ in tables] == ["patient"]
    assert "cost" in [name for name, _ in columns]
    _, described = answered(listener, "Sequelize")
    assert ("weight", None) in described


def test_functions_of_catalogues_name_their_columns(listener: Running) -> None:
    query = "SELECT version(), current_database() AS d, pg_backend_pid()"
    with listener.connect(autocommit=True) as connection:
        for cursor in (connection.execute(query), connection.execute(query, prepare=True)):
            names = [column.name for column in cursor.description or ()]
            assert names == ["version", "d", "pg_backend_pid"]


def test_dbt_finds_columns_by_the_name_of_the_database(listener: Running) -> None:
    columns = answered(listener, "dbt")[3]
    assert [row[0] for row in columns][:3] == ["id", "name", "born"]
    assert ("weight", "numeric", None, 6, 2) in columns


def test_dbeaver_and_duckdb_find_tables_by_numbers(listener: Running) -> None:
    tables = answered(listener, "DBeaver")[11]
    assert [row[2] for row in tables] == ["patient", "visit"]
    columns = answered(listener, "DuckDB")[1]
    assert ("patient", "weight", "numeric") in {(row[1], row[3], row[4]) for row in columns}


def test_pgcli_and_odbc_find_tables_and_columns(listener: Running) -> None:
    tables, _ = answered(listener, "pgcli")
    assert [row[:2] for row in tables] == [("clinic", "patient"), ("clinic", "visit")]
    assert ("weight", "numeric") in answered(listener, "ODBC")[1]


def test_names_are_quoted_where_a_statement_needs_it(listener: Running) -> None:
    asked = "SELECT quote_ident('a'), quote_ident('A b'), quote_ident('select'), parse_ident($1)"
    with listener.connect(autocommit=True) as connection:
        asked = asked.replace("$1", """'"A ""b".c'""")
        assert connection.execute(asked).fetchone() == ("a", '"A b"', '"select"', ['A "b', "c"])
        told = connection.execute("SELECT format('%I.%s%%', quote_ident('a'), version())")
        assert str(told.fetchone()).startswith("('a.PostgreSQL 15")


def test_drivers_find_the_functions_of_types_by_which_they_read_values(listener: Running) -> None:
    (of_ruby,) = TOOLS["Ruby"]
    with listener.connect() as connection:
        functions = {name: function for _, name, _, _, function in connection.execute(of_ruby)}
        assert (functions["int8"], functions["_text"]) == ("int8in", "array_in")
        arrays = connection.execute(
            "SELECT count(*) FROM pg_type typ LEFT JOIN pg_proc AS proc ON proc.oid ="
            " typ.typreceive WHERE proc.proname = 'array_recv' AND typ.typelem > 0"
        ).fetchone()
        assert arrays is not None
        assert arrays[0] > 10

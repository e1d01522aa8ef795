"""A name of a table means that table, and of several that share it, none by chance."""

from __future__ import annotations

import duckdb
import pytest

from encrypted_records.sql.catalogue import KEYWORDS, Catalogue, SqlColumn, SqlTable, in_sql

A, B, OTHER = (
    SqlTable(dataset, name, f"/api/schemas/{dataset}-{name}/", ())
    for dataset, name in (("a", "patient"), ("b", "Patient"), ("b", "visit"))
)
CATALOGUE = Catalogue(("a", "b"), (A, B, OTHER))


@pytest.mark.parametrize(
    ("name", "dataset", "found"),
    [
        ("patient", None, [A, B]),
        ("VISIT", None, [OTHER]),
        ("b.patient", None, [B]),
        ("patient", "a", [A]),
        ("visit", "a", []),
        ("b.visit", "a", [OTHER]),
        ("nothing", None, []),
    ],
)
def test_names_find_every_table_that_they_may_mean(
    name: str, dataset: str | None, found: list[SqlTable]
) -> None:
    assert CATALOGUE.named(name, dataset) == found


KINDS = ("reserved", "type_function")
OF_DUCKDB = duckdb.execute(
    "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category IN (?, ?)", KINDS
).fetchall()


def test_the_keywords_are_those_of_duckdb() -> None:
    assert {name for (name,) in OF_DUCKDB} == KEYWORDS


@pytest.mark.parametrize(
    "name", ["people", "Order", "imported-files", "Order Date", 'a "b"', "2024", "année", "user"]
)
def test_a_name_as_shown_can_be_used_in_a_statement(name: str) -> None:
    table, column = SqlTable(name, name, "", ()), SqlColumn(name, "BIGINT")
    connection = duckdb.connect()
    connection.execute(f"CREATE SCHEMA {in_sql(name)}")
    connection.execute(f"CREATE TABLE {table.in_sql} ({column.in_sql} BIGINT)")
    connection.execute(f"INSERT INTO {table.in_sql} VALUES (7)")
    found = connection.execute(f"SELECT {column.in_sql} FROM {table.in_sql}")
    assert (found.description[0][0], found.fetchall()) == (name, [(7,)])
    assert Catalogue((name,), (table,)).named(table.in_sql, None) == [table]


def test_plain_names_are_shown_without_quotes() -> None:
    assert SqlTable("medical", "patient_2", "", ()).in_sql == "medical.patient_2"

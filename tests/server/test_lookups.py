"""Rows and pages are found by their keys, however many there are beside them."""

from __future__ import annotations

import sqlite3

import pytest

from encrypted_records.server.records.store import lookup, pairs

_TABLES = {"record_row": "group_id, ordinal, sealed", "index_page": "segment_id, number, data"}


@pytest.mark.parametrize("table", _TABLES)
def test_sqlite_finds_many_keys_by_the_primary_key(table: str) -> None:
    columns = _TABLES[table]
    first, second, _ = columns.split(", ")
    database = sqlite3.connect(":memory:")
    database.execute(f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({first}, {second}))")
    database.executemany(
        f"INSERT INTO {table} VALUES (?, ?, ?)", [(n // 10, n % 10, str(n)) for n in range(100)]
    )
    keys = [(3, 1), (0, 0), (9, 9), (11, 0), (3, 10)]
    sql = lookup(columns, table, pairs(len(keys))).replace("%s", "?")
    numbers = [part for key in keys for part in key]

    found = database.execute(sql, numbers).fetchall()
    plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", numbers)]

    assert sorted(found) == [(0, 0, "0"), (3, 1, "31"), (9, 9, "99")]
    assert [step.split()[0] for step in plan if table in step] == ["SEARCH"]
    database.close()

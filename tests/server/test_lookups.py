"""Rows, pages and rights are found by their keys, however many there are beside them."""

from __future__ import annotations

import sqlite3

import pytest

from encrypted_records.server import sql as questions
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


_RIGHTS = """
CREATE TABLE organizations_membership (organization_id, user_id, all_data);
CREATE UNIQUE INDEX of_member ON organizations_membership (organization_id, user_id);
CREATE TABLE datasets_dataset (id PRIMARY KEY, organization_id);
CREATE TABLE datasets_schema (id PRIMARY KEY, dataset_id);
CREATE TABLE roster_shared (organization_id, member, dataset, schema, writes);
CREATE INDEX shared_with_member ON roster_shared (member, dataset);
CREATE INDEX shared_of_dataset ON roster_shared (organization_id, dataset);
INSERT INTO datasets_dataset VALUES ('d1', 'o'), ('d2', 'o'), ('d3', 'other');
INSERT INTO datasets_schema VALUES ('s1', 'd1'), ('s2', 'd2'), ('t2', 'd2'), ('s3', 'd3');
INSERT INTO organizations_membership
    VALUES ('o', 'owner', 1), ('o', 'reader', 0), ('o', 'writer', 0), ('other', 'writer', 0);
INSERT INTO roster_shared VALUES
    ('o', 'reader', 'd1', NULL, 0),
    ('o', 'writer', 'd2', NULL, 0), ('o', 'writer', 'd2', 's2', 1),
    ('o', 'writer', 'd3', NULL, 1), ('o', 'left', 'd1', NULL, 1);
"""
#: Whether each member writes each schema that the member reaches.
_REACHED = {
    "owner": {"s1": True, "s2": True, "t2": True},
    "reader": {"s1": False},
    "writer": {"s2": True, "t2": False},
    "left": {},
}


def test_the_view_of_rights_says_who_reads_and_writes_and_is_asked_by_keys() -> None:
    database = sqlite3.connect(":memory:")
    database.executescript(_RIGHTS)
    database.execute(questions.REACH)
    question = questions.REACHED.format(s="s.id", d="reach.writes")
    for member, reached in _REACHED.items():
        asked = [{"schema": name, "member": member} for name in ("s1", "s2", "t2", "s3")]
        rows = [row for values in asked for row in database.execute(question, values)]
        assert {name: bool(writes) for name, writes in rows} == reached, member
    plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {question}", asked[0])]
    assert len(plan) > 4
    assert {step.split()[0] for step in plan} == {"SEARCH", "USE"}, plan
    database.close()

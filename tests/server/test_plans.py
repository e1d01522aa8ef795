"""Which indexes PostgreSQL has, and takes for the questions of each commit.

It keeps one plan of a statement that is asked again, until the tables are analyzed. So the plan of
empty tables has to be right for full ones.
"""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

from tests.server.test_postgres import run

#: What each commit, or a staging before it, adds rows to.
ADDED_TO = (
    *("index_segment", "index_page", "record_group", "row_run", "record_row", "commit_log"),
    *("commit_request", "writer_head", "organizations_auditentry", "dead_row", "staging"),
    *("staged_part", "row_part", "changed_row", "page_part", "bulk_object"),
)
#: Pairs of one table, of which the first begins as the second does.
_BEGINNINGS = """
SELECT a.indexrelid::regclass::text, b.indexrelid::regclass::text
FROM pg_index a JOIN pg_index b ON a.indrelid = b.indrelid AND a.indexrelid <> b.indexrelid
WHERE a.indrelid = %s::regclass AND NOT a.indisunique AND a.indpred IS NULL AND b.indpred IS NULL
    AND a.indnkeyatts <= b.indnkeyatts
    AND (a.indkey::int2[])[0:a.indnkeyatts - 1] = (b.indkey::int2[])[0:a.indnkeyatts - 1]
    AND (a.indclass::oid[])[0:a.indnkeyatts - 1] = (b.indclass::oid[])[0:a.indnkeyatts - 1]
"""
_EXPLAINING = """
import django
django.setup()
from django.db import connection
from encrypted_records.server.commits import storing

for statement in (storing.row_between, storing.commit_facts):
    sql, order = statement.written.sql, statement.written.order
    marks = ", ".join(["NULL"] * len(order))
    with connection.cursor() as cursor:
        cursor.execute("SET plan_cache_mode = force_generic_plan")
        cursor.execute(f"PREPARE asked AS {sql}")
        cursor.execute(f"EXPLAIN EXECUTE asked({marks})")
        print("\\n".join(line for line, in cursor.fetchall()))
        cursor.execute("DEALLOCATE asked")
"""


def test_no_question_of_a_commit_looks_through_a_table_that_grows(
    postgresql_url: str, tmp_path: Path
) -> None:
    plan = run(_EXPLAINING, postgresql_url, tmp_path)
    grow = r"(record_row|changed_row|row_part|record_group|index_segment|commit_log|writer_head)"
    assert set(re.findall(rf"Scan using \w+ on {grow}\b", plan)) == set(grow[1:-1].split("|")), plan
    assert not re.findall(rf"(?:Seq Scan|Bitmap Heap Scan) on {grow}", plan), plan
    # All of a schema's would be looked through by an index of schemas alone.
    assert {"index_segment_uid", "record_group_uid", "commit_log_id"} <= set(
        re.findall(r"Scan using (\w+) on", plan)
    ), plan


def test_no_table_that_a_commit_adds_to_has_an_index_that_begins_as_another_one(
    postgresql_url: str,
) -> None:
    with psycopg.connect(postgresql_url) as connection:
        for table in ADDED_TO:
            assert connection.execute(_BEGINNINGS, [table]).fetchall() == [], table
        # A pair is found where there is one.
        connection.execute("CREATE INDEX again ON record_group (schema_id)")
        found = connection.execute(_BEGINNINGS, ["record_group"]).fetchall()
        assert found == [("again", "record_group_uid")]

"""What is said of the bulky tables names the group or segment, so that a table in partitions, or
over several servers, is asked only where these are."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psycopg
import pytest

from tests.server.api import running_api
from tests.server.partitions_life import PARTITIONS
from tests.server.test_bulk_kills import ran
from tests.support.postgres import NewDatabase

#: A question for a record's id alone has no group yet, and asks the index of each partition.
BY_ID = "WHERE record_id"


def test_statements_ask_only_the_partitions_of_the_groups_that_they_name(
    tmp_path: Path, postgresql: NewDatabase
) -> None:
    url, other = postgresql(), postgresql()
    with psycopg.connect(url) as connection:
        if not connection.execute(
            "SELECT 1 FROM pg_available_extensions WHERE name = 'postgres_fdw'"
        ).fetchall():
            pytest.skip("this PostgreSQL has no postgres_fdw (Debian: postgresql)")
    with running_api(tmp_path, database_url=url) as api:
        account = api.new_account()
    program = ["tests.server.partitions_life", tmp_path / "data", url, other]
    seen = json.loads(ran(program, account, tmp_path, None))
    more = {statement for statement, count in seen.items() if count > 0}
    assert [statement for statement in more if BY_ID not in statement] == []
    # These are asked everywhere, so the partitions are there to be asked.
    assert max(seen[statement] for statement in more) == PARTITIONS - 1
    # It has looked at reads, jobs, erasure, sweeps, verifying, a move and a deletion.
    for table in ("record_row", "row_run", "index_page"):
        own = [statement for statement in seen if table in statement]
        assert any(statement.startswith("DELETE") for statement in own), table
        assert any(statement.startswith(("SELECT", "WITH")) for statement in own), table


@pytest.mark.skipif(
    "ERS_TEST_CITUS" not in os.environ, reason="ERS_TEST_CITUS names no empty database with Citus"
)
def test_all_of_it_works_on_citus(tmp_path: Path) -> None:
    url = os.environ["ERS_TEST_CITUS"]
    with running_api(tmp_path, database_url=url) as api:
        account = api.new_account()
    ran(["tests.server.partitions_life", tmp_path / "data", url, "citus"], account, tmp_path, None)

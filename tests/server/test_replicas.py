"""Reading from a standby: it gives what it has, and whatever it lacks or fails at is asked of the
primary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from encrypted_records.model import wire
from encrypted_records.model.records import RowRef
from tests.server.api import free_port, running_api, start
from tests.server.test_bulk import found, pages_of, published, rows_of
from tests.server.writer import FRAMES, Writer, person
from tests.support.doctor import looked_at
from tests.support.eventually import eventually
from tests.support.postgres import Pair, running_pair


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """With an empty database ``records`` that waits for no standby."""
    with running_pair() as pair:
        with psycopg.connect(f"{pair.urls[0]}/postgres", autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE records"))
            connection.execute(sql.SQL("ALTER DATABASE records SET synchronous_commit = local"))
            with psycopg.connect(f"{pair.urls[1]}/postgres", autocommit=True) as replica:
                _wait_until_it_has(connection, replica)
        yield pair


def test_rows_and_pages_come_from_a_replica_that_has_them_and_else_from_the_primary(
    pair: Pair, tmp_path: Path
) -> None:
    first, second = pair.urls
    environment = {"ERS_REPLICA_URL": f"{second}/records", "ERS_BULK_URL": "database://"}
    with (
        psycopg.connect(f"{first}/records", autocommit=True) as primary,
        psycopg.connect(f"{second}/records", autocommit=True) as replica,
        running_api(tmp_path, database_url=f"{first}/records", environment=environment) as api,
    ):
        account = api.new_account()
        writer = Writer(account, account.new_schema())
        rows = [person() for _ in range(3)]
        job = published(writer, rows)
        # From here on the replica stays as it is now.
        _wait_until_it_has(primary, replica)
        replica.execute("SELECT pg_wal_replay_pause()")
        _wait_for(replica, "SELECT pg_get_wal_replay_pause_state() = 'paused'")
        try:
            one = person()
            later = published(writer, [one])
            gone = "(SELECT id FROM record_group WHERE uid = %s)"
            [group], [segment] = job.groups, job.segments
            primary.execute(f"DELETE FROM record_row WHERE group_id = {gone}".encode(), [group])
            gone = "(SELECT id FROM index_segment WHERE uid = %s)"
            primary.execute(f"DELETE FROM index_page WHERE segment_id = {gone}".encode(), [segment])
            # Only the replica has these, and only the primary those.
            assert found(rows_of(job, 0, 2)) == [rows[0], rows[2]]
            assert pages_of(job).status == 200
            assert found(rows_of(later, 0)) == [one]
            assert pages_of(later).status == 200
            # Who may read, and what there is, the primary says.
            stranger = api.new_account()
            url = f"{writer.schema['url']}rows/"
            wanted = wire.encode([RowRef(group, 0)])
            assert stranger.call("POST", url, wanted, **FRAMES).status == 404
            primary.execute("UPDATE record_group SET count = 1 WHERE uid = %s", [group])
            assert rows_of(job, 2).code == "row_gone"
            # A connection that breaks is nobody's trouble.
            replica.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = 'records' AND pid <> pg_backend_pid()"
                " AND backend_type = 'client backend'"
            )
            assert found(rows_of(later, 0)) == [one]
        finally:
            replica.execute("SELECT pg_wal_replay_resume()")


def _wait_until_it_has(primary: psycopg.Connection[Any], replica: psycopg.Connection[Any]) -> None:
    """Until the replica has all that the primary has written so far."""
    (at,) = primary.execute("SELECT pg_current_wal_lsn()").fetchone() or ("",)
    _wait_for(replica, f"SELECT pg_last_wal_replay_lsn() >= '{at}'")


def _wait_for(connection: psycopg.Connection[Any], question: str) -> None:
    eventually(lambda: connection.execute(question.encode()).fetchone() == (True,), question)


def test_only_postgresql_has_a_replica(tmp_path: Path) -> None:
    process = start(
        tmp_path, port=free_port(), environment={"ERS_REPLICA_URL": "postgresql://u@127.0.0.1/x"}
    )
    assert process.wait(30) == 1
    assert (tmp_path / "log").read_text().startswith("invalid_setting: only PostgreSQL has")


def test_a_replica_that_hangs_is_given_up_and_the_primary_answers(
    pair: Pair, tmp_path: Path
) -> None:
    first, second = (f"{url}/records" for url in pair.urls)
    environment = {"ERS_REPLICA_URL": second, "ERS_BULK_URL": "database://"}
    with running_api(tmp_path, database_url=first, environment=environment) as api:
        account = api.new_account()
        writer = Writer(account, account.new_schema())
        rows = [person() for _ in range(3)]
        job = published(writer, rows)
        with (
            psycopg.connect(first, autocommit=True) as primary,
            psycopg.connect(second, autocommit=True) as replica,
        ):
            _wait_until_it_has(primary, replica)
            # So that the API has connections to it, and none of them is new when it hangs.
            assert found(rows_of(job, 0, 1, 2)) == rows
            assert pages_of(job).status == 200
        log = tmp_path / "log"
        assert "database replica failed" not in log.read_text()
        with pair.hanging_standby():
            assert found(rows_of(job, 0, 1, 2)) == rows
            assert pages_of(job).status == 200
            hanging = followed(first, second, tmp_path)
        assert log.read_text().count("database replica failed (OperationalError)") == 1
        assert "it does not answer: OperationalError" in hanging
        # And what else may be wrong with one.
        assert "it answers, and is " in followed(first, second, tmp_path)
        assert "it replicates nothing" in followed(first, first, tmp_path)
        other = f"{pair.urls[1]}/postgres"
        assert "it replicates another database" in followed(first, other, tmp_path)
        with psycopg.connect(second, autocommit=True) as replica:
            replica.execute("SELECT pg_wal_replay_pause()")
            _wait_for(replica, "SELECT pg_get_wal_replay_pause_state() = 'paused'")
            try:
                assert "its replication is paused" in followed(first, second, tmp_path)
            finally:
                replica.execute("SELECT pg_wal_replay_resume()")


def followed(url: str, replica_url: str, folder: Path) -> str:
    """What ``ers doctor --stored`` finds of a replica, none of which is a failure."""
    look = looked_at(
        "replica",
        ERS_DATA_DIR=str(folder / "data"),
        ERS_DATABASE_URL=url,
        ERS_REPLICA_URL=replica_url,
        ERS_BULK_URL="database://",
    )
    assert look.status == 0, look
    return look.found

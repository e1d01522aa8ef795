"""A PostgreSQL that ends connections, as it does when it is restarted, fails no request."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from encrypted_records.server.db.databases import REPLICA, configure_databases
from tests.server.api import running_api

#: More than the API has threads, each of which keeps a connection.
MANY = 32


def test_requests_after_the_server_has_ended_every_connection_find_new_ones(
    postgresql_url: str, tmp_path: Path
) -> None:
    def ask(_: int) -> int:
        return account.call("GET", "/api/organizations/").status

    with (
        running_api(tmp_path, database_url=postgresql_url) as api,
        ThreadPoolExecutor(MANY) as threads,
    ):
        account = api.new_account()
        assert set(threads.map(ask, range(MANY))) == {200}
        assert ended(postgresql_url) > 1
        assert set(threads.map(ask, range(MANY))) == {200}


def ended(url: str) -> int:
    """How many connections the server has ended: all but the one that asks for it."""
    with psycopg.connect(url) as connection:
        others = connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
    return len(others)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems name these otherwise")
def test_a_replica_whose_machine_is_gone_without_a_word_is_waited_for_by_nobody(
    postgresql_url: str, tmp_path: Path
) -> None:
    asked = configure_databases(postgresql_url, f"{postgresql_url}?keepalives_idle=3", tmp_path)
    options = asked[REPLICA]["OPTIONS"]
    with (
        psycopg.connect(postgresql_url, **options) as connection,
        socket.socket(fileno=connection.fileno()) as own,
    ):
        try:
            found = [
                own.getsockopt(socket.IPPROTO_TCP, name)
                for name in (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)
            ]
        finally:
            own.detach()  # it is the connection's
    assert found == [4000, 3, 1]
    assert "tcp_user_timeout" not in asked["default"]["OPTIONS"]


_ASKING = """
import os
import django
django.setup()
from django.db import OperationalError, connection, transaction
from encrypted_records.server.db.fields import as_stored
from encrypted_records.server.db.statements import Statement

asked = Statement("SELECT id, digest FROM accounts_login WHERE id = :id")


def kept():
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements")
        return cursor.fetchone()[0]


def ask(times):
    for _ in range(times):
        assert not asked.rows(id=as_stored("2Ja5FEkGdV5Cj3ck3Uipy2"))
"""
#: Each connection goes to a server process that is not the one it names, as behind a pool.
_BEHIND_A_POOL = """
import psycopg
psycopg.ConnectionInfo.backend_pid = property(lambda self: 1)
"""


def run(script: str, url: str, folder: Path) -> str:
    """What a script prints in the API's own code."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "encrypted_records.server.settings",
        "ERS_DATABASE_URL": url,
        "ERS_DATA_DIR": str(folder),
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_server_keeps_the_plans_of_statements_that_are_asked_again(
    postgresql_url: str, tmp_path: Path
) -> None:
    script = f"{_ASKING}\nask(3)\nprint(kept())\nask(10)\nprint(kept())"
    assert run(script, postgresql_url, tmp_path).split() == ["0", "1"]


def test_behind_a_pool_no_server_is_asked_to_keep_anything(
    postgresql_url: str, tmp_path: Path
) -> None:
    script = f"{_BEHIND_A_POOL}{_ASKING}\nask(20)\nprint(kept())"
    assert run(script, postgresql_url, tmp_path).split() == ["0"]


@pytest.mark.parametrize(
    "loss",
    [
        "DEALLOCATE ALL",  # a pool that does not show gave another process
        "ALTER TABLE accounts_login ALTER COLUMN digest TYPE text USING 'x'",
    ],
)
def test_a_statement_that_the_server_lost_fails_once_and_is_kept_no_more(
    loss: str, postgresql_url: str, tmp_path: Path
) -> None:
    losing = f"""
ask(20)
# Past the driver, which would know of it.
connection.connection.pgconn.exec_({loss!r}.encode())
try:
    ask(1)
except OperationalError:
    print("lost")
ask(20)
with transaction.atomic():
    ask(20)
connection.close()
ask(20)
print(kept())
"""
    assert run(_ASKING + losing, postgresql_url, tmp_path).split() == ["lost", "0"]

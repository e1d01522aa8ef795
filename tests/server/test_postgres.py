"""A PostgreSQL that ends connections, as it does when it is restarted, fails no request."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from encrypted_records.server.db.configuration import REPLICA, configure
from tests.server.api import Api, running_api

#: More than the API has threads, each of which keeps a connection.
MANY = 32


@pytest.fixture
def api(tmp_path: Path, postgresql_url: str) -> Iterator[Api]:
    with running_api(tmp_path, database_url=postgresql_url) as api:
        yield api


def test_requests_after_the_server_has_ended_every_connection_find_new_ones(
    api: Api, postgresql_url: str
) -> None:
    account = api.new_account()

    def ask(_: int) -> int:
        return account.call("GET", "/api/organizations/").status

    with ThreadPoolExecutor(MANY) as threads:
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
    asked = configure(postgresql_url, f"{postgresql_url}?keepalives_idle=3", tmp_path)
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

"""Clients that lie, wait, flood or try to write get an error or an end, and nobody else does."""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from encrypted_records import Client
from encrypted_records.errors import InvalidSetting
from encrypted_records.sql.limits import WireLimits
from encrypted_records.sql.wire.server import check_host
from tests.support.eventually import eventually
from tests.support.listener import Running, fields, message, received, running_listener, startup
from tests.support.service import Account, Service


@pytest.fixture(scope="module")
def few(running: Service, owner: Account, clinic: str) -> Iterator[Running]:
    """A listener with low limits."""
    limits = WireLimits(connections=2, waiting=5, login_seconds=120, statement_seconds=3)
    with running_listener(
        running.proxy_url,
        user=owner.email,
        password=owner.password,
        database=clinic,
        limits=limits,
    ) as listening:
        yield listening


@pytest.fixture
def small(few: Running) -> Running:
    """The listener, once the sessions of other tests have ended."""
    eventually(lambda: not few.listener._sessions, "sessions of other tests have ended")
    return few


WRITES = """
INSERT INTO patient (id) VALUES (4)|UPDATE patient SET id = 4|DELETE FROM patient
DROP TABLE patient|CREATE TABLE other (x INTEGER)|ALTER TABLE patient ADD COLUMN x INTEGER
TRUNCATE patient|ATTACH 'file.db' AS other|INSTALL httpfs|LOAD httpfs|PRAGMA database_list
CALL pragma_version()|COPY patient FROM STDIN|GRANT SELECT ON patient TO public|VACUUM
BEGIN READ WRITE|EXPORT DATABASE 'folder'|IMPORT DATABASE 'folder'|CHECKPOINT|DO $$ x $$
""".strip().replace("\n", "|")


REFUSED = """
SELECT * FROM read_csv('/etc/passwd')|SELECT * FROM read_text('/etc/passwd')
SELECT * FROM '/etc/passwd'|SELECT * FROM glob('/etc/*')
SELECT * FROM pg_class, read_text('/etc/passwd')|SELECT count(*) FROM patient, pg_class
COPY (SELECT 1) TO '/tmp/file'|COPY (SELECT 1) TO PROGRAM 'cat'
SET memory_limit = '1TB'|SET enable_external_access = true
SET client_encoding = 'LATIN1'|SET TimeZone = 'Europe/Berlin'
WITH x AS (DELETE FROM patient RETURNING 1) SELECT * FROM x|SELECT 1; DROP TABLE patient
SELECT nonsense FROM patient|SELECT FROM WHERE
""".strip().replace("\n", "|")


def test_what_would_write_files_settings_and_nonsense_are_refused_and_the_session_goes_on(
    listener: Running,
) -> None:
    with listener.connect(autocommit=True) as connection:
        writes = WRITES.split("|")
        for statement in (*writes, *REFUSED.split("|")):
            with pytest.raises(psycopg.Error) as error:
                connection.execute(statement)
            assert error.value.sqlstate is not None, statement
            assert statement not in writes or error.value.sqlstate == "25006", statement
            assert "root:" not in str(error.value)
            assert connection.execute("SELECT count(*) FROM patient").fetchone() == (3,)


NONSENSE = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    b"\0" * 100,
    b"\xff" * 100,
    struct.pack("!ii", 8, 80877103) + b"password in the open",
    startup("a", "b", 2 << 16),
    startup("a", "b") + b"Q\0\0\0\x06x\0",
    startup("a", "b") + b"?\0\0\0\x04",
)


def test_nonsense_ends_its_connection_alone_with_one_fatal_error(listener: Running) -> None:
    with listener.connect(autocommit=True) as other:
        for data in NONSENSE:
            with listener.socket() as connection:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                answer = b""
                while piece := connection.recv(4096):
                    answer += piece
            told = answer[answer.index(b"E") :]
            assert fields(told[5:])["S"] == "FATAL", data
            assert b"password in the open" not in answer
            assert other.execute("SELECT 1").fetchone() == (1,)
    with listener.connect() as later:
        assert later.execute("SELECT 1").fetchone() == (1,)


def test_many_silent_connections_keep_nobody_out(small: Running) -> None:
    held = [small.socket() for _ in range(100)]
    try:
        with small.connect() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        for waiting in held:
            waiting.close()


def test_more_sessions_than_the_limit_are_told_so(small: Running) -> None:
    with (
        small.connect(),
        small.connect(),
        pytest.raises(psycopg.OperationalError, match="too many connections"),
    ):
        small.connect()
    eventually(lambda: not small.listener._sessions, "the sessions have ended")
    small.connect().close()


def test_a_wrong_password_and_a_strangers_dataset_are_refused(
    listener: Running, running: Service
) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(listener.dsn.replace(listener.password, "wrong"))
    stranger = running.new_account()
    with pytest.raises(psycopg.OperationalError, match="no dataset clinic"):
        psycopg.connect(
            host="127.0.0.1",
            port=listener.port,
            user=stranger.email,
            password=stranger.password,
            dbname="clinic",
        )


def test_a_token_reads_its_datasets_and_sees_no_other(
    listener: Running, running: Service, owner: Account
) -> None:
    with Client(running.proxy_url, email=owner.email, password=owner.password) as client:
        token = client.create_token("report", scope="read", datasets=["other"]).token
    login: dict[str, Any] = {"host": "127.0.0.1", "port": listener.port, "password": token}
    with psycopg.connect(**login, user=owner.email, dbname="other") as connection:
        names = connection.execute("SELECT datname FROM pg_database").fetchall()
        assert names == [("other",)]
    with pytest.raises(psycopg.OperationalError, match="no dataset clinic"):
        psycopg.connect(**login, user=owner.email, dbname="clinic")
    with pytest.raises(psycopg.OperationalError, match="another user"):
        psycopg.connect(**login, user="else@example.org", dbname="other")


def test_a_statement_ends_in_time_and_by_its_clients_wish(small: Running) -> None:
    forever = "SELECT count(*) FROM range(100000000000) a, range(1000) b WHERE a.range % 7 = 3"
    with small.connect(autocommit=True) as connection:
        with pytest.raises(psycopg.errors.QueryCanceled, match="timeout"):
            connection.execute(forever)
        timer = threading.Timer(0.5, connection.cancel_safe)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(forever)
        timer.join()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_nobody_cancels_anothers_statement(listener: Running) -> None:
    with listener.connect(autocommit=True) as connection:
        process = connection.info.backend_pid
        with listener.socket() as other:
            other.sendall(struct.pack("!iiii", 16, 80877102, process, 12345))
            assert other.recv(10) == b""
        assert connection.execute("SELECT sum(range) FROM range(1000000)").fetchone()


def test_too_many_parameters_are_refused(listener: Running) -> None:
    with listener.connect(autocommit=True) as connection:
        asked = "SELECT " + ", ".join(f"${at}" for at in range(1, 2_000))
        result = connection.pgconn.prepare(b"", asked.encode())
        assert b"54023" in (result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b"")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_client_that_never_reads_is_dropped_and_costs_a_bounded_buffer(small: Running) -> None:
    with small.socket() as connection:
        connection.sendall(startup(small.user, small.database))
        connection.sendall(message("p", small.password.encode() + b"\0"))
        connection.sendall(message("Q", b"SELECT range, repeat('x', 1000) FROM range(1000000)\0"))
        eventually(lambda: bool(small.listener._sessions), "the session has begun")
        eventually(lambda: not small.listener._sessions, "the session has ended")
        told = received(connection)
    assert sum(len(body) for _, body in told) < 100_000_000


def test_no_password_or_value_is_logged(
    listener: Running, caplog: pytest.LogCaptureFixture, running: Service
) -> None:
    with caplog.at_level(logging.DEBUG), listener.connect(autocommit=True) as connection:
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT CAST(name AS INTEGER) FROM patient WHERE name = 'Zoë'")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(listener.dsn.replace(listener.password, "a-wrong-secret"))
    told = caplog.text + running.log
    assert listener.password not in told
    assert "a-wrong-secret" not in told
    assert "Zoë" not in told
    assert os.environ.get("PGPASSWORD") is None


def test_other_machines_are_served_by_tls_alone() -> None:
    with pytest.raises(InvalidSetting, match="not a loopback address"):
        check_host("0.0.0.0", None)
    for host in ("127.0.0.1", "localhost", "[::1]"):
        check_host(host, None)

"""A session stays in step after errors, answers what was asked, and holds up nobody else."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.pq import DiagnosticField, ExecStatus

from encrypted_records import Client
from encrypted_records.sql.limits import WireLimits
from encrypted_records.sql.wire import statements, types
from encrypted_records.sql.wire.statements import only, without_database
from tests.support.eventually import eventually
from tests.support.listener import Running, fields, message, running_listener, startup
from tests.support.service import Account, Service

FOREVER = "SELECT count(*) FROM range(100000000000) a, range(1000) b WHERE a.range % 7 = 3"


class Raw:
    """A client that sends messages one by one."""

    def __init__(self, listener: Running) -> None:
        self.socket = listener.socket()
        self._data = b""
        self.send(startup(listener.user, listener.database))
        self.send(message("p", listener.password.encode() + b"\0"))
        self.process: int = next(
            struct.unpack_from("!i", body)[0] for kind, body in self.answers() if kind == "K"
        )

    def send(self, *messages: bytes) -> None:
        self.socket.sendall(b"".join(messages))

    def answers(self) -> list[tuple[str, bytes]]:
        """All messages until the session is ready again."""
        found: list[tuple[str, bytes]] = []
        while not found or found[-1][0] != "Z":
            while len(self._data) < 5 or len(self._data) <= self._size():
                piece = self.socket.recv(65536)
                assert piece, found
                self._data += piece
            end = self._size() + 1
            found.append((self._data[:1].decode(), self._data[5:end]))
            self._data = self._data[end:]
        return found

    def _size(self) -> int:
        return int(struct.unpack_from("!i", self._data, 1)[0])

    def kinds(self) -> str:
        return "".join(kind for kind, _ in self.answers())


@pytest.fixture
def raw(listener: Running) -> Iterator[Raw]:
    client = Raw(listener)
    with client.socket:
        yield client


def parse(sql: str) -> bytes:
    return message("P", b"\0" + sql.encode() + b"\0" + b"\0\0")


BIND = message("B", b"\0\0" + bytes(6))
EXECUTE = message("E", b"\0" + bytes(4))
SYNC = message("S")


def state(connection: psycopg.Connection[Any], statement: str) -> str:
    """The SQLSTATE of a statement of the simple protocol; nothing where it goes well."""
    result = connection.pgconn.exec_(statement.encode())
    if result.status != ExecStatus.FATAL_ERROR:
        return ""
    return (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()


def test_a_statement_is_refused_by_name_and_the_session_goes_on(listener: Running) -> None:
    with listener.connect(autocommit=True) as connection:
        for statement, expected in (
            ("SELEC 1", "42601"),
            ("PREPARE p AS SELECT 1", "0A000"),
            ("DECLARE c CURSOR FOR SELECT $1", "42P02"),
            ("SELECT $1", "42P02"),
            ("SELECT $0", "42P02"),
            (f"SELECT ${'9' * 5_000}", "42P02"),
            ("COPY (SELECT $1) TO STDOUT", "42P02"),
            ("COPY () TO STDOUT", "42601"),
            ("ROLLBACK TO SAVEPOINT a", "25P01"),
            ("COPY (SELECT 'n') TO STDOUT (DELIMITER 'n')", "22023"),
            ("COPY (SELECT 1) TO STDOUT (FORMAT csv, NULL ',')", "22023"),
            ("COPY (SELECT 1 AS n) TO STDOUT (FORMAT csv, FORCE_QUOTE (n, m))", "42703"),
            ("SET search_path = other", "3F000"),
            ("SELECT {'a': 'NaN'::DOUBLE}", "22P05"),
            ("SELECT {'a': 'infinity'::TIMESTAMP}", "22P05"),
            ("SELECT " + ",".join("1" * 1_665), "54011"),
        ):
            assert state(connection, statement) == expected
            assert state(connection, 'SET search_path = "$user", public, clinic') == ""
            assert connection.execute("SELECT count(*) FROM patient").fetchone() == (3,)


def test_whoever_asks_for_tables_as_a_setting_is_told_where_they_are(listener: Running) -> None:
    with listener.connect(autocommit=True) as connection:
        with pytest.raises(psycopg.errors.UndefinedObject) as error:
            connection.execute("SHOW TABLES")
        assert "information_schema.tables" in (error.value.diag.message_hint or "")
        named = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'clinic'"
        assert ("patient",) in connection.execute(named).fetchall()


def test_a_name_of_a_table_may_begin_with_its_database(listener: Running) -> None:
    with listener.connect(autocommit=True) as connection:
        for named in ("clinic.clinic.patient", '"clinic"."Clinic" . "patient"'):
            found = connection.execute(f"SELECT id FROM {named} WHERE id = %s", [2])
            assert found.fetchall() == [(2,)]
        column = "clinic.clinic.visit.cost"
        found = connection.execute(f"SELECT max({column}) FROM clinic.clinic.visit")
        assert str(found.fetchall()) == "[(Decimal('20.20'),)]"


@pytest.mark.parametrize(
    ("sql", "namesake", "expected"),
    [
        ("SELECT a FROM c.c.t, c.c.u", False, "SELECT a FROM c.t, c.u"),
        ("SELECT c.c.id FROM c.c.c", True, "SELECT c.c.id FROM c.c"),
        ("SELECT c.c.c.id FROM c.c", True, "SELECT c.c.id FROM c.c"),
        ("SELECT 'c.c.t', x.c.c.t, c.c FROM c", False, "SELECT 'c.c.t', x.c.c.t, c.c FROM c"),
    ],
)
def test_only_the_database_before_a_schema_is_left_out(
    sql: str, namesake: bool, expected: str
) -> None:
    assert without_database(only(sql), "C", namesake=namesake) == expected


def test_a_refused_function_call_leaves_the_session_in_step(raw: Raw) -> None:
    raw.send(message("F", bytes(8)))
    assert raw.kinds() == "EZ"
    raw.send(parse("SELECT 1"), BIND, EXECUTE, SYNC)
    assert raw.kinds() == "12DCZ"


def test_after_an_error_everything_is_dropped_until_the_next_sync(raw: Raw) -> None:
    raw.send(parse("SELECT nonsense"), BIND, message("Q", b"SELECT 1\0"), message("H"), SYNC)
    assert raw.kinds() == "EZ"
    raw.send(parse("SELECT 1"), SYNC, parse("SELECT nonsense"), SYNC, BIND, SYNC)
    assert (raw.kinds(), raw.kinds()) == ("1Z", "EZ")
    ((_, told), _) = raw.answers()
    assert fields(told)["C"] == "26000"


def test_a_cursor_gives_binary_values_where_they_are_asked_for(listener: Running) -> None:
    asked = "SELECT 12345678::BIGINT, 1234::INTEGER, DATE '2026-01-31' FROM range(3)"
    with listener.connect() as connection, connection.cursor("some", binary=True) as cursor:
        cursor.itersize = 2
        rows = list(cursor.execute(asked))
    assert [row[:2] for row in rows] == [(12345678, 1234)] * 3
    assert {row[2].isoformat() for row in rows} == {"2026-01-31"}


def test_intervals_are_in_the_style_that_the_session_has_set(listener: Running) -> None:
    asked = "SELECT INTERVAL '14 months -90 seconds' AS stay"
    with listener.connect() as connection, connection.cursor() as cursor:

        def shown(statement: str) -> bytes | None:
            cursor.execute(statement)
            assert cursor.pgresult is not None
            return cursor.pgresult.get_value(0, 0)

        assert shown(asked) == b"1 year 2 mons -00:01:30"
        cursor.execute("SET intervalstyle = 'ISO_8601'")
        assert connection.info.parameter_status("IntervalStyle") == "iso_8601"
        assert shown(asked) == b"P1Y2MT-1M-30S"
        cursor.execute(f"DECLARE stays CURSOR FOR {asked}")
        assert shown("FETCH stays") == b"P1Y2MT-1M-30S"
        with cursor.copy(f"COPY ({asked}) TO STDOUT") as copy:
            assert b"".join(map(bytes, copy)) == b"P1Y2MT-1M-30S\n"
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="postgres or iso_8601"):
            cursor.execute("SET intervalstyle = sql_standard")


@pytest.mark.parametrize(("count", "expected"), [("9" * 5_000, ""), ("²", "0A000")])
def test_a_cursor_is_asked_for_any_number_of_rows_and_the_session_goes_on(
    listener: Running, count: str, expected: str
) -> None:
    with listener.connect(autocommit=True) as connection:
        assert state(connection, "DECLARE c CURSOR FOR SELECT id FROM patient") == ""
        assert state(connection, f"FETCH {count} FROM c") == expected
        assert state(connection, "SELECT 1") == ""


def test_json_is_not_made_json_of_again(listener: Running) -> None:
    with listener.connect() as connection:
        asked = """SELECT '{"a": [1]}'::JSON, {'b': 2}, json_object('c', 3)"""
        assert connection.execute(asked).fetchone() == ({"a": [1]}, {"b": 2}, {"c": 3})


@pytest.fixture(scope="module")
def devices(running: Service, owner: Account, clinic: str) -> None:
    definition = {
        "type": "object",
        "properties": {"version": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["version"],
    }
    with Client(running.proxy_url, email=owner.email, password=owner.password) as client:
        schema = client.dataset("other").create_schema("Device", definition, slug="device")
        schema.ingest([{"version": 1}, {"version": 2}])


@pytest.mark.usefixtures("devices")
@pytest.mark.parametrize("prepare", [False, True])
def test_records_are_read_where_their_names_are_those_of_catalogues_too(
    listener: Running, prepare: bool
) -> None:
    with listener.connect(autocommit=True) as connection:
        for asked, given, expected in (
            ("SELECT version FROM other.device ORDER BY 1", (), [(1,), (2,)]),
            ("SELECT version FROM other.device WHERE version = %s", (2,), [(2,)]),
            ("SELECT current_user <> '', count(*) FROM query_table('patient')", (), [(True, 3)]),
            ("SELECT id, name AS version FROM patient WHERE id = %s", (1,), [(1, "Zoë")]),
        ):
            found = connection.execute(asked, given, prepare=prepare).fetchall()
            assert found == expected, asked
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            connection.execute("SELECT count(*) FROM other.device, pg_class")


@contextmanager
def with_limits(
    running: Service, owner: Account, clinic: str, limits: WireLimits
) -> Iterator[Running]:
    with running_listener(
        running.proxy_url,
        user=owner.email,
        password=owner.password,
        database=clinic,
        limits=limits,
    ) as listening:
        yield listening


def test_catalogues_follow_the_login(running: Service, owner: Account, clinic: str) -> None:
    limits = WireLimits(login_seconds=120, catalogue_seconds=0)
    listed = "SELECT tablename FROM pg_tables"
    with (
        Client(running.proxy_url, email=owner.email, password=owner.password) as client,
        with_limits(running, owner, clinic, limits) as listening,
    ):
        dataset = client.create_dataset("New tables", slug="new-tables")
        token = client.create_token("follower", scope="read", datasets=["new-tables"])
        with psycopg.connect(
            host="127.0.0.1",
            port=listening.port,
            user=owner.email,
            password=token.token,
            dbname="new-tables",
            autocommit=True,
        ) as connection:
            assert connection.execute(listed).fetchall() == []
            dataset.create_schema(
                "Late",
                {"type": "object", "properties": {"a": {"type": "string"}}, "required": []},
                slug="late",
            )
            assert connection.execute(listed).fetchall() == [("late",)]
            client.revoke_token(token.id)
            with pytest.raises(psycopg.OperationalError):
                connection.execute(listed)


def test_a_prepared_statement_never_gives_rows_under_names_that_have_changed(
    running: Service, owner: Account, listener: Running
) -> None:
    def definition(name: str) -> dict[str, Any]:
        return {"type": "object", "properties": {name: {"type": "string"}}, "required": []}

    asked = "SELECT * FROM renaming.people"
    with Client(running.proxy_url, email=owner.email, password=owner.password) as client:
        dataset = client.create_dataset("Renaming", slug="renaming")
        schema = dataset.create_schema("People", definition("name"), slug="people")
        schema.ingest([{"name": "Ada"}])
        with listener.connect(autocommit=True) as connection:
            assert connection.execute(asked, prepare=True).fetchall() == [("Ada",)]
            schema.change(definition("title"), renames={"title": "name"})
            for _ in range(2):
                with pytest.raises(psycopg.errors.FeatureNotSupported):
                    connection.execute(asked, prepare=True)
            cursor = connection.execute(asked, prepare=False)
            assert cursor.fetchall() == [("Ada",)]
            assert [column.name for column in cursor.description or ()] == ["title"]


def test_wrong_keys_keep_nobody_else_from_cancelling(
    running: Service, owner: Account, clinic: str
) -> None:
    limits = WireLimits(login_seconds=120, cancel_misses=2)
    with (
        with_limits(running, owner, clinic, limits) as listening,
        listening.connect() as first,
        listening.connect(autocommit=True) as other,
    ):
        for process in (first.info.backend_pid, first.info.backend_pid, 1, 2, 3):
            with listening.socket() as wrong:
                wrong.sendall(struct.pack("!iiii", 16, 80877102, process, 12345))
                assert wrong.recv(10) == b""
        session = listening.listener._sessions[other.info.backend_pid].session
        assert session is not None

        def cancel() -> None:
            eventually(lambda: session._running, "the statement runs")
            other.cancel_safe()

        thread = threading.Thread(target=cancel)
        thread.start()
        with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
            other.execute(FOREVER)
        thread.join()


def test_a_statement_is_cancelled_while_the_process_for_it_starts(
    running: Service, owner: Account, clinic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = WireLimits(login_seconds=120, statement_seconds=3)
    with (
        with_limits(running, owner, clinic, limits) as listening,
        listening.connect(autocommit=True) as connection,
    ):
        session = listening.listener._sessions[connection.info.backend_pid].session
        assert session is not None
        prepare = session._answers.prepare

        async def cancelled() -> None:
            await prepare()
            session.cancel()

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(session._answers, "prepare", cancelled)
            with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
                connection.execute(FOREVER)
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_statement_that_runs_while_it_is_described_ends_in_time(listener: Running) -> None:
    with listener.connect(autocommit=True) as connection:
        connection.execute("SET statement_timeout = '500ms'")
        result = connection.pgconn.prepare(b"", f"EXPLAIN ANALYZE {FOREVER}".encode())
        assert result.error_field(DiagnosticField.SQLSTATE) == b"57014"
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_client_that_only_sends_costs_a_bounded_buffer_and_holds_up_nobody(
    listener: Running, raw: Raw
) -> None:
    raw.send(parse("SELECT " + ",".join("1" * 1_000)), SYNC)
    assert raw.kinds() == "1Z"
    raw.send(message("D", b"S\0") * 4_000)
    channel = listener.listener._sessions[raw.process].channel
    eventually(lambda: channel.waits, "the client is waited for")
    assert channel._writer.transport.get_write_buffer_size() < 4 << 20
    with listener.connect() as other:
        assert other.execute("SELECT 1").fetchone() == (1,)


@contextmanager
def narrow(listener: Running, running: Service, limits: WireLimits) -> Iterator[Raw]:
    """A client of a listener with these limits."""
    with running_listener(
        running.proxy_url,
        user=listener.user,
        password=listener.password,
        database=listener.database,
        limits=limits,
    ) as narrower:
        client = Raw(narrower)
        with client.socket:
            yield client


def codes(answers: list[tuple[str, bytes]]) -> list[str]:
    return [fields(body)["C"] for kind, body in answers if kind == "E"]


def bind(value: bytes, portal: bytes = b"") -> bytes:
    return message("B", portal + b"\0\0" + struct.pack("!hhi", 0, 1, len(value)) + value + bytes(2))


def test_parameters_of_waiting_portals_take_bounded_memory(
    listener: Running, running: Service
) -> None:
    asked = parse("SELECT length($1::text)")
    with narrow(listener, running, WireLimits(login_seconds=120, portal_bytes=1_000)) as raw:
        raw.send(asked, bind(b"x" * 600, b"a"), bind(b"x" * 600, b"b"), SYNC)
        assert codes(raw.answers()) == ["53200"]
        raw.send(asked, bind(b"x" * 600), EXECUTE, SYNC)
        assert raw.kinds() == "12DCZ"


def test_columns_of_prepared_statements_take_bounded_memory(
    listener: Running, running: Service
) -> None:
    many = "SELECT * FROM " + ", ".join(f"patient p{at}" for at in range(40))
    limits = WireLimits(login_seconds=120, prepared_characters=1_500)
    with narrow(listener, running, limits) as raw:
        raw.send(parse(many), SYNC)
        assert codes(raw.answers()) == ["53200"]
        raw.send(parse("SELECT 1"), BIND, EXECUTE, SYNC)
        assert raw.kinds() == "12DCZ"


def test_long_statements_and_parameters_are_read_beside_the_event_loop(
    raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = statements.split

    def beside(sql: str) -> list[statements.SqlStatement]:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return split(sql)

    def decode(*_: object) -> None:
        raise AssertionError("the listener's own process reads a parameter")

    monkeypatch.setattr(statements, "split", beside)
    monkeypatch.setattr(types, "_array_in", decode)
    raw.send(message("Q", b"SELECT 1\0"))
    assert raw.kinds() == "TDCZ"
    raw.send(parse("SELECT list_sum($1::BIGINT[])"), bind(b"{1,2,3}"), EXECUTE, SYNC)
    answers = raw.answers()
    assert [kind for kind, _ in answers] == list("12DCZ")
    assert answers[2][1].endswith(b"6")

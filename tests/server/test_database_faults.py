"""A full disk and a damaged database are called that, in answers and in the log."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from encrypted_records.errors import Unavailable
from encrypted_records.server.db import databases
from tests.server.api import PASSWORD, Account, Answer, Api, running_api
from tests.server.conftest import Stopped
from tests.server.test_serve import refusal
from tests.support.doctor import looked_at
from tests.support.forked import run
from tests.support.postgres import NewDatabase
from tests.support.service import ERS, clean_environment

#: Has SQLite take no page more than its file has: what it says then is what it says of a full disk.
_FULL = """
import sqlite3.dbapi2

_connect = sqlite3.dbapi2.connect

def connect(*arguments, **options):
    connection = _connect(*arguments, **options)
    connection.execute("PRAGMA max_page_count = 1")
    return connection

sqlite3.dbapi2.connect = connect
"""
#: Has PostgreSQL say it, where a row is written, with something of the row in its words.
_TRIGGER = """
CREATE OR REPLACE FUNCTION fails() RETURNS trigger AS $$ BEGIN
  RAISE EXCEPTION 'unmistakable-needle in %', NEW USING ERRCODE = '{state}';
END $$ LANGUAGE plpgsql;
CREATE OR REPLACE TRIGGER fails BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION fails()
"""


def wide(size: int) -> dict[str, Any]:
    """A definition of a schema that takes some room."""
    names = (f"unmistakable_needle_{at}" for at in range(size))
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}}


def until_refused(account: Account) -> Answer:
    dataset = account.new_dataset()["url"]
    for at in range(100):
        body = {"name": f"schema {at}", "dataset": dataset, "schema": wide(200)}
        answer = account.call("POST", "/api/schemas/", body)
        if answer.status != 201:
            return answer
    raise AssertionError("SQLite found room for all of it")


def test_a_full_disk_under_sqlite_is_answered_by_name_and_reading_goes_on(
    stopped: Stopped, tmp_path: Path
) -> None:
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(_FULL)
    with running_api(stopped.folder, environment={"PYTHONPATH": str(hook)}) as api:
        account = replace(stopped.account, api=api)
        refused = until_refused(account)
        assert (refused.status, refused.code) == (507, "database_full")
        assert account.call("GET", "/api/schemas/").status == 200
        log = api.log.read_text()
    assert "the disk that holds the API's database is full" in log
    assert "sqlite3.OperationalError (SQLITE_FULL)" in log
    assert "unmistakable" not in log


@pytest.fixture(scope="module")
def served(apis: Any) -> Iterator[Api]:
    api: Api = apis("postgresql")
    yield api


@pytest.fixture(scope="module")
def owner(served: Api) -> Account:
    return served.new_account()


@pytest.mark.parametrize(
    ("state", "status", "code"),
    [
        ("53100", 507, "database_full"),
        ("XX001", 500, "database_damaged"),
        ("XX002", 500, "database_damaged"),
        ("58030", 500, "database_disk_failed"),
        ("25006", 500, "database_disk_failed"),
        ("40001", 503, "database_unavailable"),
        ("42P01", 500, "internal_error"),
    ],
)
def test_what_postgresql_calls_its_error_decides_and_its_words_are_not_repeated(
    served: Api, owner: Account, state: str, status: int, code: str
) -> None:
    served.execute(_TRIGGER.format(state=state, event="INSERT", table="datasets_dataset"))
    before = len(served.log.read_text())
    try:
        body = {"name": "unmistakable-needle", "organization": owner.organization}
        refused = owner.call("POST", "/api/datasets/", body)
    finally:
        served.execute("DROP TRIGGER fails ON datasets_dataset")
    assert (refused.status, refused.code) == (status, code)
    said = served.log.read_text()[before:]
    assert f"({state})" in said
    assert "unmistakable-needle" not in said
    assert b"unmistakable-needle" not in refused.body
    assert owner.new_dataset()["url"]


def test_a_disk_that_fills_up_while_a_session_is_saved_is_no_mistake_of_the_caller(
    served: Api, owner: Account
) -> None:
    served.execute(_TRIGGER.format(state="53100", event="UPDATE", table="django_session"))
    try:
        body = {"email": owner.email, "password": PASSWORD}
        refused = served.call("POST", "/api/accounts/login/", body)
    finally:
        served.execute("DROP TRIGGER fails ON django_session")
    assert (refused.status, refused.code) == (507, "database_full")
    assert "Set-Cookie" not in refused.headers
    assert served.call("POST", "/api/accounts/login/", body).status == 200


def spoil(path: Path, at: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xa5" * size)


def test_a_damaged_page_is_named_when_it_is_read(stopped: Stopped) -> None:
    with closing(sqlite3.connect(stopped.database)) as database:
        query = "SELECT rootpage FROM sqlite_master WHERE tbl_name = 'datasets_dataset'"
        roots = [root for (root,) in database.execute(query)]
        [(size,)] = database.execute("PRAGMA page_size")
    for root in roots:
        spoil(stopped.database, (root - 1) * size, size)
    with running_api(stopped.folder) as api:
        account = replace(stopped.account, api=api)
        refused = account.call("GET", "/api/datasets/")
        assert (refused.status, refused.code) == (500, "database_damaged")
        assert "restore" in refused.json()["detail"]
        assert account.call("GET", "/api/users/self/").status == 200
        assert "(SQLITE_CORRUPT" in api.log.read_text()


@pytest.mark.parametrize(("at", "size"), [(0, 100), (100, 3996)], ids=["header", "first page"])
def test_a_database_that_is_damaged_from_the_beginning_stops_the_start(
    stopped: Stopped, at: int, size: int
) -> None:
    spoil(stopped.database, at, size)
    said = refusal(stopped.folder)
    assert said == f"database_damaged: the database {stopped.database} is damaged: restore it"


def test_commands_of_operators_name_what_is_wrong_with_the_database(stopped: Stopped) -> None:
    """To start the API on it once helps only where tables are missing."""
    folder = str(stopped.folder / "data")
    said = run([*ERS, "verify", "--stored"], clean_environment(ERS_DATA_DIR=folder))
    assert said.returncode == 0, said.stderr
    spoil(stopped.database, 100, 3996)
    found = looked_at("database", ERS_DATA_DIR=folder)
    assert (found.state, found.found) == (
        "failed",
        "the API's database is damaged: restore it from a backup",
    )
    said = run([*ERS, "verify", "--stored"], clean_environment(ERS_DATA_DIR=folder))
    assert said.stderr.startswith(f"error: the database {stopped.database} is damaged: restore it")
    stopped.database.unlink()
    with closing(sqlite3.connect(stopped.database)) as database:
        database.execute("CREATE TABLE other (column INTEGER)")
    said = run([*ERS, "verify", "--stored"], clean_environment(ERS_DATA_DIR=folder))
    assert said.stderr.splitlines() == [
        "error: the API's database lacks tables of this version",
        "hint: start this version's API on it once",
    ]


def test_what_postgresql_says_of_a_start_that_it_refuses_is_told_by_its_code(
    served: Api, tmp_path: Path
) -> None:
    assert served.database_url is not None
    url = served.database_url.rpartition("/")[0] + "/there_is_no_such_database"
    said = refusal(tmp_path, database_url=url)
    assert said.startswith("cannot_start: the database does not answer, or denies")


def meaning_of(write: Callable[[sqlite3.Connection], object], path: Path) -> Unavailable | None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS kept (bytes BLOB)")
        with pytest.raises(sqlite3.OperationalError) as failed:
            write(database)
    return databases.meaning_of(failed.value)


def test_a_write_that_the_system_refuses_is_a_failing_disk_and_not_a_silent_database(
    tmp_path: Path,
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def write(database: sqlite3.Connection) -> None:
        # As a disk that fails: SQLite is told of an error that is not a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, before[1]))
        try:
            database.execute("INSERT INTO kept VALUES (zeroblob(?))", (1 << 20,))
            database.commit()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    fault = meaning_of(write, tmp_path / "a.sqlite3")
    assert fault is not None
    assert fault.reason == "database_disk_failed"


def test_a_file_system_that_became_read_only_is_named(tmp_path: Path) -> None:
    def write(database: sqlite3.Connection) -> None:
        database.execute("PRAGMA query_only = ON")
        database.execute("INSERT INTO kept VALUES (1)")

    fault = meaning_of(write, tmp_path / "a.sqlite3")
    assert fault is not None
    assert fault.reason == "database_disk_failed"


def test_an_api_without_its_database_does_not_say_that_all_is_well(
    postgresql: NewDatabase, tmp_path: Path
) -> None:
    url = postgresql.with_tables()
    name = url.rpartition("/")[2]
    reach = f"ALTER DATABASE {name} ALLOW_CONNECTIONS"
    end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"
    with (
        running_api(tmp_path, database_url=url) as api,
        psycopg.connect(f"{postgresql.server}/postgres", autocommit=True) as connection,
    ):
        connection.execute(f"{reach} false")
        connection.execute(end, [name])
        refused = api.call("GET", "/api/status/")
        assert (refused.status, refused.code) == (503, "database_unavailable")
        assert "Retry-After" in refused.headers
        connection.execute(f"{reach} true")
        assert api.call("GET", "/api/status/").json()["status"] == "ok"

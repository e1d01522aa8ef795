"""What cannot be proven right is refused by name: other keys, and an API that forgets or alters."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.service import Service, running_service
from tests.support.store import Store, new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}


def again(store: Store, service: Service) -> Store:
    """The same account and schema on a service that was started again."""
    return Store(service, store.account, store.schema)


def test_an_api_set_back_to_an_older_state_is_refused_and_not_answered_shorter(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with running_service(data) as service:
        store = new_store(service, DEFINITION)
        store.ingest([{"name": "first"}])
    shutil.copytree(data / "api", tmp_path / "backup")
    with running_service(data) as service:
        again(store, service).ingest([{"name": "second"}])
    shutil.rmtree(data / "api")
    shutil.copytree(tmp_path / "backup", data / "api")

    with running_service(data) as service:
        for answer in (again(store, service).ask(), again(store, service).send([{"name": "x"}])):
            assert (answer.status, answer.json()["code"]) == (422, "log_broken")


def test_a_proxy_with_another_keyring_is_refused_on_every_way_to_the_records(
    tmp_path: Path,
) -> None:
    with running_service(tmp_path / "data") as service:
        store = new_store(service, DEFINITION)
        (record_id,) = store.ingest([{"name": "first"}])
        sealed = store.api("GET", f"/api/records/{record_id}/").json()
    shutil.rmtree(tmp_path / "data" / "proxy")

    with running_service(tmp_path / "data") as service:
        store = again(store, service)
        answers = [
            store.ask(),
            store.send([{"name": "second"}]),
            store.proxy("GET", f"/api/records/{record_id}/"),
            store.proxy("GET", f"/api/records/?schema={store.schema_id}"),
            store.proxy("POST", "/api/records/decrypt/", sealed),
        ]
        for answer in answers:
            assert (answer.status, answer.json()["code"]) == (422, "key_missing")
            assert sealed["key_id"] in answer.json()["detail"]
        listed = store.api("GET", f"/api/records/?schema={store.schema_id}").json()
        assert listed["count"] == 1


def flip(table: str, column: str) -> Callable[[sqlite3.Connection], None]:
    """Change one bit at the end of the first value of a column."""

    def change(database: sqlite3.Connection) -> None:
        name, value = database.execute(f"SELECT rowid, {column} FROM {table}").fetchone()
        altered = bytes(value[:-1]) + bytes([value[-1] ^ 1])
        database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (altered, name))

    return change


def drop_last_commit(database: sqlite3.Connection) -> None:
    database.execute("DELETE FROM commit_log WHERE version = 1")


def move_a_group(database: sqlite3.Connection) -> None:
    """As if the group were of no schema that the caller asks about."""
    database.execute("PRAGMA foreign_keys = OFF")
    database.execute("UPDATE record_group SET uid = zeroblob(16) WHERE id = 1")


def drop_a_row(database: sqlite3.Connection) -> None:
    database.execute("DELETE FROM record_row WHERE rowid = (SELECT min(rowid) FROM record_row)")


def drop_a_page(database: sqlite3.Connection) -> None:
    database.execute("DELETE FROM index_page WHERE rowid = (SELECT min(rowid) FROM index_page)")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (move_a_group, "log_broken"),
        # The API finds out in the middle of its answer, and breaks it off.
        (drop_a_row, "api_failed"),
        (drop_a_page, "api_failed"),
        (flip("record_row", "sealed"), "does_not_open"),
        (flip("index_page", "data"), "does_not_open"),
        (flip("commit_log", "mac"), "log_broken"),
        (flip("commit_log", "body"), "log_broken"),
        (drop_last_commit, "log_broken"),
    ],
)
def test_whatever_is_altered_in_the_database_is_an_error_and_never_fewer_rows(
    change: Callable[[sqlite3.Connection], None], code: str, tmp_path: Path
) -> None:
    with running_service(tmp_path / "data") as service:
        store = new_store(service, DEFINITION)
        store.ingest([{"name": "first"}])
        store.ingest([{"name": "second"}])
    with sqlite3.connect(tmp_path / "data" / "api" / "db.sqlite3") as database:
        change(database)

    with running_service(tmp_path / "data") as service:
        where = {"field": "name", "op": "in", "value": ["first", "second"]}
        answer = again(store, service).ask(where)
        assert answer.json()["code"] == code
        assert answer.status == (502 if code == "api_failed" else 422)

"""What cannot be proven right is refused by name: other keys, and an API that forgets or alters."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from encrypted_records.model.ids import from_text
from tests.support.service import Service, running_service
from tests.support.store import Store, new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}


def again(store: Store, service: Service) -> Store:
    """The same account and schema on a service that was started again."""
    return Store(service, store.account, store.schema, store.device)


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


OF_THE_SCHEMA = {
    "commit_log": "schema_id = :schema",
    "record_row": "group_id IN (SELECT id FROM record_group WHERE schema_id = :schema)",
    "index_page": "segment_id IN (SELECT id FROM index_segment WHERE schema_id = :schema)",
}
Change = Callable[[sqlite3.Connection, dict[str, bytes]], object]


def flip(table: str, column: str) -> Change:
    """Change one bit at the end of the first value of a column."""

    def change(database: sqlite3.Connection, of: dict[str, bytes]) -> None:
        first = f"SELECT rowid, {column} FROM {table} WHERE {OF_THE_SCHEMA[table]}"
        name, value = database.execute(first, of).fetchone()
        altered = bytes(value[:-1]) + bytes([value[-1] ^ 1])
        database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (altered, name))

    return change


def drop_first(table: str) -> Change:
    first = f"(SELECT min(rowid) FROM {table} WHERE {OF_THE_SCHEMA[table]})"
    return lambda database, of: database.execute(f"DELETE FROM {table} WHERE rowid = {first}", of)


def drop_last_commit(database: sqlite3.Connection, of: dict[str, bytes]) -> None:
    database.execute("DELETE FROM commit_log WHERE schema_id = :schema AND version = 1", of)


def move_a_group(database: sqlite3.Connection, of: dict[str, bytes]) -> None:
    """As if the group were of no schema that the caller asks about."""
    database.execute("PRAGMA foreign_keys = OFF")
    first = "(SELECT min(id) FROM record_group WHERE schema_id = :schema)"
    database.execute(f"UPDATE record_group SET uid = zeroblob(16) WHERE id = {first}", of)


#: What is done behind the API's back, and the code of the error.
CHANGES: dict[str, tuple[Change, str]] = {
    "a group is moved": (move_a_group, "log_broken"),
    # The API finds out in the middle of its answer, and breaks it off.
    "a row is missing": (drop_first("record_row"), "api_failed"),
    "a page is gone": (drop_first("index_page"), "api_failed"),
    "a row is altered": (flip("record_row", "sealed"), "does_not_open"),
    "a page is altered": (flip("index_page", "data"), "altered"),
    "a MAC is altered": (flip("commit_log", "mac"), "log_broken"),
    "a commit is altered": (flip("commit_log", "body"), "log_broken"),
    "the last commit is gone": (drop_last_commit, "log_broken"),
    "nothing": (lambda database, of: None, ""),
}


@pytest.fixture(scope="module")
def altered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Store]]:
    """A schema for each change, which was made while the service was down."""
    data = tmp_path_factory.mktemp("altered") / "data"
    stores: dict[str, Store] = {}
    with running_service(data) as service:
        first = new_store(service, DEFINITION)
        for name in CHANGES:
            stores[name] = first.another_schema(DEFINITION)
            stores[name].ingest([{"name": "first"}])
            stores[name].ingest([{"name": "second"}])
    with sqlite3.connect(data / "api" / "db.sqlite3") as database:
        for name, (change, _) in CHANGES.items():
            change(database, {"schema": from_text(stores[name].schema_id)})
    with running_service(data) as service:
        yield {name: again(store, service) for name, store in stores.items()}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_is_altered_in_the_database_is_an_error_and_never_fewer_rows(
    name: str, altered: dict[str, Store]
) -> None:
    where = {"field": "name", "op": "in", "value": ["first", "second"]}
    answer = altered[name].ask(where)
    if name == "nothing":
        assert len(answer.json()["results"]) == 2
    else:
        code = CHANGES[name][1]
        assert answer.json()["code"] == code
        assert answer.status == (502 if code == "api_failed" else 422)

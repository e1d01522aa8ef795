"""What cannot be proven right is refused by name: other keys, and an API that alters. One that
forgets is in ``tests/proxy/test_accepting_logs.py``."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from encrypted_records.model.ids import from_text
from tests.support.fixtures import at
from tests.support.proxies import running_proxy
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}


def test_a_proxy_with_another_keyring_is_refused_on_every_way_to_the_records(
    service: Service, tmp_path: Path
) -> None:
    store = new_store(service, DEFINITION)
    (record_id,) = store.ingest([{"name": "first"}])
    sealed = store.api("GET", f"/api/records/{record_id}/").json()
    with running_proxy(service.base_url, tmp_path) as other:
        there = at(store, other)
        answers = [
            there.ask(),
            there.send([{"name": "second"}]),
            there.proxy("GET", f"/api/records/{record_id}/"),
            there.proxy("GET", f"/api/records/?schema={store.schema_id}"),
            there.proxy("POST", "/api/records/decrypt/", sealed),
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
    first = "(SELECT min(id) FROM record_group WHERE schema_id = :schema)"
    database.execute(f"UPDATE record_group SET uid = zeroblob(16) WHERE id = {first}", of)


#: What is done behind the API's back, and the code of the error.
CHANGES: dict[str, tuple[Change, str]] = {
    "a group is moved": (move_a_group, "log_broken"),
    "a row is missing": (drop_first("record_row"), "object_lost"),
    "a page is gone": (drop_first("index_page"), "object_lost"),
    "a row is altered": (flip("record_row", "sealed"), "does_not_open"),
    "a page is altered": (flip("index_page", "data"), "altered"),
    "a MAC is altered": (flip("commit_log", "mac"), "log_broken"),
    "a commit is altered": (flip("commit_log", "body"), "log_broken"),
    "the last commit is gone": (drop_last_commit, "log_broken"),
    "nothing": (lambda database, of: None, ""),
}


@pytest.fixture(scope="module")
def altered(
    service: Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Store]]:
    """A schema for each change, which was made while the proxy was down."""
    folder = tmp_path_factory.mktemp("altered")
    stores: dict[str, Store] = {}
    with running_proxy(service.base_url, folder) as proxy:
        first = at(new_store(service, DEFINITION), proxy)
        for name in CHANGES:
            stores[name] = first.another_schema(DEFINITION)
            stores[name].ingest([{"name": "first"}])
            stores[name].ingest([{"name": "second"}])
    database = sqlite3.connect(service.data_dir / "api" / "db.sqlite3", timeout=30)
    with closing(database), database:
        for name, (change, _) in CHANGES.items():
            change(database, {"schema": from_text(stores[name].schema_id)})
    with running_proxy(service.base_url, folder) as proxy:
        yield {name: at(store, proxy) for name, store in stores.items()}


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
        assert answer.status == (500 if code == "object_lost" else 422)

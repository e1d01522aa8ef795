"""Store or replace: what has the same unique values is replaced, and all of it or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from encrypted_records.client.sdk.sync_client import Client
from encrypted_records.errors import Conflict
from tests.proxy.beside import first, store
from tests.support.service import Answer
from tests.support.store import Store

__all__ = ["first", "store"]

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "email": {"type": "string"},
        "site": {"type": "string"},
        "number": {"type": "integer", "minimum": 0, "maximum": 1000},
    },
    "unique": [["email"], ["site", "number"]],
}


def put(store: Store, rows: list[dict[str, Any]], by: str = "email") -> Answer:
    records = [{"schema": store.schema, "data": row} for row in rows]
    return store.proxy("PUT", f"/api/records/?by={by}", records)


def everything(store: Store) -> list[dict[str, Any]]:
    return sorted((one["data"] for one in store.everything()), key=repr)


def test_records_are_stored_or_replaced_under_their_ids(store: Store) -> None:
    ada, kurt = store.ingest([{"email": "ada", "number": 1, "site": "x"}, {"email": "kurt"}])
    answer = put(store, [{"email": "new"}, {"email": "ada", "number": 2}])
    assert answer.status == 200, answer.body
    new, changed = answer.json()
    assert [new["replaced"], changed["replaced"]] == [False, True]
    assert changed["id"] == ada
    # All of the data is what was sent.
    kept = {"email": "ada", "number": 2}
    assert everything(store) == [kept, {"email": "kurt"}, {"email": "new"}]
    assert store.proxy("GET", f"/api/records/{ada}/").json()["data"] == kept
    assert store.proxy("GET", f"/api/records/{kurt}/").status == 200


def test_a_repetition_changes_nothing_more(store: Store) -> None:
    rows = [{"email": f"{n}", "number": n} for n in range(100)]
    before = put(store, rows).json()
    again = put(store, rows).json()
    assert [one["id"] for one in again] == [one["id"] for one in before]
    assert all(one["replaced"] for one in again)
    assert len(everything(store)) == 100


def test_sets_of_several_fields_find_records_in_any_order(store: Store) -> None:
    (there,) = store.ingest([{"site": "a", "number": 1}])
    rows = [{"site": "a", "number": 2}, {"site": "a", "number": 1, "email": "e"}]
    answer = put(store, rows, by="number,site")
    assert [one["replaced"] for one in answer.json()] == [False, True]
    assert answer.json()[1]["id"] == there


def test_a_value_moves_from_one_record_to_another_in_one_request(store: Store) -> None:
    store.ingest([{"email": "a", "site": "x", "number": 1}, {"email": "b"}])
    rows = [{"email": "b", "site": "x", "number": 1}, {"email": "a", "site": "x", "number": 2}]
    assert put(store, rows).status == 200
    assert everything(store) == sorted(rows, key=repr)


def test_what_collides_is_named_and_nothing_is_stored(store: Store) -> None:
    (taken,) = store.ingest([{"email": "a", "site": "x", "number": 1}])
    before = everything(store)
    answer = put(store, [{"email": "b"}, {"email": "c", "site": "x", "number": 1}])
    assert (answer.status, answer.json()["code"]) == (409, "not_unique")
    (flaw,) = answer.json()["errors"]
    assert (flaw["row"], flaw["field"]) == (2, "site")
    assert f"/api/records/{taken}/" in flaw["detail"]
    twice = put(store, [{"email": "a"}, {"email": "d"}, {"email": "a"}])
    assert (twice.status, twice.json()["errors"][0]["row"]) == (409, 3)
    assert everything(store) == before


@pytest.mark.parametrize("by", ["number", "site", "", "nothing", "email,site"])
def test_only_a_unique_set_finds_records(store: Store, by: str) -> None:
    answer = put(store, [{"email": "a", "site": "x", "number": 1}], by=by)
    assert answer.status == 400
    assert (answer.json()["errors"][0]["parameter"], everything(store)) == ("by", [])


def test_a_record_without_the_field_or_with_a_flaw_is_named(store: Store) -> None:
    answer = put(store, [{"email": "a"}, {"number": 1}, {"email": "c", "number": 5000}])
    assert answer.status == 400
    named = [(error["row"], error["field"], error["code"]) for error in answer.json()["errors"]]
    assert named == [(2, "email", "required"), (3, "number", "maximum")]
    assert everything(store) == []


def test_records_of_several_schemas_are_refused(store: Store) -> None:
    other = store.another_schema(DEFINITION)
    records = [{"schema": one.schema, "data": {"email": "a"}} for one in (store, other)]
    answer = store.proxy("PUT", "/api/records/?by=email", records)
    assert (answer.status, answer.json()["errors"][0]["row"]) == (400, 2)


def test_the_python_client_stores_or_replaces_any_number_of_rows(
    store: Store, tmp_path: Path
) -> None:
    account = store.account
    with Client(store.service.proxy_url, email=account.email, password=account.password) as client:
        schema = client.schema(store.schema_id)
        rows = [{"email": f"{n}", "number": n} for n in range(230)]
        assert schema.upsert(rows[:120], by="email") == 0
        assert schema.upsert(iter(rows), by="email") == 120
        assert schema.count() == 230
        with pytest.raises(Conflict):
            schema.upsert([{"email": "x"}, {"email": "x"}], by=["email"])
        with pytest.raises(Conflict) as caught:
            schema.upsert([*rows, {"email": "7"}], by="email")
        assert [(flaw.row, flaw.field) for flaw in caught.value.flaws] == [(231, "email")]
        file = tmp_path / "corrections.csv"
        file.write_text("email,number\n1,900\nnew,901\n")
        assert schema.upsert(file, by="email") == 1
        assert schema.upload(file, on_conflict="skip").wait().total == 2
        assert [one["number"] for one in schema.search("email = '1'")] == [900]
        assert schema.count() == 231

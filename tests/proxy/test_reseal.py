"""All records of a schema are sealed again: the same records, under another key, while all else
goes on."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from encrypted_records.model import credentials, ids
from tests.support import jobs
from tests.support.older import older_store
from tests.support.service import Answer, Service, call
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "note": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 999},
    },
}
LONG = "a text that is longer than what an index key holds of it: "
ROWS: list[dict[str, Any]] = [
    {"name": f"row {n}", "n": n, **({"note": f"{LONG}{n % 3}"} if n % 2 else {})} for n in range(30)
]
QUESTIONS: tuple[Any, ...] = (
    None,
    {"field": "n", "op": "between", "value": [5, 17]},
    {"field": "note", "op": "eq", "value": f"{LONG}1"},
    {"field": "note", "op": "is_null"},
    {"field": "name", "op": "prefix", "value": "row 1"},
)


def begin(store: Store) -> Answer:
    return store.proxy("POST", f"{store.schema}reseal/")


def resealed(store: Store) -> dict[str, Any]:
    answer = begin(store)
    assert answer.status == 202, answer.body
    return jobs.completed(store, answer.headers["X-Job-Status-URL"])


def answers(store: Store) -> list[Any]:
    """What the questions find, in order, with sorts and versions."""
    found: list[Any] = [store.everything(where) for where in QUESTIONS]
    found.append(store.search(None, order_by=["-note", "n"], limit=100)["results"])
    return found


@pytest.fixture
def store(service: Service) -> Store:
    return new_store(service, DEFINITION)


def groups(store: Store) -> set[tuple[str, int]]:
    records = store.api("GET", f"/api/records/?schema={store.schema_id}&limit=1000").json()
    return {(result["group"], result["key_version"]) for result in records["results"]}


def test_the_same_records_are_there_under_the_present_key(store: Store) -> None:
    named = store.ingest(ROWS, at_once=7)
    assert store.proxy("DELETE", f"/api/records/{named[3]}/").status == 204
    changed = store.proxy("PATCH", f"/api/records/{named[4]}/", {"data": {"name": "changed"}})
    assert changed.status == 200, changed.body
    before, lay = answers(store), groups(store)
    etag = store.proxy("GET", f"/api/records/{named[4]}/").headers["ETag"]
    done = resealed(store)
    assert (done["processed"], done["total"]) == (29, 29)
    assert answers(store) == before
    assert store.proxy("GET", f"/api/records/{named[4]}/").headers["ETag"] == etag
    assert not groups(store) & lay
    assert len(groups(store)) == 1
    more = store.ingest([{"name": "new", "n": 999, "note": f"{LONG}1"}])
    assert more[0] in store.found(QUESTIONS[2])
    resealed(store)
    assert more[0] in store.found(QUESTIONS[2])


def test_another_key_is_that_of_everything_and_repeated_requests_are_known(
    service: Service,
) -> None:
    """Keys of long texts, ids of requests, of what was stored before and after."""
    store = older_store(service, DEFINITION)  # its keys are its keyring's
    key = str(uuid.UUID(bytes=ids.new_id()))
    body = [{"schema": store.schema, "data": {"name": "once", "note": f"{LONG}1"}}]

    def send() -> Any:
        headers = {"Idempotency-Key": key, credentials.DEVICE_HEADER: store.device.text}
        url = f"{store.service.proxy_url}/api/records/ingest/"
        return call("POST", url, body, auth=store.account.auth, headers=headers)

    first = send().json()
    store.ingest(ROWS, at_once=10)
    before = answers(store)
    assert store.proxy("POST", "/api/keyring/rotate/").status == 201
    resealed(store)
    assert {version for _, version in groups(store)} == {2}
    assert answers(store) == before
    assert send().json() == first, "a repetition stores nothing"
    assert answers(store) == before
    more = store.ingest([{"name": "later", "note": f"{LONG}1"}])
    found = store.found(QUESTIONS[2])
    assert found[0] == first[0]["id"]
    assert found[-1] == more[0]
    api = store.api("GET", f"/api/schemas/{store.schema_id}/").json()
    assert (api["key_version"], api["first_key_version"]) == (2, 2)


def test_what_a_job_stored_is_not_guessed_once_it_was_sealed_again(store: Store) -> None:
    path = jobs.started(store, jobs.as_json(store, ROWS[:5]))
    jobs.completed(store, path)
    store.ingest(ROWS[5:9])
    done = begin(store).headers["X-Job-Status-URL"]
    jobs.completed(store, done)
    for one in (path, done):
        answer = store.proxy("DELETE", f"{one}records/?confirm=5")
        assert answer.status == 409, answer.body
    assert answer.json()["code"] == "confirm_count", "what is sealed again is nobody's"
    assert store.proxy("GET", f"{path}records/").json()["code"] == "job_resealed"
    assert len(store.everything()) == 9

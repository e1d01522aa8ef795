"""Resources and records are taken as they were read: a client reads, changes a member, and sends
all of it back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from encrypted_records.model.ids import new_id, reference, to_text
from tests.support.jobs import completed, started
from tests.support.service import Service, call
from tests.support.store import Store, exact, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "n": {"type": "number", "minimum": 0, "maximum": 9, "precision": 2},
    },
}


@pytest.fixture(scope="module")
def store(services: Callable[[str], Service]) -> Store:
    made = new_store(services("sqlite"), DEFINITION)
    made.ingest([{"s": "a", "n": 1.25}])
    return made


def dataset_of(store: Store) -> str:
    return str(store.proxy("GET", store.schema).json()["dataset"])


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_dataset_a_schema_and_a_record_change_nothing_when_sent_back_as_read(
    store: Store, method: str
) -> None:
    record = store.search()["results"][0]["url"]
    for url in (dataset_of(store), store.schema, record):
        shown = store.proxy("GET", url)
        assert "data" in shown.json() or "signed" in shown.json()
        answer = store.proxy(method, url, exact(shown))
        assert answer.status == 200, answer.body
        # Only the proxy's own reading says what is signed.
        after = {
            name: value
            for name, value in store.proxy("GET", url).json().items()
            if name != "modified"
        }
        assert after.items() <= shown.json().items()


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_member_is_changed_in_what_was_read(store: Store, method: str) -> None:
    for url, name in ((dataset_of(store), "name"), (store.schema, "description")):
        shown = store.proxy("GET", url).json()
        assert store.proxy(method, url, shown | {name: f"by {method}"}).status == 200
        assert store.proxy("GET", url).json()[name] == f"by {method}"


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_record_is_not_changed_by_what_was_read_of_another(store: Store, method: str) -> None:
    shown = store.search()["results"][0]
    other = to_text(new_id())
    for name, value in (("id", other), ("url", reference("records", other)), ("id", 1)):
        answer = store.proxy(method, shown["url"], shown | {name: value})
        assert (answer.status, answer.json()["code"]) == (400, "invalid_records")
        found = [(error["code"], error["pointer"]) for error in answer.json()["errors"]]
        assert found == [("read_only", f"/{name}")]


def test_records_that_were_found_and_exported_are_stored_as_new_ones(store: Store) -> None:
    fresh = store.another_schema(DEFINITION)
    fresh.ingest([{"s": "a", "n": 1.25}, {"s": "b"}])
    found = fresh.search()["results"]
    again = fresh.proxy("POST", "/api/records/ingest/", found)
    assert again.status == 201, again.body
    assert {one["id"] for one in again.json()}.isdisjoint(one["id"] for one in found)
    export = fresh.proxy("POST", "/api/records/export/", {"schema": fresh.schema}).body
    completed(fresh, started(fresh, export, "application/x-ndjson"))
    every = [one["data"] for one in fresh.everything()]
    assert every == [one["data"] for one in found] * 4


def test_records_that_are_open_pass_through_decrypt_as_they_are(store: Store) -> None:
    found = exact(store.proxy("GET", f"/api/records/?schema={store.schema_id}"))["results"]
    for sent in (found, found[0]):
        answer = store.proxy("POST", "/api/records/decrypt/", sent)
        assert answer.status == 200, answer.body
        assert exact(answer) == sent
    other_forms = (
        *({"id": wrong} for wrong in (None, "x", found[0]["url"])),
        *({"url": wrong} for wrong in (1, found[0]["id"], found[0]["schema"])),
        *({"schema": wrong} for wrong in (1, found[0]["url"])),
        *({"data": wrong} for wrong in (None, "x", [found[0]["data"]])),
    )
    misshapen = [[found[0], found[0] | wrong] for wrong in other_forms]
    for wrong in ([], [found[0], {}], [found[0] | {"fields": {}}], "x", *misshapen):
        refused = store.proxy("POST", "/api/records/decrypt/", wrong)
        assert refused.status == (200 if wrong == [] else 400), wrong
    many = store.proxy("POST", "/api/records/decrypt/", found[:1] * 1001)
    assert (many.status, many.json()["code"]) == (413, "too_large")


def test_the_document_describes_what_the_proxy_adds(store: Store) -> None:
    url = f"{store.service.proxy_url}/api/openapi.json"
    document = call("GET", url, auth=store.account.auth).json()
    for name in ("Dataset", "Schema"):
        signed = document["components"]["schemas"][name]["properties"]["signed"]
        assert (signed["type"], signed["readOnly"]) == (["boolean", "null"], True)
    assert "signed" not in json.dumps(document["components"]["schemas"]["DatasetRequest"])

"""What may happen to a schema that has records."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from encrypted_records.model import ids
from encrypted_records.model.records import RowRef, SealedRow
from tests.server.api import Account
from tests.server.writer import Writer, body_of, sealed_number, sealed_string

RICH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 50, "minLength": 2, "pattern": "^[A-Z]"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150, "multipleOf": 2},
        "size": {"type": "number", "minimum": 0, "maximum": 9, "precision": 1, "enum": [1, 2]},
    },
    "required": ["name"],
}
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def sealed(ada: Account) -> Writer:
    """A schema of RICH with a record."""
    writer = Writer(ada, ada.new_schema(RICH))
    add_record(writer)
    return writer


def add_record(writer: Writer) -> RowRef:
    row = SealedRow(ids.new_id(), 1, [sealed_string(), sealed_number(), sealed_number()])
    upload = writer.adding([row], fields=("name", "age", "size"))
    writer.send(upload)
    return RowRef(body_of(upload).groups[0].uid, 0)


def changed(change: Change) -> dict[str, Any]:
    definition = copy.deepcopy(RICH)
    change(definition)
    return definition


REFUSED: dict[str, Change] = {
    "a field removed": lambda d: d["properties"].pop("age"),
    "a type changed": lambda d: d["properties"].update(age={"type": "string"}),
    "a minimum lowered": lambda d: d["properties"]["age"].update(minimum=-1),
    "a maximum raised": lambda d: d["properties"]["age"].update(maximum=151),
    "a precision changed": lambda d: d["properties"]["size"].update(precision=2),
    "a field required": lambda d: d["required"].append("age"),
    "a new field required": lambda d: (
        d["properties"].update(new={"type": "string"}),
        d["required"].append("new"),
    ),
    "a length tightened": lambda d: d["properties"]["name"].update(maxLength=49),
    "a short length tightened": lambda d: d["properties"]["name"].update(minLength=3),
    "a pattern changed": lambda d: d["properties"]["name"].update(pattern="^[a-z]"),
    "a step changed": lambda d: d["properties"]["age"].update(multipleOf=4),
    "a bound added": lambda d: d["properties"]["age"].update(exclusiveMinimum=3),
    "a choice removed": lambda d: d["properties"]["size"].update(enum=[1]),
    "choices added": lambda d: d["properties"]["age"].update(enum=[2]),
}
ALLOWED: dict[str, Change] = {
    "an optional field added": lambda d: d["properties"].update(new={"type": "string"}),
    "required loosened": lambda d: d.pop("required"),
    "annotations": lambda d: d["properties"]["age"].update(title="Age"),
    "another spelling": lambda d: d["properties"]["age"].update(maximum=150.0),
    "rules dropped": lambda d: [
        d["properties"]["name"].pop(rule) for rule in ("maxLength", "minLength", "pattern")
    ],
    "a length loosened": lambda d: d["properties"]["name"].update(maxLength=51, minLength=1),
    "a choice added": lambda d: d["properties"]["size"].update(enum=[1, 2, 3]),
    "any choice": lambda d: d["properties"]["size"].pop("enum"),
    "any step": lambda d: d["properties"]["age"].pop("multipleOf"),
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED.keys())
def test_what_would_break_stored_records_is_refused(sealed: Writer, change: Change) -> None:
    body = {"schema": changed(change)}
    refused = sealed.account.call("PATCH", sealed.schema["url"], body)
    assert (refused.status, refused.code) == (409, "needs_reencryption")
    assert "re-encrypted" in refused.json()["hint"]
    assert all(pointer.startswith("/schema/") for pointer in refused.flaws())


@pytest.mark.parametrize("change", ALLOWED.values(), ids=ALLOWED.keys())
def test_what_leaves_stored_records_valid_is_allowed(ada: Account, change: Change) -> None:
    writer = Writer(ada, ada.new_schema(RICH))
    add_record(writer)
    definition = changed(change)
    answer = ada.call("PATCH", writer.schema["url"], {"schema": definition})
    assert answer.status == 200, answer.body
    assert answer.json()["schema"] == definition


def test_names_may_change_and_the_key_stays(sealed: Writer) -> None:
    before = sealed.account.call("GET", sealed.schema["url"]).json()
    body = {"name": "Renamed", "slug": "renamed", "description": "New words"}
    after = sealed.account.call("PATCH", sealed.schema["url"], body).json()
    assert {name: after[name] for name in body} == body
    assert after["key_id"] == before["key_id"]
    assert after["schema"] == before["schema"]


def test_a_schema_stays_in_its_organization_and_may_change_its_dataset(ada: Account) -> None:
    schema = ada.new_schema()
    elsewhere = ada.new_dataset()["url"]
    moved = ada.call("PATCH", schema["url"], {"dataset": elsewhere})
    assert (moved.status, moved.json()["dataset"]) == (200, elsewhere)


def test_the_definition_stays_bound_after_the_last_record_died(ada: Account) -> None:
    writer = Writer(ada, ada.new_schema(RICH))
    ref = add_record(writer)
    writer.send(writer.make(killed=[ref]))
    body = {"schema": changed(REFUSED["a maximum raised"])}
    assert ada.call("PATCH", writer.schema["url"], body).code == "needs_reencryption"


def test_a_schema_with_records_goes_only_with_cascade(ada: Account) -> None:
    writer = Writer(ada, ada.new_schema(RICH))
    ref = add_record(writer)
    url = writer.schema["url"]
    record = ada.call("GET", f"/api/records/?schema={writer.schema['id']}").json()["results"][0]
    refused = ada.call("DELETE", url)
    assert (refused.status, refused.code) == (409, "schema_not_empty")
    assert ada.call("GET", record["url"]).status == 200
    assert ada.call("DELETE", f"{url}?cascade=true").status == 204
    assert ada.call("GET", url).status == 404
    assert ada.call("GET", record["url"]).status == 404
    emptied = Writer(ada, ada.new_schema(RICH))
    ref = add_record(emptied)
    emptied.send(emptied.make(killed=[ref]))
    assert ada.call("DELETE", emptied.schema["url"]).status == 204


def test_a_dataset_goes_with_all_its_records_by_cascade(ada: Account) -> None:
    writer = Writer(ada, ada.new_schema(RICH))
    add_record(writer)
    assert ada.call("DELETE", f"{writer.schema['dataset']}?cascade=true").status == 204
    assert ada.call("GET", f"{writer.schema['url']}manifest/").status == 404

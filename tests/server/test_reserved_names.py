"""No field is named as the last entry of a CSV header, which names the schema."""

from __future__ import annotations

from tests.server.api import PERSON, Account

RESERVED = {"type": "object", "properties": {"schema_id:a/b": {"type": "string"}}}
PLACE = "/schema/properties/schema_id:a~1b"


def test_a_definition_with_such_a_field_is_refused_with_its_place(ada: Account) -> None:
    dataset = ada.new_dataset()["url"]
    body = {"name": "s", "dataset": dataset, "schema": RESERVED}
    answer = ada.call("POST", "/api/schemas/", body)
    assert (answer.status, answer.code) == (400, "invalid_definition")
    assert answer.flaws() == {PLACE: "reserved_name"}


def test_it_cannot_come_with_a_change_either(ada: Account) -> None:
    dataset = ada.new_dataset()["url"]
    schema = ada.post("/api/schemas/", {"name": "s", "dataset": dataset, "schema": PERSON})
    answer = ada.call("PATCH", schema["url"], {"schema": RESERVED})
    assert answer.flaws() == {PLACE: "reserved_name"}
    assert ada.call("GET", schema["url"]).json()["schema"] == PERSON

"""``ers schema change``: what another definition takes is said first, and taken if it is wanted."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest

from tests.cli.command import Ers

AGE = {"type": "integer", "minimum": 0, "maximum": 100}
SIZE = {"type": "number", "minimum": 0, "maximum": 1, "precision": 2}
DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": AGE, "size": SIZE},
}
WIDER = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": AGE | {"maximum": 120}, "size": SIZE},
}


@pytest.fixture
def people(ers: Ers) -> str:
    slug = f"people-{secrets.token_hex(4)}"
    ers.done("dataset", "create", "--name", slug, "--slug", slug)
    ers.done(
        *("schema", "create", "--dataset", slug, "--name", slug, "--slug", slug, "--file", "-"),
        typed=json.dumps(DEFINITION),
    )
    records = [
        {"name": "Ada", "age": 36},
        {"name": "Bob", "age": 99, "size": 0.75},
        {"name": "Bob"},
    ]
    ers.done("record", "create", "--schema", slug, "--file", "-", typed=json.dumps(records))
    return slug


def shown(ers: Ers, schema: str) -> Any:
    return ers.done("schema", "get", schema).one["schema"]


def test_nothing_changes_before_it_is_applied(ers: Ers, people: str) -> None:
    change = ("schema", "change", people, "--file", "-")
    told = ers.done(*change, typed=json.dumps(WIDER)).one
    assert (told["takes"], told["possible"], told["applied"]) == ("commit", True, False)
    assert shown(ers, people) == DEFINITION
    said = ers.done(*change, "--output", "table", typed=json.dumps(WIDER))
    assert "/schema/properties/age/maximum: more values fit (at once)" in said.out + said.err
    assert "add --apply to apply it" in said.out + said.err
    assert ers.done(*change, "--apply", typed=json.dumps(WIDER)).one["applied"]
    assert shown(ers, people) == WIDER
    older = json.dumps({"name": "Eve", "age": 119})
    ers.done("record", "create", "--schema", people, "--file", "-", typed=older)
    found = ers.done("record", "search", "--schema", people, "age > 50")
    assert sorted(line["data"]["name"] for line in found.lines) == ["Bob", "Eve"]
    again = ers.done(*change, "--output", "table", typed=json.dumps(WIDER))
    assert "Only titles and descriptions change" in again.out + again.err


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"required": ["age"]}, "1 of 3 records prevent it"),
        ({"unique": [["name"]]}, "2 of 3 records prevent it"),
        (
            {"properties": DEFINITION["properties"] | {"size": SIZE | {"maximum": 0.5}}},
            'with {"field":"size","op":"in","value":[0.75]}',
        ),
    ],
    ids=["required", "unique", "bounds"],
)
def test_records_in_the_way_are_counted_and_found(
    ers: Ers, people: str, rules: Any, words: str
) -> None:
    change = ("schema", "change", people, "--file", "-", "--apply")
    stricter = json.dumps(DEFINITION | rules)
    refused = ers(*change, typed=stricter)
    assert refused.code == 4, refused.err
    [obstacle] = refused.one["changes"]
    said = ers(*change, "--output", "table", typed=stricter)
    assert said.code == 4
    assert words in said.out + said.err
    assert shown(ers, people) == DEFINITION
    where = json.dumps(obstacle["where"])
    found = ers.done("record", "search", "--schema", people, "--where", where).lines
    assert len(found) == obstacle["records"]
    for one in found:
        ers.done("record", "delete", one["id"], "--yes")
    assert ers.done(*change, typed=stricter).one["applied"]


def test_a_renamed_field_is_named_by_its_caller(ers: Ers, people: str) -> None:
    renamed = {
        "type": "object",
        "properties": {"surname": {"type": "string"}, "age": AGE, "size": SIZE},
    }
    change = ("schema", "change", people, "--file", "-", "--apply")
    refused = ers(*change, typed=json.dumps(renamed))
    assert refused.code == 4
    # On stdout is the plan, which a program reads.
    assert "Nothing was changed: some records prevent it" in refused.err
    told = ers(*change, "--output", "table", typed=json.dumps(renamed)).out
    assert "--drop name loses its values; --rename NEW=name keeps them" in told
    assert shown(ers, people) == DEFINITION
    taken = ers.done(*change, "--rename", "surname=name", typed=json.dumps(renamed))
    assert taken.one["applied"]
    found = ers.done("record", "search", "--schema", people, "surname = 'Ada'")
    assert [line["data"] for line in found.lines] == [{"surname": "Ada", "age": 36}]
    wrong = ers(*change, "--rename", "surname", typed=json.dumps(renamed))
    assert (wrong.code, "NEW=OLD" in wrong.err) == (2, True)


def test_another_type_and_a_new_key_seal_all_records_again(ers: Ers, people: str) -> None:
    properties: dict[str, Any] = {
        "name": {"type": "string", "title": "Who"},
        "age": {"type": "string"},
        "size": SIZE,
    }
    change = ("schema", "change", people, "--file", "-")
    definition = {"type": "object", "properties": properties}
    said = ers.done(*change, "--output", "table", typed=json.dumps(definition))
    assert "(a job encrypts all records again)" in said.out + said.err
    assert "Encrypting 3 records again takes about" in said.out + said.err
    done = ers.done(*change, "--apply", typed=json.dumps(definition)).one
    assert (done["status"], done["processed"]) == ("completed", 3)
    assert shown(ers, people) == definition, "with its titles"
    found = ers.done("record", "search", "--schema", people, "age = '99'")
    assert [line["data"]["name"] for line in found.lines] == ["Bob"]
    assert ers.done("schema", "reseal", people).one["status"] == "completed"
    (job,) = ers.done("schema", "reseal", people, "--detach").out.split()
    assert ers.done("job", "watch", job).code == 0
    gone = {"type": "object", "properties": {"name": properties["name"], "size": SIZE}}
    assert ers(*change, "--apply", typed=json.dumps(gone)).code == 4
    assert ers(*change, "--drop", "age", "--apply", typed=json.dumps(gone)).code == 0
    assert ers.done("record", "search", "--schema", people, "size = 0.75").one["data"] == {
        "name": "Bob",
        "size": 0.75,
    }


def test_all_schemas_of_a_dataset_are_sealed_again_one_after_another(ers: Ers, people: str) -> None:
    for slug, rows in ((f"{people}-2", [{"name": "Eve"}]), (f"{people}-3", [])):
        ers.done(
            *("schema", "create", "--dataset", people, "--name", slug, "--slug", slug),
            *("--file", "-"),
            typed=json.dumps(DEFINITION),
        )
        if rows:
            typed = json.dumps(rows)
            ers.done("record", "create", "--schema", slug, "--file", "-", typed=typed)
    done = ers.done("dataset", "reseal", people)
    assert sorted((line["status"], line["total"]) for line in done.lines) == [
        ("completed", 1),
        ("completed", 3),
    ]
    assert f"{people}-3" not in done.out + done.err
    assert len(ers.done("record", "list", "--schema", people).lines) == 3

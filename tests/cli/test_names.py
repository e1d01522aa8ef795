"""Names and slugs work wherever an id does, and what is ambiguous is never guessed."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest

from tests.cli.command import Ers
from tests.support.service import Service

DEFINITION = json.dumps({"type": "object", "properties": {"name": {"type": "string"}}})


@pytest.fixture
def world(ers: Ers) -> dict[str, str]:
    """Two datasets of new names, each with a schema ``same``; the first also with ``single``."""
    one, two = f"one-{secrets.token_hex(4)}", f"two-{secrets.token_hex(4)}"
    for slug in (one, two):
        ers.done("dataset", "create", "--name", f"Name of {slug}", "--slug", slug)
        ers.done(*_schema(slug, "same"), typed=DEFINITION)
    single = f"single-{secrets.token_hex(4)}"
    made = ers.done(*_schema(one, single), typed=DEFINITION).one
    return {"one": one, "two": two, "single": single, "id": made["id"], "url": made["url"]}


def _schema(dataset: str, slug: str) -> list[str]:
    names = ["--name", f"Name of {slug}", "--slug", slug]
    return ["schema", "create", "--dataset", dataset, *names, "--file", "-"]


def test_a_schema_is_found_by_slug_name_id_path_and_parents(
    ers: Ers, world: dict[str, str]
) -> None:
    organization = ers.done("organization", "list").one["slug"]
    for name in (
        world["single"],
        f"Name of {world['single']}",
        world["id"],
        world["url"],
        f"{world['one']}/{world['single']}",
        f"{organization}/{world['one']}/{world['single']}",
        f"Name of {world['one']}/{world['single']}",
    ):
        assert ers.done("schema", "get", name).one["id"] == world["id"]


def test_a_name_of_several_is_refused_with_a_list_of_them(ers: Ers, world: dict[str, str]) -> None:
    said = ers("schema", "get", "same")

    assert said.code == 2
    assert "same names " in said.err
    organization = ers.done("organization", "list").one["slug"]
    hint = said.err.splitlines()[1]
    assert hint.startswith("hint: name one of: ")
    assert f"{organization}/" in hint
    assert ers.done("schema", "get", f"{world['two']}/same").one["slug"] == "same"
    listed = ers.done("schema", "list", "--dataset", world["two"])
    assert [line["slug"] for line in listed.lines] == ["same"]


def test_what_is_not_there_is_said_with_what_is(ers: Ers, world: dict[str, str]) -> None:
    said = ers("schema", "get", f"{world['two']}/nothing")

    assert said.code == 3
    assert said.err.splitlines()[0] == "error: there is no schema nothing"
    assert f"{world['two']}/same" in said.err


def test_who_reaches_no_schema_is_told_to_create_or_to_ask_for_one(
    ers: Ers, running: Service
) -> None:
    newcomer = running.new_account()
    ers.set(ERS_EMAIL=newcomer.email, ERS_PASSWORD=newcomer.password)
    said = ers("schema", "get", "patient")
    assert said.err.splitlines() == [
        "error: there is no schema patient",
        "hint: create one: ers schema create --help; for a schema of your colleagues, ask an owner"
        " to share its dataset with you",
    ]


def test_the_id_of_another_kind_of_thing_names_nothing(ers: Ers, world: dict[str, str]) -> None:
    assert ers("dataset", "get", world["id"]).code == 3
    assert ers("dataset", "get", world["url"]).code == 2


def test_who_has_one_organization_need_not_name_it(ers: Ers) -> None:
    found = ers.done("organization", "get").one
    renamed = ers.done("organization", "update", "--name", "Acme of Somewhere").one
    assert renamed["id"] == found["id"]
    assert ers.done("organization", "get", "acme of somewhere").one["id"] == found["id"]
    assert ers.done("dataset", "list", "--organization", found["slug"]).code == 0
    assert ers("dataset", "list", "--organization", "somebody-else").code == 3


def test_a_dataset_is_changed_and_deleted_by_name(ers: Ers, world: dict[str, str]) -> None:
    changed = ers.done("dataset", "update", world["two"], "--description", "new").one
    assert (changed["description"], changed["slug"]) == ("new", world["two"])

    full = ers("dataset", "delete", world["two"], "--yes")
    ers.done("schema", "delete", f"{world['two']}/same", "--yes")
    asked = ers("dataset", "delete", world["two"])
    assert (full.code, asked.code) == (4, 2)
    assert "--yes" in asked.err

    ers.done("dataset", "delete", world["two"], "--yes")
    ers.done("dataset", "delete", world["one"], "--yes", "--cascade")
    assert ers("dataset", "get", world["one"]).code == 3


def test_a_definition_is_stored_as_it_is_written_and_changed_from_a_file(
    ers: Ers, world: dict[str, str], tmp_path: Path
) -> None:
    field = '{"type": "number", "minimum": 0.10, "maximum": 1e2, "precision": 20e-1}'
    ers.done(
        *_schema(world["two"], "exact"), typed=f'{{"type":"object","properties":{{"n":{field}}}}}'
    )
    shown = ers.done("schema", "get", f"{world['two']}/exact").out
    assert '"minimum":0.10' in shown

    wider = tmp_path / "wider.json"
    wider.write_text(DEFINITION)
    found = ers.done("schema", "update", f"{world['two']}/exact", "--file", wider).one
    assert found["schema"] == json.loads(DEFINITION)
    shown = ers.done("schema", "get", f"{world['two']}/exact", "--definition").out
    assert json.loads(shown) == json.loads(DEFINITION)


def test_a_definition_that_cannot_be_is_refused_before_or_by_the_service(
    ers: Ers, world: dict[str, str], tmp_path: Path
) -> None:
    assert ers(*_schema(world["two"], "broken"), typed="{").code == 2
    array = '{"type": "object", "properties": {"n": {"type": "array"}}}'
    said = ers(*_schema(world["two"], "broken"), typed=array)
    assert said.code == 2
    assert "/schema/properties/n/type" in said.err
    said = ers("schema", "update", world["single"], "--file", tmp_path / "nowhere.json")
    assert said.code == 2
    assert "nowhere.json cannot be read" in said.err

"""A user who accepts an older log decides for themselves alone, and the others are told."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from tests.roles.people import Person
from tests.roles.shared_stage import SharedStage, set_up
from tests.support.service import Answer, call, running_service

BROKEN = (422, "log_broken")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedStage]:
    with running_service(tmp_path_factory.mktemp("accepting") / "data") as service:
        yield set_up(service)


def ingest(stage: SharedStage, count: int) -> Answer:
    row = {"schema": stage.schema["url"], "data": {"name": "Ada", "age": 1}}
    return stage.owner.proxy("POST", "/api/records/ingest/", [row] * count)


def search(stage: SharedStage, person: Person) -> Answer:
    asked = {"schema": stage.schema["url"], "count": True, "limit": 0}
    return person.proxy("POST", "/api/records/search/", asked)


def told(answer: Answer) -> Any:
    """The count that a search gave, or how it was refused."""
    found = answer.json()
    return found["count"] if answer.status == 200 else (answer.status, found["code"])


def log_of(stage: SharedStage, person: Person) -> dict[str, Any]:
    answer = person.proxy("GET", f"{stage.schema['url']}log/")
    assert answer.status == 200, answer.body
    shown: dict[str, Any] = answer.json()
    return shown


def accept(stage: SharedStage, person: Person, proof: Mapping[str, str]) -> Answer:
    """Accept the log as it is shown. The door of the proxy's machine is a proof."""
    shown = log_of(stage, person)
    body = {"version": shown["version"], "digest": shown["digest"]}
    url = f"{stage.service.proxy_url}{stage.schema['url']}accept-log/"
    return call("POST", url, body, auth=person.auth, headers=proof)


def test_a_reader_accepts_an_older_log_for_nobody_else(stage: SharedStage) -> None:
    owner, reader = stage.owner, stage.person("reader")
    assert reader is not None
    assert ingest(stage, 3).status == 201
    before = told(search(stage, owner))
    file = stage.service.data_dir / "api" / "db.sqlite3"
    with closing(sqlite3.connect(":memory:")) as yesterday:
        with closing(sqlite3.connect(file, timeout=30)) as database:
            database.backup(yesterday)
        assert ingest(stage, 2).status == 201
        assert [told(search(stage, one)) for one in (owner, reader)] == [before + 2] * 2
        with closing(sqlite3.connect(file, timeout=30)) as database:
            yesterday.backup(database)
    assert [told(search(stage, one)) for one in (owner, reader)] == [BROKEN, BROKEN]

    door = stage.service.door
    refused = accept(stage, reader, {})
    assert (refused.status, refused.json()["code"]) == (403, "proof_needed")
    assert told(search(stage, reader)) == BROKEN
    assert accept(stage, reader, door).status == 200
    assert told(search(stage, reader)) == before
    own = log_of(stage, reader)
    assert own["state"] == "whole"
    assert (own["accepted"]["writer"], own["accepted_by_others"]) == (False, [])

    # The owner's memory is as it was; the answers say who decided what.
    for refused in (search(stage, owner), ingest(stage, 1)):
        assert told(refused) == BROKEN
        assert "a reader of this proxy accepted version" in refused.json()["detail"]
    shown = log_of(stage, owner)
    assert (shown["state"], shown["accepted"]) == ("older", None)
    assert [other["user"] for other in shown["accepted_by_others"]] == [reader.id]
    assert shown["accepted_by_others"][0]["version"] == shown["version"]

    assert accept(stage, owner, door).status == 200
    assert told(search(stage, owner)) == before
    assert ingest(stage, 1).status == 201
    assert [told(search(stage, one)) for one in (owner, reader)] == [before + 1] * 2
    others = log_of(stage, reader)["accepted_by_others"]
    assert [(other["user"], other["writer"]) for other in others] == [(owner.id, True)]

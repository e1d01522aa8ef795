"""Denials of the API about a dataset or schema end no check: rights that are taken away, commits of
definitions, signed names."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from encrypted_records.model import ids
from encrypted_records.model import roster as form
from tests.proxy.sharing.people import Person, Team, new_person
from tests.proxy.sharing.shared import DEFINITION, Shared, numbers
from tests.support.front import Asked, Front, Reply
from tests.support.store import Store

Lie = Callable[[Asked, Reply], Reply]
WIDER = {
    **DEFINITION,
    "properties": {
        **DEFINITION["properties"],
        "n": {**DEFINITION["properties"]["n"], "maximum": 20_000},
    },
}


def front_of(shared: Shared, person: Person) -> Front:
    return shared.fronts[person.id]


def telling(path: str, **members: object) -> Lie:
    """The resource at a path with other members."""

    def lie(asked: Asked, reply: Reply) -> Reply:
        if (asked.method, asked.path) != ("GET", path):
            return reply
        return reply.with_body(json.dumps({**json.loads(reply.body), **members}).encode())

    return lie


def test_a_dataset_that_is_said_to_be_of_another_organization_is_taken_away_where_it_was_signed(
    shared: Shared, tmp_path: Path
) -> None:
    """The owner owns the other one as well, and nobody there has a right to the dataset."""
    team, grace = shared.team, shared.person(form.WRITER)
    ada = shared.proxy(team.ada)
    other = Team(new_person(team.ada.service, tmp_path / "other"), tmp_path / "other")
    assert other.made
    for person in (team.ada, grace):
        other.accept(person, other.invite(person))
    assert len(other.settle().admitted) == 2
    owner = other.ada
    owner.do(
        lambda sharing: sharing.members.set_role(
            owner.holder, other.organization, team.ada.id, owner=True
        )
    )
    url = team.made["url"]
    claim = telling(url, organization=other.ada.account.organization)
    with front_of(shared, team.ada).telling(claim):
        answer = ada.proxy("DELETE", f"{url}people/{ids.to_text(grace.id)}/")
    assert answer.status == 200, answer.body
    assert answer.json()["rotated"] == ["People"]
    standing = team.view(team.ada).roster.member(grace.id)
    assert standing is not None
    assert not standing.writes(team.dataset)
    assert not standing.reads(team.dataset)


def deny_records(schema: str) -> Lie:
    return telling(schema, key_id=None, key_version=None)


def change(store: Store) -> int:
    return store.proxy("PATCH", store.schema, {"schema": WIDER}).status


def test_a_definition_of_a_schema_whose_records_the_api_denies_is_committed(
    shared: Shared,
) -> None:
    ada = shared.proxy(shared.team.ada)
    ada.ingest([{"n": 1}])
    with front_of(shared, shared.team.ada).telling(deny_records(ada.schema)):
        assert change(ada) == 200
    ada.ingest([{"n": 15_000}])
    assert numbers(ada) == [1, 15_000]


@pytest.mark.parametrize("known", [True, False])
def test_a_schema_whose_records_the_api_denies_keeps_its_signed_name(
    shared: Shared, tmp_path: Path, known: bool
) -> None:
    """The API refuses a change and breaks off when it comes again: had the name been freed for it,
    the schema could be hidden from then on, and nobody would miss its records."""
    team = shared.team
    ada = shared.proxy(team.ada)
    ada.ingest([{"n": 1}])
    if not known:
        folder = tmp_path / "another"
        forgotten = shutil.ignore_patterns("heads.*", "ledgers.*")
        shutil.copytree(team.ada.folder, folder / "proxy", ignore=forgotten)
        ada = replace(ada, service=shared.proxy(team.ada, folder=folder).service)
    asked_for: list[str] = []
    deny = deny_records(ada.schema)

    def lie(asked: Asked, reply: Reply) -> Reply | None:
        # Not handed on: the real API would refuse it by a log that this one denies.
        if (asked.method, asked.path) != ("PATCH", ada.schema):
            return deny(asked, reply)
        asked_for.append(asked.path)
        told = {"type": "about:blank", "title": "x", "status": 409, "code": "through_a_proxy"}
        refusal = Reply(
            409,
            {"Content-Type": "application/problem+json"},
            json.dumps(told, separators=(",", ":")).encode(),
        )
        return refusal if len(asked_for) == 1 else None

    with front_of(shared, team.ada).telling(lie):
        assert change(ada) >= 400
    assert len(asked_for) == 2
    placed = team.view(team.ada).roster.schema(ids.from_text(ada.schema_id))
    assert placed is not None
    assert placed.slug

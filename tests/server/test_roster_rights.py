"""Who reaches, stores, makes and deletes what, once an organization has a roster."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.model.records import Part, PartUpload
from tests.server.api import PERSON, Account, Answer, Api
from tests.server.rosters import Person, Ring, found, placement, share, standing
from tests.server.writer import FRAMES, Writer, person

READER, WRITER, SINGLE = "reader", "writer", "single"
OWNER, OUT, STRANGER = "owner", "removed", "stranger"


@dataclass(frozen=True)
class Team:
    ring: Ring
    people: dict[str, Account]
    dataset: Any
    schema: Any
    #: of the dataset, too, and not shared with who has a single schema
    neighbour: Any
    #: of a dataset that is shared with nobody
    apart: Any


@pytest.fixture(scope="module")
def team(api: Api, bob: Account) -> Team:
    ring = found(api.new_account())
    owner = ring.owner.account
    dataset = owner.new_dataset()
    ring.begin(dataset)
    schema, neighbour = (owner.new_schema(dataset=dataset["url"]) for _ in range(2))
    ring.add(ring.follow(ring.sign([placement(one) for one in (schema, neighbour)])))
    people = {one: Person(api.new_account()) for one in (READER, WRITER, SINGLE, OUT)}
    ring.join(people[READER], [share(dataset)])
    ring.join(people[WRITER], [share(dataset, form.WRITER)])
    ring.join(people[SINGLE], [share(dataset, form.WRITER, [schema])])
    ring.join(people[OUT], [share(dataset, form.WRITER)])
    ring.add(ring.follow(ring.sign(form.Remove(people[OUT].uid))))
    accounts = {name: one.account for name, one in people.items()}
    accounts |= {OWNER: owner, STRANGER: bob}
    return Team(ring, accounts, dataset, schema, neighbour, owner.new_schema())


def commit(account: Account, schema: Any) -> Answer:
    writer = Writer(account, schema)
    return writer.post(writer.adding([person()]))


def stage(account: Account, schema: Any) -> Answer:
    writer = Writer(account, schema)
    part = Part(ids.new_id(), 0, writer.definition, [], [], 0)
    body = b"".join(wire.encode_part(PartUpload(part, (), ())))
    return account.call("POST", f"{schema['url']}staging/", body, **FRAMES)


def publish(account: Account, schema: Any) -> Answer:
    writer = Writer(account, schema)
    frame = wire.encode([writer.adding([person()]).commit])
    return account.call("POST", f"/api/jobs/{uuid.uuid4()}/publish/", frame, **FRAMES)


def new_schema(account: Account, dataset: Any) -> Answer:
    body = {"name": "new", "dataset": dataset["url"], "schema": PERSON}
    return account.call("POST", "/api/schemas/", body)


Asked = Callable[[Account, Team], Answer]
#: Each request, and the status that each role gets: reader, writer, single, owner, removed,
#: stranger. 404 says that nothing is there. Of the schema itself, which all members share,
#: ``tests/roles`` asks everything.
ROUTES: dict[str, tuple[Asked, tuple[int, ...]]] = {
    "read its neighbour": (
        lambda who, team: who.call("GET", team.neighbour["url"]),
        (200, 200, 404, 200, 404, 404),
    ),
    "read another dataset's": (
        lambda who, team: who.call("GET", team.apart["url"]),
        (404, 404, 404, 200, 404, 404),
    ),
    "read the neighbour's log": (
        lambda who, team: who.call("GET", f"{team.neighbour['url']}manifest/"),
        (200, 200, 404, 200, 404, 404),
    ),
    "read another dataset's log": (
        lambda who, team: who.call("GET", f"{team.apart['url']}manifest/"),
        (404, 404, 404, 200, 404, 404),
    ),
    "list the neighbour's records": (
        lambda who, team: who.call("GET", f"/api/records/?schema={team.neighbour['id']}"),
        (200, 200, 404, 200, 404, 404),
    ),
    "commit to the neighbour": (
        lambda who, team: commit(who, team.neighbour),
        (403, 409, 404, 409, 404, 404),
    ),
    "make a dataset": (
        lambda who, team: who.call(
            "POST",
            "/api/datasets/",
            {"name": "new", "organization": team.ring.owner.account.organization},
        ),
        (403, 403, 403, 201, 400, 400),
    ),
    "make a schema": (
        lambda who, team: new_schema(who, team.dataset),
        (403, 201, 403, 201, 400, 400),
    ),
    "describe the dataset": (
        lambda who, team: who.call("PATCH", team.dataset["url"], {"description": "x"}),
        (403, 403, 403, 200, 404, 404),
    ),
    "move the schema": (
        lambda who, team: who.call("PATCH", team.schema["url"], {"dataset": team.apart["dataset"]}),
        (400, 400, 400, 409, 404, 404),
    ),
    "delete the schema": (
        lambda who, team: who.call("DELETE", f"{team.schema['url']}?cascade=maybe"),
        (403, 403, 403, 409, 404, 404),
    ),
    "delete the dataset": (
        lambda who, team: who.call("DELETE", team.dataset["url"]),
        (403, 403, 403, 409, 404, 404),
    ),
    "read another's grants": (
        lambda who, team: who.call(
            "GET",
            f"{team.ring.owner.account.organization}grants/?member={ids.to_text(ids.new_id())}",
        ),
        (403, 403, 403, 200, 404, 404),
    ),
}
ROLES = (READER, WRITER, SINGLE, OWNER, OUT, STRANGER)


@pytest.fixture(scope="module")
def written(team: Team) -> Team:
    """With records of the owner's in both schemas."""
    for schema in (team.schema, team.neighbour):
        writer = team.ring.writer(schema)
        writer.send(writer.adding([person()]))
    return team


@pytest.mark.parametrize("route", ROUTES)
def test_each_role_meets_what_it_may(written: Team, route: str) -> None:
    ask, expected = ROUTES[route]
    assert tuple(ask(written.people[role], written).status for role in ROLES) == expected


def test_a_reader_is_told_that_it_reads_only(written: Team) -> None:
    reader = written.people[READER]
    for answer in (
        commit(reader, written.schema),
        stage(reader, written.schema),
        publish(reader, written.schema),
        new_schema(reader, written.dataset),
    ):
        assert (answer.status, answer.code) == (403, "not_writer")


def test_lists_hold_what_is_shared(written: Team) -> None:
    def listed(role: str, path: str) -> set[str]:
        answer = written.people[role].call("GET", path).json()["results"]
        organization = written.ring.owner.account.organization
        return {one["id"] for one in answer if one["organization"] == organization}

    schema, neighbour, apart = written.schema["id"], written.neighbour["id"], written.apart["id"]
    assert {schema, neighbour} <= listed(READER, "/api/schemas/")
    assert apart not in listed(READER, "/api/schemas/")
    assert listed(SINGLE, "/api/schemas/") == {schema}
    assert {schema, neighbour, apart} <= listed(OWNER, "/api/schemas/")
    assert listed(SINGLE, "/api/datasets/") == {written.dataset["id"]}
    assert listed(READER, "/api/datasets/") == {written.dataset["id"]}
    assert listed(OUT, "/api/datasets/") == listed(STRANGER, "/api/schemas/") == set()


def test_single_records_follow_their_schema(written: Team) -> None:
    owner = written.people[OWNER]
    for schema, readers in (
        (written.schema, {READER, WRITER, SINGLE, OWNER}),
        (written.neighbour, {READER, WRITER, OWNER}),
    ):
        [record] = owner.call("GET", f"/api/records/?schema={schema['id']}").json()["results"]
        path = f"/api/records/{record['id']}/"
        found_by = {role for role in ROLES if written.people[role].call("GET", path).status == 200}
        assert found_by == readers


def test_whoever_lost_the_right_to_write_publishes_no_job(api: Api) -> None:
    """The job was begun, and staged, while the right was there."""
    ring = found(api.new_account())
    dataset = ring.owner.account.new_dataset()
    ring.begin(dataset)
    schema = ring.owner.account.new_schema(dataset=dataset["url"])
    grace = Person(api.new_account())
    ring.join(grace, [share(dataset, form.WRITER)])
    job = uuid.uuid4()
    issued = grace.account.call("POST", f"/api/jobs/{job}/token/").json()["token"]
    headers = {"Authorization": f"Job {issued}"} | FRAMES
    writer = Writer(grace.account, schema)
    upload = writer.adding([person()])
    frame = wire.encode([upload.commit])
    path = f"/api/jobs/{job}/publish/"

    ring.add(ring.follow(ring.sign(standing(grace, [share(dataset)]))))
    answer = api.call("POST", path, frame, headers=headers)
    assert (answer.status, answer.code) == (403, "not_writer")
    assert api.call("GET", f"{schema['url']}manifest/", headers=headers).status == 200
    ring.add(ring.follow(ring.sign(form.Remove(grace.uid))))
    assert api.call("POST", path, frame, headers=headers).status == 404
    assert api.call("GET", f"{schema['url']}manifest/", headers=headers).status == 404

"""What is found by a name is what was signed as it: an API that swaps names has nobody store
records into what others read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from encrypted_records import Client
from encrypted_records.errors import ErsError
from encrypted_records.model import roster as form
from encrypted_records.model import wire
from tests.proxy.lies import instead
from tests.proxy.sharing.shared import DEFINITION, Shared, numbers
from tests.proxy.sharing.test_lies import entries_of
from tests.support.front import Asked, Front, Reply
from tests.support.store import Store


@dataclass
class World:
    """Ada's organization: the schema *Patients* is hers alone, and *News* is read by others."""

    shared: Shared
    patients: Store
    news: Store

    @property
    def front(self) -> Front:
        return self.shared.fronts[self.shared.team.ada.id]

    def client(self) -> Client:
        account = self.shared.team.ada.account
        return Client(
            self.patients.service.proxy_url, email=account.email, password=account.password
        )

    def shown(self, path: str) -> Any:
        answer = self.patients.proxy("GET", path)
        assert answer.status == 200, answer.body
        return answer.json()


@pytest.fixture
def world(shared: Shared) -> World:
    team = shared.team
    ada = shared.proxy(team.ada)
    other = team.ada.new_dataset("Public")
    body = {"name": "News", "dataset": other["url"], "schema": DEFINITION}
    news = team.ada.call("POST", "/api/schemas/", body).json()["url"]
    body = {"name": "Patients", "dataset": team.made["url"], "schema": DEFINITION}
    patients = team.ada.call("POST", "/api/schemas/", body).json()["url"]
    made = World(shared, replace(ada, schema=patients), replace(ada, schema=news))
    made.patients.ingest([{"n": 1}])
    made.news.ingest([{"n": 2}])
    return made


def swapping(world: World) -> Callable[[Asked, Reply], Reply]:
    """Lists in which the two schemas, and their datasets, have each other's ids."""
    team = world.shared.team
    datasets = (team.made["id"], world.shown(world.news.schema)["dataset"].split("/")[-2])
    pairs = (datasets, (world.patients.schema_id, world.news.schema_id))

    def swap(asked: Asked, reply: Reply) -> Reply:
        path, _, _ = asked.path.partition("?")
        if path not in ("/api/datasets/", "/api/schemas/"):
            return reply
        body = reply.body
        for one, other in pairs:
            a, b = one.encode(), other.encode()
            body = body.replace(a, b"@@").replace(b, a).replace(b"@@", b)
        return reply.with_body(body)

    return swap


def test_names_that_an_api_swaps_are_shown_as_they_were_signed(world: World) -> None:
    both = {world.patients.schema_id, world.news.schema_id}

    def listed() -> dict[str, Any]:
        every = world.shown("/api/schemas/")["results"]
        return {one["id"]: one for one in every if one["id"] in both}

    before = listed()
    assert [one["signed"] for one in before.values()] == [True, True]
    with world.front.telling(swapping(world)):
        for schema, one in listed().items():
            for name in ("slug", "name", "dataset", "organization", "signed"):
                assert one[name] == before[schema][name]
        datasets = world.shown("/api/datasets/")["results"]
    names = {dataset["id"]: dataset["name"] for dataset in datasets}
    assert names[world.shared.team.made["id"]] == "People"

    def renamed(asked: Asked, reply: Reply) -> Reply:
        if asked.path != world.news.schema:
            return reply
        return reply.with_body(reply.body.replace(b'"News"', b'"Patients"'))

    with world.front.telling(renamed):
        assert world.shown(world.news.schema)["name"] == "News"


def test_records_are_stored_into_what_was_signed_by_that_name(world: World) -> None:
    with world.client() as client, world.front.telling(swapping(world)):
        for at, wanted in enumerate(("Patients", "patients")):
            client.schema(wanted).ingest([{"n": 3 + at}])
        # Of the dataset it shows nothing but the other one's.
        with pytest.raises(ErsError) as refused:
            client.schema("people/patients")
        assert refused.value.reason == "schema_unsigned"
        assert client.dataset("people").url == world.shared.team.made["url"]
    assert (numbers(world.patients), numbers(world.news)) == ([1, 3, 4], [2])


def test_where_an_api_shows_something_else_alone_nothing_is_found(world: World) -> None:
    swap = swapping(world)

    def alone(asked: Asked, reply: Reply) -> Reply:
        if asked.path.partition("?")[0] != "/api/schemas/":
            return reply
        told = json.loads(swap(asked, reply).body)
        left = [result for result in told["results"] if result["id"] == world.news.schema_id]
        return reply.with_body(json.dumps({**told, "results": left}).encode())

    with (
        world.client() as client,
        world.front.telling(alone),
        pytest.raises(ErsError) as refused,
    ):
        client.schema("Patients").ingest([{"n": 3}])
    assert refused.value.reason == "schema_unsigned"
    assert "was signed under the name News" in refused.value.message
    assert (numbers(world.patients), numbers(world.news)) == ([1], [2])


def test_a_new_schema_under_a_signed_name_is_not_taken_for_it(world: World) -> None:
    """The API makes one in what others read, and shows no other of that name."""
    team = world.shared.team
    other = world.shown(world.news.schema)["dataset"]
    body = {"name": "Patients", "dataset": other, "schema": DEFINITION}
    made = team.ada.call("POST", "/api/schemas/", body).json()

    def hide(asked: Asked, reply: Reply) -> Reply:
        path, _, _ = asked.path.partition("?")
        if path != "/api/schemas/":
            return reply
        told = json.loads(reply.body)
        left = [result for result in told["results"] if result["id"] != world.patients.schema_id]
        return reply.with_body(json.dumps({**told, "results": left}).encode())

    with world.client() as client:
        with world.front.telling(hide):
            with pytest.raises(ErsError) as refused:
                client.schema("Patients").ingest([{"n": 3}])
            assert refused.value.reason == "schema_unsigned"
        # Where both are shown, the signed one is meant; and the new one where its dataset is named.
        client.schema("Patients").ingest([{"n": 3}])
        client.schema("public/patients").ingest([{"n": 4}])
    assert numbers(world.patients) == [1, 3]
    assert numbers(replace(world.patients, schema=made["url"])) == [4]


def test_a_new_schema_is_found_by_a_slug_of_its_own_whatever_its_name(world: World) -> None:
    """Nobody has signed it before the first record, and its display name is a signed one's."""
    team = world.shared.team
    body = {"name": "Patients", "slug": "guests", "dataset": team.made["url"], "schema": DEFINITION}
    made = team.ada.call("POST", "/api/schemas/", body).json()["url"]
    with world.client() as client:
        client.schema("guests").ingest([{"n": 5}])
    assert (numbers(replace(world.patients, schema=made)), numbers(world.patients)) == ([5], [1])


def test_a_name_that_was_changed_a_moment_ago_is_found_at_once(world: World) -> None:
    reader = world.shared.proxy(world.shared.person(form.WRITER))
    path = "/api/schemas/?name=Patients"
    assert [result["signed"] for result in reader.proxy("GET", path).json()["results"]] == [True]
    renamed = world.patients.proxy("PATCH", world.patients.schema, {"name": "Guests"})
    assert renamed.status == 200, renamed.body
    (found,) = reader.proxy("GET", "/api/schemas/?name=Guests").json()["results"]
    assert (found["name"], found["signed"]) == ("Guests", True)


def test_where_the_roster_is_not_believed_no_name_is(world: World) -> None:
    told = wire.encode(entries_of(world.shared.team)[:-1])

    def older(asked: Asked, reply: Reply) -> Reply:
        return reply.with_body(told) if "/roster/" in asked.path else reply

    fresh = replace(world, patients=world.shared.proxy(world.shared.team.ada))
    with fresh.client() as client, fresh.front.telling(older):
        listed = fresh.shown("/api/schemas/")["results"]
        assert {one["signed"] for one in listed} == {False}
        with pytest.raises(ErsError) as refused:
            client.schema("Patients")
    assert refused.value.reason == "roster_older"


def test_who_shares_nothing_sees_no_mark(shared: Shared) -> None:
    alone = shared.team.somebody()
    made = alone.service.new_account()
    store = Store(shared.proxy(alone).service, made, "")
    body = {"name": "Mine", "organization": made.organization}
    assert store.proxy("POST", "/api/datasets/", body).status == 201
    (one,) = store.proxy("GET", "/api/datasets/").json()["results"]
    assert "signed" not in one


def test_an_answer_that_has_no_names_is_not_handed_on(world: World) -> None:
    for body in (b"[]", b'{"results": 1}', b'{"results": [{"id": 5}]}', b"{}"):
        with world.front.telling(instead(("schemas",), 200, body, "application/json")):
            answer = world.patients.proxy("GET", "/api/schemas/")
        assert (answer.status, answer.json()["code"]) == (502, "api_answer"), body

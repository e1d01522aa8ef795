"""Found an organization, begin the keys of datasets, place schemas; whatever comes between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from encrypted_records.errors import Closed, ErsError, NotAllowed, RosterOlder, Unavailable
from encrypted_records.model import ids
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.roster import Placement
from encrypted_records.proxy.sharing.settling import Sharing
from tests.proxy.sharing.people import Person, new_person
from tests.support.front import Asked, Reply, running_front
from tests.support.service import Service
from tests.support.store import new_schema

DEFINITION = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
}


async def make(sharing: Sharing, person: Person, dataset: bytes, name: str = "People") -> None:
    await sharing.founding.found(person.holder, person.organization, person.account.email)
    await sharing.founding.begin_dataset(
        person.holder, person.organization, dataset, slug=name.lower(), name=name
    )


def test_an_owner_founds_once_and_a_restarted_proxy_opens_the_keys(ada: Person) -> None:
    dataset = ids.from_text(ada.new_dataset()["id"])
    for _ in range(2):
        ada.do(lambda sharing: make(sharing, ada, dataset))

    async def open_it(sharing: Sharing) -> tuple[int, list[int]]:
        view = await sharing.reader.read(ada.holder, ada.organization)
        assert view is not None
        return view.roster.number, list(await sharing.grants.whole(view, dataset))

    assert ada.do(open_it) == (2, [1])


def test_a_schema_is_placed_once(ada: Person) -> None:
    made = ada.new_dataset()
    dataset = ids.from_text(made["id"])
    body = {"name": "Adults", "dataset": made["url"], "schema": DEFINITION}
    schema = ada.call("POST", "/api/schemas/", body).json()
    digest = ids.new_id() * 2
    placement = Placement(ids.from_text(schema["id"]), dataset, "adults", "Adults", digest)

    async def place(sharing: Sharing) -> int:
        await make(sharing, ada, dataset)
        for _ in range(2):
            await sharing.founding.place(ada.holder, ada.organization, [placement])
        view = await sharing.reader.read(ada.holder, ada.organization)
        assert view is not None
        return view.roster.number

    with pytest.raises(ErsError) as wrong:
        ada.do(place)
    assert wrong.value.reason == "stale_definition"
    right = parse_definition(json.dumps(schema["schema"])).digest
    placement = Placement(placement.schema, dataset, "adults", "Adults", right)
    assert ada.do(place) == 3


@pytest.mark.parametrize("reaches", [False, True])
def test_an_interrupted_foundation_founds_the_same_organization(
    ada: Person, api: Service, reaches: bool
) -> None:
    """The request, or its answer, is lost, and the proxy is started again."""
    dataset = ids.from_text(ada.new_dataset()["id"])
    with running_front(api.base_url) as front:
        ada.url = front.url

        def lose(asked: Asked) -> Reply | None:
            lost = asked.method == "POST" and "/roster/" in asked.path
            return Reply(503, {}, b"") if lost and not reaches else None

        def lose_answer(asked: Asked, reply: Reply) -> Reply | None:
            lost = asked.method == "POST" and "/roster/" in asked.path
            return Reply(503, {}, b"") if lost and reaches else reply

        front.invent, front.lie = lose, lose_answer
        with pytest.raises(Unavailable):
            ada.do(lambda sharing: make(sharing, ada, dataset))
    ada.url = ""
    ada.do(lambda sharing: make(sharing, ada, dataset))

    async def founders(sharing: Sharing) -> tuple[int, bytes]:
        view = await sharing.reader.read(ada.holder, ada.organization)
        assert view is not None
        assert sharing.reader.rosters.founding(ada.id, ada.organization) is None
        return view.roster.number, view.roster.founder

    assert ada.do(founders) == (2, ada.id)


def test_a_roster_that_was_seen_and_is_gone_is_an_error(ada: Person, api: Service) -> None:
    dataset = ids.from_text(ada.new_dataset()["id"])
    ada.do(lambda sharing: make(sharing, ada, dataset))
    with running_front(api.base_url) as front:
        ada.url = front.url

        def hide(asked: Asked, reply: Reply) -> Reply | None:
            return reply.with_body(b"ERS1") if "/roster/" in asked.path else reply

        with front.telling(hide), pytest.raises(RosterOlder):
            ada.do(lambda sharing: make(sharing, ada, dataset))


def test_who_is_no_owner_founds_nothing(ada: Person, api: Service, tmp_path: Path) -> None:
    grace = new_person(api, tmp_path)
    ada.call("POST", f"{ada.account.organization}invitations/", {"email": grace.account.email})
    waiting = grace.call("GET", "/api/invitations/").json()["results"][0]["id"]
    assert grace.call("POST", f"/api/invitations/{waiting}/accept/").status == 201
    grace.organization_path = ada.account.organization

    with pytest.raises(NotAllowed) as refused:
        grace.do(
            lambda sharing: sharing.founding.found(
                grace.holder, grace.organization, grace.account.email
            )
        )
    assert refused.value.reason == "not_admitted"


def test_records_without_a_roster_are_a_roster_that_is_hidden(ada: Person, api: Service) -> None:

    schema = new_schema(api, ada.account, DEFINITION)
    with running_front(api.base_url) as front:
        ada.url = front.url

        def with_records(asked: Asked, reply: Reply) -> Reply | None:
            if not asked.path.startswith("/api/schemas/?"):
                return reply
            return reply.with_body(reply.body.replace(b'"key_version":null', b'"key_version":1'))

        front.lie = with_records
        with pytest.raises(Closed) as refused:
            ada.do(
                lambda sharing: sharing.founding.found(
                    ada.holder, ada.organization, ada.account.email
                )
            )
    assert schema
    assert refused.value.reason == "roster_missing"

"""A token of one dataset reads the names in a roster that concern this dataset, and no others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.roster import RosterEntry
from encrypted_records.model.signatures import Withheld
from tests.server.api import Account, Api
from tests.server.rosters import Person, Ring, found, placement, share, standing

MALFORMED = (400, "malformed_frame")


@pytest.fixture
def ring(api: Api) -> Ring:
    return found(api.new_account())


@pytest.fixture
def datasets(ring: Ring) -> list[Any]:
    """Two, with a schema each."""
    made = [ring.owner.account.new_dataset() for _ in range(2)]
    for one, field in zip(made, ("visit", "diagnosis"), strict=True):
        ring.begin(one)
        definition = {"type": "object", "properties": {field: {"type": "string"}}}
        schema = ring.owner.account.new_schema(definition, dataset=one["url"])
        one["schema"] = schema
        digest = parse_definition(msgspec.json.encode(definition)).digest
        ring.add(*ring.chain([placement(schema, definition=digest)]))
    return made


def with_token(account: Account, *datasets: Any) -> Account:
    wanted: dict[str, Any] = {"name": "reads", "scope": "read", "password": account.password}
    if datasets:
        wanted |= {"datasets": [dataset["url"] for dataset in datasets]}
    return replace(account, token=account.post("/api/tokens/", wanted)["token"])


def names_in(entries: list[RosterEntry]) -> set[str]:
    """All that entries call members, datasets and schemas; and "" for what is not shown."""
    found: set[str] = set()
    for entry in entries:
        content = form.read_entry(entry).content
        for one in content if isinstance(content, list) else [content]:
            found |= {getattr(one, name) for name in ("name", "slug") if hasattr(one, name)}
    return {"" if isinstance(one, Withheld) else one for one in found}


def test_names_of_others_are_left_out_for_a_token_of_one_dataset(
    api: Api, ring: Ring, datasets: list[Any], guests: list[Account]
) -> None:
    own, other = datasets
    grace, eve, waiting = map(Person, guests)
    invited = Person(api.new_account())
    ring.join(grace, [share(own)])
    ring.join(eve, [share(other, form.WRITER)])
    ring.invite(waiting, [share(other)])
    ring.invite(invited, [share(own)])
    ring.add(*ring.chain(form.Remove(eve.uid)))
    everything = ring.entries()
    shown_to_all = names_in(everything)
    assert "" not in shown_to_all and {eve.account.email, other["name"]} <= shown_to_all

    for person in (grace, ring.owner):
        limited = with_token(person.account, own)
        entries = ring.entries(by=limited)
        assert names_in(entries) == {
            "",
            *(one.account.email for one in (ring.owner, grace, invited)),
            *(own[name] for name in ("slug", "name")),
            *(own["schema"][name] for name in ("slug", "name")),
        }
        # Nothing else in them is another.
        assert [(entry.body, entry.signature) for entry in entries] == [
            (one.body, one.signature) for one in everything
        ]
        raw = limited.call("GET", ring.path).body
        digest = _definition(everything, other["schema"])
        for hidden in (eve.account.email, waiting.account.email, other["slug"], other["name"]):
            assert hidden.encode() not in raw
        assert digest not in raw
        assert ring.entries(by=with_token(person.account)) == everything
    assert names_in(ring.entries(by=with_token(ring.owner.account, *datasets))) == shown_to_all


def _definition(entries: list[RosterEntry], schema: Any) -> bytes:
    [found] = [
        one.definition
        for entry in entries
        if isinstance(content := form.read_entry(entry).content, list)
        for one in content
        if ids.to_text(one.schema) == schema["id"]
    ]
    return found


def test_somebody_whom_a_dataset_is_taken_from_is_shown_none_of_its_names_any_more(
    ring: Ring, datasets: list[Any], guests: list[Account]
) -> None:
    own, other = datasets
    grace = Person(guests[0])
    ring.join(grace, [share(own), share(other)])
    limited = with_token(grace.account, own, other)
    assert own["name"] in names_in(ring.entries(by=limited))
    ring.add(*ring.chain(standing(grace, [share(other)])))
    assert own["name"] not in names_in(ring.entries(by=limited))
    assert other["name"] in names_in(ring.entries(by=limited))


def test_a_token_of_one_dataset_is_shown_no_list_of_people_or_of_others_data(
    ring: Ring, datasets: list[Any], guests: list[Account]
) -> None:
    own, other = datasets
    limited = with_token(ring.owner.account, own)
    organization = ring.owner.account.organization
    for path in ("members", "invitations", "audit-log", "answers", "services"):
        answer = limited.call("GET", f"{organization}{path}/")
        assert (answer.status, answer.code) == (403, "token_limited"), path
    for path in (other["url"], other["schema"]["url"], f"{other['schema']['url']}manifest/"):
        assert limited.call("GET", path).status == 404, path
    for kind in ("datasets", "schemas"):
        listed = limited.call("GET", f"/api/{kind}/").body.decode()
        assert other["id"] not in listed and own["id"] in listed


def test_an_entry_with_a_name_that_is_not_shown_to_the_api_is_refused(
    ring: Ring, guests: list[Account]
) -> None:
    """Nobody could ever be shown it."""
    dataset = ring.owner.account.new_dataset()
    entry, other = (ring.sign(ring.dataset(dataset)) for _ in range(2))
    hidden = msgspec.structs.replace(entry, openings=[])
    assert ring.refused(hidden) == (400, "invalid_entry")
    for openings in (
        other.openings,
        entry.openings * 2,
        [*entry.openings, *other.openings],
        [entry.openings[0][:-1] + b"x"],
    ):
        assert ring.refused(msgspec.structs.replace(entry, openings=openings)) == MALFORMED
    assert len(ring.entries()) == 1
    ring.add(ring.follow(entry), ring.grant(dataset, ring.owner))

"""What an API says that is not so of an organization is a named error, and nothing is sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from encrypted_records.index.roster.roster import Roster, sign_entry
from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Grant, RosterEntry
from encrypted_records.proxy.sharing.founding import placement_of
from encrypted_records.proxy.sharing.settling import Sharing
from tests.proxy.sharing.people import Person, Team
from tests.proxy.sharing.shared import DEFINITION, Shared, refused
from tests.proxy.sharing.test_hostile_rosters import is_grants, owner, rotate
from tests.support.front import Asked, Front, Reply, running_front
from tests.support.store import Store


def changes(front: Front) -> list[Asked]:
    return [one for one in front.asked if one.method != "GET"]


@contextmanager
def lying(person: Person, change: Callable[[Asked, Reply], Reply]) -> Iterator[Front]:
    """An API that lies to one person."""
    with running_front(person.service.base_url) as front:
        person.url, front.lie = front.url, change
        yield front
        person.url = ""


def entries_of(team: Team) -> list[RosterEntry]:
    path = f"{team.ada.account.organization}roster/?since=0"
    return wire.decode_all(team.ada.call("GET", path).body, RosterEntry)


def shortened(team: Team, entries: list[RosterEntry]) -> list[RosterEntry]:
    assert team
    return entries[:-1]


def continued_otherwise(team: Team, entries: list[RosterEntry]) -> list[RosterEntry]:
    """As an owner who was one then could go on, with the API's help."""
    before = Roster(team.organization, entries[:-1])
    identity = team.view(team.ada).identity
    other = form.DatasetName(team.dataset, "other", "Other", 1, _commitment(before, team), [])
    return [*entries[:-1], sign_entry(before, identity, team.ada.id, 1, other)]


def _commitment(roster: Roster, team: Team) -> bytes:
    epoch = roster.epoch(team.dataset)
    assert epoch is not None
    return epoch.commitment


Shown = Callable[[Team, list[RosterEntry]], list[RosterEntry]]


@pytest.mark.parametrize("shown", [shortened, continued_otherwise])
def test_a_roster_without_what_was_seen_of_it_changes_nothing(team: Team, shown: Shown) -> None:
    team.join()
    assert team.view(team.ada).roster.number == len(entries_of(team))
    told = wire.encode(shown(team, entries_of(team)))

    def lie(asked: Asked, reply: Reply) -> Reply:
        return reply.with_body(told) if "/roster/" in asked.path else reply

    with lying(team.ada, lie) as front:
        assert team.refusal(team.settle) == "roster_older"
        assert team.refusal(lambda: rotate(team)) == "roster_older"
        assert team.refusal(lambda: team.keys(team.ada)) == "roster_older"
        assert changes(front) == []
    assert set(team.keys(team.ada)) == {1}


def altered(grants: list[Grant]) -> list[Grant]:
    broken = grants[0].body[:-1] + bytes([grants[0].body[-1] ^ 1])
    return [msgspec.structs.replace(grants[0], body=broken)]


def of_another_dataset(grants: list[Grant]) -> list[Grant]:
    """The one grant under the other's name."""
    bodies = [form.read_grant(grant) for grant in grants]
    swapped = msgspec.structs.replace(bodies[1], dataset=bodies[0].dataset)
    return [Grant(form.encode_grant_body(swapped), grants[1].signature)]


def under_another_epoch(grants: list[Grant]) -> list[Grant]:
    body = msgspec.structs.replace(form.read_grant(grants[0]), epoch=2)
    return [Grant(form.encode_grant_body(body), grants[0].signature)]


def none_at_all(_grants: list[Grant]) -> list[Grant]:
    return []


@pytest.mark.parametrize(
    ("replay", "named"),
    [
        (altered, "grant_broken"),
        (of_another_dataset, "grant_broken"),
        (under_another_epoch, "grant_broken"),
        (none_at_all, "grant_missing"),
    ],
)
def test_a_grant_that_is_not_of_this_place_ends_what_needs_it(
    team: Team, replay: Callable[[list[Grant]], list[Grant]], named: str
) -> None:
    team.begin(team.made)
    team.begin(team.ada.new_dataset("More"))

    def lie(asked: Asked, reply: Reply) -> Reply:
        if not is_grants(asked):
            return reply
        own = wire.decode_all(reply.body, Grant)
        of_this = [form.read_grant(one).dataset == team.dataset for one in own]
        ordered = [own[of_this.index(True)], own[of_this.index(False)]]
        return reply.with_body(wire.encode(replay(ordered)))

    with lying(team.ada, lie) as front:
        assert team.refusal(lambda: rotate(team)) == named
        assert changes(front) == []


def grants_of(person: Person) -> bytes:
    return person.call("GET", f"{person.organization_path}grants/").body


def test_a_grant_of_another_member_or_organization_or_of_before_opens_nothing(team: Team) -> None:
    grace, alan = team.join(), team.join()
    before = grants_of(grace)
    rotate(team)
    foreign = Team(team.somebody(), team.folder)
    foreign.ada.organization_path = foreign.ada.account.organization
    assert foreign.made
    lies = [
        (grants_of(alan), "grant_broken"),
        (grants_of(foreign.ada), "grant_missing"),
        (before, "grant_missing"),
    ]
    for told, named in lies:

        def lie(asked: Asked, reply: Reply, told: bytes = told) -> Reply:
            return reply.with_body(told) if is_grants(asked) else reply

        with lying(grace, lie):
            assert team.refusal(lambda: team.keys(grace)) == named
    assert set(team.keys(grace)) == {1, 2}


def test_an_answer_to_an_owner_who_was_removed_lets_nobody_in(team: Team) -> None:
    bob, eve = owner(team), team.somebody()
    team.accept(eve, team.invite(eve, by=bob))
    answers = team.ada.call("GET", f"{team.ada.account.organization}answers/").body
    assert answers != wire.encode([])
    team.ada.do(lambda sharing: sharing.members.remove(team.ada.holder, team.organization, bob.id))

    def lie(asked: Asked, reply: Reply) -> Reply:
        return reply.with_body(answers) if asked.path.endswith("/answers/") else reply

    with lying(team.ada, lie):
        settled = team.settle()
    assert settled.admitted == []
    # Withdrawn with its owner: what the API still shows of it is no work.
    assert [trouble.error.reason for trouble in settled.troubles] in ([], ["invitation_over"])
    roster = team.view(team.ada).roster
    assert roster.member(eve.id) is None
    assert not any(invitation.open for invitation in roster.invitations())


Told = Callable[[dict[str, Any], Shared], Mapping[str, Any]]
OTHER: dict[str, Any] = {"type": "object", "properties": {"n": DEFINITION["properties"]["n"]}}
OF_SCHEMAS: dict[str, Told] = {
    "name": lambda _, __: {"name": "Children"},
    "slug": lambda _, __: {"slug": "children"},
    "definition": lambda _, __: {"schema": OTHER},
    "dataset": lambda _, shared: {"dataset": shared.team.ada.new_dataset("More")["url"]},
}


def test_nothing_is_sealed_for_a_schema_that_is_shown_otherwise_than_signed(
    shared: Shared,
) -> None:
    """Each is one that the writer's proxy has not met before, and an owner has signed."""
    team = shared.team
    schemas = {lie: shared.new_schema(f"By {lie}") for lie in OF_SCHEMAS}

    async def place(sharing: Sharing) -> None:
        wanted = [
            await placement_of(sharing.api, team.ada.holder, ids.from_text(url.split("/")[-2]))
            for url in schemas.values()
        ]
        await sharing.founding.place(team.ada.holder, team.organization, wanted)

    team.ada.do(place)
    writer = shared.person(form.WRITER)
    grace = shared.proxy(writer)
    front = shared.fronts[writer.id]
    for lie, url in schemas.items():
        one = Store(grace.service, grace.account, url, grace.device)

        def tell(asked: Asked, reply: Reply, lie: str = lie, url: str = url) -> Reply:
            if asked.path != url:
                return reply
            shown = json.loads(reply.body)
            return reply.with_body(json.dumps({**shown, **OF_SCHEMAS[lie](shown, shared)}).encode())

        front.forget()
        with front.telling(tell):
            assert refused(one.send([{"n": 1}])) == (422, "schema_unsigned"), lie
        assert [asked for asked in changes(front) if "/commits/" in asked.path] == []
        assert one.send([{"n": 1}]).status == 201

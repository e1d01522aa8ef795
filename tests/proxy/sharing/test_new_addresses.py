"""Members who change their address: the signed roster follows an owner's signature alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.model import ids
from tests.proxy.sharing.people import Person, Team
from tests.proxy.sharing.test_attending import people
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Answer, Service, call


@pytest.fixture
def team(api: Service, tmp_path: Path) -> Team:
    team = Team(Person(api, api.new_account(), tmp_path / "ada" / "proxy"), tmp_path)
    assert team.made
    return team


def move(person: Person, address: str) -> None:
    """Give an account another address, as its holder does."""
    password = person.account.password
    asked = {"email": address, "password": password}
    assert person.call("POST", "/api/accounts/change-email/", asked).status == 200
    link = person.service.link_for(address)
    values = {name: getattr(link, name) for name in ("user_id", "timestamp", "signature")}
    assert person.call("POST", "/api/accounts/confirm-email/", values).status == 200
    person.account = replace(person.account, email=address)
    person.__dict__.pop("holder", None)  # its login has ended


def shown(proxy: Proxy, team: Team, person: Person, who: Person | None = None) -> tuple[Any, Any]:
    """The signed address of a member, and what the API reports beside it."""
    listed = people(proxy, team, who)["people"]
    (found,) = (one for one in listed if one["id"] == ids.to_text(person.id))
    return found["name"], found.get("email_now")


def sign(proxy: Proxy, team: Team, person: Person, address: str, **more: Any) -> Answer:
    path = f"{team.ada.account.organization}people/{ids.to_text(person.id)}/"
    ada = team.ada.account
    body = {"email": address, **more}
    return call("PATCH", proxy.url + path, body, auth=ada.auth, headers=proxy.door)


def test_the_roster_has_a_members_new_address_once_an_owner_has_signed_it(
    team: Team, api: Service, tmp_path: Path
) -> None:
    grace = team.join()
    former = grace.account.email
    move(grace, address := f"new-{former}")
    with running_proxy(api.base_url, tmp_path / "ada") as proxy:
        # The API's word: shown to owners, and nothing follows from it.
        assert shown(proxy, team, grace) == (former, address)
        assert set(team.keys(grace)) == {1}
        assert sign(proxy, team, grace, address).status == 200
        assert shown(proxy, team, grace) == (address, None)
    roster = team.view(grace).roster
    member = roster.member(grace.id)
    assert member is not None
    assert (member.name, len(member.shares)) == (address, 1)
    assert set(team.keys(grace)) == {1}


def test_an_owner_signs_the_own_address_and_stays_an_owner(
    team: Team, api: Service, tmp_path: Path
) -> None:
    move(team.ada, address := f"new-{team.ada.account.email}")
    with running_proxy(api.base_url, tmp_path / "ada") as proxy:
        assert sign(proxy, team, team.ada, address).status == 200
        assert shown(proxy, team, team.ada) == (address, None)
    assert [owner.name for owner in team.view(team.ada).roster.owners()] == [address]


def test_addresses_of_others_are_refused_and_members_sign_none(
    team: Team, api: Service, tmp_path: Path
) -> None:
    grace, alan = team.join(), team.join()
    (tmp_path / "alan").mkdir()
    alan.folder.rename(tmp_path / "alan" / "proxy")
    with (
        running_proxy(api.base_url, tmp_path / "ada") as proxy,
        running_proxy(api.base_url, tmp_path / "alan") as other,
    ):
        taken = sign(proxy, team, grace, alan.account.email.upper())
        assert (taken.status, taken.json()["code"]) == (409, "already_member")
        both = sign(proxy, team, grace, "grace@example.com", role="owner")
        assert (both.status, both.json()["code"]) == (400, "invalid")
        path = f"{team.ada.account.organization}people/{ids.to_text(alan.id)}/"
        body = {"email": "alan@example.com"}
        auth, headers = alan.account.auth, other.door
        refused = call("PATCH", other.url + path, body, auth=auth, headers=headers)
        assert (refused.status, refused.json()["code"]) == (403, "owners_only")
        assert shown(proxy, team, grace) == (grace.account.email, None)


def test_a_member_with_a_new_address_comes_back_by_an_invitation_to_it(
    team: Team, api: Service, tmp_path: Path
) -> None:
    grace = team.join()
    move(grace, address := f"new-{grace.account.email}")
    with running_proxy(api.base_url, tmp_path / "ada") as proxy:
        assert sign(proxy, team, grace, address).status == 200
    again = replace(grace, folder=tmp_path / "another machine")
    invited = team.invite(again)
    assert ids.to_text(invited.member) == ids.to_text(grace.id)
    team.accept(again, invited)
    assert team.settle().admitted == [address]

"""What an owner's proxy does by itself, and what it says of invitations and of first use."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records import runtime
from encrypted_records.errors import BadInput
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.model.credentials import generate_api_token
from encrypted_records.proxy.process import ATTENDING
from encrypted_records.proxy.settings import Overrides
from encrypted_records.proxy.sharing.settling import Attending, Sharing
from tests.proxy.lies import instead
from tests.proxy.sharing.people import Person, Team
from tests.proxy.sharing.test_coming_back import delete_account
from tests.support.background import Queued
from tests.support.front import Asked, Reply, running_front
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Service, call

#: Nothing here takes long; a machine that has much else to do may.
PATIENCE = 60.0


@pytest.fixture
def team(api: Service, tmp_path: Path) -> Team:
    team = Team(Person(api, api.new_account(), tmp_path / "ada" / "proxy"), tmp_path)
    assert team.made
    return team


def people(proxy: Proxy, team: Team, person: Person | None = None) -> Any:
    who = person or team.ada
    path = f"/api/organizations/{ids.to_text(team.organization)}/people/"
    answer = call("GET", proxy.url + path, auth=who.account.auth)
    assert answer.status == 200, answer.body
    return answer.json()


def names(listed: Any) -> set[str]:
    return {person["name"] for person in listed["people"]}


def test_an_owners_request_for_anything_lets_in_who_has_answered(
    team: Team, tmp_path: Path
) -> None:
    kay, grace = team.join(), team.somebody()
    team.accept(grace, team.invite(grace))
    overrides = Overrides(attend_seconds=0)
    with running_proxy(team.ada.service.base_url, tmp_path / "ada", overrides=overrides) as proxy:

        def ask() -> None:
            """For what uses her keys: nobody asks to settle, or for the people."""
            path = f"{proxy.url}/api/keyring/"
            assert call("GET", path, auth=team.ada.account.auth).status == 200

        ask()  # with the first request, only the minute begins
        ask()
        proxy.settle(ATTENDING)
        assert grace.call("GET", grace.organization_path).status == 200
        assert set(team.keys(grace)) == {1}
        # It also gives a new key once somebody has left.
        grace.do(lambda sharing: sharing.members.remove(grace.holder, team.organization, grace.id))

        ask()
        proxy.settle(ATTENDING)
        assert set(team.keys(kay)) == {1, 2}


def test_only_an_owners_own_credentials_make_a_proxy_act_and_not_at_once(team: Team) -> None:
    reader, grace = team.join(), team.somebody()
    team.accept(grace, team.invite(grace))

    def looks(person: Person, every_seconds: float, **changed: Any) -> int:
        async def act(sharing: Sharing) -> int:
            queued, parts = Queued(), (sharing.api, sharing.reader, sharing.settling)
            attending = Attending(*parts, queued, every_seconds)
            holder = replace(person.holder, **changed)
            begun = 0
            for _ in range(2):
                attending.notice(holder)
                begun = queued.put_off()
                await queued.settle()
            return begun

        return person.do(act)

    def is_in() -> bool:
        return team.view(team.ada).roster.member(grace.id) is not None

    assert (looks(reader, 0), is_in()) == (1, False)
    limited = generate_api_token(writes=True)
    assert (looks(team.ada, 0, token=limited), is_in()) == (0, False)
    assert (looks(team.ada, 60), is_in()) == (0, False)
    assert (looks(team.ada, 0), is_in()) == (1, True)


class Ahead(runtime.Computer):
    """A computer whose clock was set 35 days ahead."""

    def wall_ns(self) -> int:
        return super().wall_ns() + 35 * 86_400 * 10**9


def test_a_service_is_not_removed_because_a_clock_jumped_ahead(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, shares = team.ada, [form.Share(team.dataset, form.READER, [])]
    expires = int(runtime.wall()) + 10 * 86_400
    ada.do(
        lambda sharing: sharing.services.make(
            ada.holder, team.organization, "nightly", shares, expires
        )
    )
    with running_proxy(ada.service.base_url, tmp_path / "ada") as proxy:

        def removed() -> Any:
            url = f"{proxy.url}/api/organizations/{ids.to_text(team.organization)}/settle/"
            answer = call("POST", url, auth=ada.account.auth)
            assert answer.status == 200, answer.body
            return answer.json()["removed"]

        assert removed() == []
        monkeypatch.setattr(runtime, "machine", Ahead())
        assert removed() == []
        asyncio.run(proxy.services.clock.settle())  # somebody says that the clock is right
        assert removed() == ["nightly"]


def test_an_invitation_by_a_wrong_clock_is_refused_with_how_wrong_it_is(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    grace = team.somebody()
    monkeypatch.setattr(runtime, "machine", Ahead())
    with pytest.raises(BadInput) as refused:
        team.invite(grace)
    assert "it is 35 days ahead of the API's" in refused.value.hint


def test_declined_and_replaced_invitations_are_told_from_those_that_wait(
    team: Team, api: Service, tmp_path: Path
) -> None:
    with running_proxy(api.base_url, tmp_path / "ada") as proxy:
        grace, eve, kay = team.somebody(), team.somebody(), team.somebody()
        declined, replaced = team.invite(grace), team.invite(eve)
        again, waits = team.invite(eve), team.invite(kay)
        path = f"/api/invitations/{ids.to_text(declined.id)}/"
        assert grace.call("DELETE", path).status == 204
        listed = people(proxy, team)
        status = {invitation["id"]: invitation["status"] for invitation in listed["invitations"]}
        assert status == {
            ids.to_text(declined.id): "declined",
            ids.to_text(replaced.id): "replaced",
            ids.to_text(again.id): "waiting",
            ids.to_text(waits.id): "waiting",
        }


def test_what_was_shown_first_stays_known(team: Team, api: Service, tmp_path: Path) -> None:
    grace = team.join()
    path = tmp_path / "grace"
    path.mkdir()
    grace.folder.rename(path / "proxy")
    before = team.view(team.ada).roster
    with running_proxy(api.base_url, path) as proxy:
        first = people(proxy, team, grace)["first_shown"]
        # As it was when she entered her words: one person, and her own invitation on top.
        assert (first["members"], first["number"]) == (1, before.number - 1)
        assert first["since"] == before.time_at(before.number - 1)
        team.join()
        later = people(proxy, team, grace)
    assert later["first_shown"] == first
    assert later["number"] > first["number"]
    assert later["words"] != first["words"]
    assert all(person["since"] == before.time_at(person["entry"]) for person in later["people"][:2])


def test_members_see_whose_account_is_gone_and_nothing_follows_from_it(
    team: Team, api: Service, tmp_path: Path
) -> None:
    grace, alan = team.join(), team.join()
    delete_account(grace)
    (tmp_path / "alan").mkdir()
    alan.folder.rename(tmp_path / "alan" / "proxy")
    with (
        running_front(api.base_url) as front,
        running_proxy(front.url, tmp_path / "ada") as proxy,
        running_proxy(front.url, tmp_path / "alan") as other,
    ):
        before = people(proxy, team)

        def gone(listed: Any) -> dict[str, bool]:
            return {person["name"]: person["account_gone"] for person in listed["people"]}

        own, hers, his = (one.account.email for one in (team.ada, grace, alan))
        assert gone(before) == {own: False, hers: True, his: False}
        assert gone(people(other, team, alan)) == gone(before)

        # Whatever the API says of accounts, the roster stays, and nobody is put out for it.
        def none_at_all(asked: Asked, reply: Reply) -> Reply:
            listing = b'{"count": 0, "next": null, "previous": null, "results": []}'
            return reply.with_body(listing) if "/members/" in asked.path else reply

        def somebody_more(asked: Asked, reply: Reply) -> Reply:
            if "/members/" not in asked.path:
                return reply
            return reply.with_body(reply.body.replace(alan.id.hex().encode(), b"0" * 32))

        settle = f"{proxy.url}{team.ada.account.organization}settle/"
        for lie in (none_at_all, somebody_more):
            with front.telling(lie):
                listed = people(proxy, team)
                assert names(listed) == names(before)
                done = call("POST", settle, {}, auth=team.ada.account.auth).json()
                assert not any(done.values()), done
                assert people(proxy, team)["number"] == before["number"]
        with front.telling(instead(("members",), 200, b"[1]", "application/json")):
            path = f"{proxy.url}{team.ada.account.organization}people/"
            answer = call("GET", path, auth=team.ada.account.auth)
            assert (answer.status, answer.json()["code"]) == (502, "api_failed"), answer.body
        # An owner puts them out, and the datasets they were in get new keys.
        path = f"{proxy.url}{team.ada.account.organization}people/{ids.to_text(grace.id)}/"
        done = call("DELETE", path, auth=team.ada.account.auth)
        assert (done.status, done.json()["rotated"]) == (200, ["People"]), done.body
        assert gone(people(proxy, team)) == {own: False, his: False}

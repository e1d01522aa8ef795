"""Who comes into a roster, by which keys, and who goes."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Answer as Answered
from tests.server.api import Account, Api, text_of
from tests.server.rosters import (
    Person,
    Ring,
    admission,
    found,
    new_identity,
    put_answer,
    share,
    standing,
)
from tests.server.test_organizations import emails, invite, join

INVALID = (400, "invalid_entry")
OVER = (409, "invitation_over")
PROXY = (409, "through_a_proxy")
#: Every signature is right under it, where nobody looks.
ORDER_ONE = (1).to_bytes(32, "little")


@pytest.fixture
def ring(api: Api) -> Ring:
    return found(api.new_account())


@pytest.fixture
def grace(guests: list[Account]) -> Person:
    return Person(guests[0])


@pytest.fixture
def eve(guests: list[Account]) -> Person:
    return Person(guests[1])


@pytest.fixture
def dataset(ring: Ring) -> Any:
    made = ring.owner.account.new_dataset()
    ring.begin(made)
    return made


def refused_answer(person: Person, given: Answered, path: str = "") -> tuple[int, str]:
    answer = put_answer(person, given, path)
    return answer.status, answer.code


def test_an_invited_person_answers_and_is_admitted(api: Api, ring: Ring, dataset: Any) -> None:
    grace = Person(api.new_account())
    account = grace.account
    assert account.call("GET", ring.path).status == 404
    invited = ring.invite(grace, [share(dataset)])
    message = api.messages_to(account.email, 1)[-1]
    told = text_of(message)
    assert ring.owner.account.email in told
    # The invited learn what to install, what to start and what to type.
    invitation = ids.to_text(invited.content.id)
    for said in ("pip install", "ers proxy --base-url http", f"ers share accept {invitation}"):
        assert said in told

    # Whoever is invited reads the roster, and nothing else.
    assert len(ring.entries(by=account)) == ring.number
    assert account.call("GET", dataset["url"]).status == 404
    assert account.call("GET", f"{account.organization}members/").status == 200
    assert account.call("GET", f"{ring.owner.account.organization}members/").status == 404
    assert account.call("GET", invited.path).status == 404

    given = ring.answer(grace, invited)
    assert [put_answer(grace, given).status for _ in range(2)] == [201, 200]
    kept = account.call("GET", invited.path)
    assert wire.decode_single(kept.body, Answered) == given
    waiting = ring.owner.account.call("GET", f"{ring.owner.account.organization}answers/")
    assert wire.decode_all(waiting.body, Answered) == [given]

    entry = ring.follow(ring.sign(admission(grace, given, [share(dataset)])))
    ring.add(entry, ring.grant(dataset, grace))
    assert emails(ring.owner.account, ring.owner.account.organization) == {
        ring.owner.account.email: "owner",
        account.email: "member",
    }
    assert account.call("GET", dataset["url"]).status == 200
    assert [grant.epoch for grant in ring.grants_of(grace)] == [1]
    after = ring.owner.account.call("GET", f"{ring.owner.account.organization}answers/")
    assert wire.decode_all(after.body, Answered) == []
    assert refused_answer(grace, given)[0] == 404


def test_an_answer_is_taken_from_who_has_the_words_and_is_invited(
    ring: Ring, grace: Person, eve: Person, dataset: Any
) -> None:
    invited = ring.invite(grace, [share(dataset)])
    other = ring.invite(eve)
    right = ring.answer(grace, invited)
    replace = msgspec.structs.replace

    assert refused_answer(eve, right)[0] == 404
    for wrong in (
        ring.answer(eve, invited),  # the words are right, the caller is another
        replace(right, signature=os.urandom(64)),
        replace(right, keys=new_identity().keys),
        replace(right, anchor=os.urandom(32)),
        replace(right, proof=os.urandom(64)),
        replace(right, organization=ids.new_id()),
        replace(right, format=2),
        replace(ring.answer(grace, other), id=invited.content.id),  # other words
    ):
        assert refused_answer(grace, wrong) == INVALID
    path = f"/api/invitations/{ids.to_text(invited.content.id)}/answer/"
    assert refused_answer(grace, ring.answer(grace, other), path) == INVALID
    noise = grace.account.call(
        "PUT", path, b"ERS1" + os.urandom(1 << 20), **{"Content-Type": wire.MEDIA_TYPE}
    )
    assert (noise.status, noise.code) == (400, "malformed_frame")
    # It goes on waiting for the right one.
    assert put_answer(grace, right).status == 201


def test_an_invitation_that_is_over_takes_no_answer_and_admits_nobody(
    api: Api, ring: Ring, grace: Person
) -> None:
    declined = ring.invite(grace)
    given = ring.answer(grace, declined)
    assert put_answer(grace, given).status == 201
    identifier = ids.to_text(declined.content.id)
    assert grace.account.call("DELETE", f"/api/invitations/{identifier}/").status == 204
    assert ring.refuses(admission(grace, given)) == OVER

    withdrawn = ring.invite(grace)
    given = ring.answer(grace, withdrawn)
    assert put_answer(grace, given).status == 201
    ring.add(ring.follow(ring.sign(form.Remove(withdrawn.content.id))))
    assert refused_answer(grace, given)[0] == 404
    assert ring.refuses(admission(grace, given)) == OVER
    assert ring.refuses(form.Remove(withdrawn.content.id)) == INVALID
    # Of what was declined, the roster says so, too, once an owner wants it.
    ring.add(ring.follow(ring.sign(form.Remove(declined.content.id))))

    replaced = ring.invite(grace)
    ring.invite(grace)
    assert refused_answer(grace, ring.answer(grace, replaced))[0] == 404

    expired = ring.invite(grace)
    given = ring.answer(grace, expired)
    assert put_answer(grace, given).status == 201
    late = ring.sign(admission(grace, given), time=expired.content.expires + 1)
    assert ring.refused(late) == OVER
    named = f"WHERE id = '{expired.content.id.hex()}'"
    blob = (
        named.replace("'", "X'", 1) if api.database_url is None else named.replace("'", "'\\x", 1)
    )
    api.execute(f"UPDATE roster_seat SET expires = 1 {blob}")
    assert refused_answer(grace, given) == OVER


def test_an_invitation_is_for_a_week_at_most_and_an_address(ring: Ring, grace: Person) -> None:
    now = int(time.time())
    for changes in (
        {"expires": now - 1},
        {"expires": now + 9 * 86_400},
        {"expires": 2**62},
        {"name": "nobody"},
        {"answer_key": ORDER_ONE},
        {"member": ids.new_id()},
        {"shares": [form.Share(ids.new_id(), 2, [])]},
    ):
        assert ring.refuses(ring.invitation(grace, **changes).content) == INVALID
    taken = ring.invite(grace)
    again = msgspec.structs.replace(taken.content, name="other@example.org")
    assert ring.refuses(again) == INVALID


def test_nobody_is_admitted_whose_keys_the_words_do_not_vouch_for(
    ring: Ring, grace: Person, eve: Person, dataset: Any
) -> None:
    invited = ring.invite(grace, [share(dataset)])
    given = ring.answer(grace, invited)
    assert ring.refuses(admission(grace, given)) == INVALID  # not answered yet
    assert put_answer(grace, given).status == 201
    other = ring.answer(grace.renewed(), invited)
    wanted = [
        admission(grace, other),
        msgspec.structs.replace(admission(grace, given), member=eve.uid),
        msgspec.structs.replace(admission(grace, given), keys=eve.identity.keys),
        msgspec.structs.replace(admission(grace, given), keys=b"", anchor=b"", proof=b""),
        msgspec.structs.replace(admission(grace, given), anchor=b""),
        msgspec.structs.replace(admission(grace, given), invitation=ids.new_id()),
        standing(grace, found=ring.found),
        standing(eve, found=ring.found),
        standing(eve),
    ]
    assert [ring.refuses(one) for one in wanted] == [INVALID] * len(wanted)
    ring.add(ring.follow(ring.sign(admission(grace, given))))
    assert ring.refuses(admission(grace, given)) == OVER


def test_keys_are_never_two_members(ring: Ring, grace: Person, eve: Person) -> None:
    ring.join(grace)
    eve = Person(eve.account, grace.identity)
    invited = ring.invite(eve)
    given = ring.answer(eve, invited)
    assert put_answer(eve, given).status == 201
    assert ring.refuses(admission(eve, given)) == INVALID
    # Nor once the other is out.
    ring.add(ring.follow(ring.sign(form.Remove(grace.uid))))
    assert ring.refuses(admission(eve, given)) == INVALID


def test_whoever_lost_the_keys_is_invited_by_id_and_gets_others(
    ring: Ring, grace: Person, dataset: Any
) -> None:
    ring.join(grace, [share(dataset)])
    assert ring.refuses(ring.invitation(grace).content) == (409, "already_member")
    renewed = grace.renewed()
    invited = ring.invite(renewed, [share(dataset)], member=grace.uid)
    given = ring.answer(renewed, invited)
    assert put_answer(renewed, given).status == 201
    content = admission(renewed, given, [share(dataset)])
    entry = ring.sign(content)
    assert ring.refused(entry) == (400, "grants_incomplete")
    ring.follow(entry)
    ring.add(entry, ring.grant(dataset, renewed))
    # The old keys sign nothing any more.
    assert ring.refuses(form.Remove(grace.uid), by=grace) == INVALID
    ring.add(ring.follow(ring.sign(form.Remove(grace.uid), by=renewed)), by=renewed)


def test_an_owner_changes_their_own_keys_and_nobody_elses(
    ring: Ring, grace: Person, dataset: Any
) -> None:
    ring.join(grace, [share(dataset)])
    assert ring.refuses(standing(grace.renewed(), [share(dataset)], found=ring.found)) == INVALID
    old, renewed = ring.owner, ring.owner.renewed()
    entry = ring.follow(ring.sign(standing(renewed, role=form.OWNER, found=ring.found)))
    # A grant of the new keys at the new head, in the same request.
    ring.owner = renewed
    ring.add(entry, ring.grant(dataset, renewed))
    assert ring.refuses(form.Remove(grace.uid), by=old) == INVALID
    ring.add(ring.follow(ring.sign(form.Remove(grace.uid))))


def test_leaving_and_being_removed_end_at_once_what_is_reached(
    ring: Ring, grace: Person, eve: Person, dataset: Any
) -> None:
    for one in (grace, eve):
        ring.join(one, [share(dataset)])
        assert one.account.call("GET", dataset["url"]).status == 200
    ring.add(ring.follow(ring.sign(form.Remove(grace.uid))))
    leaving = ring.follow(ring.sign(form.Remove(eve.uid), by=eve))
    ring.add(leaving, by=eve)
    for one in (grace, eve):
        for path in (dataset["url"], ring.path, f"{ring.owner.account.organization}grants/"):
            assert one.account.call("GET", path).status == 404
        assert ring.refuses(form.Remove(one.uid)) == INVALID
    # An invitation that names nobody is for who never stood in the roster.
    invited = ring.invite(grace)
    assert refused_answer(grace, ring.answer(grace, invited)) == INVALID


def test_an_organization_keeps_an_owner(ring: Ring, grace: Person) -> None:
    last = (409, "last_owner")
    assert ring.refuses(form.Remove(ring.owner.uid)) == last
    assert ring.refuses(standing(ring.owner, role=form.MEMBER)) == last
    ring.join(grace)
    ring.add(ring.follow(ring.sign(standing(grace, role=form.OWNER))))
    # With an owner go the invitations they made.
    invited = ring.invite(Person(grace.account, known_id="-"), name="x@example.org")
    ring.add(ring.follow(ring.sign(form.Remove(ring.owner.uid), by=grace)), by=grace)
    listed = grace.account.call("GET", f"{ring.owner.account.organization}invitations/").json()
    assert listed["count"] == 0
    assert ring.refuses(form.Remove(invited.content.id), by=grace)[0] == 400
    assert ring.refuses(form.Remove(grace.uid), by=grace) == last


def test_a_standing_says_what_can_be(ring: Ring, grace: Person, dataset: Any) -> None:
    ring.join(grace)
    unknown = ids.to_text(ids.new_id())
    for wrong in (
        standing(grace, [share(dataset)], role=form.OWNER),
        standing(grace, [share({"id": unknown})]),
        standing(grace, [share(dataset, form.READER, [{"id": unknown}])]),
        standing(grace, type=form.SERVICE),
        standing(grace, expires=2**62),
        standing(grace, anchor=os.urandom(32)),
    ):
        assert ring.refuses(wrong) == INVALID


def test_who_belongs_is_changed_through_a_proxy_alone(api: Api, ring: Ring, grace: Person) -> None:
    owner = ring.owner.account
    ring.join(grace)
    waiting = ring.invite(Person(api.new_account()))
    invitation = ids.to_text(waiting.content.id)
    member = f"{owner.organization}members/{grace.id}/"
    refused = [
        invite(owner, "new@example.org"),
        owner.call("DELETE", f"{owner.organization}invitations/{invitation}/"),
        owner.call("PATCH", member, {"role": "owner"}),
        owner.call("DELETE", member),
        grace.account.call("DELETE", member),
    ]
    assert [(one.status, one.code) for one in refused] == [PROXY] * len(refused)


def test_an_invitation_of_a_roster_is_not_accepted_at_the_api(ring: Ring, grace: Person) -> None:
    invited = ring.invite(grace)
    path = f"/api/invitations/{ids.to_text(invited.content.id)}/accept/"
    answer = grace.account.call("POST", path)
    assert (answer.status, answer.code) == PROXY
    assert grace.account.call("GET", ring.owner.account.organization).status == 404


def test_whoever_belonged_before_the_roster_waits_to_be_admitted(
    api: Api, grace: Person, eve: Person
) -> None:
    owner = api.new_account()
    dataset = owner.new_dataset()
    path = join(owner, grace.account)
    assert invite(owner, eve.account.email).status == 201
    assert grace.account.call("GET", dataset["url"]).status == 200
    ring = found(owner)
    assert grace.account.call("GET", dataset["url"]).status == 404
    assert len(ring.entries(by=grace.account)) == 1
    invited = eve.account.call("GET", "/api/invitations/").json()["results"]
    assert owner.organization not in [one["organization"] for one in invited]
    # Without a standing there is nothing to remove from the roster.
    assert owner.call("DELETE", path).status == 204


def test_a_lost_owners_keys_let_in_whom_the_operator_made_an_owner(
    api: Api, ring: Ring, grace: Person, eve: Person, dataset: Any
) -> None:
    """The recovery of an organization: the caller signs as the lost owner, for own keys."""
    ring.join(eve)
    lost = ring.owner
    make_owner(api, ring, grace)
    assert grace.account.call("GET", dataset["url"]).status == 404
    content = standing(grace, role=form.OWNER, found=ring.found)
    # Nobody else hands that in.
    assert ring.refused(ring.sign(content, by=lost), by=eve) == (403, "owners_only")
    path = f"{lost.account.organization}grants/"
    assert eve.account.call("GET", f"{path}?member={lost.id}").status == 403
    own = grace.account.call("GET", f"{path}?member={lost.id}")
    assert len(wire.decode_all(own.body, form.Grant)) == 1
    entry = ring.follow(ring.sign(content, by=lost))
    ring.add(entry, ring.grant(dataset, grace, by=lost), by=grace)
    assert grace.account.call("GET", dataset["url"]).status == 200
    ring.add(ring.follow(ring.sign(form.Remove(lost.uid), by=grace)), by=grace)
    assert lost.account.call("GET", dataset["url"]).status == 404


def make_owner(api: Api, ring: Ring, person: Person) -> None:
    """What an operator does in the database."""
    organization, user = ring.organization.hex(), person.uid.hex()
    before, after = ("X'", "'") if api.database_url is None else ("'\\x", "'")
    names = f"{before}{organization}{after}, {before}{user}{after}"
    api.execute(
        "INSERT INTO organizations_membership (organization_id, user_id, role, all_data, created)"
        f" VALUES ({names}, 'owner', FALSE,"
        " '2026-01-01 00:00:00+00')"
    )


def test_accounts_without_a_roster_go_on_as_before(api: Api, grace: Person) -> None:
    owner: Account = api.new_account()
    path = join(owner, grace.account)
    assert owner.call("PATCH", path, {"role": "owner"}).status == 200
    assert grace.account.call("DELETE", path).status == 204


def test_a_token_of_one_dataset_reads_its_grants_and_the_roster_of_its_organization_alone(
    api: Api, ring: Ring, grace: Person, dataset: Any
) -> None:
    apart = ring.owner.account.new_dataset()
    ring.begin(apart)
    ring.join(grace, [share(dataset), share(apart)])
    elsewhere = found(api.new_account())
    elsewhere.join(grace)
    named = {ids.from_text(one["id"]) for one in (dataset, apart)}
    assert {grant.dataset for grant in ring.grants_of(grace)} == named

    for person in (grace, ring.owner):
        account = person.account
        wanted = {"name": "reads", "scope": "read", "password": account.password}
        token = account.post("/api/tokens/", wanted | {"datasets": [dataset["url"]]})["token"]
        limited = Person(replace(account, token=token))
        assert [grant.dataset for grant in ring.grants_of(limited)] == [
            ids.from_text(dataset["id"])
        ]
        # Entries are a chain, which nobody believes without one of them.
        assert len(ring.entries(by=limited.account)) == ring.number
        assert limited.account.call("GET", elsewhere.path).status == 404
        other = f"{ring.owner.account.organization}grants/?member={ids.to_text(ids.new_id())}"
        answer = limited.account.call("GET", other)
        assert (answer.status, answer.code) == (403, "token_limited")


def test_a_token_of_one_dataset_does_not_read_the_roster_of_an_invitation(
    ring: Ring, grace: Person
) -> None:
    own = grace.account.new_dataset()
    ring.invite(grace)
    assert grace.account.call("GET", ring.path).status == 200
    wanted = {"name": "reads", "scope": "read", "password": grace.account.password}
    token = grace.account.post("/api/tokens/", wanted | {"datasets": [own["url"]]})["token"]
    assert replace(grace.account, token=token).call("GET", ring.path).status == 404

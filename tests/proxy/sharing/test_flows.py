"""Invite, accept, admit, share more, take away, come back: two data folders and a real API."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from encrypted_records.crypto.invitations import InvitationSecret
from encrypted_records.crypto.recovery import phrase_of
from encrypted_records.errors import ErsError
from encrypted_records.index.roster.roster import due_datasets
from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.proxy.sharing.founding import placement_of
from encrypted_records.proxy.sharing.settling import Sharing
from tests.proxy.sharing.people import Person, Team
from tests.support.front import Asked, running_front
from tests.support.keyrings import keyrings_in

DEFINITION = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
}


def make_owner(person: Person, team: Team) -> None:
    """What an operator does in the API's database."""
    path = team.ada.service.data_dir / "api" / "db.sqlite3"
    with closing(sqlite3.connect(path, timeout=30)) as database, database:
        database.execute(
            "UPDATE organizations_membership SET role = 'owner'"
            " WHERE user_id = ? AND organization_id = ?",
            (person.id, team.organization),
        )


def test_twelve_words_let_a_reader_in_who_opens_the_same_keys(team: Team) -> None:
    grace = team.somebody()
    invited = team.invite(grace)
    assert len(invited.words.split()) == 12
    assert team.refusal(lambda: team.keys(grace)) == "not_admitted"
    answered = team.accept(grace, invited)
    assert (answered.organization, answered.inviter) == (
        team.organization,
        team.ada.account.email,
    )
    assert team.refusal(lambda: team.keys(grace)) == "not_admitted"

    assert team.settle().admitted == [grace.account.email]
    assert team.settle().admitted == []

    assert team.keys(grace) == team.keys(team.ada)
    view = team.view(grace)
    assert not view.roster.writes(grace.id, team.dataset)
    assert team.refusal(lambda: team.settle(grace)) == "owners_only"
    assert team.refusal(lambda: team.invite(team.somebody(), by=grace)) == "owners_only"


def test_wrong_foreign_used_and_withdrawn_words_do_nothing(team: Team) -> None:
    grace, eve = team.somebody(), team.somebody()
    invited, other = team.invite(grace), team.invite(eve)

    def accept(person: Person, words: str) -> str:
        return team.refusal(lambda: team.accept(person, invited, words))

    assert accept(grace, InvitationSecret.generate().words) == "invitation_words"
    assert accept(grace, other.words) == "invitation_words"
    assert accept(grace, " ".join(invited.words.split()[:11])) == "invitation_words"
    assert accept(grace, "x" * 5000) == "invitation_words"
    # The right words at another account's proxy: the API shows it no such invitation.
    assert accept(eve, invited.words) == "invitation_over"
    assert team.settle().admitted == []

    team.accept(grace, invited)
    team.settle()
    assert accept(grace, invited.words) == "invitation_over"

    team.ada.do(
        lambda sharing: sharing.members.remove(team.ada.holder, team.organization, other.id)
    )
    assert team.refusal(lambda: team.accept(eve, other)) == "invitation_over"
    assert team.settle().admitted == []


def test_a_reader_becomes_a_writer_and_an_owner(team: Team) -> None:
    grace = team.join()
    another = team.ada.new_dataset("More")
    team.begin(another)
    more = ids.from_text(another["id"])
    assert team.refusal(lambda: team.keys(grace, more)) == "not_shared"

    async def more_rights(sharing: Sharing) -> None:
        shares = [form.Share(more, form.WRITER, [])]
        await sharing.members.set_shares(team.ada.holder, team.organization, more, grace.id, shares)

    team.ada.do(more_rights)
    assert team.keys(grace, more) == team.keys(team.ada, more)
    assert team.view(grace).roster.writes(grace.id, more).whole

    async def promote(sharing: Sharing) -> None:
        await sharing.members.set_role(team.ada.holder, team.organization, grace.id, owner=True)

    team.ada.do(promote)
    third = team.join()
    # The new owner does what owners do.
    grace.do(lambda sharing: sharing.members.remove(grace.holder, team.organization, third.id))
    assert team.settle(grace).rotated == ["People"]
    assert set(team.keys(team.ada)) == {1, 2}


def test_who_is_removed_gets_no_key_of_what_comes(team: Team) -> None:
    grace, alan = team.join(), team.join()
    before = team.keys(grace)

    async def remove(sharing: Sharing) -> None:
        await sharing.members.remove(team.ada.holder, team.organization, grace.id)

    team.ada.do(remove)
    # It counts at once; a crash here leaves only work, which any owner's proxy does.
    assert [dataset.dataset for dataset in due_datasets(team.view(team.ada).roster)] == [
        team.dataset
    ]
    assert team.settle().rotated == ["People"]
    assert team.settle().rotated == []
    after = team.keys(alan)
    assert set(after) == {1, 2}
    assert after[1] == before[1]
    assert team.refusal(lambda: team.keys(grace)) in {"not_found", "not_admitted"}


def test_a_narrower_share_and_a_demotion_are_due(team: Team) -> None:
    grace = team.join(team.share(form.WRITER))

    async def narrow(sharing: Sharing) -> None:
        await sharing.members.set_shares(
            team.ada.holder, team.organization, team.dataset, grace.id, [team.share()]
        )

    team.ada.do(narrow)
    assert team.settle().rotated == ["People"]
    assert set(team.keys(grace)) == {1, 2}

    async def nothing(sharing: Sharing) -> None:
        await sharing.members.set_shares(
            team.ada.holder, team.organization, team.dataset, grace.id, []
        )

    team.ada.do(nothing)
    assert team.settle().rotated == ["People"]
    assert team.refusal(lambda: team.keys(grace)) == "not_shared"
    assert set(team.keys(team.ada)) == {1, 2, 3}


def test_a_member_leaves_and_the_last_owner_does_not(team: Team) -> None:
    grace = team.join()
    grace.do(lambda sharing: sharing.members.remove(grace.holder, team.organization, grace.id))
    assert team.settle().rotated == ["People"]
    leaving = lambda: team.ada.do(  # noqa: E731
        lambda sharing: sharing.members.remove(team.ada.holder, team.organization, team.ada.id)
    )
    assert team.refusal(leaving) == "last_owner"


def test_lost_keys_come_back_by_an_invitation_that_names_the_member(team: Team) -> None:
    grace = team.join()
    old = team.keys(grace)
    lost = grace.folder
    grace.folder = lost.with_name("new")
    invited = team.ada.do(
        lambda sharing: sharing.inviting.invite(
            team.ada.holder, team.organization, grace.account.email, None
        )
    )
    assert invited.member == grace.id
    team.accept(grace, invited)
    settled = team.settle()
    assert (settled.admitted, settled.rotated) == ([grace.account.email], ["People"])
    assert team.keys(grace)[1] == old[1]
    grace.folder = lost
    assert team.refusal(lambda: team.keys(grace)) == "identity_replaced"


def test_a_dataset_is_rotated_on_request(team: Team) -> None:
    grace = team.join()
    rotate = lambda sharing: sharing.settling.rotate(  # noqa: E731
        team.ada.holder, team.organization, team.dataset
    )
    assert team.ada.do(rotate)
    assert set(team.keys(grace)) == {1, 2}


def test_a_schema_alone_opens_nothing_of_its_neighbours(team: Team) -> None:
    body = {"dataset": team.made["url"], "schema": DEFINITION}
    schemas = [
        team.ada.call("POST", "/api/schemas/", {**body, "name": name}).json()
        for name in ("Mine", "Other")
    ]
    mine, other = (ids.from_text(schema["id"]) for schema in schemas)

    async def place(sharing: Sharing) -> None:
        placements = [
            await placement_of(sharing.api, team.ada.holder, one) for one in (mine, other)
        ]
        await sharing.founding.place(team.ada.holder, team.organization, placements)

    team.ada.do(place)
    grace = team.join(team.share(form.READER, mine))

    async def opened(sharing: Sharing) -> tuple[bool, bool]:
        view = await sharing.reader.read(grace.holder, team.organization)
        assert view is not None
        held = await sharing.grants.open(view, team.dataset)
        assert held.schema(mine, 1)
        with pytest.raises(ErsError):
            held.schema(other, 1)
        return bool(held.whole), (other, 1) in held.single

    assert grace.do(opened) == (False, False)


def test_the_words_of_a_lost_last_owner_make_another_one(team: Team, ada: Person) -> None:
    grace = team.join()
    keyring = keyrings_in(ada.folder).of(ada.holder)
    phrases = [phrase_of(keyring.roots[root]) for root in sorted(keyring.roots)]

    def recover(words: list[str]) -> str:
        return grace.do(
            lambda sharing: sharing.recovering.recover(
                grace.holder, team.organization, grace.account.email, words
            )
        )

    # A member whom the operator has not made an owner gets nothing by it.
    assert team.refusal(lambda: recover(phrases)) == "owners_only"
    make_owner(grace, team)
    wrong = [phrase_of(keyrings_in(grace.folder).of(grace.holder).roots[1])]
    assert team.refusal(lambda: recover(wrong)) == "invalid_phrase"
    assert recover(phrases) == ada.account.email
    assert team.view(grace).roster.member(grace.id).owns  # type: ignore[union-attr]
    assert team.keys(grace) == team.keys(ada)
    grace.do(lambda sharing: sharing.members.remove(grace.holder, team.organization, ada.id))
    assert team.settle(grace).rotated == ["People"]


def test_who_recovers_takes_all_keys_over_or_changes_nothing(team: Team, ada: Person) -> None:
    """The API leaves out what the lost owner was granted: nobody could grant it any more."""
    grace = team.join()
    make_owner(grace, team)
    keyring = keyrings_in(ada.folder).of(ada.holder)
    phrases = [phrase_of(keyring.roots[root]) for root in sorted(keyring.roots)]

    def recover() -> str:
        return grace.do(
            lambda sharing: sharing.recovering.recover(
                grace.holder, team.organization, grace.account.email, phrases
            )
        )

    before = team.view(ada).roster.number
    with running_front(ada.service.base_url) as front:
        grace.url = front.url
        front.lie = lambda asked, reply: (
            reply.with_body(wire.encode([])) if "/grants/?member=" in asked.path else reply
        )
        assert team.refusal(recover) == "grant_missing"
    grace.url = ""
    assert team.view(ada).roster.number == before
    assert recover() == ada.account.email
    assert team.keys(grace) == team.keys(ada)


def test_who_recovers_is_not_stopped_by_an_epoch_that_begins_meanwhile(
    team: Team, ada: Person
) -> None:
    """The lost owner is none yet: their proxy ends an epoch between the roster and the grants, and
    once more before the new standing arrives."""
    grace = team.join()
    make_owner(grace, team)
    keyring = keyrings_in(ada.folder).of(ada.holder)
    phrases = [phrase_of(keyring.roots[root]) for root in sorted(keyring.roots)]
    met: set[str] = set()

    def rotate(asked: Asked) -> None:
        changes = (asked.method == "POST" and "/roster/" in asked.path, "/grants/" in asked.path)
        kind = str(changes)
        if any(changes) and kind not in met:
            met.add(kind)
            ada.do(lambda sharing: sharing.settling.rotate(ada.holder, ada.organization, dataset))

    dataset = team.dataset
    with running_front(ada.service.base_url) as front:
        grace.url, front.invent = front.url, rotate
        grace.do(
            lambda sharing: sharing.recovering.recover(
                grace.holder, team.organization, grace.account.email, phrases
            )
        )
    grace.url = ""
    assert len(met) == 2
    assert set(team.keys(grace)) == {1, 2, 3}
    assert team.keys(grace) == team.keys(ada)


def test_a_service_is_let_in_and_put_out(team: Team) -> None:
    shares = [team.share(form.WRITER)]
    made = team.ada.do(
        lambda sharing: sharing.services.make(
            team.ada.holder, team.organization, "nightly", shares, 0
        )
    )
    assert made.key.startswith("ers1_")
    standing = team.view(team.ada).roster.member(made.id)
    assert standing is not None
    assert standing.writes(team.dataset).whole
    team.ada.do(lambda sharing: sharing.members.remove(team.ada.holder, team.organization, made.id))
    assert team.settle().rotated == ["People"]

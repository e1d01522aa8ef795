"""Twelve words bring a member in, once, and authenticate both sides to one another."""

from __future__ import annotations

import msgspec
import pytest

from encrypted_records.crypto.invitations import InvitationSecret
from encrypted_records.errors import (
    ErsError,
    InvitationOver,
    InvitationWords,
    KeysRefused,
    Unsupported,
)
from encrypted_records.index.roster.access import (
    InvitationStatus,
    admit,
    check_answer,
    compose_invite,
    status_of,
)
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Answer, Remove
from encrypted_records.rules.roster_judging import Void
from tests.index.rosters import DAY, NOW, ORGANIZATION, Team, again, names, reader, uid

INVITATION = "invitation of grace"


@pytest.fixture
def team() -> Team:
    team = Team()
    team.dataset("people")
    return team


def status(team: Team, now: int = NOW, *, answered: bool = False, declined: bool = False) -> str:
    invitation = team.roster.invitation(uid(INVITATION))
    assert invitation is not None
    return status_of(invitation, now, answered=answered, declined=declined)


def signed_again(answer: Answer, team: Team, secret: InvitationSecret, **changes: bytes) -> Answer:
    """An answer with other statements, by somebody who has the words."""
    changed = msgspec.structs.replace(answer, **changes)
    invitation = team.roster.invitation(uid(INVITATION))
    assert invitation is not None
    return secret.keys(ORGANIZATION, uid(INVITATION)).answer(
        invitation.digest,
        organization=ORGANIZATION,
        invitation=uid(INVITATION),
        member=changed.member,
        keys=changed.keys,
        anchor=changed.anchor,
        proof=changed.proof,
    )


def test_words_bring_a_member_in_with_what_was_shared(team: Team) -> None:
    secret = team.invite("grace", reader("people"))
    assert status(team) == InvitationStatus.WAITING
    told = InvitationSecret.from_words(f"  {secret.words.upper()} \n")
    answer = team.answer("grace", told)
    assert status(team, answered=True) == InvitationStatus.ANSWERED
    team.accept(team.ada, admit(team.roster, answer, NOW))
    assert status(team, NOW + 30 * DAY, declined=True) == InvitationStatus.ADMITTED
    grace = team.roster.member(uid("grace"))
    assert grace is not None and grace.name == "grace@example.org"
    assert grace.reads(uid("people")).whole and not grace.writes(uid("people"))
    assert (grace.admitted_by, grace.joined) == (uid("ada"), team.roster.number)


def test_words_open_one_invitation_and_no_other(team: Team) -> None:
    secret = team.invite("grace")
    team.invite("alan")
    for words, label in (
        (InvitationSecret.generate(), INVITATION),
        (secret, "invitation of alan"),
        (secret, "no such invitation"),
    ):
        with pytest.raises(InvitationWords):
            team.answer("grace", words, label=label)


@pytest.mark.parametrize(
    "text", ["", "abandon", "abandon " * 12, "abandon " * 13, "xyzzy " * 12, "word " * 5000]
)
def test_mistyped_words_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvitationWords) as caught:
        InvitationSecret.from_words(text)
    said = caught.value.message + caught.value.hint
    assert "abandon" not in said and "xyzzy" not in said


def test_an_invitation_is_used_once(team: Team) -> None:
    secret = team.invite("grace", reader("people"))
    answer = team.answer("grace", secret)
    standing = admit(team.roster, answer, NOW)
    team.accept(team.ada, standing)
    with pytest.raises(InvitationOver):
        team.answer("alan", secret, label=INVITATION)
    with pytest.raises(InvitationOver):
        check_answer(team.roster, answer, NOW)
    assert team.put(team.ada, standing) is Void.INVITATION
    other = msgspec.structs.replace(
        team.person("alan").standing(team.roster), invitation=uid(INVITATION)
    )
    assert team.put(team.ada, other) is Void.INVITATION


def test_an_invitation_that_is_over_lets_nobody_in(team: Team) -> None:
    secret = team.invite("grace")
    answer = team.answer("grace", secret)
    late = NOW + 7 * DAY
    assert status(team, late) == InvitationStatus.EXPIRED
    assert status(team, declined=True) == InvitationStatus.DECLINED
    for attempt in (
        lambda: check_answer(team.roster, answer, late),
        lambda: team.answer("grace", secret, now=late),
    ):
        with pytest.raises(InvitationOver):
            attempt()
    standing = admit(team.roster, answer, NOW)
    assert team.put(team.ada, standing, time=late) is Void.INVITATION
    team.accept(team.ada, Remove(uid(INVITATION)))
    assert status(team, late) == InvitationStatus.WITHDRAWN
    assert team.put(team.ada, standing) is Void.INVITATION
    assert team.put(team.ada, Remove(uid(INVITATION))) is Void.INVITATION
    with pytest.raises(InvitationOver):
        team.answer("grace", secret)


def test_with_an_owner_go_their_open_invitations(team: Team) -> None:
    edith = team.join("edith")
    team.accept(team.ada, again(edith, role=form.OWNER))
    secret = team.invite("grace", by="edith")
    answer = team.answer("grace", secret)
    standing = admit(team.roster, answer, NOW)
    team.accept(team.ada, again(edith))
    assert status(team) == InvitationStatus.WITHDRAWN
    team.accept(team.ada, again(edith, role=form.OWNER))
    assert team.put(team.ada, standing) is Void.INVITATION


def test_the_words_never_make_an_owner(team: Team) -> None:
    secret = team.invite("grace")
    standing = admit(team.roster, team.answer("grace", secret), NOW)
    owner = msgspec.structs.replace(standing, role=form.OWNER)
    assert team.put(team.ada, owner) is Void.ROLE
    team.accept(team.ada, standing)
    assert names(team.roster.owners()) == ["ada"]


def test_who_stood_in_the_roster_is_invited_by_name(team: Team) -> None:
    team.join("grace")
    team.accept(team.ada, Remove(uid("grace")))
    secret = team.invite("grace", label="second")
    with pytest.raises(InvitationOver):
        team.answer("grace", secret, label="second")
    nameless = msgspec.structs.replace(
        team.person("grace").standing(team.roster), invitation=uid("second")
    )
    assert team.put(team.ada, nameless) is Void.INVITATION
    secret = team.invite("grace", member=uid("grace"), label="third")
    with pytest.raises(InvitationWords):
        team.answer("mallory", secret, label="third")
    team.person("grace").keyring = team.person("grace").keyring.rotate()
    team.accept(team.ada, admit(team.roster, team.answer("grace", secret, label="third"), NOW))
    assert team.roster.members()[-1].keys == team.person("grace").identity.keys


def test_an_invitation_has_an_id_of_its_own(team: Team) -> None:
    secret = team.invite("grace")
    for taken in (uid(INVITATION), uid("ada")):
        invite = compose_invite(
            team.roster, secret, invitation=taken, name="n", expires=NOW + 1, shares=()
        )
        assert team.put(team.ada, invite) is Void.ID
    standing = msgspec.structs.replace(
        team.person("alan").standing(team.roster), member=uid(INVITATION)
    )
    assert team.put(team.ada, standing) is Void.ID


def test_an_answer_counts_only_from_who_has_the_words(team: Team) -> None:
    secret = team.invite("grace", reader("people"))
    answer = team.answer("grace", secret)
    mallory = team.person("mallory").standing(team.roster)
    swapped = msgspec.structs.replace(answer, keys=mallory.keys)
    other = {"keys": mallory.keys, "anchor": mallory.anchor, "proof": mallory.proof}
    refusals: list[tuple[Answer, type[ErsError]]] = [
        (swapped, InvitationWords),
        (msgspec.structs.replace(answer, **other, member=uid("mallory")), InvitationWords),
        (msgspec.structs.replace(answer, id=uid("another")), InvitationWords),
        (msgspec.structs.replace(answer, organization=uid("another")), InvitationWords),
        (msgspec.structs.replace(answer, signature=bytes(64)), InvitationWords),
        (msgspec.structs.replace(answer, format=2), Unsupported),
        (signed_again(answer, team, secret, keys=mallory.keys), KeysRefused),
        (signed_again(answer, team, secret, member=uid("mallory")), KeysRefused),
        (signed_again(answer, team, secret, keys=team.ada.identity.keys), KeysRefused),
        (signed_again(answer, team, secret, keys=b"\1" + bytes(1248)), KeysRefused),
        (signed_again(answer, team, secret, member=uid("ada")), InvitationOver),
    ]
    for wrong, kind in refusals:
        with pytest.raises(kind):
            check_answer(team.roster, wrong, NOW)
    assert check_answer(team.roster, answer, NOW).content.id == uid(INVITATION)


def test_the_invited_refuse_another_roster_than_the_inviters(team: Team) -> None:
    """An API that made up an organization does not have the words, and cannot move the invitation
    of the true one into it."""
    secret = team.invite("grace")
    true = team.roster.invitation(uid(INVITATION))
    assert true is not None
    made_up = Team("mallory")
    made_up.accept(made_up.person("mallory"), true.content)
    with pytest.raises(InvitationWords):
        made_up.answer("grace", secret)


def test_the_invited_refuse_what_was_changed_in_their_invitation(team: Team) -> None:
    secret = team.invite("grace", reader("people"))
    invitation = team.roster.invitation(uid(INVITATION))
    assert invitation is not None
    keys = secret.keys(ORGANIZATION, uid(INVITATION))
    keys.verify(invitation.previous, invitation.content)
    changes: list[dict[str, object]] = [
        {"name": "other@example.org"},
        {"expires": NOW + 70 * DAY},
        {"shares": []},
        {"member": uid("grace")},
        {"answer_key": bytes(32)},
        {"check": bytes(32)},
    ]
    for change in changes:
        with pytest.raises(InvitationWords):
            keys.verify(invitation.previous, msgspec.structs.replace(invitation.content, **change))
    with pytest.raises(InvitationWords):
        keys.verify(bytes(32), invitation.content)


def test_a_secret_does_not_print(team: Team) -> None:
    secret = team.invite("grace")
    shown = repr(secret) + repr(secret.keys(ORGANIZATION, uid("i"))) + repr(team.ada.identity)
    assert not set(secret.words.split()) & set(shown.split())

"""A proxy takes a roster for its user's own only by what the user alone could have put there."""

from __future__ import annotations

import pytest

from encrypted_records.crypto.keys import Keyring, RootKey
from encrypted_records.crypto.recovery import keyring_of, phrase_of
from encrypted_records.errors import IdentityReplaced, NotAllowed, RosterOlder, RosterUnknown
from encrypted_records.index.roster.access import admit
from encrypted_records.index.roster.belief import (
    Believed,
    Remembered,
    believe,
    check_memory,
    describe,
    head_words,
    recognize,
    remember,
)
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Remove
from encrypted_records.rules.roster_judging import Void
from tests.index.rosters import NOW, ORGANIZATION, Person, Team, reader, uid


@pytest.fixture
def team() -> Team:
    team = Team()
    team.dataset("people")
    team.join("grace", reader("people"))
    return team


def ask(
    team: Team,
    name: str,
    remembered: Remembered | None = None,
    *,
    keyring: Keyring | None = None,
    older: bool = False,
) -> Believed:
    keys = keyring or team.person(name).keyring
    return believe(team.roster, uid(name), keys, remembered, older_keys=older)


def test_a_fresh_proxy_with_a_phrase_knows_its_users_organization(team: Team) -> None:
    for name in ("ada", "grace"):
        phrase = phrase_of(team.person(name).keyring.root(1))
        believed = ask(team, name, keyring=keyring_of([phrase], created=0))
        assert believed.first_use and believed.version == 1
        assert believed.identity.keys == team.person(name).identity.keys
    shown = describe(team.roster)
    assert (shown.members, shown.number, shown.time) == (2, team.roster.number, NOW)
    assert len(shown.words.split()) == 8


def test_a_fresh_proxy_refuses_an_organization_that_was_made_up(team: Team) -> None:
    """The API knows public keys, and can have mallory admit the member with them."""
    grace = team.person("grace")
    right = team.roster.member(grace.id)
    assert right is not None
    made_up = Team("mallory")
    mallory = made_up.person("mallory")
    # Her proof is for the other organization, so her keys do not even get into this one.
    stolen = form.MemberStanding(
        grace.id,
        form.PERSON,
        form.MEMBER,
        right.name,
        right.keys,
        right.anchor,
        grace.identity.sign("keys", team.roster.found, grace.id, right.keys, right.anchor),
        b"",
        0,
        [],
    )
    assert made_up.put(mallory, stolen) is Void.PROOF
    with pytest.raises(NotAllowed):
        believe(made_up.roster, grace.id, grace.keyring, None)
    # With keys of mallory's making under her name, they are not hers.
    made_up.people["grace"] = Person("grace")
    made_up.join("grace", by="mallory")
    with pytest.raises(RosterUnknown):
        believe(made_up.roster, grace.id, grace.keyring, None)


def test_a_fresh_proxy_refuses_a_founder_who_has_not_founded(team: Team) -> None:
    """Grace signed a proof for this organization once, under an anchor that is not hers."""
    grace = team.person("grace")
    other = grace.keyring.root(1).identity(ORGANIZATION, grace.id, 1)
    proof = other.sign("keys", team.roster.found, grace.id, other.keys, b"a" * 32)
    content = form.MemberStanding(
        grace.id,
        form.PERSON,
        form.MEMBER,
        "grace@example.org",
        other.keys,
        b"a" * 32,
        proof,
        b"",
        0,
        [],
    )
    team.accept(team.ada, content)
    with pytest.raises(RosterUnknown):
        ask(team, "grace")


def test_a_roster_under_a_leaked_older_root_is_believed_only_if_its_user_says_so() -> None:
    leaked = RootKey(b"l" * 32)
    made_up = Team("ada", Keyring({1: leaked}))
    made_up.ada.keyring = Keyring({1: leaked, 2: RootKey.generate()})
    with pytest.raises(RosterUnknown, match="version 1"):
        ask(made_up, "ada")
    assert ask(made_up, "ada", older=True).version == 1
    seen = remember(made_up.roster)
    assert not ask(made_up, "ada", seen).first_use


def test_the_founder_is_known_after_a_rotation_too(team: Team) -> None:
    old = team.ada.keyring
    ada = team.ada
    ada.keyring = ada.keyring.rotate()
    content = ada.standing(team.roster, role=form.OWNER)
    entry = form.EntryBody(
        ORGANIZATION, team.roster.number + 1, team.roster.head.digest, NOW, ada.id, content
    )
    encoded, openings = form.encode_entry_body(entry)
    signature = ada.of(1).sign("roster", encoded)
    assert team.take(form.RosterEntry(encoded, signature, openings)) is None
    assert ask(team, "ada").version == 2
    with pytest.raises(RosterUnknown):
        ask(team, "ada", keyring=old)
    with pytest.raises(RosterUnknown):
        ask(team, "ada", keyring=Keyring.generate())


def test_a_keyring_is_recognized_as_the_members_whose_it_is_and_as_nobody_elses(
    team: Team,
) -> None:
    for name in ("ada", "grace"):
        keyring = team.person(name).keyring
        assert recognize(team.roster, keyring) == [uid(name)]
        assert recognize(team.roster, keyring.rotate()) == [uid(name)]
    assert recognize(team.roster, Keyring.generate()) == []
    # The keys of another version are in another place.
    root = team.person("grace").keyring.root(1)
    assert recognize(team.roster, Keyring({1: RootKey.generate(), 2: root})) == []
    team.accept(team.ada, Remove(uid("grace")))
    assert recognize(team.roster, team.person("grace").keyring) == [uid("grace")]
    with pytest.raises(NotAllowed, match="not in this organization"):
        ask(team, "grace")


def test_an_organization_that_was_made_up_recognizes_nobody(team: Team) -> None:
    made_up = Team("mallory")
    made_up.people["grace"] = Person("grace")
    made_up.join("grace", by="mallory")
    assert recognize(made_up.roster, team.person("grace").keyring) == []


def test_a_roster_without_what_was_seen_is_refused(team: Team) -> None:
    seen = remember(team.roster)
    cut = Roster(ORGANIZATION, team.entries[:-1])
    with pytest.raises(RosterOlder, match="entry"):
        check_memory(cut, seen)
    fork = cut.copy()
    entries, team.roster = list(team.entries), cut
    team.accept(team.ada, Remove(uid("invitation of grace")))
    fork.append(team.entries[-1])
    assert fork.number == seen.number
    with pytest.raises(RosterOlder):
        believe(fork, uid("ada"), team.ada.keyring, seen)
    whole = Roster(ORGANIZATION, entries)
    check_memory(whole, seen)
    assert head_words(whole) != head_words(fork)
    other = Team("ada")
    with pytest.raises(RosterOlder, match="another organization"):
        check_memory(other.roster, seen)


def test_a_longer_roster_contains_what_was_seen(team: Team) -> None:
    seen = remember(team.roster)
    team.join("alan")
    assert ask(team, "grace", seen).standing.name == "grace@example.org"


def test_other_keys_of_a_user_are_named_once_the_organization_is_known(team: Team) -> None:
    seen = remember(team.roster)
    grace = team.person("grace")
    old = grace.keyring
    grace.keyring = Keyring.generate()
    secret = team.invite("grace", member=grace.id, label="second")
    team.accept(team.ada, admit(team.roster, team.answer("grace", secret, label="second"), NOW))
    with pytest.raises(IdentityReplaced):
        ask(team, "grace", seen, keyring=old)
    assert ask(team, "grace").version == 1


def test_who_is_not_in_the_roster_is_told_so(team: Team) -> None:
    with pytest.raises(NotAllowed) as caught:
        ask(team, "stranger")
    assert caught.value.reason == "not_admitted"
    team.accept(team.ada, Remove(uid("grace")))
    with pytest.raises(NotAllowed):
        ask(team, "grace", remember(team.roster))

"""A roster says who reads and writes what, and a bad entry stops nobody."""

from __future__ import annotations

import msgspec
import pytest

from encrypted_records.errors import Conflict, KeysRefused, NotAllowed, RosterBroken, Unsupported
from encrypted_records.index.roster import roster
from encrypted_records.index.roster.access import admit
from encrypted_records.index.roster.roster import Roster, due_services, sign_entry
from encrypted_records.model import roster as form
from encrypted_records.model.roster import EntryBody, Remove, RosterEntry
from encrypted_records.rules.roster_judging import Void
from tests.index.rosters import (
    DAY,
    NOW,
    ORGANIZATION,
    Team,
    again,
    names,
    placement,
    reader,
    two_datasets,
    uid,
    writer,
)

team = pytest.fixture(two_datasets, name="team")


def test_the_founder_owns_and_reads_and_writes_everything(team: Team) -> None:
    assert names(team.roster.owners()) == ["ada"]
    assert team.roster.may_write(uid("ada"), uid("adults"))
    assert team.roster.may_read(uid("ada"), uid("rents"))
    assert not team.roster.may_read(uid("ada"), uid("no such schema"))


def test_a_reader_reads_one_dataset_and_writes_nothing(team: Team) -> None:
    team.join("grace", reader("people"))
    assert team.roster.may_read(uid("grace"), uid("adults"))
    assert not team.roster.may_write(uid("grace"), uid("adults"))
    assert not team.roster.may_read(uid("grace"), uid("rents"))


def test_a_reader_of_a_dataset_reads_schemas_that_come_later(team: Team) -> None:
    team.join("grace", reader("people"))
    team.place("people", "pets")
    assert team.roster.may_read(uid("grace"), uid("pets"))


def test_a_share_of_single_schemas_lets_nobody_into_their_neighbours(team: Team) -> None:
    team.join("grace", reader("people"), writer("people", "adults"))
    team.join("alan", writer("people", "adults"))
    assert team.roster.may_write(uid("grace"), uid("adults"))
    assert not team.roster.may_write(uid("grace"), uid("children"))
    assert team.roster.may_read(uid("grace"), uid("children"))
    assert not team.roster.may_read(uid("alan"), uid("children"))


def test_what_was_so_at_an_earlier_entry_stays_known(team: Team) -> None:
    team.join("grace", writer("people"))
    as_writer = team.roster.number
    team.accept(team.ada, again(team.person("grace"), reader("people")))
    as_reader = team.roster.number
    team.accept(team.ada, Remove(uid("grace")))
    roster = team.roster
    writes = [roster.may_write(uid("grace"), uid("adults"), at) for at in range(roster.number + 1)]
    assert [at for at, yes in enumerate(writes) if yes] == [as_writer]
    assert roster.may_read(uid("grace"), uid("adults"), as_reader)
    assert not roster.may_read(uid("grace"), uid("adults"))
    assert names(roster.members(as_reader)) == ["ada", "grace"]
    assert names(roster.members()) == ["ada"]


def test_since_when_somebody_has_a_share_counts_from_the_last_time_they_had_less(
    team: Team,
) -> None:
    team.join("grace", reader("people"))
    came, grace = team.roster.number, team.person("grace")
    team.accept(team.ada, again(grace, writer("people"), reader("bills")))
    wider = team.roster.number
    team.accept(team.ada, again(grace, reader("people"), reader("bills", "rents")))

    def since(share: form.Share) -> int:
        return team.roster.had_since(uid("grace"), share)

    assert [since(reader("people")), since(reader("bills", "rents"))] == [came, wider]
    assert [since(writer("people")), since(reader("bills"))] == [0, 0]
    team.accept(team.ada, Remove(uid("grace")))
    assert since(reader("people")) == 0
    team.accept(team.ada, grace.standing(team.roster, reader("people")))
    assert since(reader("people")) == team.roster.number

    assert team.roster.owned_since(uid("ada")) == 1
    assert team.roster.owned_since(uid("grace")) == 0
    assert team.roster.had_since(uid("nobody"), reader("people")) == 0


def test_a_void_entry_stays_in_the_chain_and_stops_nobody(team: Team) -> None:
    grace = team.join("grace", reader("people"))
    assert team.put(grace, Remove(uid("ada"))) is Void.RIGHT
    assert team.put(grace, [placement("people", "hers")]) is Void.RIGHT
    team.accept(team.ada, Remove(uid("grace")))
    assert names(team.roster.members()) == ["ada"]
    assert Roster(ORGANIZATION, team.entries).head == team.roster.head


def test_who_is_removed_signs_nothing_that_counts(team: Team) -> None:
    grace = team.join("grace", writer("people"))
    assert team.put(grace, [placement("people", "pets")]) is None
    team.accept(team.ada, Remove(uid("grace")))
    assert team.put(grace, [placement("people", "hers")]) is Void.SIGNATURE
    assert team.put(team.person("nobody"), Remove(uid("ada"))) is Void.SIGNATURE


def test_a_member_leaves_by_their_own_signature(team: Team) -> None:
    grace = team.join("grace", reader("people"))
    team.accept(grace, Remove(grace.id))
    assert names(team.roster.members()) == ["ada"]


def test_an_organization_is_never_without_an_owner(team: Team) -> None:
    assert team.put(team.ada, Remove(uid("ada"))) is Void.LAST_OWNER
    assert team.put(team.ada, again(team.ada)) is Void.LAST_OWNER
    team.join("grace")
    team.accept(team.ada, again(team.person("grace"), role=form.OWNER))
    team.accept(team.ada, Remove(uid("ada")))
    assert names(team.roster.owners()) == ["grace"]
    with pytest.raises(Conflict) as caught:
        grace = team.person("grace")
        sign_entry(team.roster, grace.identity, grace.id, NOW, Remove(grace.id))
    assert caught.value.reason == "last_owner"


def test_nobody_founds_an_organization_twice(team: Team) -> None:
    content = form.FoundingEntry(team.ada.identity.keys, "ada@example.org", bytes(32))
    assert team.put(team.ada, content) is Void.FOUNDED


def test_nobody_gets_the_keys_of_another_member(team: Team) -> None:
    grace = team.join("grace")
    team.accept(team.ada, Remove(grace.id))
    mallory = team.person("mallory")
    mallory.keyring = grace.keyring
    stolen = msgspec.structs.replace(
        mallory.standing(team.roster),
        keys=grace.identity.keys,
        proof=grace.identity.sign(
            "keys", team.roster.found, mallory.id, grace.identity.keys, b"a" * 32
        ),
        anchor=b"a" * 32,
    )
    assert team.put(team.ada, stolen) is Void.KEYS
    parts = mallory.identity.keys[:33] + grace.identity.keys[33:]
    assert team.put(team.ada, msgspec.structs.replace(stolen, keys=parts)) is Void.KEYS


def test_keys_without_a_right_proof_do_not_count(team: Team) -> None:
    grace = team.person("grace")
    right = grace.standing(team.roster)
    for wrong in (
        msgspec.structs.replace(right, proof=bytes(64)),
        msgspec.structs.replace(right, anchor=bytes(32)),
        msgspec.structs.replace(right, member=uid("alan")),
    ):
        assert team.put(team.ada, wrong) is Void.PROOF
    elsewhere = msgspec.structs.replace(
        right,
        proof=grace.identity.sign("keys", bytes(32), grace.id, right.keys, right.anchor),
    )
    assert team.put(team.ada, elsewhere) is Void.PROOF
    assert team.put(team.ada, msgspec.structs.replace(right, anchor=b"")) is Void.KEYS
    assert team.put(team.ada, again(grace)) is Void.KEYS
    with pytest.raises(KeysRefused):
        sign_entry(team.roster, team.ada.identity, team.ada.id, NOW, elsewhere)
    team.accept(team.ada, right)


def test_a_removed_member_comes_back_with_keys_only(team: Team) -> None:
    grace = team.join("grace", reader("people"))
    team.accept(team.ada, Remove(grace.id))
    assert team.put(team.ada, again(grace, reader("people"))) is Void.KEYS
    team.accept(team.ada, grace.standing(team.roster, reader("people")))


def test_a_service_never_owns_and_its_type_stays(team: Team) -> None:
    service = team.person("nightly").standing(team.roster, writer("people"))
    service = msgspec.structs.replace(service, type=form.SERVICE, expires=NOW + DAY)
    owning = msgspec.structs.replace(service, role=form.OWNER, shares=[])
    assert team.put(team.ada, owning) is Void.ROLE
    team.accept(team.ada, service)
    assert team.put(team.ada, again(team.person("nightly"))) is Void.ROLE
    assert due_services(team.roster, NOW) == []
    assert names(due_services(team.roster, NOW + DAY)) == ["nightly"]


def test_who_may_not_is_refused_by_name(team: Team) -> None:
    team.join("grace", reader("people"))

    def code(check: object, *arguments: object) -> str:
        assert callable(check)
        with pytest.raises(NotAllowed) as caught:
            check(team.roster, *arguments)
        return caught.value.reason

    assert code(roster.require_owner, uid("grace")) == "owners_only"
    assert code(roster.require_owner, uid("stranger")) == "not_admitted"
    assert code(roster.require_reader, uid("grace"), uid("rents")) == "not_shared"
    assert code(roster.require_writer, uid("grace"), uid("adults")) == "not_writer"
    roster.require_reader(team.roster, uid("grace"), uid("adults"))
    roster.require_owner(team.roster, uid("ada"))


def test_an_entry_that_breaks_form_or_chain_breaks_the_roster(team: Team) -> None:
    entry = team.sign(team.ada, Remove(uid("nobody")))
    body = form.read_entry(entry)
    number, head = team.roster.number, team.roster.head

    def broken(body: EntryBody) -> RosterEntry:
        encoded, openings = form.encode_entry_body(body)
        return RosterEntry(encoded, team.ada.identity.sign("roster", encoded), openings)

    def changed(**changes: object) -> RosterEntry:
        values = {name: getattr(body, name) for name in body.__slots__} | changes
        return broken(EntryBody(**values))

    for wrong in (
        changed(organization=uid("another")),
        changed(number=number),
        changed(number=number + 2),
        changed(previous=bytes(32)),
        RosterEntry(entry.body + b"\xc0", entry.signature, []),
        RosterEntry(b"", entry.signature, []),
    ):
        with pytest.raises(RosterBroken):
            team.roster.append(wrong)
    assert team.roster.head == head
    assert team.take(entry) is Void.ABSENT


def test_a_kind_or_format_of_another_version_is_unsupported(team: Team) -> None:
    entry = team.sign(team.ada, Remove(uid("ada")))
    at = entry.body.index(b"\xc4\x10" + uid("ada")) + 18
    assert entry.body[at] == form.REMOVE
    later = entry.body[:at] + b"\x07" + entry.body[at + 1 :]
    with pytest.raises(Unsupported):
        team.roster.append(RosterEntry(later, entry.signature, []))
    for number, hint in ((b"\x01", "with the version that made it"), (b"\x03", "newest version")):
        other = b"\x98" + number + entry.body[2:]
        for body in (other, other[:1] + number + b"\xc0" * 7):
            with pytest.raises(Unsupported) as refused:
                team.roster.append(RosterEntry(body, entry.signature, []))
            assert hint in refused.value.hint


def test_a_roster_begins_with_a_foundation_that_its_founder_has_signed() -> None:
    team = Team()
    first = team.entries[0]
    body = form.read_entry(first)
    other = team.person("grace").identity
    for entry in (
        RosterEntry(first.body, other.sign("roster", first.body), first.openings),
        RosterEntry(first.body, team.ada.identity.sign("grant", first.body), first.openings),
    ):
        with pytest.raises(RosterBroken):
            Roster(ORGANIZATION, [entry])
    removal = EntryBody(body.organization, 1, body.previous, NOW, team.ada.id, Remove(team.ada.id))
    encoded, _ = form.encode_entry_body(removal)
    signature = team.ada.identity.sign("roster", encoded)
    with pytest.raises(RosterBroken):
        Roster(ORGANIZATION, [RosterEntry(encoded, signature, [])])


def test_a_copy_goes_on_by_itself(team: Team) -> None:
    copy = team.roster.copy()
    before = team.roster.number
    team.join("grace", reader("people"))
    team.dataset("people", 2)
    team.place("people", "pets")
    assert copy.number == before
    assert names(copy.members()) == ["ada"]
    assert copy.schema(uid("pets")) is None
    assert copy.invitations() == []
    epoch = copy.epoch(uid("people"))
    assert epoch is not None and epoch.epoch == 1
    copy.extend(team.entries[before:])
    assert copy.head == team.roster.head


def test_entries_and_answers_have_the_lengths_that_the_figures_come_from() -> None:
    """Of names as these are: 1,001 members' entries are 1.6 MB."""
    team = Team()
    team.dataset("people")
    secret = team.invite("grace", reader("people"))
    answer = team.answer("grace", secret)
    team.accept(team.ada, admit(team.roster, answer, NOW))
    team.accept(team.ada, Remove(uid("grace")))
    lengths = [len(msgspec.msgpack.encode(entry)) for entry in [*team.entries, answer]]
    assert lengths == [1508, 273, 338, 1637, 168, 1474]

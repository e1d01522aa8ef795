"""A grant opens for the member it is for, and holds the keys that the roster commits to."""

from __future__ import annotations

import os

import msgspec
import pytest

from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.identity import Identity
from encrypted_records.crypto.keys import DatasetKey
from encrypted_records.errors import GrantBroken, KeyMissing, NotAllowed, Unsupported
from encrypted_records.index.roster.access import OpenedGrant, open_grant, seal_grant
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Grant, Remove
from tests.index.rosters import ORGANIZATION, Person, Team, again, reader, uid
from tests.reference.msgpack import pack


@pytest.fixture
def team() -> Team:
    """Ada owns ``people``, with two schemas; Grace reads it, Alan reads one of the schemas."""
    team = Team()
    team.dataset("people")
    team.dataset("bills")
    team.place("people", "adults", "children")
    team.join("grace", reader("people"))
    team.join("alan", reader("people", "adults"))
    return team


def opened(team: Team, name: str, grant: Grant, dataset: str = "people") -> OpenedGrant:
    person = team.person(name)
    return open_grant(team.roster, person.identity, person.id, uid(dataset), grant)


def test_a_reader_opens_the_keys_of_every_epoch_so_far(team: Team) -> None:
    team.dataset("people", 2)
    grant = opened(team, "grace", team.grant("grace", "people"))
    for epoch in (1, 2):
        own = team.keys[uid("people")][epoch].schema(uid("adults"))
        assert grant.schema(uid("adults"), epoch).hand_over() == own.hand_over()
    assert grant.epoch == 2
    with pytest.raises(KeyMissing):
        grant.schema(uid("adults"), 3)


def test_who_is_in_one_schema_gets_no_key_of_its_neighbours(team: Team) -> None:
    team.dataset("people", 2)
    grant = opened(team, "alan", team.grant("alan", "people"))
    assert grant.whole == {}
    own = team.keys[uid("people")][2].schema(uid("adults"))
    assert grant.schema(uid("adults"), 2).id == own.id
    with pytest.raises(KeyMissing):
        grant.schema(uid("children"), 2)


def test_a_grant_has_the_length_that_is_specified(team: Team) -> None:
    def size() -> int:
        return len(msgspec.msgpack.encode(team.grant("grace", "people")))

    assert size() == 1376
    team.dataset("people", 2)
    assert size() == 1376 + 34


def test_nobody_is_granted_what_the_roster_does_not_share(team: Team) -> None:
    for name, dataset in (("grace", "bills"), ("stranger", "people")):
        with pytest.raises(NotAllowed):
            team.grant(name, dataset)
    team.accept(team.ada, Remove(uid("grace")))
    with pytest.raises(NotAllowed):
        team.grant("grace", "people")
    with pytest.raises(KeyMissing):
        seal_grant(
            team.roster,
            team.ada.identity,
            team.ada.id,
            member=team.ada.id,
            dataset=uid("no such dataset"),
            keys={},
        )


def test_only_owners_seal_grants(team: Team) -> None:
    with pytest.raises(NotAllowed) as caught:
        team.grant("alan", "people", by="grace")
    assert caught.value.reason == "owners_only"


def test_a_grant_needs_the_key_of_every_epoch(team: Team) -> None:
    team.dataset("people", 2)
    del team.keys[uid("people")][1]
    with pytest.raises(KeyMissing):
        team.grant("grace", "people")


def test_a_grant_opens_nowhere_else(team: Team) -> None:
    team.accept(team.ada, again(team.person("alan"), reader("people"), reader("bills")))
    grant = team.grant("grace", "people")
    for name, dataset in (("alan", "people"), ("grace", "bills"), ("ada", "people")):
        with pytest.raises(GrantBroken):
            opened(team, name, grant, dataset)
    with pytest.raises(GrantBroken):
        person = team.person("grace")
        open_grant(team.roster, team.person("alan").identity, person.id, uid("people"), grant)


def test_only_an_owner_of_that_entry_grants(team: Team) -> None:
    grace = team.person("grace")
    forged = resigned(team, team.grant("alan", "people"), grace, actor=grace.id)
    with pytest.raises(GrantBroken, match="was not an owner"):
        opened(team, "alan", forged)
    team.accept(team.ada, again(grace, role=form.OWNER))
    early = resigned(team, team.grant("alan", "people"), grace, actor=grace.id, number=3)
    with pytest.raises(GrantBroken):
        opened(team, "alan", early)
    with pytest.raises(GrantBroken, match="signature"):
        opened(team, "alan", resigned(team, team.grant("alan", "people"), grace))


def resigned(team: Team, grant: Grant, signer: Person, **changes: object) -> Grant:
    """A grant with other statements, signed by somebody."""
    body = msgspec.structs.replace(form.read_grant(grant), **changes)
    if "number" in changes and "digest" not in changes:
        digest = team.roster.digest_at(body.number)
        assert digest is not None
        body = msgspec.structs.replace(body, digest=digest)
    encoded = form.encode_grant_body(body)
    return Grant(encoded, signer.identity.sign("grant", encoded))


def made(team: Team, plain: bytes, identity: Identity, **changes: object) -> Grant:
    """A grant for Grace of what an owner seals, whatever that is."""
    body = msgspec.structs.replace(form.read_grant(team.grant("grace", "people")), **changes)
    grace = team.roster.member(uid("grace"))
    assert grace is not None
    keys = team.roster.keys_of(grace)
    info = fmt.info(
        b"grant",
        ORGANIZATION,
        body.dataset,
        body.epoch.to_bytes(4, "big"),
        body.member,
        keys.digest,
        body.number.to_bytes(8, "big"),
        body.digest,
        body.actor,
    )
    sealed = msgspec.structs.replace(body, sealed=keys.seal(plain, info))
    encoded = form.encode_grant_body(sealed)
    return Grant(encoded, identity.sign("grant", encoded))


def test_a_grant_holds_the_keys_that_the_roster_commits_to(team: Team) -> None:
    key = team.keys[uid("people")][1].export()
    whole = bytes(16)
    right = [[whole, [], 1, [key]]]
    assert opened(team, "grace", made(team, pack(right), team.ada.identity)).whole
    for wrong in (
        [[whole, [], 1, [os.urandom(32)]]],
        [[whole, [], 2, [key]]],
        [[whole, [], 1, [key, key]]],
        [[whole, [], 1, []]],
        [*right, *right],
        [],
        [[whole, [], 1, [key[:31]]]],
        [[whole, [], 1, [key], 0]],
    ):
        with pytest.raises(GrantBroken):
            opened(team, "grace", made(team, pack(wrong), team.ada.identity))
    for plain in (pack(right) + b"\x00", b"", b"\x91" * 3000, os.urandom(100)):
        with pytest.raises(GrantBroken):
            opened(team, "grace", made(team, plain, team.ada.identity))


def test_a_grant_of_single_fields_is_of_a_later_version(team: Team) -> None:
    key = team.keys[uid("people")][1].export()
    plain = pack([[uid("adults"), [b"one"], 1, [key]]])
    with pytest.raises(Unsupported):
        opened(team, "grace", made(team, plain, team.ada.identity))


def test_a_grant_names_a_roster_that_has_its_epoch(team: Team) -> None:
    before = team.roster.number
    team.dataset("people", 2)
    plain = pack([[bytes(16), [], 1, [key.export() for key in team.keys[uid("people")].values()]]])
    assert opened(team, "grace", made(team, plain, team.ada.identity)).epoch == 2
    digest = team.roster.digest_at(before)
    early = made(team, plain, team.ada.identity, number=before, digest=digest)
    with pytest.raises(GrantBroken):
        opened(team, "grace", early)
    with pytest.raises(GrantBroken):
        opened(team, "grace", made(team, plain, team.ada.identity, epoch=3))
    with pytest.raises(GrantBroken):
        opened(team, "grace", made(team, plain, team.ada.identity, number=9999))
    with pytest.raises(GrantBroken):
        opened(team, "grace", made(team, plain, team.ada.identity, digest=bytes(32)))


def test_every_altered_byte_of_a_grant_breaks_it(team: Team) -> None:
    grant = team.grant("grace", "people")
    for at in range(0, len(grant.body), 7):
        body = grant.body[:at] + bytes((grant.body[at] ^ 1,)) + grant.body[at + 1 :]
        with pytest.raises((GrantBroken, Unsupported)):
            opened(team, "grace", Grant(body, grant.signature))
    for at in range(0, 64, 5):
        signature = bytearray(grant.signature)
        signature[at] ^= 1
        with pytest.raises(GrantBroken):
            opened(team, "grace", Grant(grant.body, bytes(signature)))


def test_an_older_grant_still_opens_the_older_epochs(team: Team) -> None:
    grant = team.grant("grace", "people")
    team.dataset("people", 2)
    assert set(opened(team, "grace", grant).whole) == {1}


def test_keys_of_two_epochs_owe_nothing_to_one_another() -> None:
    one = DatasetKey(bytes(32), organization=ORGANIZATION, dataset=uid("d"), epoch=1)
    two = DatasetKey(bytes(32), organization=ORGANIZATION, dataset=uid("d"), epoch=2)
    other = DatasetKey(bytes(32), organization=ORGANIZATION, dataset=uid("e"), epoch=1)
    assert len({one.commitment, two.commitment, other.commitment}) == 3
    assert one.schema(uid("s")).id != two.schema(uid("s")).id
    drawn = {DatasetKey.generate(ORGANIZATION, uid("d"), 1).export() for _ in range(8)}
    assert len(drawn) == 8
    assert repr(one) == "<DatasetKey>"

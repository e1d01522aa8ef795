"""The chain of a roster at the API: what it takes, what it refuses, and who wins."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from encrypted_records.errors import BadInput
from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.model.roster import RosterEntry
from tests.server.api import Account, Api
from tests.server.rosters import Person, Ring, found, share, standing
from tests.server.test_organizations import join
from tests.server.writer import FRAMES

INVALID = (400, "invalid_entry")
MOVED = (409, "roster_moved")


@pytest.fixture
def owner(api: Api) -> Account:
    return api.new_account()


@pytest.fixture
def ring(owner: Account) -> Ring:
    return found(owner)


def test_without_a_roster_nothing_is_listed_and_members_reach_all(
    owner: Account, guests: list[Account]
) -> None:
    guest = guests[0]
    join(owner, guest)
    dataset = owner.new_dataset()
    assert Ring(Person(owner)).entries(by=guest) == []
    assert guest.call("GET", dataset["url"]).status == 200


def test_entries_come_back_as_they_were_signed(ring: Ring) -> None:
    dataset = ring.owner.account.new_dataset()
    ring.begin(dataset)
    first, second = ring.entries()
    assert form.entry_digest(second) == ring.digest
    assert form.read_entry(second).previous == form.entry_digest(first)
    assert ring.entries(since=1) == [second]
    assert ring.entries(since=2) == []
    assert ring.entries(since=10**15) == []


def test_an_owner_founds_in_their_own_name_and_once(owner: Account, guests: list[Account]) -> None:
    guest = Person(guests[0])
    join(owner, guest.account)
    ring = Ring(Person(owner))
    content = form.FoundingEntry(guest.identity.keys, guest.account.email, os.urandom(32))
    assert ring.refuses(content, by=guest) == (403, "owners_only")
    # An owner hands in what a member signed: the member is no owner all the same.
    entry = ring.sign(content, by=guest)
    assert ring.refused(entry) == INVALID
    own = form.FoundingEntry(ring.owner.identity.keys, owner.email, os.urandom(32))
    first = ring.sign(own)
    assert ring.refused(ring.sign(own, number=2)) == MOVED
    ring.add(first)
    another = form.FoundingEntry(ring.owner.identity.keys, owner.email, os.urandom(32))
    assert ring.refuses(another) == MOVED
    ring.follow(first)
    assert ring.refuses(own) == INVALID
    assert ring.entries(by=guest.account) == [first]


def test_a_request_that_was_taken_is_answered_alike_again(ring: Ring) -> None:
    dataset = ring.owner.account.new_dataset()
    entries = ring.chain(ring.dataset(dataset))
    items = [*entries, ring.grant(dataset, ring.owner)]
    assert [ring.send(*items).status for _ in range(3)] == [201, 200, 200]
    ring.verify(entries)
    assert len(ring.entries()) == 2
    assert len(ring.grants_of(ring.owner)) == 1
    # A grant alone, too; and another of the same at the same place takes it.
    again = ring.grant(dataset, ring.owner)
    assert [ring.send(again).status for _ in range(2)] == [201, 200]
    assert ring.grants_of(ring.owner) == [form.read_grant(again)]


def test_what_does_not_follow_the_head_changes_nothing(ring: Ring) -> None:
    dataset = ring.owner.account.new_dataset()
    content = ring.dataset(dataset)
    grant = ring.grant(dataset, ring.owner)
    for entry in (
        ring.sign(content, previous=os.urandom(32)),
        ring.sign(content, number=ring.number),
        ring.sign(content, number=ring.number + 2),
    ):
        assert ring.refused(entry, grant) == MOVED
    other = ids.new_id()
    assert ring.refuses(content, organization=other) == INVALID
    first, second = ring.chain(content, content)
    assert ring.refused(second, first) == INVALID
    assert len(ring.entries()) == 1
    assert ring.grants_of(ring.owner) == []


def test_all_of_a_request_is_taken_or_nothing(ring: Ring) -> None:
    dataset = ring.owner.account.new_dataset()
    start = ring.number, ring.digest
    entries = ring.chain(ring.dataset(dataset), form.Remove(ids.new_id()))
    assert ring.refused(*entries, ring.grant(dataset, ring.owner)) == INVALID
    assert len(ring.entries()) == 1
    ring.number, ring.digest = start
    ring.begin(dataset)


@pytest.mark.parametrize("kind", ["grant", "keys", "commit", "checkpoint", "answer"])
def test_a_signature_of_another_kind_is_none(ring: Ring, kind: str) -> None:
    dataset = ring.owner.account.new_dataset()
    assert ring.refuses(ring.dataset(dataset), kind=kind) == INVALID


def test_forged_entries_are_refused(ring: Ring, guests: list[Account]) -> None:
    """By somebody else's key, in somebody else's name, altered, and by who is not in."""
    stranger = Person(guests[0])
    dataset = ring.owner.account.new_dataset()
    content = ring.dataset(dataset)
    assert ring.refused(ring.sign(content, by=stranger, actor=ring.owner.uid)) == INVALID
    assert ring.refused(ring.sign(content, by=stranger)) == INVALID
    entry = ring.sign(content)
    altered = ring.sign(ring.dataset(dataset))
    assert ring.refused(RosterEntry(altered.body, entry.signature, altered.openings)) == INVALID
    flipped = entry.signature[:40] + bytes([entry.signature[40] ^ 1]) + entry.signature[41:]
    assert ring.refused(RosterEntry(entry.body, flipped, entry.openings)) == INVALID
    assert len(ring.entries()) == 1


def test_a_stranger_meets_nothing(api: Api, ring: Ring, bob: Account) -> None:
    stranger = Person(bob)
    assert ring.refuses(form.Remove(ring.owner.uid), by=stranger) == (404, "not_found")
    for path in ("roster", "grants", "answers"):
        url = f"{ring.owner.account.organization}{path}/"
        assert bob.call("GET", url).status == 404
        assert api.call("GET", url).status == 401


def test_no_member_stops_the_others(ring: Ring, guests: list[Account]) -> None:
    """A member signs whatever a member cannot do; the roster goes on without it."""
    account = ring.owner.account
    dataset = account.new_dataset()
    ring.begin(dataset)
    grace = Person(guests[0])
    ring.join(grace, [share(dataset)])
    wanted: list[Any] = [
        ring.dataset(dataset, epoch=2),
        standing(grace, role=form.OWNER),
        form.Remove(ring.owner.uid),
        ring.invitation(Person(guests[1])).content,
    ]
    assert [ring.refuses(one, by=grace) for one in wanted] == [(403, "owners_only")] * 4
    # Nor as somebody else, nor what somebody else signed.
    own = ring.sign(ring.dataset(dataset))
    assert ring.refused(own, by=grace) == (403, "owners_only")
    assert ring.entries(since=ring.number) == []


@pytest.mark.both_databases
def test_of_two_owners_who_post_at_once_one_wins(ring: Ring, guests: list[Account]) -> None:
    hopper = Person(guests[0])
    ring.join(hopper)
    ring.add(ring.follow(ring.sign(standing(hopper, role=form.OWNER))))
    datasets = [ring.owner.account.new_dataset() for _ in range(2)]
    for _ in range(4):
        known = ring.number, ring.digest
        requests = []
        for by, dataset in zip((ring.owner, hopper), datasets, strict=True):
            ring.number, ring.digest = known
            entry = ring.follow(ring.sign(_next(ring, dataset), by))
            grants = [ring.grant(dataset, to, _epoch(entry), by=by) for to in (ring.owner, hopper)]
            requests.append((by, [entry, *grants]))
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda one: ring.send(*one[1], by=one[0]), requests))
        assert sorted(answer.status for answer in answers) == [201, 409]
        assert [answer.code for answer in answers if answer.status == 409] == ["roster_moved"]
        ring.number, ring.digest = known
        [won] = ring.entries(since=ring.number)
        ring.verify([ring.follow(won)])


def _next(ring: Ring, dataset: Any) -> form.DatasetName:
    """The epoch that follows what the roster says of a dataset."""
    past = [form.read_entry(entry).content for entry in ring.entries()]
    epochs = [
        one.epoch
        for one in past
        if isinstance(one, form.DatasetName) and ids.to_text(one.dataset) == dataset["id"]
    ]
    return ring.dataset(dataset, max(epochs, default=0) + 1)


def _epoch(entry: RosterEntry) -> int:
    content = form.read_entry(entry).content
    assert isinstance(content, form.DatasetName)
    return content.epoch


def test_a_megabyte_of_nonsense_is_refused(ring: Ring) -> None:
    account = ring.owner.account
    noise = os.urandom(1 << 20)
    head = b"ERS1"
    frames = [
        noise,
        head + noise,
        head + b"\x0a" + (len(noise)).to_bytes(4, "big") + noise,
        head + b"\x0b" + (len(noise)).to_bytes(4, "big") + noise,
        head + b"\x0a\xff\xff\xff\xff" + noise,
        wire.encode([RosterEntry(noise[: form.MAX_ENTRY_BYTES], noise[:64], [])]),
        wire.encode([form.Grant(noise, noise[:64])]),
        wire.encode([RosterEntry(b"\x91" * 100_000, noise[:64], [])]),
    ]
    for body in frames:
        answer = account.call("POST", ring.path, body, **FRAMES)
        assert answer.status in (400, 415), answer.body
        assert answer.code in ("malformed_frame", "unsupported")
    assert len(ring.entries()) == 1


def test_an_empty_request_changes_nothing(ring: Ring) -> None:
    assert ring.send().status == 200
    answer = ring.owner.account.call("POST", ring.path, **FRAMES)
    assert (answer.status, answer.code) == (400, "malformed_frame")


def test_limits_of_requests_and_entries_hold(ring: Ring) -> None:
    dataset = ring.owner.account.new_dataset()
    start = ring.number, ring.digest
    many = ring.chain(*([ring.dataset(dataset)] * 101))
    assert ring.refused(*many) == (413, "too_large")
    ring.number, ring.digest = start
    long = msgspec.structs.replace(
        ring.dataset(dataset), ends=[form.End(ids.new_id(), 0, bytes(32))] * 5000
    )
    assert ring.refuses(long)[0] == 400
    # As many frames as fit into the body are decoded, and no more are taken.
    grants = [ring.grant(dataset, ring.owner)] * 10_001
    assert ring.refused(*grants) == (413, "too_large")


@pytest.mark.both_databases
def test_a_name_that_no_database_holds_is_refused(ring: Ring) -> None:
    dataset = ring.owner.account.new_dataset()
    ring.begin(dataset)
    assert ring.refuses(ring.dataset(dataset, commitment=bytes(32), name="n" * 201)) == INVALID
    wrong: list[dict[str, Any]] = [{"name": "nul\0"}, {"slug": ""}, {"name": ""}, {"slug": "a b"}]
    for changes in wrong:
        with pytest.raises(BadInput):
            ring.sign(ring.dataset(dataset, **changes))

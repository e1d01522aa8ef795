"""A checkpoint and the log after it give what the whole log gives; no other checkpoint is taken.

The API is as dishonest as it can be here: it hands out what anybody who has the key has made.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.crypto.keys import Keyring
from encrypted_records.errors import CheckpointBroken, LogBroken
from encrypted_records.index.log import checkpoint as checkpoint_module
from encrypted_records.index.log import checkpoint as taking
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.order import LogHead
from encrypted_records.model import roster as form
from encrypted_records.model import wire
from encrypted_records.model.ids import new_id
from encrypted_records.model.records import LogEntry
from encrypted_records.model.wire import Checkpoint, CheckpointBody
from tests.index.rosters import Person, reader, uid, writer
from tests.index.test_ledger_state import TEXT, facts, restored
from tests.index.test_rotation import keys_of, rotated
from tests.index.test_signed_logs import Place, extend
from tests.index.world import Row, World

WIDER = TEXT.replace('"maximum": 9', '"maximum": 99')
DAY = 86_400_000


def now() -> int:
    return time.time_ns() // 1_000_000


def made(ledger: Ledger, since: int = 0) -> Checkpoint:
    return taking.make(ledger, ledger.state(), since)


def taken(checkpoint: Checkpoint, ledger: Ledger) -> Ledger:
    """As somebody takes it who has the keys and the roster of ``ledger``."""
    return taking.take(checkpoint, ledger.keys, new_id(), ledger.membership, now())


def contents(ledger: Ledger) -> bytes:
    return checkpoint_module.encode(ledger.state(), requests_since=0, ends={})


def go_on(ledger: Ledger, world: World) -> None:
    ledger.extend(world.delta(world.log[ledger.version :], len(world.log)))


def step(world: World, living: list[Row], sizes: list[int], data: st.DataObject) -> list[Row]:
    """One commit; the rows that live after it."""
    kinds = ["ingest", "kill", "merge", "end", "change"] if living else ["ingest"]
    kind = data.draw(st.sampled_from(kinds))
    if kind == "ingest":
        rows: list[dict[str, Any]] = [{"n": 1}] * data.draw(st.integers(1, 3))
        world.ingest(rows)
        living = living + [(len(sizes), ordinal) for ordinal in range(len(rows))]
        sizes.append(len(rows))
    elif kind == "kill":
        doomed = data.draw(st.lists(st.sampled_from(living), min_size=1, unique=True))
        world.kill(doomed)
        living = [row for row in living if row not in doomed]
    elif kind == "end":
        total = sum(sizes)
        cuts = data.draw(st.sets(st.integers(1, total - 1), max_size=2)) if total > 1 else set()
        places = [sum(sizes[:group]) + at for group, at in living]
        world.end(cuts=sorted(cuts))
        ends = [0, *sorted(cuts), total]
        sizes[:] = [end - first for first, end in pairwise(ends)]
        groups = [bisect_right(ends, at) - 1 for at in places]
        living = [(group, at - ends[group]) for at, group in zip(places, groups, strict=True)]
    elif kind == "change" and world.definition.fields["n"].numbers.maximum < 99:
        world.change(WIDER)
    elif len(world.ledger.snapshot().segments) > 1:
        world.merge()
    return living


@given(st.data())
def test_a_checkpoint_and_what_comes_after_it_are_the_whole_log(data: st.DataObject) -> None:
    world = World(TEXT)
    living: list[Row] = []
    sizes: list[int] = []
    begun: list[Ledger] = []
    for _ in range(data.draw(st.integers(1, 8))):
        living = step(world, living, sizes, data)
        for ledger in begun:
            go_on(ledger, world)
        if data.draw(st.booleans()):
            # Also through what a proxy keeps on disk of a log that began with a checkpoint.
            begun.append(restored(taken(made(world.ledger), world.ledger)))
    for ledger in begun:
        assert ledger.begun is not None
        ledger._headers = world.ledger.snapshot().headers
        assert ledger.head == world.ledger.head
        assert ledger.heads() == world.ledger.heads()
        assert facts(ledger.snapshot()) == facts(world.ledger.snapshot())
        assert ledger.past == world.ledger.past
        assert contents(ledger) == contents(world.ledger)
        taking.require_equal(ledger, world.ledger.state())
        # What it seals next is taken by those who read the whole log.
        world.ledger = ledger
        world.ingest([{"n": 2}])
        assert contents(restored(ledger)) == contents(ledger)
        break


def small() -> World:
    world = World(TEXT)
    world.ingest([{"n": 1}, {"n": 2}])
    world.ingest([{"n": 3}])
    world.kill([(0, 1)])
    return world


def test_of_a_rotated_log_the_newest_keys_are_asked_for() -> None:
    first = Keyring.generate()
    world = World(TEXT, keys_of(first))
    world.ingest([{"n": 1}])
    early = made(world.ledger)
    second = first.rotate()
    rotated(world, keys_of(second))
    world.ingest([{"n": 2}])
    ledger = taken(made(world.ledger), world.ledger)
    assert ledger.tails.id == keys_of(first).of(1).id
    assert ledger.key.version == 2
    # Whoever has the old key alone must not be able to make one that counts.
    with pytest.raises(CheckpointBroken, match="not of the newest keys"):
        taken(early, world.ledger)


def test_requests_that_a_checkpoint_does_not_name_are_looked_for_in_the_log() -> None:
    world = World(TEXT)
    old, young = bytes(16), new_id()
    for request in (old, young):
        world.apply(world.ledger.draft(world.definition, requests=[request]))
    ledger = taken(made(world.ledger, since=now() - 7 * DAY), world.ledger)
    assert ledger.has_request(young)
    assert not ledger.has_request(old)
    assert ledger.forgets(old)
    assert not ledger.forgets(young)
    assert not ledger.forgets(new_id())
    entry = LogEntry(3, world.ledger.draft(world.definition, requests=[bytes(15) + b"1"]).commit)
    with pytest.raises(LogBroken, match="may already be stored"):
        ledger.extend(world.delta([entry], 3))
    taking.require_equal(ledger, world.ledger.state())


def test_one_that_would_let_requests_be_stored_twice_is_refused() -> None:
    world = small()
    with pytest.raises(CheckpointBroken, match="requests"):
        taken(made(world.ledger, since=now() - DAY), world.ledger)


def test_the_way_from_what_was_seen_to_a_checkpoint_is_proven() -> None:
    world = small()
    ledger = taken(made(world.ledger), world.ledger)
    for version in range(3):
        seen = LogHead(version, world.ledger.digest_at(version) or b"")
        taking.prove_passage(ledger, seen, world.log[version:])
        assert ledger.knows(seen)
    other = LogHead(1, bytes(32))
    for seen, between in [
        (other, world.log[1:]),
        (LogHead(1, world.ledger.digest_at(1) or b""), world.log[2:]),
        (LogHead(1, world.ledger.digest_at(1) or b""), world.log[1:2]),
    ]:
        with pytest.raises(CheckpointBroken, match="that was seen"):
            taking.prove_passage(ledger, seen, between)


def test_headers_that_come_without_a_commit_are_seen_at_once() -> None:
    world = small()
    ledger = taken(made(world.ledger), world.ledger)
    assert not ledger.snapshot().has_headers
    ledger.extend(world.delta([], len(world.log)))
    assert ledger.snapshot().has_headers


def forged(world: World, **changes: Any) -> Checkpoint:
    """What somebody makes who has the key and no scruples."""
    honest = made(world.ledger)
    body = msgspec.structs.replace(wire.decode_checkpoint_body(honest), **changes)
    encoded = wire.encode_checkpoint_body(body)
    return Checkpoint(encoded, world.key.checkpoint.compute(encoded), b"")


def body_of(world: World) -> CheckpointBody:
    return wire.decode_checkpoint_body(made(world.ledger))


def with_state(at: int, change: Callable[[Any], Any]) -> Callable[[World], Checkpoint]:
    """Of the state, one member changed."""

    def forge(world: World) -> Checkpoint:
        members = msgspec.msgpack.decode(body_of(world).state)
        members[at] = change(members[at])
        return forged(world, state=msgspec.msgpack.encode(members))

    return forge


FORGED: dict[str, Callable[[World], Checkpoint]] = {
    "of another schema": lambda world: forged(world, schema=new_id()),
    "under another key id": lambda world: forged(world, key_id=bytes(8)),
    "of an older key": lambda world: forged(world, key_version=7),
    "of another version": lambda world: forged(world, version=2),
    "of a version that nobody reaches": lambda world: forged(world, version=2**62),
    "of another digest": lambda world: forged(world, digest=bytes(32)),
    "that names a roster": lambda world: forged(world, roster=1),
    "by a member of no roster": lambda world: forged(world, member=new_id()),
    "without a state": lambda world: forged(world, state=b""),
    "with a part of its state": lambda world: forged(world, state=body_of(world).state[:-1]),
    "with nonsense for a state": lambda world: forged(world, state=b"\xc1" * (1 << 20)),
    "with fewer digests": with_state(0, lambda digests: digests[32:]),
    "with a part of a digest": with_state(0, lambda digests: digests[1:]),
    "that began elsewhere": with_state(5, lambda epochs: [[2, epochs[0][1]]]),
    "without an epoch": with_state(5, lambda _: []),
    "under a key that is not here": with_state(2, lambda first: [1, bytes(8)]),
    "without a definition": with_state(6, lambda _: []),
    "with another definition": with_state(6, lambda _: [b"{}"]),
    "with no usable definition": with_state(7, lambda _: []),
    "with a part of a writer": with_state(11, lambda writers: writers[1:]),
    "with groups of no shape": with_state(15, lambda _: []),
    "with fewer groups": with_state(
        16, lambda groups: [group[: len(group) // 2] for group in groups]
    ),
    "with a part of a group": with_state(16, lambda groups: [groups[0][1:], *groups[1:]]),
    "with groups of no rows": with_state(16, lambda one: [*one[:2], bytes(8), *one[3:]]),
    "without a segment": with_state(17, lambda _: []),
    "with a segment twice": with_state(17, lambda one: [*one, one[0]]),
    "with other counts": with_state(17, lambda one: [[*one[0][:3], 9, *one[0][4:]], *one[1:]]),
    "with dead rows beyond a group": with_state(18, lambda one: [[one[0][0], [[2, 9]]]]),
    "with dead rows of no group": with_state(18, lambda _: [[bytes(16), [[0, 1]]]]),
    "with dead rows out of order": with_state(18, lambda one: [[one[0][0], [[1, 1], [0, 1]]]]),
    "with deaths of no group": with_state(19, lambda _: [[bytes(16), [[1, 1]]]]),
    "that lays groups elsewhere": with_state(22, lambda _: [[bytes(16), [[bytes(16), 0]]]]),
}


@pytest.mark.parametrize("why", FORGED)
def test_a_checkpoint_that_cannot_be_one_is_refused(why: str) -> None:
    world = small()
    with pytest.raises(CheckpointBroken):
        taken(FORGED[why](world), world.ledger)


@given(st.data())
def test_no_altered_or_truncated_one_is_taken(data: st.DataObject) -> None:
    world = small()
    honest = made(world.ledger)
    whole = bytearray(honest.body)
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    for body in (bytes(whole), honest.body[:at]):
        with pytest.raises(CheckpointBroken):
            taken(Checkpoint(body, honest.mac, b""), world.ledger)
    with pytest.raises(CheckpointBroken, match="authentic"):
        taken(Checkpoint(honest.body, bytes(32), b""), world.ledger)


LIES: dict[str, Callable[[World], Checkpoint]] = {
    "a dead row that lives": with_state(18, lambda _: []),
    "a request that was not made": with_state(13, lambda _: new_id()),
    "another time of the last change": with_state(21, lambda last: last + 1),
    "another writer": with_state(11, lambda writers: bytes(16) + writers[16:]),
    "other digests of rows": with_state(16, lambda one: [*one[:4], bytes(len(one[4]))]),
}


@pytest.mark.parametrize("lie", LIES)
def test_whoever_has_lied_is_found_by_a_comparison_with_the_log(lie: str) -> None:
    world = small()
    forgery = LIES[lie](world)
    if lie == "a dead row that lives":
        body = wire.decode_checkpoint_body(forgery)
        members = msgspec.msgpack.decode(body.state)
        members[19] = []
        forgery = forged(world, state=msgspec.msgpack.encode(members))
    claimed = taken(forgery, world.ledger)
    with pytest.raises(CheckpointBroken, match="version 3"):
        taking.require_equal(claimed, world.ledger.state())


# --- where there is a roster --------------------------------------------------------------------


@pytest.fixture
def place() -> Place:
    place = Place()
    for _ in range(3):
        place.add(place.draft(place.team.ada))
    return place


def by(place: Place, person: Person) -> Checkpoint:
    """What somebody signs who has verified the log, as the roster is by now."""
    ledger = place.ledger(person)
    extend(ledger, place.log)
    return made(ledger)


def test_checkpoints_of_owners_and_writers_are_taken(place: Place) -> None:
    grace = place.team.join("grace", writer("people"))
    alan = place.team.join("alan", writer("people", "adults"))
    for person in (place.team.ada, grace, alan):
        ledger = taken(by(place, person), place.ledger(place.team.ada))
        assert ledger.begun is not None
        assert ledger.begun.member == person.id
        assert ledger.head == place.read().head
    place.add(place.draft(grace))
    extend(ledger, place.log)
    taking.require_equal(ledger, place.read().state())


def refused(place: Place, checkpoint: Checkpoint, why: str) -> None:
    with pytest.raises(CheckpointBroken, match=why):
        taken(checkpoint, place.ledger(place.team.ada))


def test_one_of_a_reader_is_refused(place: Place) -> None:
    grace = place.team.join("grace", reader("people"))
    refused(place, by(place, grace), "cannot write")


def test_one_of_a_stranger_is_refused(place: Place) -> None:
    refused(place, by(place, place.team.person("mallory")), "cannot write")


def test_one_of_a_writer_who_was_removed_is_refused_however_old_it_is(place: Place) -> None:
    grace = place.team.join("grace", writer("people"))
    honest = by(place, grace)
    place.team.accept(place.team.ada, form.Remove(grace.id))
    refused(place, honest, "cannot write")


def test_one_of_an_epoch_that_ended_is_refused(place: Place) -> None:
    early = by(place, place.team.ada)
    place.team.dataset("people", 2, place.end())
    refused(place, early, "not of the newest keys")
    late = taken(by(place, place.team.ada), place.ledger(place.team.ada))
    place.add(place.draft(place.team.ada))
    extend(late, place.log)
    assert late.version == 4


def test_one_with_another_signature_is_refused(place: Place) -> None:
    grace = place.team.join("grace", writer("people"))
    honest = by(place, grace)
    digest = wire.checkpoint_digest(honest)
    for signature in (
        b"",
        bytes(64),
        place.team.ada.identity.sign("checkpoint", digest),
        grace.identity.sign("commit", digest),
    ):
        refused(place, Checkpoint(honest.body, honest.mac, signature), "signature")


def test_one_that_names_another_roster_is_refused(place: Place) -> None:
    honest = by(place, place.team.ada)
    for changes in ({"roster_digest": bytes(32)}, {"roster": 99}, {"roster": 1}):
        body = msgspec.structs.replace(wire.decode_checkpoint_body(honest), **changes)
        encoded = wire.encode_checkpoint_body(body)
        ledger = place.ledger(place.team.ada)
        bare = Checkpoint(encoded, ledger.key.checkpoint.compute(encoded), b"")
        signature = place.team.ada.identity.sign("checkpoint", wire.checkpoint_digest(bare))
        refused(place, Checkpoint(bare.body, bare.mac, signature), "roster")


def test_one_that_is_not_signed_is_refused_where_there_is_a_roster(place: Place) -> None:
    world = small()
    with pytest.raises(CheckpointBroken):
        taken(made(world.ledger), place.ledger(place.team.ada))
    with pytest.raises(CheckpointBroken):
        taking.take(by(place, place.team.ada), world.keys, new_id(), None, now())


def test_what_epochs_say_of_where_the_log_stood_is_held_against_it(place: Place) -> None:
    honest = by(place, place.team.ada)
    assert uid("adults") == wire.decode_checkpoint_body(honest).schema
    place.team.dataset("people", 2, place.end(2))
    ledger = place.ledger(place.team.ada)
    assert ledger.keys.newest.version == 2
    body = msgspec.structs.replace(
        wire.decode_checkpoint_body(honest), key_version=2, key_id=ledger.keys.newest.id
    )
    encoded = wire.encode_checkpoint_body(body)
    bare = Checkpoint(encoded, ledger.key.checkpoint.compute(encoded), b"")
    signature = place.team.ada.identity.sign("checkpoint", wire.checkpoint_digest(bare))
    refused(place, Checkpoint(bare.body, bare.mac, signature), "ended")

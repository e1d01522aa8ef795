"""A keyring is rotated while a log goes on: answers stay right, and no key takes a log over."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.crypto.keys import Keyring, SchemaKeys
from encrypted_records.errors import KeyMissing, LogBroken
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.ingest.seal import seal
from encrypted_records.model import wire
from encrypted_records.model.ids import new_id
from encrypted_records.model.records import Commit, CommitUpload, LogEntry
from tests.index.strategies import Case, cases
from tests.index.test_answers_equal_the_oracle import may_be_unsure, truth
from tests.index.world import Row, World

TEXT = '{"type": "object", "properties": {"a": {"type": "string"}}}'
#: Two strings whose index keys differ in their tails alone.
LONG, LONGER = "x" * 60, "x" * 61
replace = msgspec.structs.replace
ORGANIZATION, SCHEMA = new_id(), new_id()


def keys_of(keyring: Keyring) -> SchemaKeys:
    return keyring.schema(ORGANIZATION, SCHEMA)


def rotated(world: World, keys: SchemaKeys) -> None:
    """The same log, read from its beginning by a holder of these keys."""
    world.keys = keys
    world.ledger = Ledger(keys, new_id())
    world.ledger.extend(world.delta(world.log, len(world.log)))


@given(cases(), st.data())
def test_rotations_between_ingests_deaths_and_merges_change_no_answer(
    case: Case, data: st.DataObject
) -> None:
    keyring = Keyring.generate()
    world = World(case.text, keys_of(keyring))
    dead: set[Row] = set()
    for sequence, group in enumerate(case.groups):
        world.ingest(group)
        rows = [(sequence, ordinal) for ordinal in range(len(group))]
        doomed = data.draw(st.lists(st.sampled_from(rows), unique=True))
        if doomed:
            world.kill(doomed)
            dead.update(doomed)
        for _ in range(data.draw(st.integers(0, 2))):
            keyring = keyring.rotate()
            rotated(world, keys_of(keyring))
        if data.draw(st.booleans()):
            world.merge()
            (segment,) = world.ledger.snapshot().segments
            assert segment.key_version == keyring.newest

    for where in case.asked:
        certain, possible = world.ask(where)
        expected = truth(case, where) - dead
        assert certain <= expected <= possible
        if not may_be_unsure(where, case):
            assert certain == possible
    for sequence, group in enumerate(case.groups):
        for ordinal, record in enumerate(group):
            opened = world.open((sequence, ordinal)).data
            assert opened.keys() == {name for name, value in record.items() if value is not None}


def test_equal_long_strings_stay_equal_across_versions_before_and_after_merging() -> None:
    keyring = Keyring.generate()
    world = World(TEXT, keys_of(keyring))
    world.ingest([{"a": LONG}])
    rotated(world, keys_of(keyring.rotate()))
    world.ingest([{"a": LONGER}, {"a": LONG}])
    for _ in range(2):
        assert world.ask({"field": "a", "op": "eq", "value": LONG})[0] == {(0, 0), (1, 1)}
        assert world.ask({"field": "a", "op": "eq", "value": LONGER})[0] == {(1, 0)}
        world.merge()


def test_what_was_rotated_in_cannot_be_read_without_it_and_the_rest_stands() -> None:
    keyring = Keyring.generate()
    world = World(TEXT, keys_of(keyring))
    world.ingest([{"a": "x"}])
    old, newer = Ledger(world.keys, new_id()), keyring.rotate()
    rotated(world, keys_of(newer))
    world.ingest([{"a": "y"}])

    with pytest.raises(KeyMissing, match=f"{world.key.id.hex()} of keyring version 2"):
        old.extend(world.delta(world.log, 2))
    assert old.version == 1
    apart = Ledger(keys_of(keyring.rotate()), new_id())
    with pytest.raises(KeyMissing, match="version 2 of this keyring is another"):
        apart.extend(world.delta(world.log, 2))


def a_log_of_versions_one_and_two() -> World:
    """A commit under version 1, then one under version 2; the keyring has a third version."""
    keyring = Keyring.generate()
    world = World(TEXT, keys_of(keyring))
    world.ingest([{"a": "x"}])
    keyring = keyring.rotate()
    rotated(world, keys_of(keyring))
    world.ingest([{"a": "y"}])
    keyring = keyring.rotate()
    rotated(world, keys_of(keyring))
    return world


def drafted(world: World, version: int, seen: int) -> CommitUpload:
    """What the holder of the keyring up to ``version`` makes who has read the log up to ``seen``.

    Such a writer is honest: it may not know how the log goes on.
    """
    writer = Ledger(_Only(world.keys, version), new_id())
    writer.extend(world.delta(world.log[:seen], seen))
    return seal(writer, world.definition, world.plain([{"a": "z"}])).upload


class _Only(SchemaKeys):
    """The keys of a schema as if the keyring ended at one of its versions."""

    def __init__(self, keys: SchemaKeys, newest: int) -> None:
        self.__dict__.update(vars(keys))
        self._newest = newest

    @property
    def newest(self) -> Any:
        return self.of(self._newest)


@pytest.mark.parametrize(
    ("version", "seen", "refusal"),
    [
        (1, 1, "goes back"),
        (1, 0, "goes back"),
        (2, 0, "how the log begins"),
        (2, 1, None),
        (2, 2, None),
        (3, 0, "the one before"),
        (3, 1, "the one before"),
        (3, 2, None),
    ],
)
def test_key_versions_never_fall_and_rise_only_for_who_knows_the_one_before(
    version: int, seen: int, refusal: str | None
) -> None:
    world = a_log_of_versions_one_and_two()
    upload = drafted(world, version, seen)
    if refusal is None:
        world.apply(upload)
        assert world.ask({"field": "a", "op": "in", "value": ["x", "y", "z"]})[0] == {
            *((0, 0), (1, 0), (2, 0))
        }
        return
    with pytest.raises(LogBroken, match=refusal):
        world.apply(upload)
    assert world.ledger.version == 2


def test_writers_that_began_at_once_share_a_log_of_one_version() -> None:
    world = World(TEXT, keys_of(Keyring.generate()))
    uploads = [
        seal(Ledger(world.keys, new_id()), world.definition, world.plain([{"a": LONG}])).upload
        for _ in range(2)
    ]
    for upload in uploads:
        world.apply(upload)
    assert world.ask({"field": "a", "op": "eq", "value": LONG})[0] == {(0, 0), (1, 0)}


def test_an_unrelated_keyring_takes_no_log_over_however_new_its_version() -> None:
    world = World(TEXT, keys_of(Keyring.generate()))
    world.ingest([{"a": "x"}])
    alien = Ledger(keys_of(Keyring.generate().rotate().rotate()), new_id())
    upload = seal(alien, world.definition, world.plain([{"a": "z"}])).upload
    with pytest.raises(KeyMissing):
        world.apply(upload)
    # Were it to claim that it had seen the log, still nobody here could be made to believe it.
    body = replace(
        wire.decode_commit_body(upload.commit), seen=1, seen_digest=world.ledger.head.digest
    )
    encoded = wire.encode_commit_body(body)
    entry = LogEntry(2, Commit(encoded, alien.key.log.compute(encoded), b""))
    with pytest.raises(KeyMissing, match=f"{alien.key.id.hex()} of keyring version 3"):
        world.ledger.extend(world.delta([entry], 2))

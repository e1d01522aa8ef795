"""A log is taken as a whole, verified, or not at all; it never just gets shorter."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import BadInput, KeyMissing, LogBroken, Unsupported
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.order import EMPTY_DIGEST, LogHead
from encrypted_records.model import wire
from encrypted_records.model.ciphertext_lengths import LeastClass
from encrypted_records.model.ids import new_id
from encrypted_records.model.records import Commit, LogEntry, ManifestDelta
from tests.index.world import World, new_keys

TEXT = (
    '{"type": "object", "properties": {"a": {"type": "string"},'
    ' "n": {"type": "integer", "minimum": 0, "maximum": 9}}}'
)


@pytest.fixture(scope="module")
def world() -> World:
    """Five commits: two ingests, deaths, a merge, an ingest."""
    world = World(TEXT)
    world.ingest([{"a": "x", "n": 1}, {"a": "y"}, {"n": 3}])
    world.ingest([{"a": "z"}])
    world.kill([(0, 1)])
    world.merge()
    world.ingest([{"n": 9}, {"n": 0}])
    return world


def replay(world: World, entries: list[LogEntry], version: int | None = None) -> Ledger:
    """A newcomer's ledger after reading these entries from the wire."""
    ledger = Ledger(world.keys, new_id())
    delta = world.delta(entries, len(entries) if version is None else version)
    ledger.extend(wire.decode_single(wire.encode([delta]), ManifestDelta))
    return ledger


def renumbered(entries: list[LogEntry]) -> list[LogEntry]:
    """As a server would number them to hide what it did."""
    return [LogEntry(version, entry.commit) for version, entry in enumerate(entries, 1)]


def test_an_honest_log_gives_every_reader_the_same_state(world: World) -> None:
    reader = replay(world, world.log)
    assert reader.head == world.ledger.head
    assert reader.snapshot() == world.ledger.snapshot()
    assert reader.snapshot().count == 5


def test_a_log_read_in_pieces_is_the_log_read_at_once(world: World) -> None:
    reader = replay(world, world.log[:2])
    for entry in world.log[2:]:
        reader.extend(world.delta([entry], entry.version))
    assert reader.head == world.ledger.head
    reader.extend(world.delta([], reader.version))
    assert reader.snapshot() == world.ledger.snapshot()


@pytest.mark.parametrize("at", range(4))
def test_a_dropped_commit_breaks_the_log(world: World, at: int) -> None:
    kept = world.log[:at] + world.log[at + 1 :]
    with pytest.raises(LogBroken, match="gap"):
        replay(world, kept, 5)
    with pytest.raises(LogBroken):
        replay(world, renumbered(kept))


@pytest.mark.parametrize("at", range(4))
def test_two_commits_in_the_wrong_order_break_the_log(world: World, at: int) -> None:
    swapped = list(world.log)
    swapped[at], swapped[at + 1] = swapped[at + 1], swapped[at]
    with pytest.raises(LogBroken):
        replay(world, renumbered(swapped))


@pytest.mark.parametrize("at", range(5))
def test_a_replayed_commit_breaks_the_log(world: World, at: int) -> None:
    with pytest.raises(LogBroken):
        replay(world, renumbered([*world.log, world.log[at]]))


def test_a_log_that_ends_elsewhere_than_it_says_is_broken(world: World) -> None:
    for version in (4, 6):
        with pytest.raises(LogBroken, match="version it claims"):
            replay(world, world.log, version)


def test_a_log_of_another_schema_is_broken(world: World) -> None:
    other = World(TEXT)
    with pytest.raises(LogBroken, match="another schema"):
        world.ledger.extend(other.delta([], 0))


def test_a_commit_authenticated_under_another_key_breaks_the_log(world: World) -> None:
    body = world.log[0].commit.body
    foreign = Commit(body, new_keys().newest.log.compute(body), b"")
    with pytest.raises(LogBroken, match="authentic"):
        replay(world, [LogEntry(1, foreign)])


@given(st.data())
def test_no_altered_byte_of_a_log_goes_unnoticed(data: st.DataObject) -> None:
    """It is refused, or it was none that the state depends on."""
    world = _SHARED
    body = bytearray(wire.encode([world.delta(world.log, len(world.log))]))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    ledger = Ledger(world.keys, new_id())
    try:
        ledger.extend(wire.decode_single(bytes(body), ManifestDelta))
    except (LogBroken, KeyMissing, BadInput, Unsupported):
        # Also where only the delta's own version is another than that of its last commit.
        assert ledger.version < len(world.log) or ledger.head == world.ledger.head
    else:
        assert ledger.head == world.ledger.head


_SHARED = World(TEXT)
_SHARED.ingest([{"a": "x"}])
_SHARED.ingest([{"a": "y"}])


def test_a_broken_log_leaves_the_ledger_where_the_last_good_commit_left_it(world: World) -> None:
    ledger = Ledger(world.keys, new_id())
    altered = Commit(world.log[2].commit.body, bytes(32), b"")
    entries = [*world.log[:2], LogEntry(3, altered), *world.log[3:]]
    with pytest.raises(LogBroken):
        ledger.extend(world.delta(entries, 5))
    assert ledger.head == replay(world, world.log[:2]).head
    ledger.extend(world.delta(world.log[2:], 5))
    assert ledger.snapshot() == world.ledger.snapshot()


@pytest.mark.parametrize("stated", [LeastClass(16, 0), LeastClass(32, 1), LeastClass(48, 0)])
def test_the_classes_that_a_group_states_are_the_writers_word(
    world: World, stated: LeastClass
) -> None:
    """An API that states others for a group would have readers take other lengths."""
    entry = world.log[0]
    body = wire.decode_commit_body(entry.commit)
    (group,) = body.groups
    assert group.classes != [stated]
    other = msgspec.structs.replace(group, classes=[stated] * len(group.classes))
    altered = wire.encode_commit_body(msgspec.structs.replace(body, groups=[other]))
    with pytest.raises(LogBroken, match="authentic"):
        replay(world, [LogEntry(1, Commit(altered, entry.commit.mac, b"")), *world.log[1:]])


def test_a_remembered_head_is_missing_from_a_log_that_was_rolled_back(world: World) -> None:
    head = world.ledger.head
    assert replay(world, world.log).knows(head)
    for length in range(5):
        assert not replay(world, world.log[:length]).knows(head)


def test_a_remembered_head_is_missing_from_a_log_that_went_another_way(world: World) -> None:
    fork = World(TEXT, world.keys)
    for _ in range(6):
        fork.ingest([{"a": "instead"}])
    assert not fork.ledger.knows(world.ledger.head)
    assert fork.ledger.knows(LogHead(0, EMPTY_DIGEST))


def test_drafting_changes_nothing_until_the_commit_is_in_the_log(world: World) -> None:
    ledger = replay(world, world.log)
    before = ledger.head
    bodies = [wire.decode_commit_body(ledger.draft(world.definition).commit) for _ in range(2)]
    assert ledger.head == before
    assert [body.counter for body in bodies] == [1, 1]
    assert bodies[0].id != bodies[1].id
    assert {body.seen for body in bodies} == {5}


def test_of_two_commits_with_one_counter_only_one_can_stand(world: World) -> None:
    ledger = replay(world, world.log)
    first, second = (ledger.draft(world.definition).commit for _ in range(2))
    ledger.extend(world.delta([LogEntry(6, first)], 6))
    with pytest.raises(LogBroken, match="writer"):
        ledger.extend(world.delta([LogEntry(7, second)], 7))


def test_writers_that_take_turns_each_keep_their_own_chain(world: World) -> None:
    log = list(world.log)
    one, other = replay(world, log), replay(world, log)
    for turn in range(4):
        commit = (one, other)[turn % 2].draft(world.definition).commit
        log.append(LogEntry(len(log) + 1, commit))
        for reader in (one, other):
            reader.extend(world.delta(log[-1:], len(log)))
    assert one.head == other.head == replay(world, log).head


def test_a_view_stays_as_it_was_taken() -> None:
    world = World(TEXT)
    world.ingest([{"a": "x"}, {"a": "y"}])
    snapshot = world.ledger.snapshot()
    groups = dict(snapshot.groups)
    world.ingest([{"a": "z"}])
    world.kill([(0, 0)])
    (uid,) = groups
    assert snapshot.version == 1
    assert snapshot.groups == groups
    assert snapshot.count == 2
    assert snapshot.is_live(uid, 0)
    assert not world.ledger.snapshot().is_live(uid, 0)
    assert world.ledger.snapshot().count == 2
    assert not snapshot.is_live(uid, 2)
    assert not snapshot.is_live(new_id(), 0)

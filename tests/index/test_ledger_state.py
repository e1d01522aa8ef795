"""A ledger that was kept and restored is the one that the log gives; views stay as they were."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.crypto.keys import Keyring
from encrypted_records.errors import KeyMissing, LogBroken, Malformed
from encrypted_records.index.log import ledger_state
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model.ids import milliseconds, new_id
from tests.index.test_rotation import keys_of, rotated
from tests.index.world import Row, World

TEXT = '{"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}}'


@dataclass(frozen=True)
class Facts:
    """All that a snapshot says, also what it keeps from views before it."""

    version: int
    count: int
    groups: list[tuple[bytes, int]]
    segments: list[tuple[bytes, list[int], list[int], int | None]]
    live: list[bool]


def facts(snapshot: Snapshot) -> Facts:
    groups = {uid: state.sequence for uid, state in snapshot.groups.items()}
    assert len(groups) == len(snapshot.groups)
    places = range(snapshot.stored + 4)
    refs = [snapshot.ref(place) for place in places if snapshot.has(place)]
    return Facts(
        snapshot.version,
        snapshot.count,
        sorted(groups.items(), key=lambda one: one[1]),
        [
            (
                segment.uid,
                list(snapshot.dead_rows(segment)),
                snapshot.places(segment).positions(range(segment.count + segment.purged)).tolist(),  # type: ignore[arg-type]
                snapshot.dying_since(segment),
            )
            for segment in snapshot.segments
        ],
        [snapshot.is_live(ref.group, ref.ordinal) for ref in refs],
    )


def test_a_kept_ledger_remembers_what_was_stored_when() -> None:
    world = World(TEXT)
    day = 86_400_000
    today = milliseconds(new_id()) // day
    world.ingest([{"n": 1}, {"n": 2}])
    world.kill([(0, 1)])
    for ledger in (world.ledger, restored(world.ledger), replayed(world)):
        assert ledger.past.days(today * day)[-1] == 2
        assert ledger.past.days((today + 3) * day)[-4:] == [2, 0, 0, 0]
        assert sum(ledger.past.days((today + 30) * day)) == 0
        assert ledger.past.last // day == today
        assert ledger.past == world.ledger.past


def restored(ledger: Ledger, writer: bytes | None = None) -> Ledger:
    kept = ledger_state.decode(ledger.state().encode())
    return Ledger.restore(ledger.keys, writer or new_id(), kept)


def replayed(world: World) -> Ledger:
    ledger = Ledger(world.keys, new_id())
    ledger.extend(world.delta(world.log, len(world.log)))
    return ledger


@given(st.data())
def test_whatever_happens_a_kept_ledger_goes_on_as_the_log_does_and_old_views_stay(
    data: st.DataObject,
) -> None:
    world = World(TEXT)
    living: list[Row] = []
    sizes: list[int] = []
    old: list[tuple[Snapshot, Facts]] = []
    early = world.ledger
    for _ in range(data.draw(st.integers(1, 8))):
        steps = ["ingest", "kill", "merge", "end"] if living else ["ingest"]
        step = data.draw(st.sampled_from(steps))
        if step == "ingest":
            rows: list[dict[str, Any]] = [{"n": 1}] * data.draw(st.integers(1, 3))
            world.ingest(rows)
            living += [(len(sizes), ordinal) for ordinal in range(len(rows))]
            sizes.append(len(rows))
        elif step == "kill":
            doomed = data.draw(st.lists(st.sampled_from(living), min_size=1, unique=True))
            world.kill(doomed)
            living = [row for row in living if row not in doomed]
        elif step == "end":
            total = sum(sizes)
            edges = st.integers(1, total - 1) if total > 1 else st.nothing()
            cuts = data.draw(st.sets(edges, max_size=2)) if total > 1 else set()
            late = data.draw(st.lists(st.sampled_from(living), max_size=1))
            places = [sum(sizes[:group]) + at for group, at in living if (group, at) not in late]
            world.end(cuts=sorted(cuts), late=late)
            ends = [0, *sorted(cuts), total]
            sizes = [end - first for first, end in pairwise(ends)]
            living = [
                (group, at - ends[group]) for at in places for group in [bisect_right(ends, at) - 1]
            ]
        elif len(world.ledger.snapshot().segments) > 1:
            world.merge()
        if early is not world.ledger:
            early.extend(world.delta(world.log[early.version :], len(world.log)))
        if data.draw(st.booleans()):
            # As a process that was started again: what is sealed next continues what was kept.
            world.ledger = restored(world.ledger)
        snapshot = world.ledger.snapshot()
        told = facts(snapshot)
        uids = world.group_uids()
        assert [told.live.count(True), snapshot.count] == [len(living)] * 2
        assert all(snapshot.is_live(uids[group], at) for group, at in living)
        assert told == facts(replayed(world).snapshot()) == facts(early.snapshot())
        assert told == facts(restored(world.ledger).snapshot())
        old.append((snapshot, told))
    for snapshot, told in old:
        assert facts(snapshot) == told
        later = world.ledger.snapshot().groups.keys() - dict(told.groups).keys()
        assert not any(uid in snapshot.groups or snapshot.is_live(uid, 0) for uid in later)


def test_a_restored_ledger_knows_the_whole_log_and_refuses_what_the_log_refuses() -> None:
    world = World(TEXT)
    for number in range(5):
        world.ingest([{"n": number}])
    world.merge()
    ledger = restored(world.ledger)
    assert ledger.head == world.ledger.head
    for version in range(len(world.log) + 1):
        before = Ledger(world.keys, new_id())
        before.extend(world.delta(world.log[:version], version))
        assert ledger.knows(before.head)
    # A commit, a group and a segment that were there come back.
    for entry in world.log:
        again = type(entry)(len(world.log) + 1, entry.commit)
        with pytest.raises(LogBroken):
            restored(world.ledger).extend(world.delta([again], again.version))


def test_of_a_rotated_log_the_keys_are_those_of_its_commits() -> None:
    first = Keyring.generate()
    world = World(TEXT, keys_of(first))
    world.ingest([{"n": 1}])
    second = first.rotate()
    rotated(world, keys_of(second))
    world.ingest([{"n": 2}])
    ledger = restored(world.ledger)
    assert ledger.tails.id == world.ledger.tails.id == keys_of(first).of(1).id
    assert ledger.key.version == 2
    kept = ledger_state.decode(world.ledger.state().encode())
    for keyring in (first, Keyring.generate()):
        with pytest.raises(KeyMissing):
            Ledger.restore(keys_of(keyring), new_id(), kept)


@pytest.mark.parametrize("data", [b"", b"\x91\x01", b"\xff" * 1000, bytes(1 << 20)])
def test_bytes_that_are_no_ledger_are_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        ledger_state.decode(data)


@given(st.data())
def test_no_change_of_a_byte_makes_decoding_fail_otherwise(data: st.DataObject) -> None:
    world = World(TEXT)
    world.ingest([{"n": 1}, {"n": 2}])
    world.kill([(0, 1)])
    encoded = bytearray(world.ledger.state().encode())
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    with suppress(Malformed):
        ledger_state.decode(bytes(encoded[: data.draw(st.sampled_from([at, len(encoded)]))]))

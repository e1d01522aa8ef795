"""Snapshots of successive versions share what is computed of segments, and stay right."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

import pytest

from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.ingest.seal import seal
from tests.index.world import World

TEXT = '{"type": "object", "properties": {"a": {"type": "string"}}}'


def test_what_was_computed_of_one_version_stays_true_of_it() -> None:
    """Versions share what is true of both; of rows that die later an earlier one knows nothing."""
    world = World(TEXT)
    world.ingest([{"a": letter} for letter in "abcd"])
    before = world.ledger.snapshot()
    (segment,) = before.segments
    assert before.places(segment).highest == 3
    world.ingest([{"a": "e"}])
    same = world.ledger.snapshot()
    assert same.places(segment) is before.places(segment)
    world.kill([(0, 1)])
    after = world.ledger.snapshot()
    assert after.places(segment) is before.places(segment)
    # The later one is asked first.
    assert list(after.dead_rows(segment)) == [1]
    assert after.dying == (segment,)
    assert [list(one.dead_rows(segment)) for one in (before, same)] == [[], []]
    assert (before.dying, same.dying) == ((), ())
    assert before.dying_since(segment) is None


def test_what_is_kept_of_segments_that_are_gone_is_dropped() -> None:
    world = World(TEXT)
    for _ in range(40):
        for _ in range(20):
            world.ingest([{"a": "x"}])
            for segment in world.ledger.snapshot().segments:
                world.ledger.snapshot().places(segment)
        world.merge()
    last = world.ledger.snapshot()
    assert len(last.segments) == 1
    assert len(last._places) < 400


class Watched:
    """A lock that tells of who has to wait for it."""

    def __init__(self, told: threading.Event) -> None:
        self._lock, self._told = threading.Lock(), told

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._told.set()
            self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()


@pytest.mark.parametrize("comes", ["ingest", "merge"])
def test_a_thread_that_asks_while_a_commit_is_entered_gets_no_half_of_it(
    monkeypatch: pytest.MonkeyPatch, comes: str
) -> None:
    """It would stay, too, as the snapshot of the version before."""
    world = World(TEXT)
    for letter in "abc":
        world.ingest([{"a": letter}])
    ledger, index = world.ledger, Ledger._index
    told = threading.Event()  # that the thread waits, or has its snapshot
    monkeypatch.setattr(ledger, "_turn", Watched(told))
    taken: list[Snapshot] = []

    def take() -> None:
        taken.append(ledger.snapshot())
        told.set()

    thread = threading.Thread(target=take)

    def asked_meanwhile(self: Ledger, *arguments: Any) -> None:
        thread.start()
        assert told.wait(60)
        index(self, *arguments)

    if comes == "merge":
        upload = world.merging()
    else:
        upload = seal(ledger, world.definition, world.plain([{"a": "d"}])).upload
    ledger._snapshot = None  # as if nobody had asked for this version
    monkeypatch.setattr(Ledger, "_index", asked_meanwhile)
    world.apply(upload)
    thread.join(60)
    (found,) = taken
    assert found.version == ledger.version == 4
    for one in (found, ledger.snapshot()):
        covered = sorted(uid for segment in one.segments for uid, _ in segment.groups)
        assert covered == sorted(one.groups)

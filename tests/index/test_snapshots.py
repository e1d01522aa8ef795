"""Snapshots of successive versions share what is computed of segments, and stay right."""

from __future__ import annotations

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
            for one in world.ledger.snapshot().segments:
                world.ledger.snapshot().places(one)
        world.merge()
    last = world.ledger.snapshot()
    assert len(last.segments) == 1
    assert len(last._places) < 400

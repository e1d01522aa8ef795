"""What each commit did to the records, as a ledger keeps it and as a replay computes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.index.log import ledger
from encrypted_records.index.log.history import (
    Effects,
    GroupUnknown,
    Replay,
    rewrites_records,
    stored_before,
)
from encrypted_records.model import wire
from encrypted_records.model.definition_parser import parse_definition
from tests.index.world import World

N = {"type": "integer", "minimum": 0, "maximum": 99}


def text_of(**fields: Any) -> str:
    return json.dumps({"type": "object", "properties": fields})


TEXT = text_of(n=N)


def replayed(world: World, since: int) -> list[Effects]:
    """The effects of the commits after a version, computed from the commits alone."""
    snapshot = world.ledger.snapshot()
    entries = world.log[since:]
    bodies = [wire.decode_commit_body(entry.commit) for entry in entries]
    replay = Replay(snapshot, stored_before(snapshot, bodies))
    return [replay.follow(body, entry.version) for body, entry in zip(bodies, entries, strict=True)]


def told(effects: Sequence[Effects]) -> list[Any]:
    """What is compared: positions of the rows that came and went, and their places."""
    return [
        (
            one.version,
            one.added,
            [(placed.group.uid, placed.start, killed.runs) for placed, killed in one.ended],
            one.rewrites,
        )
        for one in effects
    ]


@given(st.data())
def test_a_replay_says_of_each_commit_what_the_ledger_saw(data: st.DataObject) -> None:
    world = World(TEXT)
    for step in range(data.draw(st.integers(1, 8))):
        doing = data.draw(st.sampled_from(["ingest", "kill", "merge", "compact", "reseal"]))
        snapshot = world.ledger.snapshot()
        live = [snapshot.number(ref) for ref in snapshot.live_between(0, snapshot.stored)]
        if doing == "ingest" or not live:
            world.ingest([{"n": step}] * data.draw(st.integers(1, 3)))
        elif doing == "kill":
            gone = data.draw(st.lists(st.sampled_from(live), min_size=1, unique=True))
            world.kill([world.row_at(place) for place in gone])
        elif doing == "merge":
            world.merge()
        elif doing == "compact":
            world.merge()
            end = data.draw(st.integers(1, len(world.group_uids())))
            world.compact(data.draw(st.integers(0, end - 1)), end)
        else:
            world.end()
    every = world.ledger.effects_since(0)
    assert every is not None
    assert told(replayed(world, 0)) == told(every)
    positions = [at for one in every for at in one.added]
    assert positions == list(range(world.ledger.snapshot().stored))
    since = data.draw(st.integers(0, len(world.log)))
    try:
        rest = replayed(world, since)
    except GroupUnknown:
        return  # its group was added before, and has ended since
    assert [one[:3] for one in told(rest)] == [one[:3] for one in told(every[since:])]


def test_a_group_that_only_an_earlier_commit_describes_is_unknown() -> None:
    world = World(TEXT)
    world.ingest([{"n": 1}, {"n": 2}])
    world.kill([(0, 0)])
    world.end()
    with pytest.raises(GroupUnknown):
        replayed(world, 1)
    assert told(replayed(world, 0)) == told(world.ledger.effects_since(0) or [])


def test_a_ledger_keeps_the_effects_of_its_newest_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "RECENT", 2)
    world = World(TEXT)
    for n in range(4):
        world.ingest([{"n": n}])
    assert [one.version for one in world.ledger.effects_since(2) or []] == [3, 4]
    assert world.ledger.effects_since(4) == []
    assert world.ledger.effects_since(1) is None
    assert world.ledger.effects_since(5) is None


@pytest.mark.parametrize(
    ("fields", "renamed", "rewrites"),
    [
        ({"n": N, "m": N}, {}, False),
        ({"n": {**N, "maximum": 120}}, {}, False),
        ({"m": N}, {"m": "n"}, True),
        ({"m": N}, {}, True),
        ({"n": {"type": "string"}}, {}, True),
    ],
)
def test_records_read_otherwise_once_a_field_is_renamed_left_out_or_converted(
    fields: dict[str, Any], renamed: dict[str, str], *, rewrites: bool
) -> None:
    before = parse_definition(TEXT)
    after = parse_definition(text_of(**fields)).following(before, renamed)
    assert rewrites_records(before, after) is rewrites
    assert not rewrites_records(None, after)


def test_a_commit_that_renames_a_field_says_so_in_the_ledger_and_in_a_replay() -> None:
    world = World(TEXT)
    world.ingest([{"n": 1}])
    world.change(text_of(m=N), {"m": "n"})
    world.ingest([{"m": 2}])
    every = world.ledger.effects_since(0)
    assert every is not None
    assert [one.rewrites for one in every] == [False, True, False]
    assert [one.rewrites for one in replayed(world, 1)] == [True, False]

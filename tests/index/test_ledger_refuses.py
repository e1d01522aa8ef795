"""Commits that are authentic and still cannot follow: a key holder's bug is no silent loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from encrypted_records.errors import KeyMissing, LogBroken
from encrypted_records.index.ledger import Ledger
from encrypted_records.model import wire
from encrypted_records.model.ids import new_id
from encrypted_records.model.records import (
    Commit,
    CommitBody,
    Group,
    LogEntry,
    ManifestDelta,
    RowRef,
    Segment,
)
from tests.index.test_ledger import TEXT
from tests.index.world import World

OTHER = bytes(range(16))
FOREIGN_GROUP = Group(OTHER, 2, 2, ["a"])
replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def world() -> World:
    """Two groups merged into one segment, a row of the first dead, and a third group."""
    world = World(TEXT)
    world.ingest([{"a": "x"}, {"a": "y"}])
    world.ingest([{"a": "z"}])
    world.kill([(0, 1)])
    world.merge()
    world.ingest([{"a": "w"}])
    return world


def bodies(world: World) -> list[CommitBody]:
    return [wire.decode_commit_body(entry.commit) for entry in world.log]


def added(world: World, **changes: Any) -> CommitBody:
    """An honest commit that adds a group of two rows and its segment, then changed."""
    group = Group(OTHER, 1, 2, ["a"])
    segment = Segment(OTHER, "mini", 1, 2, 0, [(OTHER, 0)], 1, b"header")
    draft = world.ledger.draft(world.definition.digest, groups=[group], segments=[segment])
    return replace(wire.decode_commit_body(draft.commit), **changes)


def segment(world: World, **changes: Any) -> CommitBody:
    body = added(world)
    return replace(body, segments=[replace(body.segments[0], **changes)])


def extend(world: World, body: bytes) -> Ledger:
    """A reader of the world's log takes in one more authentic commit."""
    ledger = Ledger(world.keys, new_id())
    ledger.extend(world.delta(world.log, len(world.log)))
    before = ledger.view()
    entry = LogEntry(len(world.log) + 1, Commit(body, world.key.log.compute(body)))
    delta = wire.encode([world.delta([entry], entry.version)])
    try:
        ledger.extend(wire.decode_one(delta, ManifestDelta))
    except (LogBroken, KeyMissing):
        assert ledger.view() == before, "a refused commit must leave no trace"
        raise
    return ledger


def uid(world: World, sequence: int) -> bytes:
    return world.group_uids()[sequence]


def live(world: World, at: int) -> Segment:
    return world.ledger.view().segments[at]


#: what is wrong, what the message says, the commit
CASES: list[tuple[str, str, Callable[[World], CommitBody]]] = [
    ("another schema", "another schema", lambda w: added(w, schema=OTHER)),
    ("a group of another key version", "key version", lambda w: added(w, groups=[FOREIGN_GROUP])),
    ("a segment of another key version", "key version", lambda w: segment(w, key_version=2)),
    ("an id that is taken", "twice", lambda w: added(w, id=bodies(w)[0].id)),
    ("a counter left out", "writer", lambda w: added(w, counter=7)),
    ("a counter again", "writer", lambda w: added(w, counter=5)),
    ("another commit before", "writer", lambda w: added(w, previous=bytes(32))),
    ("a new writer that does not begin", "writer", lambda w: added(w, writer=OTHER)),
    ("a log from the future", "had seen", lambda w: added(w, seen=6)),
    ("another log", "had seen", lambda w: added(w, seen_digest=bytes(32))),
    ("an older log, wrongly", "had seen", lambda w: added(w, seen=1)),
    (
        "a group that exists",
        "group that exists",
        lambda w: added(w, groups=[Group(uid(w, 0), 1, 2, ["a"])]),
    ),
    ("a group twice", "group that exists", lambda w: added(w, groups=added(w).groups * 2)),
    ("a group without a segment", "cover", lambda w: added(w, segments=[])),
    ("a segment without a group", "cover", lambda w: added(w, groups=[])),
    (
        "a segment over another's group",
        "cover",
        lambda w: segment(w, groups=[(OTHER, 0), (uid(w, 2), 2)], count=3),
    ),
    (
        "a group in a segment twice",
        "cover",
        lambda w: segment(w, groups=[(OTHER, 0), (OTHER, 2)], count=4),
    ),
    (
        "a group in two segments",
        "cover",
        lambda w: added(
            w, segments=[added(w).segments[0], replace(added(w).segments[0], uid=bytes(16))]
        ),
    ),
    (
        "one segment twice",
        "segment that exists",
        lambda w: added(w, segments=added(w).segments * 2),
    ),
    (
        "a segment that is live",
        "segment that exists",
        lambda w: segment(w, uid=live(w, 0).uid),
    ),
    (
        "a segment that was replaced",
        "segment that exists",
        lambda w: segment(w, uid=bodies(w)[0].segments[0].uid),
    ),
    ("a base that is not zero", "follow", lambda w: segment(w, groups=[(OTHER, 1)])),
    ("a row too many", "add up", lambda w: segment(w, count=3)),
    ("a row too few", "add up", lambda w: segment(w, count=1)),
    ("a live row purged", "add up", lambda w: segment(w, count=1, purged=1)),
    ("a row of no group killed", "does not exist", lambda w: added(w, killed=[RowRef(OTHER, 0)])),
    (
        "a row beyond its group killed",
        "does not exist",
        lambda w: added(w, killed=[RowRef(uid(w, 0), 2)]),
    ),
    ("a dead row killed", "dead", lambda w: added(w, killed=[RowRef(uid(w, 0), 1)])),
    ("a row killed twice", "dead", lambda w: added(w, killed=[RowRef(uid(w, 0), 0)] * 2)),
    ("a segment of no one replaced", "not live", lambda w: added(w, replaced=[OTHER])),
    (
        "a replaced segment replaced",
        "not live",
        lambda w: added(w, replaced=[bodies(w)[0].segments[0].uid]),
    ),
    ("a segment replaced twice", "not live", lambda w: added(w, replaced=[live(w, 0).uid] * 2)),
    (
        "a segment replaced by nothing",
        "cover",
        lambda w: added(w, groups=[], segments=[], replaced=[live(w, 0).uid]),
    ),
    (
        "a merge that forgets a group",
        "cover",
        lambda w: replace(
            segment(w, groups=[(OTHER, 0), (uid(w, 0), 2)], count=3, purged=1),
            replaced=[live(w, 0).uid],
        ),
    ),
    (
        "a merge that purges a live row",
        "add up",
        lambda w: replace(
            segment(w, groups=[(OTHER, 0), (uid(w, 0), 2), (uid(w, 1), 4)], count=3, purged=2),
            replaced=[live(w, 0).uid],
        ),
    ),
]


@pytest.mark.parametrize(
    ("message", "body"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_an_authentic_commit_that_cannot_follow_breaks_the_log(
    world: World, message: str, body: Callable[[World], CommitBody]
) -> None:
    with pytest.raises(LogBroken, match=message):
        extend(world, wire.encode_commit_body(body(world)))


@pytest.mark.parametrize("stated", [{"key_id": bytes(8)}, {"key_version": 2}])
def test_a_commit_under_a_key_that_is_not_here_says_which_is_needed(
    world: World, stated: dict[str, Any]
) -> None:
    body = added(world, **stated)
    needed = f"key {body.key_id.hex()} of keyring version {body.key_version}"
    with pytest.raises(KeyMissing, match=needed):
        extend(world, wire.encode_commit_body(body))


def test_the_same_commit_unchanged_is_taken(world: World) -> None:
    ledger = extend(world, wire.encode_commit_body(added(world)))
    assert ledger.view().count == world.ledger.view().count + 2


def test_an_unchanged_merge_of_these_groups_is_taken(world: World) -> None:
    body = segment(world, groups=[(OTHER, 0), (uid(world, 0), 2), (uid(world, 1), 4)])
    body = replace(body, segments=[replace(body.segments[0], count=4, purged=1)])
    body = replace(body, replaced=[live(world, 0).uid])
    ledger = extend(world, wire.encode_commit_body(body))
    assert ledger.view().count == world.ledger.view().count + 2


def test_a_commit_of_an_unknown_format_breaks_the_log(world: World) -> None:
    current = wire.encode_commit_body(added(world))
    newer = current[:1] + b"\x02" + current[2:]
    for body in (newer, b"", b"\xc1", current + b"\x00", current[:-1]):
        with pytest.raises(LogBroken, match="unknown format"):
            extend(world, body)

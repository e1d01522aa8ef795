"""Commits that are authentic and still cannot follow: a key holder's bug is no silent loss."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from encrypted_records.errors import KeyMissing, LogBroken
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.model import wire
from encrypted_records.model.ciphertext_lengths import NUMBER_CLASS, LeastClass
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import new_id
from encrypted_records.model.records import (
    Commit,
    CommitBody,
    Group,
    KilledRows,
    LogEntry,
    ManifestDelta,
    Segment,
)
from tests.index.test_ledger import TEXT
from tests.index.world import World

OTHER = bytes(range(16))
DEFINITION = parse_definition(TEXT)
FIELDS, DIGEST = DEFINITION.ids, DEFINITION.digest
ANY_TEXT = LeastClass(32, 0)
CLASSES = [ANY_TEXT, NUMBER_CLASS]
FOREIGN_GROUP = Group(OTHER, 2, 2, FIELDS, CLASSES, DIGEST, bytes(32))
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
    group = Group(OTHER, 1, 2, FIELDS, CLASSES, DIGEST, bytes(32))
    segment = Segment(OTHER, "mini", 1, 2, 0, [(OTHER, 0)], 1, bytes(32), DIGEST)
    draft = world.ledger.draft(world.definition, groups=[group], segments=[segment])
    return replace(wire.decode_commit_body(draft.commit), **changes)


def segment(world: World, **changes: Any) -> CommitBody:
    body = added(world)
    return replace(body, segments=[replace(body.segments[0], **changes)])


def extend(world: World, body: bytes) -> Ledger:
    """A reader of the world's log takes in one more authentic commit."""
    ledger = Ledger(world.keys, new_id())
    ledger.extend(world.delta(world.log, len(world.log)))
    before = ledger.snapshot()
    entry = LogEntry(len(world.log) + 1, Commit(body, world.key.log.compute(body), b""))
    delta = wire.encode([world.delta([entry], entry.version)])
    try:
        ledger.extend(wire.decode_single(delta, ManifestDelta))
    except (LogBroken, KeyMissing):
        assert ledger.snapshot() == before, "a refused commit must leave no trace"
        raise
    return ledger


def uid(world: World, sequence: int) -> bytes:
    return world.group_uids()[sequence]


def live(world: World, at: int) -> Segment:
    return world.ledger.snapshot().segments[at]


def changing(world: World, text: bytes, **changes: Any) -> CommitBody:
    """A commit that brings a canonical text as the next definition, and nothing else."""
    new = {"definition": hashlib.sha256(text).digest(), "definition_text": text}
    bare: dict[str, Any] = {"groups": [], "segments": []}
    return added(world, **bare | new | changes)


def killing(world: World, *rows: tuple[Any, ...]) -> CommitBody:
    return added(world, killed=[KilledRows(group, list(runs)) for group, *runs in rows])


def behind(world: World, **changes: Any) -> CommitBody:
    """A commit by somebody who has not seen the newest one."""
    digest = world.ledger.digest_at(len(world.log) - 1)
    return added(world, seen=len(world.log) - 1, seen_digest=digest, **changes)


def classed(world: World, *classes: LeastClass) -> CommitBody:
    return added(world, groups=[Group(OTHER, 1, 2, FIELDS, list(classes), DIGEST, bytes(32))])


def canonical(text: str) -> bytes:
    return parse_definition(text).following(DEFINITION).canonical


LOOSER = canonical(TEXT.replace('"string"', '"string", "minLength": 0'))
NARROWER = canonical(TEXT.replace('"maximum": 9', '"maximum": 8'))
RETYPED = canonical(TEXT.replace('"integer"', '"number", "precision": 0'))
FEWER = parse_definition('{"type": "object", "properties": {"a": {"type": "string"}}}')
OTHER_FIELDS = Group(OTHER, 1, 2, [1], CLASSES, DIGEST, bytes(32))
UNKNOWN = Group(OTHER, 1, 2, FIELDS, CLASSES, bytes(32), bytes(32))
SWAPPED = DEFINITION.canonical.replace(b"[1,2]", b"[2,1]")

#: what is wrong, what the message says, the commit
DEFINITIONS: list[tuple[str, str, Callable[[World], CommitBody]]] = [
    (
        "no definition of the log",
        "does not contain",
        lambda w: changing(w, b"", definition=bytes(32)),
    ),
    ("narrower, and not exact", "demands more", lambda w: changing(w, NARROWER)),
    ("another type", "what seals a field", lambda w: changing(w, RETYPED)),
    ("ids that changed places", "what seals a field", lambda w: changing(w, SWAPPED)),
    ("a field left out", "another id", lambda w: changing(w, FEWER.canonical)),
    ("another digest", "than it names", lambda w: changing(w, LOOSER, definition=bytes(32))),
    ("another spelling", "canonical form", lambda w: changing(w, LOOSER + b" ")),
    ("a definition and more", "something else", lambda w: changing(w, LOOSER, replaced=[OTHER])),
    (
        "a group of other fields",
        "not those of its definition",
        lambda w: added(w, groups=[OTHER_FIELDS]),
    ),
    ("a group of another definition", "of another", lambda w: added(w, groups=[UNKNOWN])),
    ("a segment of another definition", "of another", lambda w: segment(w, definition=bytes(32))),
]
CASES: list[tuple[str, str, Callable[[World], CommitBody]]] = [
    *DEFINITIONS,
    ("another schema", "another schema", lambda w: added(w, schema=OTHER)),
    ("a group of another key version", "key version", lambda w: added(w, groups=[FOREIGN_GROUP])),
    ("a segment of another key version", "key version", lambda w: segment(w, key_version=2)),
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
        lambda w: added(w, groups=[Group(uid(w, 0), 1, 2, FIELDS, CLASSES, DIGEST, bytes(32))]),
    ),
    (
        "a group without a class for a field",
        "a length class for each",
        lambda w: classed(w, ANY_TEXT),
    ),
    (
        "a group with a class for no field",
        "a length class for each",
        lambda w: classed(w, *CLASSES, ANY_TEXT),
    ),
    (
        "a class below that of a number, and of others",
        "no field has",
        lambda w: classed(w, LeastClass(15, 1), NUMBER_CLASS),
    ),
    (
        "a length that is no class",
        "no field has",
        lambda w: classed(w, LeastClass(65, 0), NUMBER_CLASS),
    ),
    (
        "a number among others",
        "no field has",
        lambda w: classed(w, ANY_TEXT, LeastClass(8, 0)),
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
    ("a base that is not zero", "follow", lambda w: segment(w, groups=[(OTHER, 1)])),
    ("a row too many", "add up", lambda w: segment(w, count=3)),
    ("a row too few", "add up", lambda w: segment(w, count=1)),
    ("a live row purged", "add up", lambda w: segment(w, count=1, purged=1)),
    ("a row of no group killed", "does not exist", lambda w: killing(w, (OTHER, (0, 1)))),
    ("a row beyond its group killed", "does not exist", lambda w: killing(w, (uid(w, 0), (0, 3)))),
    ("a dead row killed", "already removed", lambda w: killing(w, (uid(w, 0), (1, 1)))),
    (
        "a dead row among others killed",
        "already removed",
        lambda w: killing(w, (uid(w, 0), (0, 2))),
    ),
    ("rows out of order", "out of order", lambda w: killing(w, (uid(w, 2), (1, 1), (0, 1)))),
    ("runs that touch", "out of order", lambda w: killing(w, (uid(w, 2), (0, 1), (1, 1)))),
    ("a group killed twice", "twice", lambda w: killing(w, *[(uid(w, 2), (0, 1))] * 2)),
    ("a request stored twice", "stored by it", lambda w: added(w, requests=[OTHER, OTHER])),
    ("more than it may be behind", "had seen", lambda w: added(w, seen=2)),
    ("not the next to add", "not seen them", lambda w: behind(w, exact=1)),
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
    assert ledger.snapshot().count == world.ledger.snapshot().count + 2


def test_an_unchanged_merge_of_these_groups_is_taken(world: World) -> None:
    body = segment(world, groups=[(OTHER, 0), (uid(world, 0), 2), (uid(world, 1), 4)])
    body = replace(body, segments=[replace(body.segments[0], count=4, purged=1)])
    body = replace(body, replaced=[live(world, 0).uid])
    ledger = extend(world, wire.encode_commit_body(body))
    assert ledger.snapshot().count == world.ledger.snapshot().count + 2


def test_a_commit_of_an_unknown_format_breaks_the_log(world: World) -> None:
    current = wire.encode_commit_body(added(world))
    newer = current[:1] + b"\x02" + current[2:]
    for body in (newer, b"", b"\xc1", current + b"\x00", current[:-1]):
        with pytest.raises(LogBroken, match="unknown format"):
            extend(world, body)

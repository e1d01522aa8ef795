"""The schema, rows, segment and commit of the vectors, as objects that targets work on."""

from __future__ import annotations

import msgspec

from encrypted_records.crypto import sealing
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.segments.mini import MiniSegment
from encrypted_records.model import wire
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.records import (
    Commit,
    CommitBody,
    Group,
    KilledRows,
    LogEntry,
    ManifestDelta,
    PlainRecord,
    Segment,
)
from tests.reference.loading import vectors
from tests.reference.test_package_meets_the_vectors import schema_keys

VECTOR = vectors("group.json")
KEYS = schema_keys(VECTOR)
KEY = KEYS.newest
DEFINITION = parse_definition(VECTOR["definition"])
NAMES = list(DEFINITION.fields)
BODY = bytes.fromhex(VECTOR["upload"])
(UPLOAD,) = wire.decode_uploads(BODY)
COMMIT = wire.decode_commit_body(UPLOAD.commit)
GROUP, SEGMENT, PAGE = COMMIT.groups[0], COMMIT.segments[0], UPLOAD.pages[0]
HEADER = UPLOAD.headers[0]
replace = msgspec.structs.replace


def delta(*commits: Commit, first: int = 1) -> ManifestDelta:
    """The log from version ``first`` on."""
    entries = [LogEntry(version, commit) for version, commit in enumerate(commits, first)]
    return ManifestDelta(
        KEY.schema, first - 1 + len(commits), KEY.id, DEFINITION.digest, list(entries), [HEADER]
    )


def ledger() -> Ledger:
    """At version 1, with the vectors' commit."""
    found = Ledger(KEYS, bytes(16))
    found.extend(delta(UPLOAD.commit))
    return found


def snapshot() -> Snapshot:
    return ledger().snapshot()


def opened() -> MiniSegment:
    return MiniSegment(KEY, DEFINITION, SEGMENT, HEADER, PAGE)


def records() -> list[PlainRecord]:
    """By ordinal."""
    return [
        sealing.open_row(KEY, DEFINITION, GROUP, ordinal, row)
        for ordinal, row in enumerate(UPLOAD.rows[0].present)
    ]


def signed(body: bytes) -> Commit:
    """Whatever it says, under the right key."""
    return Commit(body, KEY.log.compute(body), b"")


def next_commits() -> list[CommitBody]:
    """Good second versions: rows added and killed, rows killed only, a merge."""
    head = ledger().head
    after = replace(
        COMMIT,
        id=b"second commit id",
        counter=2,
        previous=wire.commit_digest(UPLOAD.commit),
        seen=1,
        seen_digest=head.digest,
        requests=[],
    )
    group = replace(GROUP, uid=b"second group uid")
    segment = replace(SEGMENT, uid=b"second index uid", groups=[(group.uid, 0)])
    merged = replace(SEGMENT, uid=b"merged index uid")
    killed = [KilledRows(GROUP.uid, [(1, 1), (4, 1)])]
    return [
        replace(after, groups=[group], segments=[segment], killed=killed),
        replace(after, groups=[], segments=[], killed=[KilledRows(GROUP.uid, [(0, 2)])]),
        replace(after, groups=[], segments=[merged], replaced=[SEGMENT.uid]),
        ending(after, group, segment),
    ]


def ending(after: CommitBody, group: Group, segment: Segment) -> CommitBody:
    """Another group stands for the vectors' one, whose rows live."""
    new = replace(segment, groups=[(group.uid, 0)])
    changes = {"groups": [group], "segments": [new], "replaced": [SEGMENT.uid]}
    return replace(after, ended=[GROUP.uid], **changes)

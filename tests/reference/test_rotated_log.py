"""A log that goes on under a second root key: both implementations make and read the same bytes."""

from __future__ import annotations

import itertools

import pytest

from encrypted_records import runtime
from encrypted_records.crypto import sealing
from encrypted_records.crypto.keys import Keyring, RootKey, SchemaKeys
from encrypted_records.errors import KeyMissing
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.segments.merge import merge
from encrypted_records.index.segments.mini import MiniSegment
from encrypted_records.ingest.seal import seal
from encrypted_records.model import wire
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.records import (
    CommitUpload,
    LogEntry,
    ManifestDelta,
    PlainRecord,
    sealed_rows,
)
from tests.reference.loading import raw, vectors
from tests.reference.test_whole_commit import entries

BEFORE, VECTOR = vectors("group.json"), vectors("rotation.json")
DEFINITION = parse_definition(BEFORE["definition"])
UPLOADS: list[CommitUpload] = [
    wire.decode_uploads(bytes.fromhex(upload))[0]
    for upload in (BEFORE["upload"], *(commit["upload"] for commit in VECTOR["commits"]))
]
PAGES = {page.segment: page for upload in UPLOADS for page in upload.pages}
HEADERS = {header.segment: header for upload in UPLOADS for header in upload.headers}


def keys(*versions: int) -> SchemaKeys:
    roots = {number: RootKey(bytes.fromhex(VECTOR["roots"][str(number)])) for number in versions}
    return Keyring(roots).schema(
        bytes.fromhex(BEFORE["organization"]), bytes.fromhex(BEFORE["schema"])
    )


def ledger(found: SchemaKeys, length: int) -> Ledger:
    """The log's first commits, as the holder of these keys reads them."""
    reader = Ledger(found, bytes.fromhex(BEFORE["writer"]))
    log = [LogEntry(version, one.commit) for version, one in enumerate(UPLOADS[:length], 1)]
    reader.extend(
        ManifestDelta(
            *(found.schema, length, found.newest.id, DEFINITION.digest, list(log)),
            headers=list(HEADERS.values()),
        )
    )
    return reader


def opened(reader: Ledger) -> list[MiniSegment]:
    return [
        MiniSegment(
            reader.keys.of(segment.key_version),
            *(DEFINITION, segment, reader.snapshot().header(segment), PAGES[segment.uid]),
        )
        for segment in reader.snapshot().segments
    ]


def records() -> list[PlainRecord]:
    return [
        PlainRecord(
            bytes.fromhex(entry["record"]),
            entry["version"],
            {
                name: DEFINITION.fields[name].accept(raw(value, DEFINITION.fields[name].type))
                for name, value in entry["data"].items()
                if value is not None
            },
        )
        for entry in VECTOR["records"]
    ]


def test_the_holder_of_both_keys_reads_the_whole_log_and_everything_in_it() -> None:
    reader = ledger(keys(1, 2), 3)
    assert reader.head.digest.hex() == VECTOR["commits"][-1]["log_digest"]
    groups = wire.decode_commit_body(UPLOADS[1].commit).groups
    assert [
        sealing.open_row(reader.keys.of(2), DEFINITION, groups[0], ordinal, row)
        for ordinal, row in enumerate(UPLOADS[1].rows[0].present)
    ] == records()
    (merged,) = opened(reader)
    for name, expected in VECTOR["index"].items():
        assert entries(merged.column(name)) == expected


@pytest.mark.parametrize(("held", "missing"), [((1,), "version 2"), ((2,), "version 1")])
def test_who_lacks_one_of_the_keys_is_told_which(held: tuple[int, ...], missing: str) -> None:
    with pytest.raises(KeyMissing, match=missing):
        ledger(keys(*held), 3)


def test_the_package_makes_the_very_bytes_of_the_new_groups_rows_and_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = itertools.chain(*zip(VECTOR["randomness"], VECTOR["salts"], strict=True))
    reader = ledger(keys(1, 2), 1)
    monkeypatch.setattr(runtime.machine, "random_bytes", lambda _: bytes.fromhex(next(drawn)))
    monkeypatch.setattr("encrypted_records.index.log.order.new_id", lambda: bytes(16))

    made = seal(reader, DEFINITION, records()).upload

    assert [sealed_rows(row) for row in made.rows] == [sealed_rows(row) for row in UPLOADS[1].rows]
    assert made.pages == UPLOADS[1].pages
    body, expected = (wire.decode_commit_body(one.commit) for one in (made, UPLOADS[1]))
    assert (body.key_id, body.key_version) == (expected.key_id, 2)
    assert (body.groups, body.segments) == (expected.groups, expected.segments)


def test_the_package_makes_the_very_bytes_of_the_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ledger(keys(1, 2), 2)
    drawn = iter([VECTOR["randomness"][2], VECTOR["salts"][2]])
    monkeypatch.setattr(runtime.machine, "random_bytes", lambda _: bytes.fromhex(next(drawn)))
    commit_id = bytes.fromhex(VECTOR["commits"][1]["commit_id"])
    monkeypatch.setattr("encrypted_records.index.log.order.new_id", lambda: commit_id)
    inputs = opened(reader)

    built = merge(reader.key, DEFINITION, inputs, reader.snapshot())
    made = reader.draft(
        DEFINITION,
        segments=[built.segment],
        replaced=[source.segment.uid for source in inputs],
        pages=built.pages,
        headers=[built.header],
    )

    assert b"".join(wire.encode_uploads([made])).hex() == VECTOR["commits"][1]["upload"]

"""A group with its mini and its commit: both implementations make the same bytes of one input."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from encrypted_records import runtime
from encrypted_records.crypto import sealing
from encrypted_records.crypto.keys import SchemaKey, SchemaKeys
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.segments.mini import MiniSegment
from encrypted_records.ingest.seal import seal
from encrypted_records.model import digests, wire
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.records import CommitUpload, LogEntry, ManifestDelta, PlainRecord
from tests.reference.loading import raw, vectors
from tests.reference.test_package_meets_the_vectors import schema_keys

VECTOR = vectors("group.json")


@pytest.fixture
def keys() -> SchemaKeys:
    return schema_keys(VECTOR)


@pytest.fixture
def key(keys: SchemaKeys) -> SchemaKey:
    return keys.newest


@pytest.fixture
def definition() -> SchemaDefinition:
    return parse_definition(VECTOR["definition"])


@pytest.fixture
def records(definition: SchemaDefinition) -> list[PlainRecord]:
    found = []
    for entry in VECTOR["records"]:
        data = {
            name: definition.fields[name].accept(raw(value, definition.fields[name].type))
            for name, value in entry["data"].items()
            if value is not None
        }
        found.append(PlainRecord(bytes.fromhex(entry["record"]), entry["version"], data))
    return found


@pytest.fixture
def stored() -> CommitUpload:
    """The upload that the reference made, read from its bytes."""
    (upload,) = wire.decode_uploads(bytes.fromhex(VECTOR["upload"]))
    return upload


def extended(keys: SchemaKeys, definition: SchemaDefinition, upload: CommitUpload) -> Ledger:
    ledger = Ledger(keys, bytes(16))
    entries = [LogEntry(1, upload.commit)]
    headers = list(upload.headers)
    key_id, digest = keys.newest.id, definition.digest
    ledger.extend(ManifestDelta(keys.schema, 1, key_id, digest, entries, headers))
    return ledger


def test_the_package_makes_the_very_bytes_of_the_vector(
    keys: SchemaKeys,
    definition: SchemaDefinition,
    records: list[PlainRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    randomness = VECTOR["randomness"]
    salts = VECTOR["salts"]
    drawn = itertools.chain(
        [randomness["group"], salts["group"], randomness["segment"], salts["segment"]]
    )
    monkeypatch.setattr(runtime.machine, "random_bytes", lambda _: bytes.fromhex(next(drawn)))
    commit_id = bytes.fromhex(VECTOR["commit_id"])
    monkeypatch.setattr("encrypted_records.index.log.order.new_id", lambda: commit_id)

    ledger = Ledger(keys, bytes.fromhex(VECTOR["writer"]))
    upload = seal(ledger, definition, records, requests=[bytes.fromhex(VECTOR["request"])]).upload

    batch, page = upload.rows[0], upload.pages[0]
    assert batch.group.hex() == VECTOR["group"]
    assert [[field.hex() for field in row.fields] for row in batch.present] == VECTOR["rows"]
    assert page.segment.hex() == VECTOR["segment"]["uid"]
    assert page.data.hex() == VECTOR["segment"]["page"]
    assert upload.commit.body.hex() == VECTOR["commit"]["body"]
    assert upload.commit.mac.hex() == VECTOR["commit"]["mac"]
    assert b"".join(wire.encode_uploads([upload])).hex() == VECTOR["upload"]


def test_the_package_accepts_the_commit_and_agrees_on_the_log_digest(
    keys: SchemaKeys, definition: SchemaDefinition, stored: CommitUpload
) -> None:
    ledger = extended(keys, definition, stored)
    assert wire.commit_digest(stored.commit).hex() == VECTOR["commit"]["digest"]
    assert ledger.head.digest.hex() == VECTOR["log_digest"]
    body = wire.decode_commit_body(stored.commit)
    (group,), (segment,) = body.groups, body.segments
    (batch,), (header,) = stored.rows, stored.headers
    salt = stored.salts[0].salt
    told = [digests.row_digests(salt, [row]).hex() for row in batch.present]
    assert told == VECTOR["digests"]["rows"]
    assert digests.digest_rows(salt, batch.present) == group.rows
    assert group.rows.hex() == VECTOR["digests"]["group"]
    assert segment.digest.hex() == VECTOR["digests"]["segment"]
    digests.check_mini(segment, header, stored.pages[0].data)
    assert body.definition == definition.digest


def test_the_package_opens_every_row_that_the_reference_sealed(
    key: SchemaKey,
    definition: SchemaDefinition,
    records: list[PlainRecord],
    stored: CommitUpload,
) -> None:
    group = wire.decode_commit_body(stored.commit).groups[0]
    opened = [
        sealing.open_row(key, definition, group, ordinal, row)
        for ordinal, row in enumerate(stored.rows[0].present)
    ]
    assert opened == records


def test_the_package_reads_the_columns_that_the_reference_built(
    keys: SchemaKeys, definition: SchemaDefinition, stored: CommitUpload
) -> None:
    (segment,) = extended(keys, definition, stored).snapshot().segments
    opened = MiniSegment(keys.newest, definition, segment, stored.headers[0], stored.pages[0])
    for name, expected in VECTOR["index"].items():
        assert entries(opened.column(name)) == expected


def entries(column: Any) -> list[list[Any]]:
    """A column as the vector writes it: ordinals with their padded keys in hexadecimal."""
    keys = [
        key.ljust(64, b"\x00").hex() if isinstance(key, bytes) else f"{int(key):016x}"
        for key in column.keys
    ]
    padded = [None] * column.absent + keys
    return [[int(ordinal), key] for ordinal, key in zip(column.ordinals, padded, strict=True)]

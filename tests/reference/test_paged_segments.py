"""Paged segments: both implementations make, and read, what the other does."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from encrypted_records import runtime
from encrypted_records.crypto import sealing
from encrypted_records.crypto.keys import Keyring, RootKey
from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns import pages, words
from encrypted_records.index.columns.column import Column
from encrypted_records.index.segments.builder import Builder, SegmentLimits, Shell
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.model.ciphertext_lengths import class_step, least_class
from encrypted_records.model.definition import words_spec
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.digests import check_pages, page_digest
from encrypted_records.model.ids import new_id
from encrypted_records.model.records import Segment, SegmentHeader
from tests.index.strategies import Case, cases
from tests.reference import definitions as plain
from tests.reference import keys, paged
from tests.reference import words as reference_words
from tests.reference.fields import decrypt
from tests.reference.loading import raw, vectors
from tests.reference.msgpack import pack
from tests.reference.test_package_meets_the_vectors import schema_key

VECTOR = vectors("paged.json")
KEY = schema_key(VECTOR)
DEFINITION = parse_definition(VECTOR["definition"])
GROUPS = [(bytes.fromhex(uid), base) for uid, base in VECTOR["groups"]]
ROWS = np.array([row["ordinal"] for row in VECTOR["rows"]], np.uint32)
FORMS = pytest.mark.parametrize("form", ["plain", "packed"])


def column(name: str) -> Column:
    """By way of the local ordinals that the vector's rows have."""
    spec = DEFINITION.fields[name]
    accepted = [spec.accept(raw(row["data"][name], spec.type)) for row in VECTOR["rows"]]
    built = columns.build(spec, KEY.field(spec), accepted)
    return Column(ROWS[built.ordinals], built.keys)


def entries(found: Column) -> list[list[Any]]:
    """A column as the vector writes it."""
    present = [
        key.ljust(64, b"\x00").hex() if isinstance(key, bytes) else f"{int(key):016x}"
        for key in found.keys
    ]
    padded = [None] * found.absent + present
    return [[int(ordinal), key] for ordinal, key in zip(found.ordinals, padded, strict=True)]


def segment(form: str) -> Segment:
    made = VECTOR[form]
    uid, digest = bytes.fromhex(made["uid"]), bytes.fromhex(made["digest"])
    purged, pages = VECTOR["covered"] - len(ROWS), len(made["pages"])
    return Segment(uid, "paged", 1, len(ROWS), purged, GROUPS, pages, digest, DEFINITION.digest)


def header(form: str) -> SegmentHeader:
    made = VECTOR[form]
    return SegmentHeader(*(bytes.fromhex(made[name]) for name in ("uid", "salt", "header")))


def sealed(form: str) -> list[bytes]:
    """The vector's pages, sealed by the package."""
    uid = bytes.fromhex(VECTOR[form]["uid"])
    return [
        sealing.seal_page(
            KEY.field(DEFINITION.fields[page["field"]]).index(uid),
            page["kind"],
            number,
            pages.frame(bytes.fromhex(page["content"])),
            schema_context=sealing.context_of(KEY),
            segment=uid,
            field=DEFINITION.fields[page["field"]].id_bytes,
        )
        for number, page in enumerate(VECTOR[form]["pages"])
    ]


def test_the_package_builds_the_very_bytes_of_the_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    made = VECTOR["plain"]
    monkeypatch.setattr(
        "encrypted_records.index.segments.builder._permutation", lambda _: np.array(made["order"])
    )
    drawn = iter([made["randomness"], made["salt"]])
    monkeypatch.setattr(runtime.machine, "random_bytes", lambda _: bytes.fromhex(next(drawn)))
    shell = Shell(GROUPS, ROWS, VECTOR["covered"] - len(ROWS))
    limits = SegmentLimits(mini=0, entries=VECTOR["entries_per_page"])
    builder = Builder(KEY, DEFINITION, shell, limits)
    for name in DEFINITION.fields:
        builder.add(name, column(name))
    built = builder.finish()
    assert built.segment == segment("plain")
    assert built.header == header("plain")
    assert [hashlib.sha256(page.data).hexdigest() for page in built.pages] == [
        page["sealed_sha256"] for page in made["pages"]
    ]


def test_the_package_draws_the_dummies_of_the_vector() -> None:
    origin = bytes.fromhex(VECTOR["origin"])
    for entry in VECTOR["dummies"]:
        assert KEY.uids.draw(origin, class_step(entry["slots"])) == entry["drawn"]


@FORMS
def test_the_package_reads_every_column_of_the_vector(form: str) -> None:
    stored = sealed(form)
    assert [hashlib.sha256(page).hexdigest() for page in stored] == [
        page["sealed_sha256"] for page in VECTOR[form]["pages"]
    ]
    every = b"".join(map(page_digest, stored))
    check_pages(segment(form), header(form), every)
    opened = LoadedSegment(OpenedHeader(KEY, DEFINITION, segment(form), header(form)))
    while missing := opened.missing_columns(DEFINITION.fields):
        for number in missing:
            opened.put(number, stored[number])
    for name, expected in VECTOR["index"].items():
        assert entries(opened.column(name)) == expected


@FORMS
def test_the_reference_reads_every_column_of_the_vector(form: str) -> None:
    schema = keys.schema(bytes.fromhex(VECTOR["root"]), KEY.organization, KEY.schema, VECTOR["kv"])
    uid, sealed_header = segment(form).uid, header(form).data
    plain_header = open_header(schema, uid, sealed_header)
    where = schema.place + uid
    assert pack(plain_header) == decrypt(schema.meta(uid), bytes(12), sealed_header, where)
    found = paged.open_paged(
        schema, plain.load(VECTOR["definition"]), uid, plain_header, sealed(form)
    )
    for name, expected in VECTOR["index"].items():
        read = [[ordinal, None if key is None else key.hex()] for ordinal, key in found[name]]
        assert read == expected


def open_header(schema: keys.Schema, uid: bytes, sealed_header: bytes) -> list[Any]:
    import msgspec

    where = schema.place + uid
    found = msgspec.msgpack.decode(decrypt(schema.meta(uid), bytes(12), sealed_header, where))
    return list(found)


@given(cases())
def test_the_reference_reads_what_the_package_packs(case: Case) -> None:
    root = bytes(range(32))
    organization, schema_id = new_id(), new_id()
    key = Keyring({1: RootKey(root)}).schema(organization, schema_id).newest
    definition = parse_definition(case.text)
    records = case.records
    shell = Shell([(new_id(), 0)], np.arange(len(records), dtype=np.uint32))
    builder = Builder(key, definition, shell, SegmentLimits(mini=0, plain=0, entries=4))
    for name, spec in definition.fields.items():
        accepted = [spec.accept(record.get(name)) for record in records]
        builder.add(name, columns.build(spec, key.field(spec), accepted))
        if spec.words:
            own = words_spec(spec)
            stated = least_class(spec)
            builder.add(own.name, words.build(key.field(own), accepted, stated))
    built = builder.finish()

    schema = keys.schema(root, organization, schema_id, 1)
    uid = built.segment.uid
    found = paged.open_paged(
        schema,
        plain.load(case.text),
        uid,
        open_header(schema, uid, built.header.data),
        [page.data for page in built.pages],
    )
    loaded = plain.load(case.text)
    for name, field in plain.columns(loaded).items():
        if field["type"] == "words":
            of_words = reference_words.entries(
                loaded, field, schema.field(field), list(enumerate(records))
            )
            assert found[name] == of_words
            continue
        sent = [(ordinal, record.get(name)) for ordinal, record in enumerate(records)]
        assert found[name] == paged.entries(field, schema.field(field), sent)

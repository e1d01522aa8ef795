"""Paged segments: both implementations make, and read, what the other does."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from encrypted_records.crypto import sealing
from encrypted_records.crypto.keys import Keyring, RootKey
from encrypted_records.index import columns, pages
from encrypted_records.index.building import Builder, Limits, Shell
from encrypted_records.index.columns import Column
from encrypted_records.index.paged import PagedSegment
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import new_id
from encrypted_records.model.records import Segment
from tests.index.strategies import Case, cases
from tests.reference import definitions as plain
from tests.reference import keys, paged
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
    uid, header = bytes.fromhex(made["uid"]), bytes.fromhex(made["header"])
    purged = VECTOR["covered"] - len(ROWS)
    return Segment(uid, "paged", 1, len(ROWS), purged, GROUPS, len(made["pages"]), header)


def sealed(form: str) -> list[bytes]:
    """The vector's pages, sealed by the package."""
    uid = bytes.fromhex(VECTOR[form]["uid"])
    return [
        sealing.seal_page(
            KEY.field(DEFINITION.fields[page["field"]]).index(uid),
            page["kind"],
            number,
            pages.frame(bytes.fromhex(page["content"])),
            schema_place=sealing.place(KEY),
            segment=uid,
            name=page["field"].encode(),
        )
        for number, page in enumerate(VECTOR[form]["pages"])
    ]


def test_the_package_builds_the_very_bytes_of_the_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    made = VECTOR["plain"]
    monkeypatch.setattr(
        "encrypted_records.index.building._permutation", lambda _: np.array(made["order"])
    )
    monkeypatch.setattr("os.urandom", lambda _: bytes.fromhex(made["randomness"]))
    shell = Shell(GROUPS, ROWS, VECTOR["covered"] - len(ROWS))
    limits = Limits(mini=0, entries=VECTOR["entries_per_page"])
    builder = Builder(KEY, DEFINITION, shell, limits)
    for name in DEFINITION.fields:
        builder.add(name, column(name))
    built = builder.finish()
    assert built.segment == segment("plain")
    assert [hashlib.sha256(page.data).hexdigest() for page in built.pages] == [
        page["sealed_sha256"] for page in made["pages"]
    ]


@FORMS
def test_the_package_reads_every_column_of_the_vector(form: str) -> None:
    stored = sealed(form)
    assert [hashlib.sha256(page).hexdigest() for page in stored] == [
        page["sealed_sha256"] for page in VECTOR[form]["pages"]
    ]
    opened = PagedSegment(KEY, DEFINITION, segment(form))
    while missing := opened.missing_columns(DEFINITION.fields):
        for number in missing:
            opened.put(number, stored[number])
    for name, expected in VECTOR["index"].items():
        assert entries(opened.column(name)) == expected


@FORMS
def test_the_reference_reads_every_column_of_the_vector(form: str) -> None:
    schema = keys.schema(bytes.fromhex(VECTOR["root"]), KEY.organization, KEY.schema, VECTOR["kv"])
    uid, header = bytes.fromhex(VECTOR[form]["uid"]), bytes.fromhex(VECTOR[form]["header"])
    plain_header = open_header(schema, uid, header)
    assert pack(plain_header) == decrypt(schema.meta(uid), bytes(12), header, schema.place + uid)
    found = paged.open_paged(
        schema, plain.load(VECTOR["definition"]), uid, plain_header, sealed(form)
    )
    for name, expected in VECTOR["index"].items():
        read = [[ordinal, None if key is None else key.hex()] for ordinal, key in found[name]]
        assert read == expected


def open_header(schema: keys.Schema, uid: bytes, header: bytes) -> list[Any]:
    import msgspec

    found = msgspec.msgpack.decode(decrypt(schema.meta(uid), bytes(12), header, schema.place + uid))
    return list(found)


@given(cases())
def test_the_reference_reads_what_the_package_packs(case: Case) -> None:
    root = bytes(range(32))
    organization, schema_id = new_id(), new_id()
    key = Keyring({1: RootKey(root)}).schema(organization, schema_id).newest
    definition = parse_definition(case.text)
    records = case.records
    shell = Shell([(new_id(), 0)], np.arange(len(records), dtype=np.uint32))
    builder = Builder(key, definition, shell, Limits(mini=0, plain=0, entries=4))
    for name, spec in definition.fields.items():
        accepted = [spec.accept(record.get(name)) for record in records]
        builder.add(name, columns.build(spec, key.field(spec), accepted))
    built = builder.finish()

    schema = keys.schema(root, organization, schema_id, 1)
    uid = built.segment.uid
    found = paged.open_paged(
        schema,
        plain.load(case.text),
        uid,
        open_header(schema, uid, built.segment.header),
        [page.data for page in built.pages],
    )
    for name, field in case.fields.items():
        sent = [(ordinal, record.get(name)) for ordinal, record in enumerate(records)]
        assert found[name] == paged.entries(field, schema.field(name, field), sent)

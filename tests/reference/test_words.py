"""Columns of words: both implementations have the same words, keys and bytes."""

from __future__ import annotations

import numpy as np
import pytest

from encrypted_records import runtime
from encrypted_records.crypto import values
from encrypted_records.crypto.keys import TailKey
from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns import words
from encrypted_records.index.columns.column import Column
from encrypted_records.index.segments.mini import MiniSegment, build_mini
from encrypted_records.model.ciphertext_lengths import least_class
from encrypted_records.model.definition import words_spec
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.digests import page_digest, segment_digest
from encrypted_records.model.records import Page, Segment, SegmentHeader
from encrypted_records.model.texts import folded, words_of
from tests.reference.loading import vectors
from tests.reference.test_package_meets_the_vectors import bare, schema_key

VECTOR = vectors("words.json")
KEY = schema_key(VECTOR)
DEFINITION = parse_definition(VECTOR["definition"])
GROUP = bytes.fromhex(VECTOR["group"])
COUNT = len(VECTOR["rows"])


def shown(column: Column) -> list[list[object]]:
    """A column as the vector writes it."""
    keys = [
        key.ljust(64, b"\x00").hex() if isinstance(key, bytes) else f"{int(key):016x}"
        for key in column.keys
    ]
    padded = [None] * column.absent + keys
    return [[int(ordinal), key] for ordinal, key in zip(column.ordinals, padded, strict=True)]


def test_a_text_has_the_words_of_the_vector() -> None:
    for entry in VECTOR["texts"]:
        assert words_of(folded(entry["text"])) == entry["words"]


def test_rooms_and_keys_are_as_specified() -> None:
    for entry in VECTOR["rooms"]:
        assert words.room_of(entry["class"]) == entry["room"]
    own = words_spec(DEFINITION.fields["note"])
    assert own.binding.hex() == VECTOR["binding"]
    assert bare(KEY.field(own).tail) == VECTOR["tail"]
    for entry in VECTOR["keys"]:
        key = values.word_key(entry["word"], TailKey(bytes.fromhex(VECTOR["tail"])))
        assert f"{key:016x}" == entry["key"]


def test_a_definition_says_what_is_indexed_in_its_one_spelling() -> None:
    assert DEFINITION.canonical.decode() == VECTOR["canonical"]
    assert DEFINITION.digest.hex() == VECTOR["digest"]


def test_the_package_builds_and_reads_the_very_bytes_of_the_vector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: dict[str, Column] = {}
    for name, spec in DEFINITION.fields.items():
        sent = [row[name] for row in VECTOR["rows"]]
        built[name] = columns.build(spec, KEY.field(spec), sent)
        if spec.words:
            own = words_spec(spec)
            built[own.name] = words.build(KEY.field(own), sent, least_class(spec))
    randomness = iter([VECTOR["randomness"], "00" * 32])
    monkeypatch.setattr(runtime.machine, "random_bytes", lambda _: bytes.fromhex(next(randomness)))
    made = build_mini(
        KEY,
        DEFINITION,
        groups=[(GROUP, 0)],
        column_of=built,
        rows=np.arange(COUNT, dtype=np.uint32),
    )
    assert made.segment.uid.hex() == VECTOR["uid"]
    assert made.header.data.hex() == VECTOR["header"]
    assert made.pages[0].data.hex() == VECTOR["page"]

    uid, page = bytes.fromhex(VECTOR["uid"]), bytes.fromhex(VECTOR["page"])
    header = SegmentHeader(uid, bytes(32), bytes.fromhex(VECTOR["header"]))
    digest = segment_digest(header.salt, header.data, page_digest(page))
    segment = Segment(uid, "mini", 1, COUNT, 0, [(GROUP, 0)], 1, digest, DEFINITION.digest)
    opened = MiniSegment(KEY, DEFINITION, segment, header, Page(uid, 0, page))
    for name, expected in VECTOR["index"].items():
        of_words = name.startswith("words of ")
        field = DEFINITION.fields[name.removeprefix("words of ")]
        column = opened.column(words_spec(field).name if of_words else name)
        assert shown(column) == expected

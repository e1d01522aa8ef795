"""What the server sees of sizes is a function of the number of rows and the schema alone."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.index import columns
from encrypted_records.index.columns import Column
from encrypted_records.ingest.seal import seal
from encrypted_records.model.definition import FieldType
from encrypted_records.model.records import CommitUpload
from encrypted_records.model.shapes import is_sealed_field
from encrypted_records.model.wire import decode_commit_body
from tests.index.strategies import accepted, definition_texts
from tests.index.world import World
from tests.reference import definitions as plain

Records = Sequence[Mapping[str, Any]]


def sealed(world: World, records: Records) -> CommitUpload:
    return seal(world.ledger, world.definition, world.plain(records))


def index_shape(upload: CommitUpload) -> list[int]:
    """Every length of the index that the server sees, and of the commit."""
    headers = [segment.header for segment in decode_commit_body(upload.commit).segments]
    return [len(part) for part in (*(page.data for page in upload.pages), *headers)] + [
        len(upload.commit.body)
    ]


def assert_same_shape(world: World, one: Records, other: Records) -> None:
    """The check that a wrong builder must not pass."""
    assert len(one) == len(other)
    assert index_shape(sealed(world, one)) == index_shape(sealed(world, other))


@st.composite
def twins(draw: st.DrawFn) -> tuple[str, Records, Records]:
    """A definition and two data sets of one length; absent fields anywhere."""
    text = draw(definition_texts())
    record = st.fixed_dictionaries(
        {
            name: st.one_of(accepted(field), st.none())
            for name, field in plain.load(text).fields.items()
        }
    )
    one = draw(st.lists(record, min_size=1, max_size=10))
    other = draw(st.lists(record, min_size=len(one), max_size=len(one)))
    return text, one, other


@given(twins())
def test_two_data_sets_of_one_shape_have_equal_index_lengths(
    both: tuple[str, Records, Records],
) -> None:
    text, one, other = both
    assert_same_shape(World(text), one, other)


@given(twins())
def test_sealed_numbers_and_absent_ones_have_one_length(both: tuple[str, Records, Records]) -> None:
    text, one, other = both
    world = World(text)
    uploads = [sealed(world, one), sealed(world, other)]
    rows = [row.fields for upload in uploads for row in upload.rows[0].rows]
    for at, spec in enumerate(world.definition.fields.values()):
        assert spec.type == "string" or len({len(row[at]) for row in rows}) == 1


@given(twins())
def test_every_sealed_field_has_a_shape_that_the_api_accepts(
    both: tuple[str, Records, Records],
) -> None:
    text, one, _ = both
    world = World(text)
    for row in sealed(world, one).rows[0].rows:
        for spec, field in zip(world.definition.fields.values(), row.fields, strict=True):
            assert is_sealed_field(field, spec.type)


TEXT = '{"type": "object", "properties": {"a": {"type": "string"}}}'
SHORT: Records = [{"a": "x"}, {"a": "y"}]
LONG: Records = [{"a": "x" * 40}, {"a": "y" * 40}]
GONE: Records = [{"a": "x"}, {}]


def encode_unpadded(column: Column, kind: FieldType) -> bytes:
    """Wrong on purpose: keys as long as they are."""
    keys = b"".join(bytes(key) + b"\x00" for key in column.keys)
    return struct.pack(">I", column.absent) + column.ordinals.astype(">u4").tobytes() + keys


def encode_without_absent(column: Column, kind: FieldType) -> bytes:
    """Wrong on purpose: no zeros in place of absent keys."""
    whole = RIGHT(column, kind)
    return whole[: len(whole) - 64 * column.absent]


RIGHT = columns.encode


@pytest.mark.parametrize(
    ("wrong", "one", "other"),
    [(encode_unpadded, SHORT, LONG), (encode_without_absent, SHORT, GONE)],
    ids=["unpadded strings", "absent rows left out"],
)
def test_a_builder_that_shows_more_is_caught_by_the_same_check(
    wrong: object, one: Records, other: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_same_shape(World(TEXT), one, other)
    monkeypatch.setattr(columns, "encode", wrong)
    with pytest.raises(AssertionError):
        assert_same_shape(World(TEXT), one, other)

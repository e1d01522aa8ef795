"""What the server sees of sizes is a function of the number of rows and the schema alone, and of
the lengths at which texts are sealed whose words are indexed."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns import pages
from encrypted_records.index.columns.column import Column
from encrypted_records.index.segments.builder import STANDARD, SegmentLimits
from encrypted_records.ingest.seal import seal
from encrypted_records.model.ciphertext_lengths import are_sealed_fields, least_class
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.records import CommitUpload
from tests.index.strategies import accepted, definition_texts
from tests.index.world import World
from tests.reference import definitions as plain

Records = Sequence[Mapping[str, Any]]


def sealed(world: World, records: Records) -> CommitUpload:
    return seal(world.ledger, world.definition, world.plain(records), limits=world.limits).upload


def index_shape(upload: CommitUpload) -> list[int]:
    """Every length of the index that the server sees, and of the commit.

    In ascending order: pages lie in a random one.
    """
    headers = [header.data for header in upload.headers]
    found = [len(part) for part in (*(page.data for page in upload.pages), *headers)]
    return sorted([*found, len(upload.commit.body)])


def assert_same_shape(world: World, one: Records, other: Records) -> None:
    """The check that a wrong builder must not pass."""
    assert len(one) == len(other)
    assert index_shape(sealed(world, one)) == index_shape(sealed(world, other))


@st.composite
def twins(draw: st.DrawFn) -> tuple[str, Records, Records]:
    """A definition and two data sets of one length; absent fields anywhere. Texts whose words are
    indexed have one length, and any words."""
    text = draw(definition_texts())
    indexed = [name for name, one in plain.load(text).fields.items() if "x-index" in one]
    record = st.fixed_dictionaries(
        {
            name: st.one_of(accepted(field), st.none())
            for name, field in plain.load(text).fields.items()
        }
    )
    one = draw(st.lists(record, min_size=1, max_size=10))
    other = draw(st.lists(record, min_size=len(one), max_size=len(one)))
    for mine, theirs in zip(one, other, strict=True):
        for name in indexed:
            size = len((mine[name] or "").encode())
            texts = ["x" * size, ("a b c d e f g h " * size)[:size], (" " * size)]
            theirs[name] = draw(st.sampled_from(texts))
    return text, one, other


FORMS = pytest.mark.parametrize(
    "limits", [STANDARD, SegmentLimits(mini=0, entries=4)], ids=["mini", "paged"]
)


@FORMS
@given(twins())
def test_two_data_sets_of_one_shape_have_equal_index_lengths(
    limits: SegmentLimits, both: tuple[str, Records, Records]
) -> None:
    text, one, other = both
    assert_same_shape(World(text, limits=limits), one, other)


def test_paged_segments_of_thousands_of_rows_have_equal_lengths() -> None:
    """One value, all values different, none at all: at the sizes of real segments."""
    count = 5000
    same: Records = [{"a": "x"}] * count
    none: Records = [{}] * count
    unique = [{"a": f"{number:x}" * 9} for number in range(count)]
    mixed = [*same[:9], *none[:3000], *unique[3009:]]
    world = World(TEXT)
    for one in (unique, none, mixed):
        assert_same_shape(world, same, one)


@given(twins())
def test_sealed_numbers_and_absent_ones_have_one_length(both: tuple[str, Records, Records]) -> None:
    text, one, other = both
    world = World(text)
    uploads = [sealed(world, one), sealed(world, other)]
    rows = [row.fields for upload in uploads for row in upload.rows[0].present]
    for at, spec in enumerate(world.definition.fields.values()):
        assert spec.type == "string" or len({len(row[at]) for row in rows}) == 1


@given(twins())
def test_every_sealed_field_has_a_shape_that_the_api_accepts(
    both: tuple[str, Records, Records],
) -> None:
    text, one, _ = both
    world = World(text)
    for row in sealed(world, one).rows[0].present:
        for spec, field in zip(world.definition.fields.values(), row.fields, strict=True):
            assert are_sealed_fields([field], least_class(spec))


TEXT = '{"type": "object", "properties": {"a": {"type": "string"}}}'
SHORT: Records = [{"a": "x"}, {"a": "y"}]
LONG: Records = [{"a": "x" * 40}, {"a": "y" * 40}]
GONE: Records = [{"a": "x"}, {}]


def encode_unpadded(column: Column, kind: KeyKind) -> bytes:
    """Wrong on purpose: keys as long as they are."""
    keys = b"".join(bytes(key) + b"\x00" for key in column.keys)
    return struct.pack(">I", column.absent) + column.ordinals.astype(">u4").tobytes() + keys


def encode_without_absent(column: Column, kind: KeyKind) -> bytes:
    """Wrong on purpose: no zeros in place of absent keys."""
    whole = RIGHT(column, kind)
    return whole[: len(whole) - 64 * column.absent]


RIGHT = columns.encode


MANY_ALIKE: Records = [{"a": "x"}] * 10_000
ALL_DIFFERENT: Records = [
    {"a": hashlib.sha256(str(number).encode()).hexdigest()[:48]} for number in range(10_000)
]


def frame_unpadded(content: bytes) -> bytes:
    """Wrong on purpose: a page is as long as its entries, of which each page has as many."""
    return len(content).to_bytes(2, "big") + content


@pytest.mark.parametrize(
    ("frame", "limits"),
    [
        (frame_unpadded, SegmentLimits(mini=0, entries=100)),
        (pages.frame, SegmentLimits(mini=0, plain=0)),
    ],
    ids=["a number of entries, not of bytes", "packed"],
)
def test_a_paged_builder_that_shows_more_is_caught_by_the_same_check(
    frame: object, limits: SegmentLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_same_shape(World(TEXT, limits=SegmentLimits(mini=0)), MANY_ALIKE, ALL_DIFFERENT)
    monkeypatch.setattr(pages, "frame", frame)
    with pytest.raises(AssertionError):
        # A packed segment has some pages more than it needs, by luck: one time in thirty both have
        # as many.
        for _ in range(8):
            assert_same_shape(World(TEXT, limits=limits), MANY_ALIKE, ALL_DIFFERENT)


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

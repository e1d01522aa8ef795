"""A column says which rows hold which value, in one order, and survives its encoding."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.crypto.keys import FieldKey
from encrypted_records.crypto.values import few_values
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns.column import Column
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.field_types.base import KeyKind
from tests.index.strategies import accepted, field_bodies
from tests.reference import definitions as plain
from tests.reference.segments import column as reference_column
from tests.reference.segments import read_column

SECRET = bytes(range(32))


@st.composite
def sent_columns(draw: st.DrawFn) -> tuple[str, list[Any]]:
    keywords = draw(field_bodies())
    body = ", ".join(f'"{keyword}": {text}' for keyword, text in keywords.items())
    text = f'{{"type": "object", "properties": {{"f": {{{body}}}}}}}'
    field = plain.load(text).fields["f"]
    return text, draw(st.lists(st.one_of(accepted(field), st.none()), max_size=20))


def built(text: str, sent: list[Any]) -> tuple[FieldSpec, Column]:
    spec = parse_definition(text).fields["f"]
    return spec, columns.build(spec, FieldKey(SECRET), [spec.accept(value) for value in sent])


def same(one: Column, other: Column) -> bool:
    return bool(
        np.array_equal(one.ordinals, other.ordinals) and np.array_equal(one.keys, other.keys)
    )


@given(sent_columns())
def test_a_column_survives_its_encoding(case: tuple[str, list[Any]]) -> None:
    spec, column = built(*case)
    data = columns.encode(column, spec.kind)
    assert len(data) == columns.encoded_size(spec.kind, len(case[1]))
    assert same(columns.decode(data, spec.kind, len(case[1])), column)


@given(sent_columns())
def test_both_implementations_encode_a_column_alike(case: tuple[str, list[Any]]) -> None:
    text, sent = case
    spec, column = built(text, sent)
    field = plain.load(text).fields["f"]
    data = columns.encode(column, spec.kind)
    assert data == reference_column(field, SECRET, enumerate(sent))
    assert [ordinal for ordinal, _ in read_column(field, data, len(sent))] == list(column.ordinals)


#: Two that are one text as they are compared, and two of which one key has the beginning.
ALIKE = ["caf\u00e9", "cafe\u0301", "x" * 48 + "one", "x" * 48 + "two"]


@given(
    st.lists(st.one_of(st.sampled_from(ALIKE), st.text(max_size=4)), min_size=1, max_size=12),
    st.integers(0, 999),
)
def test_a_long_column_of_few_texts_is_what_both_implementations_make_of_it(
    texts: list[str], seed: int
) -> None:
    text = '{"type": "object", "properties": {"f": {"type": "string"}}}'
    sent = random.Random(seed).choices([*texts, None], k=3000)
    assert few_values([value for value in sent if value is not None]) is not None
    _, column = built(text, sent)
    data = columns.encode(column, KeyKind.TEXT)
    assert data == reference_column(plain.load(text).fields["f"], SECRET, enumerate(sent))


@given(sent_columns(), st.data())
def test_joining_the_parts_of_a_column_gives_the_column(
    case: tuple[str, list[Any]], data: st.DataObject
) -> None:
    text, sent = case
    spec, whole = built(text, sent)
    cut = data.draw(st.integers(0, len(sent)))
    parts = []
    for base, part in ((0, sent[:cut]), (cut, sent[cut:])):
        column = built(text, part)[1]
        parts.append(Column(column.ordinals + np.uint32(base), column.keys))
    assert same(columns.join(parts, spec.kind), whole)


def test_numbers_of_the_whole_domain_are_in_order() -> None:
    text = (
        '{"type": "object", "properties": {"f":'
        ' {"type": "integer", "minimum": 0, "maximum": 18446744073709551615}}}'
    )
    sent = [Decimal(value) for value in (2**64 - 1, 0, 2**63, 2**63 - 1, 1, 2**64 - 1)]
    _, column = built(text, sent)
    assert list(column.ordinals) == [1, 4, 3, 2, 0, 5]


@pytest.mark.parametrize("kind", [KeyKind.POINT, KeyKind.TEXT])
def test_data_of_another_size_is_no_column(kind: Any) -> None:
    size = columns.encoded_size(kind, 2)
    for wrong in (b"", bytes(size - 1), bytes(size + 1), bytes(columns.encoded_size(kind, 3))):
        with pytest.raises(DoesNotOpen, match="size"):
            columns.decode(wrong, kind, 2)


def test_a_column_with_more_absent_rows_than_rows_is_refused() -> None:
    data = (3).to_bytes(4, "big") + bytes(columns.encoded_size(KeyKind.POINT, 2) - 4)
    with pytest.raises(DoesNotOpen, match="absent"):
        columns.decode(data, KeyKind.POINT, 2)


@pytest.mark.parametrize(
    ("ordinals", "keys"),
    [([0, 1], [2, 1]), ([1, 0], [1, 1]), ([1, 0, 2], [7]), ([0, 0], []), ([0, 1, 1], [4, 4])],
)
def test_a_column_out_of_order_is_refused(ordinals: list[int], keys: list[int]) -> None:
    """A binary search would find fewer rows in it."""
    column = Column(np.array(ordinals, np.uint32), np.array(keys, np.uint64))
    data = columns.encode(column, KeyKind.POINT)
    with pytest.raises(DoesNotOpen, match="order"):
        columns.decode(data, KeyKind.POINT, len(ordinals))


def test_a_column_with_a_key_for_an_absent_row_is_refused() -> None:
    data = columns.encode(
        columns.absent(np.arange(2, dtype=np.uint32), KeyKind.POINT), KeyKind.POINT
    )
    with pytest.raises(DoesNotOpen, match="order"):
        columns.decode(data[:-1] + b"\1", KeyKind.POINT, 2)

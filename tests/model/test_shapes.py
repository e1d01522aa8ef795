"""Lengths of sealed fields: few classes, small waste, and nothing else is a sealed field."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.crypto.values import encode
from encrypted_records.model.definition import MAX_STRING_BYTES, FieldSpec
from encrypted_records.model.shapes import (
    TAG_BYTES,
    are_sealed_fields,
    is_padded_length,
    padded_length,
)

TEXT = FieldSpec("s", "string")


@given(st.integers(1, MAX_STRING_BYTES * 2))
def test_padding_covers_wastes_little_and_never_moves_a_class(size: int) -> None:
    padded = padded_length(size)
    assert padded >= size
    assert is_padded_length(padded)
    assert padded <= 64 or padded <= size * 1.12
    assert padded_length(size + 1) >= padded


def test_lengths_of_long_strings_fall_into_few_classes() -> None:
    classes = {padded_length(size) for size in range(1, 65_537)}
    assert sorted(classes)[:6] == [16, 32, 48, 64, 72, 80]
    assert len(classes) < 150


@given(st.text(max_size=200))
def test_the_sealed_length_shows_the_class_and_nothing_else(text: str) -> None:
    plain = encode(TEXT, text)
    assert len(plain) == 1 + padded_length(len(text.encode()) + 1)
    assert are_sealed_fields([b"\x01" + plain + bytes(TAG_BYTES)], "string")


def test_absence_has_the_length_of_the_smallest_class() -> None:
    assert len(encode(TEXT, None)) == len(encode(TEXT, "")) == len(encode(TEXT, "x" * 15))


def test_only_the_lengths_and_version_of_our_format_are_sealed_fields() -> None:
    numbers = {size for size in range(200) if are_sealed_fields([b"\x01" + bytes(size)], "integer")}
    texts = {size for size in range(200) if are_sealed_fields([b"\x01" + bytes(size)], "string")}
    assert numbers == {9 + 16}
    assert texts == {1 + 16 + size for size in (16, 32, 48, 64, *range(72, 129, 8), 144, 160, 176)}
    assert not are_sealed_fields([b""], "string")
    assert not are_sealed_fields([b"\x01"], "number")
    assert not are_sealed_fields([b"\x02" + bytes(25)], "number")
    good, other = b"\x01" + bytes(25), b"\x02" + bytes(25)
    assert are_sealed_fields([good, good], "number")
    assert not are_sealed_fields([good, other], "number")
    assert not are_sealed_fields([good, good + bytes(1)], "number")
    assert not is_padded_length(0)

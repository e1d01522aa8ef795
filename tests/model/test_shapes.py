"""Lengths of sealed fields: few classes, small waste, and nothing else is a sealed field."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.crypto.values import encode
from encrypted_records.model.ciphertext_lengths import (
    NUMBER_CLASS,
    TAG_BYTES,
    LeastClass,
    are_sealed_fields,
    is_class_of,
    is_padded_length,
    least_class,
    padded_length,
    sealed_class,
)
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.field_types.base import MAX_STRING_BYTES, NumberRules, StringRules

TEXT = FieldSpec("s", "string")
AGE = FieldSpec("n", "integer", NumberRules(Decimal(0), Decimal(150)))


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
    stated = least_class(TEXT)
    plain = encode(TEXT, text, stated)
    assert len(plain) == 1 + max(32, padded_length(len(text.encode()) + 1))
    assert len(plain) == 1 + sealed_class(TEXT, len(text.encode()))
    assert are_sealed_fields([b"\x01" + plain + bytes(TAG_BYTES)], stated)


def lengths_of(spec: FieldSpec, texts: list[str]) -> set[int]:
    stated = least_class(spec)
    return {len(encode(spec, text, stated)) for text in [None, *texts]}


def test_absence_has_the_length_of_the_smallest_class() -> None:
    assert lengths_of(TEXT, ["", "x" * 31]) == {33}


CHARACTERS = ["x", "\u03b1", "\u5b57", "\U0001f600"]


@pytest.mark.parametrize("longest", [0, 1, 7, 8, 32, 100, 255, 256])
def test_values_of_a_short_field_have_one_length_in_any_script(longest: int) -> None:
    spec = FieldSpec("s", "string", string=StringRules(max_length=longest))
    texts = [character * size for character in CHARACTERS for size in range(longest + 1)]
    (length,) = lengths_of(spec, texts)
    assert length == 1 + padded_length(4 * longest + 1)
    assert least_class(spec).only


def test_values_of_a_field_that_may_be_longer_have_classes() -> None:
    spec = FieldSpec("s", "string", string=StringRules(max_length=257))
    assert least_class(spec) == LeastClass(32, 0)
    assert len(lengths_of(spec, ["x", "x" * 257])) == 2


@given(st.sets(st.text(max_size=40), max_size=9), st.one_of(st.none(), st.integers(1, 99)))
def test_allowed_values_have_one_length_and_absence_has_it_too(
    allowed: set[str], pad_to: int | None
) -> None:
    spec = FieldSpec("s", "string", allowed=frozenset(allowed), pad_to=pad_to)
    longest = max([len(one.encode()) for one in allowed], default=0)
    (length,) = lengths_of(spec, list(allowed))
    assert length == 1 + padded_length(max(longest, pad_to or 0) + 1)
    assert least_class(spec).only


@pytest.mark.parametrize("rules", [StringRules(), StringRules(max_length=200)])
@pytest.mark.parametrize("pad_to", [1, 31, 32, 47, 64, 200, 5000])
def test_values_up_to_pad_to_are_alike_whatever_max_length_says(
    rules: StringRules, pad_to: int
) -> None:
    spec = FieldSpec("s", "string", string=rules, pad_to=pad_to)
    (length,) = lengths_of(spec, ["", "x", "x" * pad_to, "\u5b57" * (pad_to // 3)])
    assert length == 1 + padded_length(pad_to + 1)
    assert least_class(spec).only == (rules.max_length == 200 and pad_to == 5000)
    if not least_class(spec).only:
        assert len(lengths_of(spec, ["x" * 6000])) == 2


def test_a_group_may_state_more_than_the_definition_asks_for_and_no_less() -> None:
    choice = FieldSpec("s", "string", allowed=frozenset({"x" * 40}))
    assert least_class(choice) == LeastClass(48, 1)
    fitting = {(48, 1), (64, 1), (72, 1)}
    for length in (8, 16, 32, 48, 50, 64, 72):
        for only in (0, 1):
            stated = LeastClass(length, only)
            assert is_class_of(choice, stated) == ((length, only) in fitting)
            assert is_class_of(AGE, stated) == (stated == NUMBER_CLASS)


def test_only_the_lengths_and_version_of_our_format_are_sealed_fields() -> None:
    number, text, choice = least_class(AGE), least_class(TEXT), LeastClass(48, 1)

    def sizes(stated: LeastClass) -> set[int]:
        return {size for size in range(200) if are_sealed_fields([b"\x01" + bytes(size)], stated)}

    assert sizes(number) == {9 + 16}
    classes = (32, 48, 64, *range(72, 129, 8), 144, 160, 176)
    assert sizes(text) == {1 + 16 + size for size in classes}
    assert sizes(choice) == {1 + 16 + 48}
    assert sizes(LeastClass(96, 0)) == {1 + 16 + size for size in classes if size >= 96}
    assert not are_sealed_fields([b""], text)
    assert not are_sealed_fields([b"\x01"], number)
    assert not are_sealed_fields([b"\x02" + bytes(25)], number)
    good, other = b"\x01" + bytes(25), b"\x02" + bytes(25)
    assert are_sealed_fields([good, good], number)
    assert not are_sealed_fields([good, other], number)
    assert not are_sealed_fields([good, good + bytes(1)], number)
    assert not is_padded_length(0)

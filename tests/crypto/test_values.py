"""Values survive their encodings, and index keys are in the order of the values."""

from __future__ import annotations

import random
import unicodedata
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.crypto import values
from encrypted_records.crypto.keys import TailKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.model.ciphertext_lengths import LeastClass, least_class
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.definition_parser import parse_definition
from tests.index.strategies import accepted, definition_texts, texts
from tests.reference import Refused
from tests.reference import definitions as plain
from tests.reference import fields as ref

TAIL = TailKey(bytes(32))
TEXT = FieldSpec("s", "string")


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


@given(definition_texts(), st.data())
def test_both_implementations_encode_a_value_alike_and_read_it_back(
    text: str, data: st.DataObject
) -> None:
    for name, spec in parse_definition(text).fields.items():
        field = plain.load(text).fields[name]
        sent = data.draw(st.one_of(accepted(field), st.none()))
        value = spec.accept(sent)
        stated = least_class(spec)
        assert (stated.length, stated.only) == ref.class_of(field)
        encoded = values.encode(spec, value, stated)
        assert encoded == ref.plaintext(field, sent)
        assert values.decode(spec, encoded, stated) == value == ref.value_of(field, encoded)
        assert type(values.decode(spec, encoded, stated)) is type(value)


@given(definition_texts(), st.data())
def test_a_column_is_encoded_and_indexed_as_its_values_are(text: str, data: st.DataObject) -> None:
    for name, spec in parse_definition(text).fields.items():
        field = plain.load(text).fields[name]
        sent = data.draw(st.lists(st.one_of(accepted(field), st.none()), max_size=8))
        column = [spec.accept(value) for value in sent]
        stated = least_class(spec)
        one_by_one = [values.encode(spec, one, stated) for one in column]
        assert values.encode_column(spec, column, stated) == one_by_one
        present = [value for value in column if value is not None]
        if spec.type == "string":
            ordered = [values.order_bytes(str(one)) for one in present]
            keys = [values.string_key(one, TAIL).ljust(64, b"\x00") for one in ordered]
            found = values.string_keys([str(one) for one in present], TAIL)
            assert found.tobytes() == b"".join(keys)
        else:
            offsets = [values.to_offset(spec, one) for one in present]
            assert values.to_offsets(spec, present).tolist() == offsets


@given(
    st.lists(st.one_of(texts, st.none()), min_size=1, max_size=12),
    st.integers(0, 999),
)
def test_a_long_column_of_few_values_is_encoded_as_its_values_are(
    few: list[str | None], seed: int
) -> None:
    column = random.Random(seed).choices(few, k=1500)
    assert values.few_values(column) is not None
    stated = least_class(TEXT)
    assert values.encode_column(TEXT, column, stated) == [
        values.encode(TEXT, one, stated) for one in column
    ]


def test_a_column_has_few_values_where_each_stands_there_often() -> None:
    assert values.few_values(["a"] * 1023) is None, "it is short"
    assert values.few_values(["b", "a"] * 512) == {"b": 0, "a": 1}
    assert values.few_values([str(at) for at in range(5000)]) is None
    # Few at its beginning, and many behind it.
    assert values.few_values(["a"] * 1024 + [str(at) for at in range(1000)]) is None
    assert values.few_values(["a"] * 4000 + [str(at) for at in range(900)]) is not None


@given(
    definition_texts(),
    st.binary(max_size=70),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.sampled_from([None, (8, 1), (32, 0), (32, 1), (48, 0), (48, 1), (80, 0), (80, 1)]),
)
def test_any_bytes_are_a_value_or_do_not_open_for_both_alike(
    text: str, body: bytes, kind: int, other: ref.Class | None
) -> None:
    for name, spec in parse_definition(text).fields.items():
        field = plain.load(text).fields[name]
        least, only = other or ref.class_of(field)
        stated = LeastClass(least, only)  # type: ignore[arg-type] # 0 or 1
        start = bytes((kind,))
        for plaintext in (body, start + body[:8], start + ref.pad(body, least)):
            try:
                found: Any = values.decode(spec, plaintext, stated)
            except DoesNotOpen:
                with pytest.raises(Refused):
                    ref.value_of(field, plaintext, (least, only))
            else:
                assert values.encode(spec, found, stated) == plaintext
                assert ref.value_of(field, plaintext, (least, only)) == found


@given(texts, texts)
def test_order_bytes_have_the_order_of_the_strings(one: str, other: str) -> None:
    a, b = values.order_bytes(one), values.order_bytes(other)
    assert (a < b, a == b) == (nfc(one) < nfc(other), nfc(one) == nfc(other))
    assert b.startswith(a) == nfc(other).startswith(nfc(one))
    assert 0 not in a


@given(texts, texts)
def test_index_keys_decide_all_that_48_bytes_can_decide(one: str, other: str) -> None:
    a, b = values.order_bytes(one), values.order_bytes(other)
    first, second = (values.string_key(key, TAIL).ljust(64, b"\x00") for key in (a, b))
    assert (first == second) == (nfc(one) == nfc(other))
    if a[:48] != b[:48] or not (values.is_long(a) and values.is_long(b)):
        assert (first < second) == (nfc(one) < nfc(other))
    assert len(first) == 64


def test_a_number_of_more_than_28_digits_is_kept_to_the_last_digit() -> None:
    text = '{"type": "object", "properties": {"f": {"type": "number", "precision": 2, %s}}}'
    bounds = f'"minimum": {10**30}, "maximum": {10**30 + 1000}'
    spec = parse_definition(text % bounds).fields["f"]
    value = spec.accept(Decimal(f"{10**30 + 500}.25"))
    assert values.to_offset(spec, value) == 50025
    stated = least_class(spec)
    assert values.decode(spec, values.encode(spec, value, stated), stated) == value


@pytest.mark.parametrize("text", ["", "a", "\x80", "\x00", "a\x00", "\x80\x00", "x" * 15, "x" * 16])
def test_padding_is_told_from_text(text: str) -> None:
    stated = least_class(TEXT)
    assert values.decode(TEXT, values.encode(TEXT, text, stated), stated) == text


def test_the_refusal_of_a_plaintext_does_not_repeat_it() -> None:
    for plaintext in (b"\x03secret" + b"\x00" * 26, b"\x03secret\xff\x80" + b"\x00" * 24):
        with pytest.raises(DoesNotOpen) as caught:
            values.decode(TEXT, plaintext, least_class(TEXT))
        assert "secret" not in str(caught.value)
        assert caught.value.__context__ is None

"""JSON is read exactly or refused; what is refused is never repeated."""

from __future__ import annotations

import contextlib
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import Malformed, TooLarge
from encrypted_records.model import strict_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-0", 0),
        ("1.0", Decimal("1.0")),
        ("1e0", Decimal(1)),
        ("0.1", Decimal("0.1")),
        ("9007199254740993", 2**53 + 1),
        ("1e-400", Decimal("1e-400")),
        ("1" * 400, int("1" * 400)),
        (b"\xef\xbb\xbf[]", []),
        (b'"\xc3\xa9"', "\u00e9"),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('{"a": {"a": 1}}', {"a": {"a": 1}}),
    ],
)
def test_values_are_exact(text: str | bytes, value: Any) -> None:
    found = strict_json.loads(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,]",
        "[1 2]",
        "NaN",
        "[Infinity]",
        '{"a": -Infinity}',
        '{"a": 1, "a": 2}',
        '{"a": 1, "\\u0061": 2}',
        '[{"b": {"a": 1, "a": 1}}]',
        "1" * 401,
        "0." + "1" * 400,
        "1e99999999999999999999",
        "[1e-99999999999999999999]",
        "01",
        "+1",
        ".5",
        "1.",
        "0x10",
        "'a'",
        '"\n"',
        '"\\x"',
        "[" * 200_000,
        '{"a":' * 200_000,
        '{"\\ud800": 1}',
        b"\xff",
        b'"\xed\xa0\x80"',
        b"\xfe\xff\x00[\x00]",
    ],
    ids=lambda text: repr(text[:20]),
)
def test_what_is_not_strict_json_is_malformed(text: str | bytes) -> None:
    with pytest.raises(Malformed):
        strict_json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": secret}',
        '["secret", secret',
        '"\\secret"',
        '{"secret" 1}',
        '"secret\x01"',
        "[1] secret",
    ],
)
def test_the_message_names_the_place_and_never_the_content(text: str) -> None:
    with pytest.raises(Malformed) as caught:
        strict_json.loads(text)
    assert "secret" not in caught.value.message
    assert "line 1, column" in caught.value.message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("text", "pointers"),
    [
        (b'"\\ud800"', [""]),
        (b'"\\ud83d\\ude00\\udc00"', [""]),
        (b'"\\uDE00\\uD83D"', [""]),
        (b'[1, "a", {"b/c": ["", "x\\ud800"]}]', ["/2/b~1c/1"]),
        (b'{"a": "\\ud800", "b": "\\udfff", "c": "\\ud83d\\ude00"}', ["/a", "/b"]),
        ('"\udcff"', [""]),
        (b"[" + b",".join([b'"\\ud800"'] * 1000) + b"]", [f"/{at}" for at in range(10)]),
    ],
    ids=lambda text: repr(text)[:30],
)
def test_half_of_a_surrogate_pair_is_named_by_its_place(
    text: str | bytes, pointers: list[str]
) -> None:
    with pytest.raises(Malformed) as caught:
        strict_json.loads(text)
    assert [(flaw.code, flaw.pointer) for flaw in caught.value.flaws] == [
        ("unicode", pointer) for pointer in pointers
    ]
    if isinstance(text, bytes):
        assert strict_json.loads(text, halves=True) == json.loads(text)
        with pytest.raises(Malformed):
            strict_json.refuse_halves(text)


def test_a_key_with_half_of_a_surrogate_pair_is_refused_everywhere() -> None:
    text = b'[{"a": {"\\ud800": 1}}]'
    with pytest.raises(Malformed):
        strict_json.loads(text, halves=True)
    with pytest.raises(Malformed) as caught:
        strict_json.refuse_halves(text)
    assert [flaw.pointer for flaw in caught.value.flaws] == ["/0/a"]


@pytest.mark.parametrize(
    "text",
    [
        b'"\\\\ud800"',
        b'["\\ud83d\\ude00"]',
        b'{"a": "u\\u00e9"}',
        b"\\ud800",
        b"\\ud800" + b"[" * 200_000,
    ],
    ids=lambda text: repr(text[:20]),
)
def test_whole_characters_pass_and_other_faults_are_left_to_the_parser(text: bytes) -> None:
    strict_json.refuse_halves(text)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=9))
def test_what_json_writes_is_read_back(value: Any) -> None:
    text = json.dumps(value)
    assert strict_json.loads(text) == json.loads(text)


@given(st.one_of(st.binary(max_size=40), st.text('{}[]",:019.eE-+\\ud8 ntf', max_size=40)))
def test_any_input_is_read_or_malformed(text: str | bytes) -> None:
    with contextlib.suppress(Malformed):
        strict_json.loads(text)


def values_in(value: Any) -> int:
    """How many values a value is made of, itself included."""
    if isinstance(value, dict):
        return 1 + sum(map(values_in, value.values()))
    return 1 + sum(map(values_in, value)) if isinstance(value, list) else 1


texts = st.text('{}[]",:\\aé', max_size=9)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=30,
)


@given(documents, st.booleans())
def test_no_more_values_are_taken_than_are_allowed(value: Any, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped).encode()
    count = values_in(value)
    with pytest.raises(TooLarge):
        strict_json.refuse_many(text, count - 1)
    # Of an array or object, its beginning and each comma are counted: no value is left out, and
    # none but an empty array or object is counted twice.
    strict_json.refuse_many(text, 2 * count + 1)


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"[]," * 1000,
        b'["\\"[",' + b"{}," * 1000,
        b'["\\\\",' + b"1," * 1000,
        b'{"a":' * 1000,
        b"[" + b'"",' * 1000,
    ],
    ids=repr,
)
def test_what_comes_before_a_mistake_is_counted(text: bytes) -> None:
    with pytest.raises(TooLarge):
        strict_json.refuse_many(text + b"oops", 500)


def test_what_is_in_a_text_is_no_value() -> None:
    strict_json.refuse_many(json.dumps(['[{,\\"' * 100_000]).encode(), 10)

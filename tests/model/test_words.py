"""The words of a text: as the oracle finds them one character at a time, and in linear time."""

from __future__ import annotations

import sys
import time
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import InvalidQuery
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.queries import Conditions
from encrypted_records.model.texts import (
    _ASSIGNED,
    TextTest,
    folded,
    has_phrase,
    is_known,
    words_of,
)
from tests import oracle

texts = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=12),
    st.text("aB \u00e9\u6771\u4eac.'-1\u0661\u0e2a", max_size=12),
)
DEFINITION = parse_definition(
    '{"type": "object", "properties": {"note": {"type": "string"},'
    ' "age": {"type": "integer", "minimum": 0, "maximum": 9}}}'
)


@given(texts)
def test_words_are_those_that_one_finds_character_by_character(text: str) -> None:
    assert words_of(folded(text)) == oracle.words(text)


@given(texts, texts)
def test_a_phrase_is_found_where_its_words_follow_one_another(text: str, phrase: str) -> None:
    held, wanted = oracle.words(text), oracle.words(phrase)
    if wanted:
        expected = any(held[at : at + len(wanted)] == wanted for at in range(len(held)))
        assert has_phrase(words_of(folded(text)), tuple(wanted)) == expected


def test_no_letter_lies_beyond_the_planes_that_are_looked_at() -> None:
    inside = {point for points in _ASSIGNED for point in points}
    outside = (point for point in range(sys.maxunicode + 1) if point not in inside)
    kinds = {unicodedata.category(chr(point)) for point in outside}
    assert kinds <= {"Cn", "Co"}


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("plain", True),
        ("\u00fc\u6771\ue000\U000f0000", True),
        ("a\uffff", False),
        ("\u0378", False),
    ],
)
def test_a_text_with_characters_that_unicode_does_not_have_is_not_known(
    text: str, known: bool
) -> None:
    assert is_known(folded(text)) == known


@pytest.mark.parametrize(
    "text", ["a" * 10**6, "a " * 500_000, "\u00ad" * 500_000, "\u6771" * 300_000]
)
def test_a_megabyte_of_anything_takes_no_longer_than_a_megabyte_of_prose(text: str) -> None:
    test = TextTest("note", "has_phrase", ("a",) * 63 + ("b",), fold=True)
    start = time.process_time()
    assert not test.fits(text)
    # Quadratic time would be hours.
    assert time.process_time() - start < 20


def asked(op: str, value: Any, **more: Any) -> Any:
    return Conditions(DEFINITION).predicate(
        {"field": "note", "op": op, "value": value, **more}, "", 1
    )


@pytest.mark.parametrize("op", ["has_words", "has_phrase"])
def test_a_question_without_words_or_with_too_many_is_refused_by_name(op: str) -> None:
    many = " ".join(f"w{number}" for number in range(65))
    for value, code in [
        ("", "words"),
        (" .,!", "words"),
        (many, "words"),
        (3, "type"),
        (["a"], "type"),
    ]:
        with pytest.raises(InvalidQuery) as refused:
            asked(op, value)
        assert refused.value.flaws[0].code == code
    with pytest.raises(InvalidQuery) as refused:
        asked(op, "a", fold=True)
    assert refused.value.flaws[0].code == "op"
    with pytest.raises(InvalidQuery) as refused:
        Conditions(DEFINITION).predicate({"field": "age", "op": op, "value": "a"}, "", 1)
    assert refused.value.flaws[0].code == "op"


def test_a_phrase_of_one_word_asks_for_that_word() -> None:
    assert asked("has_phrase", "F\u00e9ver!") == asked("has_words", "fever FEVER")

"""Spellings made alike: each text as the standard's steps say, and texts between zeros as alone."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.model.texts import _mark_pattern, folded
from tests import oracle

texts = st.text(st.characters(codec="utf-8"), max_size=12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("M\u00dcLLER", "muller"),
        ("Stra\u00dfe", "strasse"),
        ("\ufb01n", "fin"),
        ("\uff21\uff11", "a1"),
        ("\ud55c", "\ud55c"),
        ("\u00d8", "\u00f8"),
        ("e\u0301", "e"),
    ],
)
def test_case_marks_and_widths_are_made_alike_and_letters_stay(text: str, expected: str) -> None:
    assert folded(text) == expected


@given(texts)
def test_a_text_is_folded_by_the_steps_of_the_standard(text: str) -> None:
    assert folded(text) == oracle.fold(text)


@given(st.lists(texts.filter(lambda text: "\0" not in text), max_size=6))
def test_texts_between_zeros_are_folded_as_if_each_were_alone(several: list[str]) -> None:
    assert folded("\0".join(several)) == "\0".join(map(folded, several))


def test_every_mark_that_there_is_is_removed() -> None:
    marks = {
        chr(point)
        for point in range(sys.maxunicode + 1)
        if unicodedata.category(chr(point)) == "Mn"
    }
    assert {mark for mark in marks if _mark_pattern().sub("", mark)} == set()
    assert _mark_pattern().sub("", "a\u0bbf-\u0903z") == "a\u0bbf-\u0903z"

"""Recovery words as people type them, and what is said of those that are wrong."""

from __future__ import annotations

import pytest

from encrypted_records.errors import BadInput
from encrypted_records.proxy.pages import keyring

PHRASE = " ".join(f"{chr(97 + at % 26)}word" for at in range(24))


@pytest.mark.parametrize(
    "typed",
    [
        "picture clip",
        "1. picture 2. clip",
        "1.picture 2.clip",
        "1) Picture\n2) CLIP\n",
        " 1  picture\n 2  clip",
        "picture, clip;",
    ],
)
def test_numbers_and_marks_around_words_do_no_harm(typed: str) -> None:
    assert keyring.words_of(typed) == ["picture", "clip"]


def test_a_megabyte_of_nonsense_is_not_looked_at_to_its_end() -> None:
    assert len(keyring.words_of("1. a " * 200_000)) <= keyring.MOST_TYPED // 4
    assert keyring.words_of("1" * 1_000_000) == []


def test_forty_eight_words_are_two_phrases() -> None:
    numbered = " ".join(f"{at}. {word}" for at, word in enumerate(PHRASE.split(), 1))
    assert keyring.phrases_of(f"{numbered}\n{numbered}") == [PHRASE, PHRASE]


def test_four_different_words_are_asked_for_and_not_always_the_same() -> None:
    asked = {tuple(keyring.places_to_ask_for()) for _ in range(50)}
    assert len(asked) > 1
    assert all(len(set(one)) == 4 and min(one) >= 1 and max(one) <= 24 for one in asked)


def test_a_wrong_word_is_named_by_its_number_and_none_is_repeated() -> None:
    typed = {1: "aword", 5: "mistyped", 9: "Iword ", 24: "secret"}
    with pytest.raises(BadInput) as refused:
        keyring.check_typed(PHRASE, typed)
    assert refused.value.message == "words 5 and 24 are not what was shown"
    assert [flaw.pointer for flaw in refused.value.flaws] == ["/word-5", "/word-24"]
    said = " ".join([refused.value.message, refused.value.hint, *map(str, refused.value.flaws)])
    assert "mistyped" not in said
    assert "secret" not in said


@pytest.mark.parametrize("typed", [{}, {1: "aword"}, {0: "xword", 1: "a", 2: "b", 99: "c"}])
def test_fewer_words_or_words_beyond_the_phrase_confirm_nothing(typed: dict[int, str]) -> None:
    with pytest.raises(BadInput):
        keyring.check_typed(PHRASE, typed)

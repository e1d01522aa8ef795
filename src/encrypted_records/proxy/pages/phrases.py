"""The 24 words of a keyring, as people type them: numbered, in lines, with a word mistyped.

An error names the number of a mistyped word, never the word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from encrypted_records import runtime
from encrypted_records.errors import BadInput, Flaw

#: A recovery phrase (docs/SPEC.md, section 8.1), one for each version of the keyring.
WORDS = 24
#: How many of them are asked for, to see whether they were written down.
ASKED = 4
#: Nobody types more: the words of some two hundred versions.
MOST_CHARACTERS = 1 << 16
_NUMBER = re.compile(r"\b\d+\s*[.):]?")


def words_of(typed: str) -> list[str]:
    """``1. picture 2. clip`` and ``picture, clip`` are two words, as ``Picture clip`` is."""
    return re.sub(r"[,;]", " ", _NUMBER.sub(" ", typed[:MOST_CHARACTERS])).lower().split()


def phrases_of(typed: str) -> list[str]:
    """The typed phrases, one for each version; the last may be too short, which is reported
    later.
    """
    words = words_of(typed)
    return [" ".join(words[start : start + WORDS]) for start in range(0, len(words), WORDS)]


def places_to_ask_for() -> list[int]:
    """Unpredictable word numbers, from 1 on, for the confirmation of a backup."""
    return sorted(runtime.chance.sample(range(1, WORDS + 1), ASKED))


def check_typed(phrase: str, typed: Mapping[int, str]) -> None:
    """Compare some words, by their numbers from 1 on, with those of the phrase.

    Raises:
        BadInput: ``invalid_phrase``; some differ, and the flaws name their numbers.
    """
    words = phrase.split()
    wrong = [
        place
        for place, word in typed.items()
        if not 1 <= place <= len(words) or words_of(word) != [words[place - 1]]
    ]
    if wrong or len(typed) != ASKED:
        raise BadInput(
            f"{_listed(wrong)} not what was shown",
            code="invalid_phrase",
            hint="check your paper; if it is wrong there, go back and correct it",
            flaws=tuple(
                Flaw("invalid_phrase", "this is a different word", pointer=f"/word-{place}")
                for place in wrong
            ),
        )


def _listed(places: Sequence[int]) -> str:
    if len(places) == 1:
        return f"word {places[0]} is"
    return f"words {', '.join(map(str, places[:-1]))} and {places[-1]} are" if places else "that is"

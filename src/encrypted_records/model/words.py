"""The words of a text (docs/SPEC.md, section 3.2).

Spellings are made alike first (:mod:`.folding`). Then every run of letters, marks and digits is a
word, but in scripts that are written without spaces each character is one: a run of them is found
as a phrase.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

#: Characters of scripts that are written without spaces: Thai and Lao, Myanmar, Khmer, kana and
#: what stands with them, ideographs.
ALONE = (
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x3000, 0x30FF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
_PLAIN = re.compile("[a-z0-9]+")
#: No letter lies beyond these (tests/model/test_words.py).
_ASSIGNED = (range(0x40000), range(0xE0000, 0xE01F0))


def words_of(folded: str) -> list[str]:
    """The words of a folded text, in its order, as often as it has them."""
    return (_PLAIN if folded.isascii() else _word()).findall(folded)


def has_phrase(words: list[str], phrase: tuple[str, ...]) -> bool:
    """Whether the words of ``phrase``, at least one, stand one behind the other in ``words``."""
    if not set(phrase).issubset(words):
        return False
    # Words hold no blank, so that one stands for every boundary. Quick also where a text repeats
    # the beginning of the phrase many times.
    return f" {' '.join(phrase)} " in f" {' '.join(words)} "


def is_known(folded: str) -> bool:
    """Whether this version of Unicode knows every character, so that another has the same words."""
    return folded.isascii() or not _unknown().search(folded)


@cache
def _word() -> re.Pattern[str]:
    letters = [point for points in _ASSIGNED for point in points if _category(point) in "LMN"]
    alone = {point for point in letters if any(low <= point <= high for low, high in ALONE)}
    runs = [point for point in letters if point not in alone]
    return re.compile(f"[{_ranges(sorted(alone))}]|[{_ranges(runs)}]+")


@cache
def _unknown() -> re.Pattern[str]:
    every = [point for points in _ASSIGNED for point in points]
    known = [point for point in every if unicodedata.category(chr(point)) not in ("Cn", "Cs")]
    # Private use, in which nobody else's characters lie.
    return re.compile(f"[^{_ranges(known)}\U000f0000-\U000ffffd\U00100000-\U0010fffd]")


def _category(point: int) -> str:
    return unicodedata.category(chr(point))[0]


def _ranges(points: list[int]) -> str:
    """The ranges of some characters in ascending order, as they stand between brackets."""
    runs: list[list[int]] = []
    for point in points:
        if runs and runs[-1][1] == point - 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    return "".join(f"{re.escape(chr(low))}-{re.escape(chr(high))}" for low, high in runs)

"""Texts: normalization, folding, words, and tests.

Normalization (UAX #15) takes linear time here, for every text. CPython sorts each run of combining
marks by insertion, in quadratic time, and holds the interpreter lock meanwhile: a megabyte of marks
that are out of order kept a process busy for many minutes. Nothing else in this package may call
:func:`unicodedata.normalize` (tests/test_house.py).

The words of a text (docs/SPEC.md, section 3.2) are those of the folded text: every run of letters,
marks and digits is a word. In scripts that are written without spaces each character is a word, and
a run of them is found as a phrase.

A :class:`TextTest` is a test that no order of keys decides: parts, patterns, spellings, edits.
Texts and operands are normalized for comparison (:func:`comparable`). For tests with ``fold``,
operands are already folded, and texts are folded here.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]

#: Length up to which insertion sort is fast: 20 microseconds at worst.
_SHORT = 128


def comparable(text: str) -> str:
    """The normalized form in which strings are compared: NFC (UAX #15), without folding."""
    return text if text.isascii() else normalized("NFC", text)


def normalized(form: Form, text: str) -> str:
    """``unicodedata.normalize(form, text)``, equal for every text."""
    if len(text) <= _SHORT:
        return unicodedata.normalize(form, text)
    # This does not sort: it stops at the first mark that is out of order.
    if unicodedata.is_normalized(form, text):
        return text
    return unicodedata.normalize(form, _ordered("NFKD" if "K" in form else "NFD", text))


def _ordered(form: Literal["NFD", "NFKD"], text: str) -> str:
    """An equivalent text whose marks are in canonical order already.

    Runs of marks are decomposed and stably sorted by combining class; the standard calls the result
    their canonical order. Marks from the decomposition of other characters at the beginning of a
    run, at most three by the standard's data, are still moved by insertion.
    """
    # Imported here: it would slow the start of commands, and few texts reach this code.
    import numpy as np  # noqa: PLC0415

    classes, several = _marks(form)
    for mark, parts in several:
        text = text.replace(mark, parts)
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    row_classes = classes[points]
    # Every character that is not a mark begins a run, and comes first in it: its class is 0.
    order = np.lexsort((row_classes, np.cumsum(row_classes == 0)))
    return points[order].tobytes().decode("utf-32-le", "surrogatepass")


@cache
def _marks(form: Literal["NFD", "NFKD"]) -> tuple[Any, list[tuple[str, str]]]:
    """The combining class of every code point, as an array; and the characters that only stand for
    other marks, with these marks, in the order of replacement.
    """
    import numpy as np  # noqa: PLC0415

    classes = np.zeros(0x110000, np.uint8)
    several: list[tuple[str, str]] = []
    for point in range(0x110000):
        character = chr(point)
        combining_class = unicodedata.combining(character)
        if combining_class:
            classes[point] = combining_class
        if unicodedata.decomposition(character):
            parts = unicodedata.normalize(form, character)
            if parts != character and all(map(unicodedata.combining, parts)):
                several.append((character, parts))
    return classes, several


def folded(text: str) -> str:
    """NFKC, then casefold, then without marks (category Mn), in NFC.

    Zero characters separate texts completely: texts that are joined by zeros are folded as if each
    were alone.
    """
    if text.isascii():
        return text.lower()
    apart = normalized("NFKD", normalized("NFKC", text).casefold())
    return normalized("NFC", _mark_pattern().sub("", apart))


@cache
def _mark_pattern() -> re.Pattern[str]:
    # All assigned marks are in these ranges (tests/model/test_folding.py).
    points = [*range(0x300, 0x20000), *range(0xE0100, 0xE01F0)]
    marks = [point for point in points if unicodedata.category(chr(point)) == "Mn"]
    runs: list[list[int]] = []
    for point in marks:
        if runs and runs[-1][1] == point - 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    return re.compile("[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in runs) + "]+")


#: Characters of scripts that are written without spaces: Thai and Lao, Myanmar, Khmer, kana and
#: related marks, ideographs.
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
#: No letter is outside these ranges (tests/model/test_words.py).
_ASSIGNED = (range(0x40000), range(0xE0000, 0xE01F0))


def words_of(folded: str) -> list[str]:
    """The words of a folded text, in order, with repetitions."""
    return (_PLAIN if folded.isascii() else _word()).findall(folded)


def has_phrase(words: list[str], phrase: tuple[str, ...]) -> bool:
    """Whether the words of ``phrase``, at least one, appear consecutively in ``words``."""
    if not set(phrase).issubset(words):
        return False
    # Words contain no blank, so a blank can mark every boundary. This is fast even if a text
    # repeats the beginning of the phrase many times.
    return f" {' '.join(phrase)} " in f" {' '.join(words)} "


def is_known(folded: str) -> bool:
    """Whether this version of Unicode knows every character, so that another version finds the same
    words.
    """
    return folded.isascii() or not _unknown().search(folded)


@cache
def _word() -> re.Pattern[str]:
    letters = [point for points in _ASSIGNED for point in points if _category(point) in "LMN"]
    alone = {point for point in letters if any(low <= point <= high for low, high in ALONE)}
    runs = [point for point in letters if point not in alone]
    return re.compile(f"[{_ranges(sorted(alone))}]|[{_ranges(runs)}]+")


@cache
def _unknown() -> re.Pattern[str]:
    points_assigned = [point for points in _ASSIGNED for point in points]
    known = [
        point for point in points_assigned if unicodedata.category(chr(point)) not in ("Cn", "Cs")
    ]
    # Characters for private use never get an assignment.
    return re.compile(f"[^{_ranges(known)}\U000f0000-\U000ffffd\U00100000-\U0010fffd]")


def _category(point: int) -> str:
    return unicodedata.category(chr(point))[0]


def _ranges(points: list[int]) -> str:
    """The ranges of ascending code points, as written between brackets of a pattern."""
    runs: list[list[int]] = []
    for point in points:
        if runs and runs[-1][1] == point - 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    return "".join(f"{re.escape(chr(low))}-{re.escape(chr(high))}" for low, high in runs)


How = Literal[
    "any_of",
    "prefix",
    "contains",
    "ends_with",
    "like",
    "matches",
    "near",
    "has_words",
    "has_phrase",
]

#: Maximum bytes of a pattern's source.
MAX_PATTERN = 1000
#: Syntax whose meaning changes if a pattern runs over many texts, one per line.
_NOT_BY_LINE = re.compile(r"\\[AzZCQ]|\(\?(?!:|P?<|[is]+[):])")
#: A backslash with the syntax after it, or any other character of a pattern.
_PATTERN_PARTS = re.compile(r"\\(?:[pP]\{[^}]*\}|x\{[^}]*\}|.)|\(\?P?<[^>]*>|.", re.DOTALL)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TextTest:
    """The field's text passes a test.

    ``texts`` are the operands. For ``like`` and ``matches`` it is a single pattern in the syntax of
    RE2; for ``has_words`` and ``has_phrase`` it is the words, and ``fold`` is true. ``within`` is
    the number of edits that ``near`` allows.
    """

    field: str
    how: How
    texts: tuple[str, ...]
    fold: bool = False
    within: int = 0

    @property
    def of_words(self) -> bool:
        """Whether it searches for words, which an index may list."""
        return self.how in ("has_words", "has_phrase")

    def fits(self, text: str) -> bool:
        return self.passes(folded(text) if self.fold else text)

    def passes(self, text: str) -> bool:
        """:meth:`fits`, for a text that is already folded if the test folds."""
        first = self.texts[0]
        match self.how:
            case "any_of":
                return text in self.texts
            case "prefix":
                return text.startswith(first)
            case "contains":
                return first in text
            case "ends_with":
                return text.endswith(first)
            case "near":
                # Only the proxy installs it; clients import this module, too.
                from rapidfuzz.distance import Levenshtein  # noqa: PLC0415

                return Levenshtein.distance(first, text, score_cutoff=self.within) <= self.within
            case "has_words":
                return set(self.texts).issubset(words_of(text))
            case "has_phrase":
                return has_phrase(words_of(text), self.texts)
            case "like":
                return bool(compile_test(rf"\A(?s:{first})\z").search(text))
            case "matches":
                return bool(compile_test(first, fold=self.fold).search(text))

    def by_line(self) -> Any | None:
        """The pattern for the bytes of many texts, one per line, none of which contains a line
        break; None if it could then match other texts.
        """
        (source,) = self.texts
        if self.how == "like":
            return compile_test(f"(?m)^(?s:{source})$", by_line=True)
        if _NOT_BY_LINE.search(source):
            return None
        return compile_test(f"(?m)(?:{source})", fold=self.fold, by_line=True)


@lru_cache(256)
def compile_test(source: str, *, fold: bool = False, by_line: bool = False) -> Any:
    """
    Raises:
        re2.error: not of the syntax of RE2, or too large.
    """
    import re2  # noqa: PLC0415 - a bare client does not install it

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not fold
    options.never_nl = by_line
    return re2.compile(source, options)


def parse_like(pattern: str) -> list[str]:
    """The parts of a ``like`` pattern: the two wildcards, and the texts between them, without their
    escaping backslashes; each text is ``"=" + text``.

    Raises:
        ValueError: a backslash stands before a character other than ``%``, ``_`` and a backslash.
    """
    parts: list[str] = []
    for piece in re.findall(r"\\.?|[%_]|[^\\%_]+", pattern, re.DOTALL):
        if piece in ("%", "_"):
            if parts[-1:] != ["%"] or piece == "_":
                parts.append(piece)
            continue
        if piece.startswith("\\") and piece[1:] not in ("%", "_", "\\"):
            raise ValueError
        text = piece[1:] if piece.startswith("\\") else piece
        if parts and parts[-1].startswith("="):
            parts[-1] += text
        else:
            parts.append(f"={text}")
    return parts


def like_source(parts: list[str]) -> str:
    """The RE2 pattern for parts of :func:`parse_like`."""
    import re2  # noqa: PLC0415 - a bare client does not install it

    wildcards = {"%": ".*", "_": "."}
    return "".join(wildcards.get(part) or re2.escape(part[1:]) for part in parts)


def fold_pattern(source: str) -> str:
    """A pattern with each letter folded separately; characters after a backslash stay.

    It is matched case-insensitively.
    """

    import re2  # noqa: PLC0415 - a bare client does not install it

    def fold(part: re.Match[str]) -> str:
        text = part[0]
        if text.isascii() or len(text) > 1:
            return text
        letters = folded(text)
        return letters if len(letters) < 2 else f"(?:{re2.escape(letters)})"

    return _PATTERN_PARTS.sub(fold, source)

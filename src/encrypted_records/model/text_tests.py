"""Tests of a text that no order of keys decides: its parts, patterns, spellings, edits.

Texts and operands are in the form in which they are compared (:func:`.definition.comparable`);
where spellings are to be made alike, operands are folded already, and a text is folded here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from encrypted_records.model.folding import folded
from encrypted_records.model.words import has_phrase, words_of

How = Literal[
    "one_of",
    "prefix",
    "contains",
    "ends_with",
    "like",
    "matches",
    "near",
    "has_words",
    "has_phrase",
]

#: Bytes of a pattern's source.
MAX_PATTERN = 1000
#: What means something else in a pattern over many texts, one a line, than over one text.
_NOT_BY_LINE = re.compile(r"\\[AzZCQ]|\(\?(?!:|P?<|[is]+[):])")
#: A backslash with what it stands before, or any other character of a pattern.
_PATTERN_PARTS = re.compile(r"\\(?:[pP]\{[^}]*\}|x\{[^}]*\}|.)|\(\?P?<[^>]*>|.", re.DOTALL)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TextTest:
    """The field's text passes a test.

    ``texts`` are the operands; of ``like`` and ``matches`` one, the source of a pattern in the
    syntax of RE2; of ``has_words`` and ``has_phrase`` the words that are wanted, and ``fold`` is
    true. ``within`` is how many edits ``near`` allows.
    """

    field: str
    how: How
    texts: tuple[str, ...]
    fold: bool = False
    within: int = 0

    @property
    def of_words(self) -> bool:
        """Whether it looks for words, which an index may list."""
        return self.how in ("has_words", "has_phrase")

    def fits(self, text: str) -> bool:
        return self.passes(folded(text) if self.fold else text)

    def passes(self, text: str) -> bool:
        """:meth:`fits`, of a text that is folded already where it is to be."""
        first = self.texts[0]
        match self.how:
            case "one_of":
                return text in self.texts
            case "prefix":
                return text.startswith(first)
            case "contains":
                return first in text
            case "ends_with":
                return text.endswith(first)
            case "near":
                # Of the proxy alone: clients that import this module do not have it.
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
        """The pattern for bytes of many texts, one a line, none of which has a line break; None
        where it might find another text so."""
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
    import re2  # noqa: PLC0415 - a client without a side does without it

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not fold
    options.never_nl = by_line
    return re2.compile(source, options)


def parse_like(asked: str) -> list[str]:
    """The parts of a pattern of ``like``: the two wildcards, and the texts between them in front
    of which a backslash of the operand was taken away; a text is ``"=" + text``.

    Raises:
        ValueError: a backslash stands before something else than ``%``, ``_`` and a backslash.
    """
    parts: list[str] = []
    for piece in re.findall(r"\\.?|[%_]|[^\\%_]+", asked, re.DOTALL):
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
    """The pattern of RE2 for parts of :func:`parse_like`."""
    import re2  # noqa: PLC0415 - a client without a side does without it

    wildcards = {"%": ".*", "_": "."}
    return "".join(wildcards.get(part) or re2.escape(part[1:]) for part in parts)


def fold_pattern(source: str) -> str:
    """A pattern whose letters are folded, each by itself; what stands behind a backslash stays.

    It is matched with capital and small letters alike.
    """

    import re2  # noqa: PLC0415 - a client without a side does without it

    def fold(part: re.Match[str]) -> str:
        text = part[0]
        if text.isascii() or len(text) > 1:
            return text
        letters = folded(text)
        return letters if len(letters) < 2 else f"(?:{re2.escape(letters)})"

    return _PATTERN_PARTS.sub(fold, source)

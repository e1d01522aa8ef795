"""The comparisons of the filter builder: what each is called, and how many values it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from encrypted_records.model.field_types import BY_NAME
from encrypted_records.model.text_conditions import FOLDING

#: Phrase of the filter builder -> its text, and how many values it takes (9: a list).
_ANY = {
    "missing": ("is missing", 0),
    "present": ("is not missing", 0),
    "among": ("is among", 1),
    "not_among": ("is not among", 1),
}
_STRING = {
    "eq": ("is", 1),
    "prefix": ("starts with", 1),
    "contains": ("contains", 1),
    "ends_with": ("ends with", 1),
    "has_words": ("has the words", 1),
    "has_phrase": ("has the phrase", 1),
    "near": ("is nearly", 1),
    "near_two": ("is nearly, up to two letters off,", 1),
    "like": ("is like, with % and _,", 1),
    "matches": ("matches the pattern", 1),
    "in": ("is one of", 9),
    "ne": ("is not", 1),
    **_ANY,
}
_NUMBER = {
    "between": ("is between", 2),
    "ge": ("is at least", 1),
    "le": ("is at most", 1),
    "gt": ("is above", 1),
    "lt": ("is below", 1),
    "eq": ("is", 1),
    "in": ("is one of", 9),
    "ne": ("is not", 1),
    **_ANY,
}
_DATE = {
    "between": ("is between", 2),
    "ge": ("is at or after", 1),
    "le": ("is at or before", 1),
    "gt": ("is after", 1),
    "lt": ("is before", 1),
    "eq": ("is", 1),
    "in": ("is one of", 9),
    "ne": ("is not", 1),
    **_ANY,
}
_SAME = {"eq": ("is", 1), "in": ("is one of", 9), "ne": ("is not", 1), **_ANY}
_SETS = {"text": _STRING, "number": _NUMBER, "time": _DATE, "length": _NUMBER, "same": _SAME}
#: Phrases that are another ``op`` with more members.
OTHER_OPS: Mapping[str, tuple[str, Mapping[str, Any]]] = {"near_two": ("near", {"within": 2})}
#: Phrases that questions saved by versions before have: an ``op``, in any spelling.
FORMER = {"alike": "eq", "contains_alike": "contains"}
#: Phrases behind which stand a field and a schema.
AMONG = ("among", "not_among")


def phrases_of(kind: str) -> Mapping[str, tuple[str, int]]:
    """The comparisons of a type or enforced format; those of texts where there is none."""
    return _SETS[BY_NAME[kind].phrases] if kind in BY_NAME else _STRING


def has_spellings(kind: str, phrase: str) -> bool:
    """Whether a comparison can look past capital letters, accents and widths.

    Args:
        kind: a field's type, or its enforced format.
    """
    return phrases_of(kind) is _STRING and OTHER_OPS.get(phrase, (phrase,))[0] in FOLDING

"""Generated definitions, records and questions, nasty ones first.

Definitions are JSON texts, records and questions what a strict JSON reader would make of a
request, so that the same inputs go through the package's own parsers and to the oracle.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from encrypted_records.index.segments.builder import STANDARD, SegmentLimits
from tests.reference import definitions as plain

NAMES = [
    "a",
    "select",
    "\u00fc/~1",
    "\u65e5\u672c",
    " ",
    '"',
    "__proto__",
    "x" * 200,
    "e\u0301",
    "0",
]

BOUNDS = [(0, 0), (-3, 3), (0, 120), (-(2**63), 2**63 - 1), (0, 2**64 - 1), (2**60, 2**60 + 9)]
DECIMALS = [
    ("0", "1", 1),
    ("-2.5", "2.5", 0),
    ("-0.05", "0.05", 1),
    ("-1000.125", "1e3", 2),
    ("0.1", "0.1", 3),
    ("0", "18", 18),
    ("1e30", "1000000000000000000000000000010", 2),
    ("9999999999999999999999999999999999999000", "9999999999999999999999999999999999999500", 0),
]
#: No value of ``TEXTS`` is refused by them.
_PADDED = [{}, {"padTo": "20"}, {"padTo": "150"}, {"maxLength": "999"}]
#: Words of TEXTS and others; some texts have more of them than rows have room for.
PHRASES = [
    *("a", "B a", "a b", "\u00c9", "E", "\u672c", "\u65e5\u672c", "p" * 48, "A.b;a", "c", "x y z"),
]
#: Long strings share 47, 48 and 49 bytes of prefix; escapes and multi-byte characters lie across
#: the cut; some are equal only after NFC.
_BASE = "p" * 48
TEXTS = [
    *(
        "",
        "\x00",
        "\n",
        "a\nb",
        "\x00\x00",
        "\x01",
        "\x01\x01",
        "\x02",
        "a",
        "a\x00",
        "a\x01",
        "ab",
        "b",
    ),
    *("e\u0301", "\u00e9", "e", "\u212b", "\u00c5", "\uffff", "\U00010000", "\U0010ffff", "\ue000"),
    *(_BASE[:47], _BASE, _BASE + "\x00", _BASE + "a", _BASE + "b", _BASE + "a" * 100),
    *(_BASE[:47] + "\u00e9", _BASE[:47] + "e\u0301", _BASE[:46] + "\x00\x00", _BASE[:47] + "\x01x"),
    *("a b a \u00e9", "B, a!", "\u65e5\u672c a", "a b c d e f g h i j k l", "p" * 48 + " b a"),
    *("\x00" * 24, "\x00" * 25, "\U0001f600" * 12, "\U0001f600" * 13, "\U0001f600" * 12 + "a"),
]
texts = st.one_of(
    st.sampled_from(TEXTS),
    st.builds(str.__add__, st.sampled_from(TEXTS), st.sampled_from(TEXTS)),
    st.text(st.characters(codec="utf-8"), max_size=8),
)


@st.composite
def field_bodies(draw: st.DrawFn) -> dict[str, str]:
    """A field as keyword to JSON text, so that no number passes through a float."""
    kind = draw(st.sampled_from(["string", "string", "integer", "number"]))
    body = {"type": json.dumps(kind)}
    if kind == "integer":
        low, high = draw(st.sampled_from(BOUNDS))
        body |= {"minimum": str(low), "maximum": str(high)}
    elif kind == "number":
        least, most, precision = draw(st.sampled_from(DECIMALS))
        body |= {"minimum": least, "maximum": most, "precision": str(precision)}
    else:
        body |= draw(st.sampled_from(_PADDED))
        body |= draw(st.sampled_from([{}, {"x-index": '["words"]'}]))
    return body


@st.composite
def definition_texts(draw: st.DrawFn) -> str:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    bodies = []
    for name in names:
        keywords = draw(field_bodies())
        inner = ", ".join(f'"{keyword}": {text}' for keyword, text in keywords.items())
        bodies.append(f"{json.dumps(name)}: {{{inner}}}")
    return f'{{"type": "object", "properties": {{{", ".join(bodies)}}}}}'


def accepted_numbers(field: plain.Field) -> st.SearchStrategy[Decimal]:
    """Numbers within the bounds; of a number field also ones that rounding moves."""
    low: Decimal = field["minimum"]
    high: Decimal = field["maximum"]
    grid = st.integers(*plain.grid(field)).map(lambda point: plain.from_point(field, point))
    chosen = [grid, st.sampled_from([low, high])]
    if field["type"] == "number":
        finer = dict(field, precision=plain.precision(field) + 1)
        halves = st.integers(*plain.grid(finer)).map(lambda point: plain.from_point(finer, point))
        chosen.append(halves)

    def stays_within(number: Decimal) -> bool:
        kept = plain.from_point(field, plain.to_point(field, number))
        return low <= number <= high and low <= kept <= high

    return st.one_of(chosen).filter(stays_within)


def accepted(field: plain.Field) -> st.SearchStrategy[Any]:
    return texts if field["type"] == "string" else accepted_numbers(field)


def bounds(field: plain.Field) -> st.SearchStrategy[Any]:
    """Operands of ranges: also far outside, and between the points of the grid."""
    if field["type"] == "string":
        return texts
    far = st.sampled_from([Decimal(text) for text in ("1e99", "-1e99", "0.5", "-0.001", "1e-99")])
    return st.one_of(accepted_numbers(field), far)


#: Patterns that mean the same to RE2 and to Python's engine.
PATTERNS = [
    "a",
    "^a",
    "a$",
    "^$",
    "",
    "p{47}",
    "[^p]",
    "^[^p]+$",
    "a|b",
    "(a.)",
    "A",
    "^e",
    "\u00e9",
]
#: Parts of patterns of like; no text before a backslash.
_LIKES = ["%", "_", "a", "p" * 47, "\u00e9", "E", "\x01", "\n", "p"]


@st.composite
def text_comparisons(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Tests of a text, folded or not; of "one of" and prefixes only folded ones are."""
    ops = ["contains", "ends_with", "like", "matches", "near", "eq", "ne", "in", "prefix"]
    op = draw(st.sampled_from([*ops, *["has_words", "has_phrase"] * 2]))
    if op in ("has_words", "has_phrase"):
        return {"field": name, "op": op, "value": draw(st.sampled_from(PHRASES))}
    asked: dict[str, Any] = {"field": name, "op": op, "value": draw(texts)}
    if op in ("eq", "ne", "in", "prefix") or draw(st.booleans()):
        asked["fold"] = True
    if op == "in":
        asked["value"] = draw(st.lists(texts, min_size=1, max_size=6))
    elif op == "like":
        asked["value"] = "".join(draw(st.lists(st.sampled_from(_LIKES), max_size=4)))
    elif op == "matches":
        asked["value"] = draw(st.sampled_from(PATTERNS))
    elif op == "near":
        asked["within"] = draw(st.sampled_from([1, 2]))
    return asked


@st.composite
def comparisons(draw: st.DrawFn, fields: dict[str, plain.Field]) -> dict[str, Any]:
    name = draw(st.sampled_from(sorted(fields)))
    field = fields[name]
    if field["type"] == "string" and draw(st.booleans()):
        return draw(text_comparisons(name))
    ops = ["eq", "ne", "in", "lt", "le", "gt", "ge", "between", "is_null"]
    op = draw(st.sampled_from([*ops, "prefix", "prefix"] if field["type"] == "string" else ops))
    asked: dict[str, Any] = {"field": name, "op": op}
    if op in ("eq", "ne"):
        asked["value"] = draw(accepted(field))
    elif op == "in":
        asked["value"] = draw(st.lists(accepted(field), min_size=1, max_size=3))
    elif op == "between":
        asked["value"] = draw(st.lists(bounds(field), min_size=2, max_size=2))
    elif op == "is_null":
        asked |= draw(st.sampled_from([{}, {"value": True}, {"value": False}]))
    else:
        asked["value"] = draw(bounds(field))
    return asked


def questions(fields: dict[str, plain.Field]) -> st.SearchStrategy[Any]:
    """Predicates, nested."""
    return st.recursive(
        comparisons(fields),
        lambda inner: st.one_of(
            st.builds(lambda part: {"not": part}, inner),
            st.builds(
                lambda word, parts: {word: parts},
                st.sampled_from(["and", "or"]),
                st.lists(inner, min_size=1, max_size=3),
            ),
        ),
        max_leaves=5,
    )


#: Minis, and small data in the forms that only larger data has: pages of few entries, packed or
#: not, and mixtures that merging makes of them.
EVERY_FORM = [
    STANDARD,
    SegmentLimits(mini=0, entries=3),
    SegmentLimits(mini=0, plain=0, entries=4),
    SegmentLimits(mini=5, plain=8, entries=2),
]


@dataclass(frozen=True)
class Case:
    """A definition, records in groups, questions about them, and the form that segments take."""

    text: str
    limits: SegmentLimits
    groups: list[list[dict[str, Any]]]
    asked: list[Any]

    @property
    def fields(self) -> dict[str, plain.Field]:
        return plain.load(self.text).fields

    @property
    def records(self) -> list[dict[str, Any]]:
        return [record for group in self.groups for record in group]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    text = draw(definition_texts())
    fields = plain.load(text).fields
    record = st.fixed_dictionaries(
        {name: st.one_of(accepted(field), st.none()) for name, field in fields.items()}
    )
    groups = draw(st.lists(st.lists(record, min_size=1, max_size=8), min_size=1, max_size=3))
    asked = draw(st.lists(questions(fields), min_size=1, max_size=4))
    return Case(text, draw(st.sampled_from(EVERY_FORM)), groups, asked)

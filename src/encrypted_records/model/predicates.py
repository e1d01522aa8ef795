"""Conditions on records, and their meaning.

Every comparison becomes one of a few leaves on which numbers are grid points and strings are in
the form in which they are compared, so that the index and the final check on opened records
cannot differ. Meaning is two-valued: a comparison on an absent field is false, ``ne`` is the
negation of ``eq`` (an absent field is not equal to anything), and ``not`` negates.

Values that another field has, as a set: what a semi-join compares a field with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from encrypted_records.model.definition import SchemaDefinition, Value
from encrypted_records.model.normalization import comparable
from encrypted_records.model.text_tests import TextTest


@dataclass(frozen=True, slots=True)
class Everything:
    """Every record."""


@dataclass(frozen=True, slots=True)
class Absent:
    """The field has no value."""

    field: str


@dataclass(frozen=True, slots=True, weakref_slot=True)
class NumberIn:
    """The field's grid point is one of ``points``."""

    field: str
    points: frozenset[int]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class NumberRange:
    """The field's grid point is in low..high, both included."""

    field: str
    low: int
    high: int


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TextIn:
    field: str
    texts: frozenset[str]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TextRange:
    """The field's text lies between two bounds in code point order; None is no bound."""

    field: str
    low: str | None
    high: str | None
    low_included: bool
    high_included: bool


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TextPrefix:
    field: str
    prefix: str


class MemberValues(Protocol):
    """Values as the field has them that is compared, whatever they were where they come from."""

    def has_point(self, point: int, /) -> bool:
        """Whether a point of the field's grid is a member."""

    def has_text(self, text: str, /) -> bool:
        """Whether a text, in its normalized form for comparison, is a member."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class InColumn:
    """The field's value is one of those that a field of another schema has."""

    field: str
    members: MemberValues


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Predicate


#: What no order of keys decides: each distinct key of a column is looked at.
ColumnTest = TextTest | InColumn
Leaf = Absent | NumberIn | NumberRange | TextIn | TextRange | TextPrefix | ColumnTest
Predicate = Everything | Leaf | And | Or | Not


def matches(predicate: Predicate, data: Mapping[str, Value], definition: SchemaDefinition) -> bool:
    """Whether a plain record fits: the meaning against which the index is held."""
    return _Record(data, definition).matches(predicate)


class _Record:
    """A record under a predicate of many comparisons; each text is normalized once."""

    def __init__(self, data: Mapping[str, Value], definition: SchemaDefinition) -> None:
        self._data = data
        self._definition = definition
        self._texts: dict[str, str] = {}

    def matches(self, predicate: Predicate) -> bool:
        match predicate:
            case Everything():
                return True
            case And(parts):
                return all(map(self.matches, parts))
            case Or(parts):
                return any(map(self.matches, parts))
            case Not(part):
                return not self.matches(part)
            case Absent(field):
                return self._data.get(field) is None
            case NumberIn() | NumberRange():
                return self._number_matches(predicate)
            case TextIn() | TextRange() | TextPrefix():
                text = self._text(predicate.field)
                return text is not None and _text_matches(predicate, text)
            case TextTest():
                text = self._text(predicate.field)
                return text is not None and predicate.fits(text)
            case InColumn():
                return self._is_member(predicate)

    def _number_matches(self, leaf: NumberIn | NumberRange) -> bool:
        spec = self._definition.fields[leaf.field]
        point = spec.to_point(self._data.get(leaf.field))
        if point is None:
            return False
        if isinstance(leaf, NumberIn):
            return point in leaf.points
        return leaf.low <= point <= leaf.high

    def _is_member(self, test: InColumn) -> bool:
        spec = self._definition.fields[test.field]
        if spec.is_of_texts:
            text = self._text(test.field)
            return text is not None and test.members.has_text(text)
        point = spec.to_point(self._data.get(test.field))
        return point is not None and test.members.has_point(point)

    def _text(self, field: str) -> str | None:
        known = self._texts.get(field)
        if known is None:
            value = self._data.get(field)
            if not isinstance(value, str):
                return None
            known = self._texts[field] = comparable(value)
        return known


def _text_matches(leaf: TextIn | TextRange | TextPrefix, text: str) -> bool:
    match leaf:
        case TextIn(_, texts):
            return text in texts
        case TextPrefix(_, prefix):
            return text.startswith(prefix)
        case TextRange(_, low, high, low_included, high_included):
            if low is not None and (text < low or (text == low and not low_included)):
                return False
            return high is None or text < high or (text == high and high_included)


def values_of(predicate: Predicate) -> int:
    """The number of values that a predicate compares with, a measure of its work."""
    match predicate:
        case Everything():
            return 0
        case And(parts) | Or(parts):
            return sum(map(values_of, parts))
        case Not(part):
            return values_of(part)
        case NumberIn(_, points):
            return len(points)
        case TextIn(_, texts):
            return len(texts)
        case TextTest():
            return len(predicate.texts)
        case _:
            return 1


def fields_of(predicate: Predicate) -> frozenset[str]:
    """The fields a predicate looks at."""
    match predicate:
        case Everything():
            return frozenset()
        case And(parts) | Or(parts):
            return frozenset().union(*(fields_of(part) for part in parts))
        case Not(part):
            return fields_of(part)
        case _:
            return frozenset({predicate.field})


def tested_fields(predicate: Predicate, definition: SchemaDefinition) -> tuple[str, ...]:
    """The fields whose keys a predicate tests one by one, as no order of them decides; sorted."""
    match predicate:
        case And(parts) | Or(parts):
            every = {name for part in parts for name in tested_fields(part, definition)}
            return tuple(sorted(every))
        case Not(part):
            return tested_fields(part, definition)
        case TextTest(field) if predicate.of_words and definition.fields[field].words:
            return ()
        case TextTest(field) | InColumn(field):
            return (field,)
        case _:
            return ()


def leaves_of(predicate: Predicate) -> Iterator[Leaf]:
    """Every leaf of a predicate."""
    match predicate:
        case Everything():
            return
        case And(parts) | Or(parts):
            for part in parts:
                yield from leaves_of(part)
        case Not(part):
            yield from leaves_of(part)
        case _:
            yield predicate


def only_leaf(predicate: Predicate) -> tuple[Leaf | None, bool]:
    """The leaf of a predicate that is one or its negation, and whether it is negated."""
    negated = False
    while isinstance(predicate, Not):
        predicate, negated = predicate.part, not negated
    if isinstance(predicate, Everything | And | Or):
        return None, negated
    return predicate, negated

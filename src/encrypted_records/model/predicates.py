"""What a condition on records is, and what it means.

Every comparison becomes one of a few leaves on which numbers are grid points and strings are in
the form in which they are compared, so that the index and the final check on opened records
cannot differ. Meaning is two-valued: a comparison on an absent field is false, ``ne`` is the
negation of ``eq`` (an absent field is not equal to anything), and ``not`` negates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from encrypted_records.model.definition import SchemaDefinition, Value, as_decimal, comparable


@dataclass(frozen=True, slots=True)
class Everything:
    """Every record."""


@dataclass(frozen=True, slots=True)
class Absent:
    """The field has no value."""

    field: str


@dataclass(frozen=True, slots=True)
class NumberIn:
    """The field's grid point is one of ``points``."""

    field: str
    points: frozenset[int]


@dataclass(frozen=True, slots=True)
class NumberRange:
    """The field's grid point lies in low..high, both included."""

    field: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class TextIn:
    field: str
    texts: frozenset[str]


@dataclass(frozen=True, slots=True)
class TextRange:
    """The field's text lies between two bounds in code point order; None is no bound."""

    field: str
    low: str | None
    high: str | None
    low_included: bool
    high_included: bool


@dataclass(frozen=True, slots=True)
class TextPrefix:
    field: str
    prefix: str


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Predicate


Leaf = Absent | NumberIn | NumberRange | TextIn | TextRange | TextPrefix
Predicate = Everything | Leaf | And | Or | Not


def matches(predicate: Predicate, data: Mapping[str, Value], definition: SchemaDefinition) -> bool:
    """Whether a plain record fits: the meaning against which the index is held."""
    match predicate:
        case Everything():
            return True
        case And(parts):
            return all(matches(part, data, definition) for part in parts)
        case Or(parts):
            return any(matches(part, data, definition) for part in parts)
        case Not(part):
            return not matches(part, data, definition)
        case Absent(field):
            return data.get(field) is None
        case NumberIn() | NumberRange():
            number = as_decimal(data.get(predicate.field))
            if number is None:
                return False
            point = definition.fields[predicate.field].numbers.to_grid(number)
            if isinstance(predicate, NumberIn):
                return point in predicate.points
            return predicate.low <= point <= predicate.high
        case TextIn() | TextRange() | TextPrefix():
            value = data.get(predicate.field)
            return isinstance(value, str) and _text_matches(predicate, comparable(value))


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

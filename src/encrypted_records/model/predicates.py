"""Conditions on records, and their meaning: comparisons, semi-joins, unique keys.

Every comparison becomes one of a few leaf types, in which numbers are grid points and strings are
normalized for comparison, so that the index and the final check on opened records cannot differ.
Meaning is two-valued: a comparison on an absent field is false, ``ne`` is the negation of ``eq``
(an absent field is not equal to anything), and ``not`` negates.

A semi-join compares a field with the values of a field of another schema, which are a set. A query
with semi-joins is read twice. The first pass collects the subqueries on other schemas; the second
pass, after they were answered, replaces each comparison with the result of its subquery.

Ranges of the same field that are joined by "and" become one range. ``seen >= 2026-01-01 and seen <
2026-02-01`` has two comparisons, but is one lookup in the index: its rows are counted between the
two ends of the range, and no set of all rows above the first bound is built. The result is the same
for every record.

A *unique key* consists of the values of one set of fields, normalized for comparison, which no
other record may have. A record that lacks one of these fields has no key of that set, and does not
collide with any record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from encrypted_records.errors import Flaw, InvalidQuery
from encrypted_records.model.ciphertext_lengths import LeastClass
from encrypted_records.model.definition import FieldSpec, SchemaDefinition, Value
from encrypted_records.model.records import Group
from encrypted_records.model.strict_json import escape_pointer
from encrypted_records.model.texts import TextTest, comparable


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
    """The values of another schema's field, in the form of the field that is compared with them."""

    def has_point(self, point: int, /) -> bool:
        """Whether a point of the field's grid is a member."""

    def has_text(self, text: str, /) -> bool:
        """Whether a text, in its normalized form for comparison, is a member."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class InColumn:
    """The field's value is among the values of a field of another schema."""

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


#: Tests that no order of keys decides: each distinct key of a column is tested.
ColumnTest = TextTest | InColumn
Leaf = Absent | NumberIn | NumberRange | TextIn | TextRange | TextPrefix | ColumnTest
Predicate = Everything | Leaf | And | Or | Not


def matches(predicate: Predicate, data: Mapping[str, Value], definition: SchemaDefinition) -> bool:
    """Whether a plain record fits. This defines the meaning; the index is tested against it."""
    return _TestedRecord(data, definition).matches(predicate)


class _TestedRecord:
    """A record tested against a predicate of many comparisons; each text is normalized once."""

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
    """The number of values in a predicate's comparisons, a measure of its work."""
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
    """The fields in a predicate."""
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
    """The fields whose keys a predicate tests individually, because no order decides; sorted."""
    match predicate:
        case And(parts) | Or(parts):
            names = {name for part in parts for name in tested_fields(part, definition)}
            return tuple(sorted(names))
        case Not(part):
            return tested_fields(part, definition)
        case TextTest(field) if predicate.of_words and definition.fields[field].words:
            return ()
        case TextTest(field) | InColumn(field):
            return (field,)
        case _:
            return ()


def leaves_of(predicate: Predicate) -> Iterator[Leaf]:
    """All leaves of a predicate."""
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
    """The leaf of a predicate that is a leaf or a negated leaf, and whether it is negated."""
    negated = False
    while isinstance(predicate, Not):
        predicate, negated = predicate.part, not negated
    if isinstance(predicate, Everything | And | Or):
        return None, negated
    return predicate, negated


#: Maximum nesting of semi-joins.
MAX_JOIN_DEPTH = 3
#: Maximum semi-joins of a query, including nested ones.
MAX_JOINS = 8
#: Maximum characters of a schema's absolute URL or name.
_LONGEST_NAME = 2000

_MEMBERS = ("schema", "field", "where")


@dataclass(frozen=True, slots=True)
class Join:
    """``spec``, a field of this schema, is compared with the values of field ``name`` in the
    records of ``schema`` that fit ``where``, which is not parsed yet. ``pointer`` leads to the
    comparison.
    """

    pointer: str
    spec: FieldSpec
    schema: str
    name: str
    where: Any


@dataclass(slots=True)
class Joins:
    """The semi-joins of a condition, without nested ones.

    ``found`` are the semi-joins without an answer, in the condition's order. ``answers`` are by
    pointer, and empty during the first reading of the query.
    """

    found: list[Join] = field(default_factory=list)
    answers: dict[str, Predicate] = field(default_factory=dict)

    def read(self, comparison: Mapping[str, Any], spec: FieldSpec, pointer: str) -> Predicate:
        """The predicate of a comparison with ``of``; while it has no answer, a predicate that fits
        any record.

        Raises:
            InvalidQuery: with a pointer to the error.
        """
        answer = self.answers.get(pointer)
        if answer is None:
            self.found.append(_read(comparison, spec, pointer))
            return Everything()
        return answer


def refuse_join(code: str, detail: str, pointer: str) -> InvalidQuery:
    return InvalidQuery("the search is not valid", flaws=(Flaw(code, detail, pointer=pointer),))


def _read(comparison: Mapping[str, Any], spec: FieldSpec, pointer: str) -> Join:
    if comparison.get("op") != "in":
        raise refuse_join(
            "op", "of can only be used with in; put it in not for the others", f"{pointer}/op"
        )
    for name in ("value", "fold", "within"):
        if name in comparison:
            detail = f"a comparison with of cannot have {name}"
            raise refuse_join("unknown_member", detail, f"{pointer}/{name}")
    of, at = comparison["of"], f"{pointer}/of"
    if not isinstance(of, dict):
        raise refuse_join("type", "expected an object with schema and field", at)
    for name in of:
        if name not in _MEMBERS:
            detail = "of can only have schema, field and where"
            raise refuse_join("unknown_member", detail, f"{at}/{escape_pointer(name)}")
    schema, wanted = of.get("schema"), of.get("field")
    if not isinstance(schema, str) or not 1 <= len(schema) <= _LONGEST_NAME:
        detail = "expected the schema's path, its id, or its name in this dataset"
        raise refuse_join("type", detail, f"{at}/schema")
    if not isinstance(wanted, str):
        raise refuse_join("type", "expected the name of a field", f"{at}/field")
    return Join(pointer, spec, schema, wanted, of.get("where"))


Range = NumberRange | TextRange


def join_ranges(predicate: Predicate) -> Predicate:
    """The same condition with at most one range of each field in every conjunction."""
    match predicate:
        case And(parts):
            joined = tuple(_join(_flatten(parts)))
            return joined[0] if len(joined) == 1 else And(joined)
        case Or(parts):
            return Or(tuple(map(join_ranges, parts)))
        case Not(part):
            return Not(join_ranges(part))
        case _:
            return predicate


def _flatten(parts: Iterable[Predicate]) -> Iterator[Predicate]:
    for part in parts:
        if isinstance(part, And):
            yield from _flatten(part.parts)
        else:
            yield join_ranges(part)


def _join(parts: Iterable[Predicate]) -> Iterable[Predicate]:
    """Join the ranges of each field at the position of the field's first range."""
    joined: dict[object, Predicate] = {}
    for place, part in enumerate(parts):
        if not isinstance(part, Range):
            joined[place] = part
            continue
        before = joined.get(part.field)
        if isinstance(before, NumberRange) and isinstance(part, NumberRange):
            low, high = max(before.low, part.low), min(before.high, part.high)
            joined[part.field] = NumberRange(part.field, low, high)
        elif isinstance(before, TextRange) and isinstance(part, TextRange):
            joined[part.field] = _intersect(before, part)
        else:
            joined[part.field if before is None else place] = part
    return joined.values()


def _intersect(one: TextRange, other: TextRange) -> TextRange:
    lows = [each for each in (one, other) if each.low is not None]
    highs = [each for each in (one, other) if each.high is not None]
    # Of two equal bounds, the exclusive bound is narrower.
    low = max(lows, key=lambda each: (each.low or "", not each.low_included), default=one)
    high = min(highs, key=lambda each: (each.high or "", each.high_included), default=one)
    return TextRange(one.field, low.low, high.high, low.low_included, high.high_included)


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """``fields`` are those of a set; ``values`` are grid points, or texts normalized for
    comparison.
    """

    fields: tuple[str, ...]
    values: tuple[int | str, ...]


def keys_of(
    definition: SchemaDefinition,
    data: Mapping[str, Value],
    sets: Sequence[tuple[str, ...]] | None = None,
) -> list[UniqueKey]:
    """The keys of a record, of all sets or of the given sets."""
    found = []
    for fields in definition.unique if sets is None else sets:
        values = [_comparable(definition, name, data.get(name)) for name in fields]
        if None not in values:
            found.append(UniqueKey(fields, tuple(value for value in values if value is not None)))
    return found


def _comparable(definition: SchemaDefinition, name: str, value: Value) -> int | str | None:
    spec = definition.fields[name]
    if spec.is_of_texts:
        return comparable(value) if isinstance(value, str) else None
    return spec.to_point(value)


def find(keys: Iterable[UniqueKey]) -> Predicate | None:
    """The predicate for records with any of these keys; None without keys."""
    by_set: dict[tuple[str, ...], set[tuple[int | str, ...]]] = {}
    for key in keys:
        by_set.setdefault(key.fields, set()).add(key.values)
    parts = [part for fields, values in by_set.items() for part in _conditions(fields, values)]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def _conditions(fields: tuple[str, ...], keys: set[tuple[int | str, ...]]) -> Iterator[Predicate]:
    if len(fields) == 1:
        yield _among(fields[0], [values[0] for values in keys])
        return
    for values in keys:
        yield And(tuple(_among(name, [value]) for name, value in zip(fields, values, strict=True)))


def _among(name: str, values: Sequence[int | str]) -> Predicate:
    texts = frozenset(value for value in values if isinstance(value, str))
    if texts:
        return TextIn(name, texts)
    return NumberIn(name, frozenset(value for value in values if isinstance(value, int)))


def greatest_classes(groups: Iterable[Group]) -> Group | None:
    """A group that states, for each field, the greatest class that any of these groups states: a
    value that is sealed again gets no lower class. None without groups.
    """
    greatest: dict[int, LeastClass] = {}
    first: Group | None = None
    for group in groups:
        first = first or group
        for number, stated in zip(group.fields, group.classes, strict=True):
            had = greatest.get(number)
            if had is None or had.length < stated.length:
                greatest[number] = stated
    if first is None:
        return None
    return msgspec.structs.replace(first, fields=list(greatest), classes=list(greatest.values()))

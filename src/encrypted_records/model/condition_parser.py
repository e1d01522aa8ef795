"""The grammar of conditions: from the JSON of a request to a predicate.

Searches and aggregates have their conditions in this form.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from encrypted_records.errors import Flaw, InvalidQuery
from encrypted_records.model.definition import FieldSpec, SchemaDefinition
from encrypted_records.model.field_types.base import KeyKind, Span
from encrypted_records.model.field_types.plain import TEXT
from encrypted_records.model.joins import Joins, join_ranges
from encrypted_records.model.predicates import (
    Absent,
    And,
    Everything,
    Not,
    NumberIn,
    NumberRange,
    Or,
    Predicate,
    TextIn,
    TextPrefix,
    TextRange,
)
from encrypted_records.model.rules import ValueRefused
from encrypted_records.model.strict_json import escape_pointer
from encrypted_records.model.text_conditions import TEXT_OPERATORS, is_text_test, read_text_test

MAX_DEPTH = 16
MAX_COMPARISONS = 256
MAX_IN_VALUES = 1000
#: Of all comparisons of a question together.
MAX_VALUES = 4096
T = TypeVar("T")
#: Of a comparison.
_MEMBERS = frozenset({"field", "op", "value", "fold", "within", "of"})
#: Fields that an error lists.
_LISTED = 20


def invalid_query(code: str, detail: str, pointer: str) -> InvalidQuery:
    return InvalidQuery("the search is not valid", flaws=(Flaw(code, detail, pointer=pointer),))


class Conditions:
    """Reads the conditions of one request, whose comparisons and values it counts.

    Every method raises :class:`InvalidQuery` with a pointer to the error.
    """

    def __init__(self, definition: SchemaDefinition, joins: Joins | None = None) -> None:
        """
        Args:
            joins: of a question that may compare with other schemas.
        """
        self.definition = definition
        self.joins = joins
        self.comparisons = 0
        self.values = 0

    def read(self, body: Mapping[str, Any]) -> Predicate:
        """The predicate of the members ``where`` and ``filters`` together."""
        parts: list[Predicate] = []
        if body.get("where") is not None:
            parts.append(self.predicate(body["where"], "/where", 1))
        parts += self.filters(body.get("filters"))
        return join_ranges(And(tuple(parts))) if parts else Everything()

    def filters(self, entries: Any) -> list[Predicate]:
        if entries is None:
            return []
        if not isinstance(entries, list):
            raise invalid_query(
                "type", "expected an array of objects with label and value", "/filters"
            )
        parts = []
        for position, entry in enumerate(entries):
            pointer = f"/filters/{position}"
            if not isinstance(entry, dict) or set(entry) != {"label", "value"}:
                raise invalid_query("type", "expected an object with label and value", pointer)
            asked = {"field": entry["label"], **self._filter(entry["label"], entry["value"])}
            parts.append(self.comparison(asked, pointer, field_member="label"))
        return parts

    def _filter(self, label: Any, value: Any) -> dict[str, Any]:
        """The operator and value that a filter means. Texts of string fields mean themselves."""
        spec = self.definition.fields.get(label) if isinstance(label, str) else None
        if spec is not None and isinstance(value, str):
            op, meant = spec.field_type.read_filter(value)
            return {"op": op, "value": meant}
        return {"op": "eq", "value": value}

    def predicate(self, asked: Any, pointer: str, depth: int) -> Predicate:
        if depth > MAX_DEPTH:
            raise invalid_query("too_deep", f"nested more than {MAX_DEPTH} levels", pointer)
        if not isinstance(asked, dict):
            raise invalid_query("type", "expected an object", pointer)
        if "field" in asked or "op" in asked:
            return self.comparison(asked, pointer)
        if len(asked) != 1 or (keyword := next(iter(asked))) not in ("and", "or", "not"):
            raise invalid_query("where", "expected field and op, or one of and, or, not", pointer)
        inner = asked[keyword]
        if keyword == "not":
            return Not(self.predicate(inner, f"{pointer}/not", depth + 1))
        if not isinstance(inner, list) or not inner:
            raise invalid_query(
                "type", "expected an array with at least one condition", f"{pointer}/{keyword}"
            )
        parts = tuple(
            self.predicate(part, f"{pointer}/{keyword}/{position}", depth + 1)
            for position, part in enumerate(inner)
        )
        return And(parts) if keyword == "and" else Or(parts)

    def spec(self, name: Any, pointer: str) -> FieldSpec:
        spec = self.definition.fields.get(name) if isinstance(name, str) else None
        if spec is None:
            raise invalid_query("unknown_field", self._no_such_field(name), pointer)
        return spec

    def _no_such_field(self, name: Any) -> str:
        """The error's text for an unknown field: the fields that there are, and that it may be a
        value in the wrong place.
        """
        known = list(self.definition.fields)
        near = difflib.get_close_matches(name, known, 1) if isinstance(name, str) else []
        meant = f"did you mean {near[0]}? " if near else ""
        listed = ", ".join(known[:_LISTED]) + (", ..." if len(known) > _LISTED else "")
        return f"the schema has no such field; {meant}its fields are {listed}"

    def comparison(
        self, asked: dict[str, Any], pointer: str, *, field_member: str = "field"
    ) -> Predicate:
        self.comparisons += 1
        if self.comparisons > MAX_COMPARISONS:
            raise invalid_query("too_many", f"more than {MAX_COMPARISONS} comparisons", pointer)
        for name in asked:
            if name not in _MEMBERS:
                raise invalid_query(
                    "unknown_member",
                    "a comparison has field, op, and value or of; comparisons of text"
                    " can also have fold and within",
                    f"{pointer}/{escape_pointer(name)}",
                )
        spec = self.spec(asked.get("field"), f"{pointer}/{field_member}")
        try:
            return self._comparison_of(spec, asked, pointer)
        except InvalidQuery as refused:
            # The pointer means nothing to somebody who wrote no JSON; the field's name does.
            flaws = tuple(replace(flaw, field=spec.name) for flaw in refused.flaws)
            raise InvalidQuery(refused.message, flaws=flaws) from None

    def _comparison_of(self, spec: FieldSpec, asked: dict[str, Any], pointer: str) -> Predicate:
        if "of" in asked:
            if self.joins is None:
                raise invalid_query(
                    "op", "no other schema can be used in this condition", f"{pointer}/of"
                )
            return self.joins.read(asked, spec, pointer)
        value = asked.get("value")
        self.count(value, f"{pointer}/value")
        op = asked.get("op")
        build = _OPERATORS.get(op) if isinstance(op, str) else None
        if build is None and op not in TEXT_OPERATORS:
            detail = f"expected one of {', '.join(OPERATORS)}"
            raise invalid_query("op", detail, f"{pointer}/op")
        if not spec.field_type.is_ordered and op in _ORDERED:
            named = spec.field_type.name
            detail = f"{op} does not fit a {named}: true and false have eq, ne, in and is_null"
            raise invalid_query("op", detail, f"{pointer}/op")
        if is_text_test(asked):
            test = read_text_test(asked, spec, pointer, most=MAX_IN_VALUES, read=_text)
            if test is not None:
                return test
        assert build is not None
        return build(self, spec, value, pointer)

    def count(self, value: Any, pointer: str) -> None:
        self.values += len(value) if isinstance(value, list) else 1
        if self.values > MAX_VALUES:
            detail = f"more than {MAX_VALUES} values in all comparisons together"
            raise invalid_query("too_many_values", detail, pointer)

    def one_of(self, spec: FieldSpec, values: list[tuple[Any, str]]) -> Predicate:
        if spec.is_of_texts:
            read = spec.field_type.read_text
            return TextIn(spec.name, frozenset(_told(read, value, at) for value, at in values))
        spans = [
            _told(lambda sent: spec.field_type.read_span(spec, sent), value, at)
            for value, at in values
        ]
        return _within(spec, spans)

    def range(
        self,
        spec: FieldSpec,
        low: tuple[Any, str, bool] | None,
        high: tuple[Any, str, bool] | None,
    ) -> Predicate:
        kind = spec.field_type
        if spec.is_of_texts:
            return TextRange(
                spec.name,
                _told(kind.read_text, *low[:2]) if low else None,
                _told(kind.read_text, *high[:2]) if high else None,
                low_included=bool(low and low[2]),
                high_included=bool(high and high[2]),
            )
        lowest, highest = spec.numbers.lowest, spec.numbers.highest
        if low:
            value, at, included = low
            lowest = _told(lambda sent: kind.read_lowest(spec, sent, included=included), value, at)
        if high:
            value, at, up_to = high
            highest = _told(lambda sent: kind.read_highest(spec, sent, included=up_to), value, at)
        return NumberRange(spec.name, lowest, highest)


def _told(read: Callable[[Any], T], value: Any, pointer: str) -> T:
    """
    Raises:
        InvalidQuery: the value is refused.
    """
    try:
        return read(value)
    except ValueRefused as refused:
        raise invalid_query(refused.code, refused.detail, pointer) from None


def _text(value: Any, pointer: str) -> str:
    return _told(TEXT.read_text, value, pointer)


def _within(spec: FieldSpec, spans: list[Span]) -> Predicate:
    """Whether the field's point is in one of the spans."""
    points = frozenset(span.first for span in spans if span.first == span.last)
    parts: list[Predicate] = [NumberIn(spec.name, points)] if points else []
    parts += [
        NumberRange(spec.name, span.first, span.last) for span in spans if span.first != span.last
    ]
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


# What each operator means, as ``(conditions, spec, value, pointer of the comparison)``.
_Build = Callable[[Conditions, FieldSpec, Any, str], Predicate]


def _equal(conditions: Conditions, spec: FieldSpec, value: Any, pointer: str) -> Predicate:
    if (bounds := spec.field_type.read_range(value)) is not None:
        return _between(conditions, spec, list(bounds), pointer)
    return conditions.one_of(spec, [(value, f"{pointer}/value")])


def _not_equal(conditions: Conditions, spec: FieldSpec, value: Any, pointer: str) -> Predicate:
    return Not(_equal(conditions, spec, value, pointer))


def _in(conditions: Conditions, spec: FieldSpec, value: Any, pointer: str) -> Predicate:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_IN_VALUES:
        expected = f"expected an array of 1 to {MAX_IN_VALUES} values"
        raise invalid_query("type", expected, f"{pointer}/value")
    return conditions.one_of(
        spec, [(item, f"{pointer}/value/{position}") for position, item in enumerate(value)]
    )


def _between(conditions: Conditions, spec: FieldSpec, value: Any, pointer: str) -> Predicate:
    if not isinstance(value, list) or len(value) != 2:
        expected = "expected an array of the lower and the upper bound"
        raise invalid_query("type", expected, f"{pointer}/value")
    low, high = value
    return conditions.range(
        spec, (low, f"{pointer}/value/0", True), (high, f"{pointer}/value/1", True)
    )


def _below(*, included: bool) -> _Build:
    def build(conditions: Conditions, spec: FieldSpec, value: Any, pointer: str) -> Predicate:
        return conditions.range(spec, None, (value, f"{pointer}/value", included))

    return build


def _above(*, included: bool) -> _Build:
    def build(conditions: Conditions, spec: FieldSpec, value: Any, pointer: str) -> Predicate:
        return conditions.range(spec, (value, f"{pointer}/value", included), None)

    return build


def _prefix(conditions: Conditions, spec: FieldSpec, value: Any, pointer: str) -> Predicate:
    if spec.kind is not KeyKind.TEXT:
        named = f", and this one is a {spec.format}" if spec.format else ""
        raise invalid_query("op", f"prefix is for string fields{named}", f"{pointer}/op")
    return TextPrefix(spec.name, _text(value, f"{pointer}/value"))


def _is_null(_: Conditions, spec: FieldSpec, value: Any, pointer: str) -> Predicate:
    if value is not None and not isinstance(value, bool):
        raise invalid_query("type", "expected true, false or nothing", f"{pointer}/value")
    return Not(Absent(spec.name)) if value is False else Absent(spec.name)


_ORDERED = ("lt", "le", "gt", "ge", "between")
_OPERATORS: dict[str, _Build] = {
    "eq": _equal,
    "ne": _not_equal,
    "lt": _below(included=False),
    "le": _below(included=True),
    "gt": _above(included=False),
    "ge": _above(included=True),
    "between": _between,
    "in": _in,
    "prefix": _prefix,
    "is_null": _is_null,
}
#: Every ``op`` of a comparison.
OPERATORS = (*_OPERATORS, *TEXT_OPERATORS)

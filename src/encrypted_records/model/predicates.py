"""The search grammar: from the JSON of a request to a predicate, and what a predicate means.

Every comparison becomes one of a few leaves on which numbers are grid points and strings are in
the form in which they are compared, so that the index and the final check on opened records
cannot differ. Meaning is two-valued: a comparison on an absent field is false, ``ne`` is the
negation of ``eq`` (an absent field is not equal to anything), and ``not`` negates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import Any

from encrypted_records.errors import Flaw, InvalidQuery
from encrypted_records.model.definition import (
    FieldSpec,
    SchemaDefinition,
    Value,
    ValueRefused,
    as_decimal,
    comparable,
)
from encrypted_records.model.definition_parser import escape_pointer

MAX_DEPTH = 16
MAX_COMPARISONS = 256
MAX_IN_VALUES = 1000
DEFAULT_LIMIT = 100
MAX_LIMIT = 1000


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


@dataclass(frozen=True, slots=True)
class Query:
    """A search with everything checked. ``fields`` None means all."""

    where: Predicate
    fields: tuple[str, ...] | None
    limit: int
    cursor: str | None
    count: bool


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


def parse_query(body: Mapping[str, Any], definition: SchemaDefinition) -> Query:
    """Read a search request (its ``schema`` is the caller's business).

    Raises:
        InvalidQuery: with a pointer to what cannot be asked.
    """
    return _Parser(definition).query(body)


class _Parser:
    def __init__(self, definition: SchemaDefinition) -> None:
        self.definition = definition
        self.comparisons = 0

    def query(self, body: Mapping[str, Any]) -> Query:
        known = {"schema", "where", "filters", "fields", "limit", "cursor", "count"}
        for name in body:
            if name not in known:
                code = "not_supported" if name == "order_by" else "unknown_member"
                raise _flaw(
                    code, "a search has no such member in this version", f"/{escape_pointer(name)}"
                )
        parts: list[Predicate] = []
        if body.get("where") is not None:
            parts.append(self.predicate(body["where"], "/where", 1))
        parts += self.filters(body.get("filters"))
        count = body.get("count", False)
        if not isinstance(count, bool):
            raise _flaw("type", "expected true or false", "/count")
        cursor = body.get("cursor")
        if cursor is not None and not isinstance(cursor, str):
            raise _flaw("type", "expected the next_cursor of an earlier answer, or null", "/cursor")
        return Query(
            where=parts[0] if len(parts) == 1 else And(tuple(parts)) if parts else Everything(),
            fields=self.wanted(body.get("fields")),
            limit=self.limit(body.get("limit", DEFAULT_LIMIT)),
            cursor=cursor,
            count=count,
        )

    def limit(self, found: Any) -> int:
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= MAX_LIMIT:
            raise _flaw("limit", f"expected an integer from 0 to {MAX_LIMIT}", "/limit")
        return found

    def wanted(self, found: Any) -> tuple[str, ...] | None:
        if found is None:
            return None
        if not isinstance(found, list):
            raise _flaw("type", "expected an array of field names", "/fields")
        for position, name in enumerate(found):
            self.spec(name, f"/fields/{position}")
        return tuple(found)

    def filters(self, found: Any) -> list[Predicate]:
        if found is None:
            return []
        if not isinstance(found, list):
            raise _flaw("type", "expected an array of objects with label and value", "/filters")
        parts = []
        for position, entry in enumerate(found):
            pointer = f"/filters/{position}"
            if not isinstance(entry, dict) or set(entry) != {"label", "value"}:
                raise _flaw("type", "expected an object with label and value", pointer)
            asked = {"field": entry["label"], "op": "eq", "value": entry["value"]}
            parts.append(self.comparison(asked, pointer, field_member="label"))
        return parts

    def predicate(self, found: Any, pointer: str, depth: int) -> Predicate:
        if depth > MAX_DEPTH:
            raise _flaw("too_deep", f"nested more than {MAX_DEPTH} levels", pointer)
        if not isinstance(found, dict):
            raise _flaw("type", "expected an object", pointer)
        if "field" in found or "op" in found:
            return self.comparison(found, pointer)
        if len(found) != 1 or (keyword := next(iter(found))) not in ("and", "or", "not"):
            raise _flaw("where", "expected field and op, or one of and, or, not", pointer)
        inner = found[keyword]
        if keyword == "not":
            return Not(self.predicate(inner, f"{pointer}/not", depth + 1))
        if not isinstance(inner, list) or not inner:
            raise _flaw(
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
            raise _flaw("unknown_field", "the schema has no such field", pointer)
        return spec

    def comparison(
        self, found: dict[str, Any], pointer: str, *, field_member: str = "field"
    ) -> Predicate:
        self.comparisons += 1
        if self.comparisons > MAX_COMPARISONS:
            raise _flaw("too_many", f"more than {MAX_COMPARISONS} comparisons", pointer)
        for name in found:
            if name not in ("field", "op", "value"):
                raise _flaw(
                    "unknown_member",
                    "a comparison has field, op and value",
                    f"{pointer}/{escape_pointer(name)}",
                )
        spec = self.spec(found.get("field"), f"{pointer}/{field_member}")
        op = found.get("op")
        value = found.get("value")
        place = f"{pointer}/value"
        match op:
            case "is_null":
                if value is not None and not isinstance(value, bool):
                    raise _flaw("type", "expected true, false or nothing", place)
                return Not(Absent(spec.name)) if value is False else Absent(spec.name)
            case "eq":
                return self.one_of(spec, [(value, place)])
            case "ne":
                return Not(self.one_of(spec, [(value, place)]))
            case "in":
                if not isinstance(value, list) or not 1 <= len(value) <= MAX_IN_VALUES:
                    raise _flaw("type", f"expected an array of 1 to {MAX_IN_VALUES} values", place)
                return self.one_of(spec, [(one, f"{place}/{at}") for at, one in enumerate(value)])
            case "between":
                if not isinstance(value, list) or len(value) != 2:
                    raise _flaw("type", "expected an array of the lower and the upper bound", place)
                low, high = value
                return self.range(spec, (low, f"{place}/0", True), (high, f"{place}/1", True))
            case "lt" | "le":
                return self.range(spec, None, (value, place, op == "le"))
            case "gt" | "ge":
                return self.range(spec, (value, place, op == "ge"), None)
            case "prefix" if spec.type == "string":
                return TextPrefix(spec.name, self.text(value, place))
            case "prefix":
                raise _flaw("op", "prefix is for string fields", f"{pointer}/op")
            case _:
                operators = "eq, ne, lt, le, gt, ge, between, in, prefix, is_null"
                raise _flaw("op", f"expected one of {operators}", f"{pointer}/op")

    def text(self, value: Any, pointer: str) -> str:
        if not isinstance(value, str):
            raise _flaw("type", "expected a string", pointer)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _flaw("unicode", "holds half of a surrogate pair", pointer) from None
        return comparable(value)

    def one_of(self, spec: FieldSpec, values: list[tuple[Any, str]]) -> Predicate:
        if spec.type == "string":
            texts = frozenset(self.text(value, pointer) for value, pointer in values)
            return TextIn(spec.name, texts)
        points = set()
        for value, pointer in values:
            try:
                # Only type and bounds count here: asking for a value that an enum rules out is
                # a question with the answer none.
                plain = FieldSpec(spec.name, spec.type, spec.numbers.bounds_only)
                number = as_decimal(plain.accept(value))
            except ValueRefused as refused:
                raise _flaw(refused.code, refused.detail, pointer) from None
            if number is None:
                raise _flaw("type", "expected a number; is_null finds absent fields", pointer)
            points.add(spec.numbers.to_grid(number))
        return NumberIn(spec.name, frozenset(points))

    def range(
        self,
        spec: FieldSpec,
        low: tuple[Any, str, bool] | None,
        high: tuple[Any, str, bool] | None,
    ) -> Predicate:
        if spec.type == "string":
            return TextRange(
                spec.name,
                self.text(*low[:2]) if low else None,
                self.text(*high[:2]) if high else None,
                low_included=bool(low and low[2]),
                high_included=bool(high and high[2]),
            )
        rules = spec.numbers
        lowest, highest = rules.lowest, rules.highest
        if low:
            bound = self.bound(spec, *low[:2])
            included = low[2]
            lowest = bound(ROUND_CEILING) if included else bound(ROUND_FLOOR) + 1
        if high:
            bound = self.bound(spec, *high[:2])
            included = high[2]
            highest = bound(ROUND_FLOOR) if included else bound(ROUND_CEILING) - 1
        return NumberRange(spec.name, lowest, highest)

    def bound(self, spec: FieldSpec, value: Any, pointer: str) -> Callable[[str], int]:
        number = as_decimal(value)
        if number is None:
            raise _flaw("type", f"expected a number of type {spec.type}", pointer)
        return lambda rounding: spec.numbers.clamp(number, rounding)


def _flaw(code: str, detail: str, pointer: str) -> InvalidQuery:
    return InvalidQuery("the search cannot be asked", flaws=(Flaw(code, detail, pointer=pointer),))

"""The grammar of conditions: from the JSON of a request to a predicate.

Both kinds of questions, searches and aggregates, take their conditions in this form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import Any

from encrypted_records.errors import Flaw, InvalidQuery
from encrypted_records.model.definition import (
    FieldSpec,
    SchemaDefinition,
    ValueRefused,
    as_decimal,
    comparable,
)
from encrypted_records.model.definition_parser import escape_pointer
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

MAX_DEPTH = 16
MAX_COMPARISONS = 256
MAX_IN_VALUES = 1000


def flaw(code: str, detail: str, pointer: str) -> InvalidQuery:
    return InvalidQuery("the search cannot be asked", flaws=(Flaw(code, detail, pointer=pointer),))


class Conditions:
    """Reads the conditions of one request, whose comparisons it counts.

    Every method raises :class:`InvalidQuery` with a pointer to what cannot be asked.
    """

    def __init__(self, definition: SchemaDefinition) -> None:
        self.definition = definition
        self.comparisons = 0

    def read(self, body: Mapping[str, Any]) -> Predicate:
        """What the members ``where`` and ``filters`` ask for together."""
        parts: list[Predicate] = []
        if body.get("where") is not None:
            parts.append(self.predicate(body["where"], "/where", 1))
        parts += self.filters(body.get("filters"))
        return parts[0] if len(parts) == 1 else And(tuple(parts)) if parts else Everything()

    def filters(self, found: Any) -> list[Predicate]:
        if found is None:
            return []
        if not isinstance(found, list):
            raise flaw("type", "expected an array of objects with label and value", "/filters")
        parts = []
        for position, entry in enumerate(found):
            pointer = f"/filters/{position}"
            if not isinstance(entry, dict) or set(entry) != {"label", "value"}:
                raise flaw("type", "expected an object with label and value", pointer)
            asked = {"field": entry["label"], "op": "eq", "value": entry["value"]}
            parts.append(self.comparison(asked, pointer, field_member="label"))
        return parts

    def predicate(self, found: Any, pointer: str, depth: int) -> Predicate:
        if depth > MAX_DEPTH:
            raise flaw("too_deep", f"nested more than {MAX_DEPTH} levels", pointer)
        if not isinstance(found, dict):
            raise flaw("type", "expected an object", pointer)
        if "field" in found or "op" in found:
            return self.comparison(found, pointer)
        if len(found) != 1 or (keyword := next(iter(found))) not in ("and", "or", "not"):
            raise flaw("where", "expected field and op, or one of and, or, not", pointer)
        inner = found[keyword]
        if keyword == "not":
            return Not(self.predicate(inner, f"{pointer}/not", depth + 1))
        if not isinstance(inner, list) or not inner:
            raise flaw(
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
            raise flaw("unknown_field", "the schema has no such field", pointer)
        return spec

    def comparison(
        self, found: dict[str, Any], pointer: str, *, field_member: str = "field"
    ) -> Predicate:
        self.comparisons += 1
        if self.comparisons > MAX_COMPARISONS:
            raise flaw("too_many", f"more than {MAX_COMPARISONS} comparisons", pointer)
        for name in found:
            if name not in ("field", "op", "value"):
                raise flaw(
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
                    raise flaw("type", "expected true, false or nothing", place)
                return Not(Absent(spec.name)) if value is False else Absent(spec.name)
            case "eq":
                return self.one_of(spec, [(value, place)])
            case "ne":
                return Not(self.one_of(spec, [(value, place)]))
            case "in":
                if not isinstance(value, list) or not 1 <= len(value) <= MAX_IN_VALUES:
                    raise flaw("type", f"expected an array of 1 to {MAX_IN_VALUES} values", place)
                return self.one_of(spec, [(one, f"{place}/{at}") for at, one in enumerate(value)])
            case "between":
                if not isinstance(value, list) or len(value) != 2:
                    raise flaw("type", "expected an array of the lower and the upper bound", place)
                low, high = value
                return self.range(spec, (low, f"{place}/0", True), (high, f"{place}/1", True))
            case "lt" | "le":
                return self.range(spec, None, (value, place, op == "le"))
            case "gt" | "ge":
                return self.range(spec, (value, place, op == "ge"), None)
            case "prefix" if spec.type == "string":
                return TextPrefix(spec.name, self.text(value, place))
            case "prefix":
                raise flaw("op", "prefix is for string fields", f"{pointer}/op")
            case _:
                operators = "eq, ne, lt, le, gt, ge, between, in, prefix, is_null"
                raise flaw("op", f"expected one of {operators}", f"{pointer}/op")

    def text(self, value: Any, pointer: str) -> str:
        if not isinstance(value, str):
            raise flaw("type", "expected a string", pointer)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise flaw("unicode", "holds half of a surrogate pair", pointer) from None
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
                raise flaw(refused.code, refused.detail, pointer) from None
            if number is None:
                raise flaw("type", "expected a number; is_null finds absent fields", pointer)
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
            raise flaw("type", f"expected a number of type {spec.type}", pointer)
        return lambda rounding: spec.numbers.clamp(number, rounding)

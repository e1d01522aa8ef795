"""An aggregate: numbers about the records that a condition selects, whole or by groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any, Literal

from encrypted_records.model.conditions import Conditions, flaw
from encrypted_records.model.definition import FieldSpec, SchemaDefinition, as_decimal
from encrypted_records.model.predicates import Predicate
from encrypted_records.model.questions import refuse_unknown, whole_number

MAX_MEASURES = 32
MAX_GROUP_FIELDS = 4
MAX_PERCENTILES = 100
MAX_BINS = 1000
DEFAULT_LIMIT = 100
MAX_LIMIT = 1000

ListOrder = Literal["value", "-value", "count", "-count"]
_LIST_ORDERS = ("value", "-value", "count", "-count")


@dataclass(frozen=True, slots=True)
class Count:
    """Records; of ``field``, those that have it."""

    field: str | None = None


@dataclass(frozen=True, slots=True)
class Extreme:
    """The lowest or the highest value."""

    field: str
    highest: bool


@dataclass(frozen=True, slots=True)
class Sum:
    field: str


@dataclass(frozen=True, slots=True)
class Average:
    field: str


@dataclass(frozen=True, slots=True)
class Percentile:
    """For each p in 0..100 the lowest value that at least p percent of the values do not exceed.

    ``asked`` are these numbers as they were written.
    """

    field: str
    p: tuple[Fraction, ...]
    asked: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by value: in ``bins`` of one width from the lowest to the highest value found, or
    between ``edges``, grid points of which each begins a bin that ends before the next.

    ``asked`` are the bounds as they were written.
    """

    field: str
    bins: int | None
    edges: tuple[int, ...]
    asked: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Distinct:
    """How many different values there are, and up to ``limit`` of them with their counts."""

    field: str
    limit: int
    order: ListOrder


Measure = Count | Extreme | Sum | Average | Percentile | Histogram | Distinct


@dataclass(frozen=True, slots=True)
class Aggregation:
    """What is asked. ``names`` are the measures' operators as they were written."""

    where: Predicate
    measures: tuple[Measure, ...]
    names: tuple[str, ...]
    group_by: tuple[str, ...]
    limit: int
    order: ListOrder

    @property
    def fields(self) -> frozenset[str]:
        """The fields that are measured or grouped by."""
        measured = (measure.field for measure in self.measures if measure.field is not None)
        return frozenset((*measured, *self.group_by))


def parse_aggregation(body: Mapping[str, Any], definition: SchemaDefinition) -> Aggregation:
    """Read the request for an aggregate (its ``schema`` is the caller's business).

    Raises:
        InvalidQuery: with a pointer to what cannot be asked.
    """
    refuse_unknown(body, {"schema", "where", "filters", "measures", "group_by", "limit", "order"})
    conditions = Conditions(definition)
    where = conditions.read(body)
    asked = body.get("measures", [{"op": "count"}])
    if not isinstance(asked, list) or not 1 <= len(asked) <= MAX_MEASURES:
        raise flaw("type", f"expected an array of 1 to {MAX_MEASURES} measures", "/measures")
    group_by = body.get("group_by") or []
    if not isinstance(group_by, list) or len(group_by) > MAX_GROUP_FIELDS:
        expected = f"expected an array of up to {MAX_GROUP_FIELDS} field names"
        raise flaw("type", expected, "/group_by")
    for position, name in enumerate(group_by):
        conditions.spec(name, f"/group_by/{position}")
    if len(set(group_by)) != len(group_by):
        raise flaw("order_by", "a field is named twice", "/group_by")
    return Aggregation(
        where=where,
        measures=tuple(
            _measure(one, f"/measures/{position}", conditions) for position, one in enumerate(asked)
        ),
        names=tuple(one["op"] for one in asked),
        group_by=tuple(group_by),
        limit=whole_number(body.get("limit", DEFAULT_LIMIT), "/limit", 0, MAX_LIMIT),
        order=_list_order(body.get("order", "value"), "/order"),
    )


def _measure(found: Any, pointer: str, conditions: Conditions) -> Measure:
    if not isinstance(found, dict):
        raise flaw("type", "expected an object with op and field", pointer)
    op = found.get("op")
    members = _MEMBERS.get(op) if isinstance(op, str) else None
    if members is None:
        raise flaw("op", f"expected one of {', '.join(_MEMBERS)}", f"{pointer}/op")
    refuse_unknown(found, {"op", "field", *members}, pointer)
    if op == "count" and found.get("field") is None:
        return Count()
    spec = conditions.spec(found.get("field"), f"{pointer}/field")
    if spec.type == "string" and op not in _OF_STRINGS:
        raise flaw("op", f"{op} is for integer and number fields", f"{pointer}/op")
    match op:
        case "count":
            return Count(spec.name)
        case "min" | "max":
            return Extreme(spec.name, op == "max")
        case "sum":
            return Sum(spec.name)
        case "avg":
            return Average(spec.name)
        case "percentile":
            return _percentile(found.get("p"), spec, f"{pointer}/p")
        case "histogram":
            return _histogram(found, spec, pointer)
        case _:
            limit = whole_number(
                found.get("limit", DEFAULT_LIMIT), f"{pointer}/limit", 0, MAX_LIMIT
            )
            order = _list_order(found.get("order", "value"), f"{pointer}/order")
            return Distinct(spec.name, limit, order)


#: What each operator takes besides ``field``.
_MEMBERS: dict[str, tuple[str, ...]] = {
    "count": (),
    "min": (),
    "max": (),
    "sum": (),
    "avg": (),
    "percentile": ("p",),
    "histogram": ("bins", "bounds"),
    "distinct": ("limit", "order"),
}
_OF_STRINGS = frozenset({"count", "min", "max", "distinct"})


def _list_order(found: Any, pointer: str) -> ListOrder:
    if found not in _LIST_ORDERS or not isinstance(found, str):
        raise flaw("order_by", f"expected one of {', '.join(_LIST_ORDERS)}", pointer)
    return found  # type: ignore[return-value] # it is one of them


def _percentile(found: Any, spec: FieldSpec, pointer: str) -> Percentile:
    asked = found if isinstance(found, list) else [found]
    numbers = [as_decimal(one) for one in asked]
    wrong = any(number is None or not 0 <= number <= 100 for number in numbers)
    if wrong or not 1 <= len(asked) <= MAX_PERCENTILES:
        expected = f"expected a number from 0 to 100, or an array of 1 to {MAX_PERCENTILES}"
        raise flaw("type", expected, pointer)
    shares = tuple(Fraction(number) for number in numbers if number is not None)
    return Percentile(spec.name, shares, tuple(asked))


def _histogram(found: Mapping[str, Any], spec: FieldSpec, pointer: str) -> Histogram:
    bins, bounds = found.get("bins"), found.get("bounds")
    if (bins is None) == (bounds is None):
        raise flaw("type", "expected either bins or bounds", pointer)
    if bins is not None:
        whole_number(bins, f"{pointer}/bins", 1, MAX_BINS)
        return Histogram(spec.name, bins, (), ())
    if not isinstance(bounds, list) or not 2 <= len(bounds) <= MAX_BINS + 1:
        expected = f"expected an array of 2 to {MAX_BINS + 1} ascending numbers"
        raise flaw("type", expected, f"{pointer}/bounds")
    numbers: list[Decimal] = []
    for position, one in enumerate(bounds):
        number = as_decimal(one)
        if number is None or (numbers and number <= numbers[-1]):
            raise flaw("type", "expected ascending numbers", f"{pointer}/bounds/{position}")
        numbers.append(number)
    edges = [spec.numbers.clamp(number, ROUND_CEILING) for number in numbers[:-1]]
    # Of the last bin, its end is a part.
    edges.append(spec.numbers.clamp(numbers[-1], ROUND_FLOOR) + 1)
    return Histogram(spec.name, None, tuple(edges), tuple(bounds))

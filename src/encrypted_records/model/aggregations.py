"""An aggregate: measures of the records that a condition selects, in total or by groups."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any, ClassVar, Literal

from encrypted_records.model.definition import FieldSpec, SchemaDefinition
from encrypted_records.model.field_types.base import ValueRefused, as_decimal
from encrypted_records.model.field_types.calendar import PERIODS, Period
from encrypted_records.model.predicates import Joins, Predicate
from encrypted_records.model.queries import Conditions, invalid_query, refuse_unknown, whole_number

MAX_MEASURES = 32
MAX_GROUP_FIELDS = 4
MAX_PERCENTILES = 100
MAX_BINS = 1000
DEFAULT_LIMIT = 100
MAX_LIMIT = 1000

ListOrder = Literal["value", "-value", "count", "-count"]
_LIST_ORDERS = ("value", "-value", "count", "-count")


class Needs(enum.Flag):
    """The facts about a field's values, besides their number, that a measure needs. Code that adds
    values declares which facts it provides; it is used only for measures that need no others.
    """

    NUMBER = 0
    #: the lowest and the highest value
    ENDS = enum.auto()
    #: the sum
    SUMS = enum.auto()
    #: the sum of squares
    SQUARES = enum.auto()
    #: the values at some ranks, and the numbers of values below some points
    RANKS = enum.auto()
    #: each distinct value with its count
    VALUES = enum.auto()


@dataclass(frozen=True, slots=True)
class Count:
    """Number of records; with ``field``, of records that have the field."""

    needs: ClassVar[Needs] = Needs.NUMBER
    field: str | None = None


@dataclass(frozen=True, slots=True)
class Extreme:
    """The lowest or the highest value."""

    needs: ClassVar[Needs] = Needs.ENDS
    field: str
    highest: bool


@dataclass(frozen=True, slots=True)
class Sum:
    needs: ClassVar[Needs] = Needs.SUMS
    field: str


@dataclass(frozen=True, slots=True)
class Average:
    needs: ClassVar[Needs] = Needs.SUMS
    field: str


@dataclass(frozen=True, slots=True)
class Variance:
    """The variance: the sum of the squares of the distances from the average, over one less than
    the number of values; or its square root, the standard deviation, if ``is_root``.
    """

    needs: ClassVar[Needs] = Needs.SUMS | Needs.SQUARES
    field: str
    is_root: bool


@dataclass(frozen=True, slots=True)
class Percentile:
    """For each p in 0..100 the lowest value that at least p percent of the values do not exceed.

    ``written`` are these numbers as the request spells them.
    """

    needs: ClassVar[Needs] = Needs.RANKS
    field: str
    p: tuple[Fraction, ...]
    written: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by value. The bins are ``bins`` of equal width from the lowest to the highest value,
    or lie between ``edges`` (grid points; each begins a bin that ends before the next edge), or are
    the periods ``by`` from the lowest to the highest value.

    ``written`` are the bounds as the request spells them.
    """

    needs: ClassVar[Needs] = Needs.RANKS
    field: str
    bins: int | None
    edges: tuple[int, ...]
    written: tuple[Any, ...]
    by: Period | None = None

    @property
    def most_bins(self) -> int:
        """The maximum possible number of bins."""
        return MAX_BINS if self.by else self.bins or len(self.edges)


@dataclass(frozen=True, slots=True)
class Distinct:
    """The number of distinct values, and up to ``limit`` of them with their counts."""

    needs: ClassVar[Needs] = Needs.VALUES
    field: str
    limit: int
    order: ListOrder


Measure = Count | Extreme | Sum | Average | Variance | Percentile | Histogram | Distinct


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A valid request. ``names`` are the measures' operators as the request spells them;
    ``periods`` has, for each field in ``group_by``, the period by which it is grouped, or None.
    """

    where: Predicate
    measures: tuple[Measure, ...]
    names: tuple[str, ...]
    group_by: tuple[str, ...]
    limit: int
    order: ListOrder
    periods: tuple[Period | None, ...] = ()

    @property
    def fields(self) -> frozenset[str]:
        """The fields that are measured or grouped by."""
        measured = (measure.field for measure in self.measures if measure.field is not None)
        return frozenset((*measured, *self.group_by))


def parse_aggregation(
    body: Mapping[str, Any], definition: SchemaDefinition, joins: Joins | None = None
) -> Aggregation:
    """Read the request for an aggregate, except its ``schema``, which the caller reads.

    Args:
        joins: as for :class:`Conditions`.

    Raises:
        InvalidQuery: with a pointer to the error.
    """
    refuse_unknown(body, {"schema", "where", "filters", "measures", "group_by", "limit", "order"})
    conditions = Conditions(definition, joins)
    where = conditions.read(body)
    measures = body.get("measures", [{"op": "count"}])
    if not isinstance(measures, list) or not 1 <= len(measures) <= MAX_MEASURES:
        raise invalid_query(
            "type", f"expected an array of 1 to {MAX_MEASURES} measures", "/measures"
        )
    group_by = body.get("group_by") or []
    if not isinstance(group_by, list) or len(group_by) > MAX_GROUP_FIELDS:
        expected = f"expected an array of up to {MAX_GROUP_FIELDS} field names"
        raise invalid_query("type", expected, "/group_by")
    grouped = [
        _grouping(field, f"/group_by/{position}", conditions)
        for position, field in enumerate(group_by)
    ]
    group_by = [name for name, _ in grouped]
    if len(set(group_by)) != len(group_by):
        raise invalid_query("order_by", "a field is named twice", "/group_by")
    return Aggregation(
        where=where,
        measures=tuple(
            _measure(measure, f"/measures/{position}", conditions)
            for position, measure in enumerate(measures)
        ),
        names=tuple(measure["op"] for measure in measures),
        group_by=tuple(group_by),
        periods=tuple(period for _, period in grouped),
        limit=whole_number(body.get("limit", DEFAULT_LIMIT), "/limit", 0, MAX_LIMIT),
        order=_list_order(body.get("order", "value"), "/order"),
    )


def _grouping(grouping: Any, pointer: str, conditions: Conditions) -> tuple[str, Period | None]:
    """``"seen"``, or ``{"field": "seen", "by": "month"}``."""
    if not isinstance(grouping, dict):
        return conditions.spec(grouping, pointer).name, None
    refuse_unknown(grouping, {"field", "by"}, pointer)
    spec = conditions.spec(grouping.get("field"), f"{pointer}/field")
    period = grouping.get("by")
    return spec.name, None if period is None else _period(spec, period, f"{pointer}/by")


def _period(spec: FieldSpec, period: Any, pointer: str) -> Period:
    if spec.field_type.day_points is None:
        raise invalid_query("op", "by is for dates and instants", pointer)
    if period not in PERIODS or not isinstance(period, str):
        raise invalid_query("type", f"expected one of {', '.join(PERIODS)}", pointer)
    return period  # type: ignore[return-value] # it is one of them


def _measure(measure: Any, pointer: str, conditions: Conditions) -> Measure:
    if not isinstance(measure, dict):
        raise invalid_query("type", "expected an object with op and field", pointer)
    op = measure.get("op")
    operator = MEASURES.get(op) if isinstance(op, str) else None
    if operator is None:
        median = "; the median is percentile 50" if op == "median" else ""
        expected = f"expected one of {', '.join(MEASURES)}{median}"
        raise invalid_query("op", expected, f"{pointer}/op")
    refuse_unknown(measure, {"op", "field", *operator.members}, pointer)
    if op == "count" and measure.get("field") is None:
        return Count()
    spec = conditions.spec(measure.get("field"), f"{pointer}/field")
    of_points = not spec.is_of_texts
    if not (
        operator.of_strings or (of_points and (operator.of_dates or spec.field_type.is_number))
    ):
        of = "numbers, dates and times" if operator.of_dates else "integer and number fields"
        raise invalid_query("op", f"{op} is for {of}", f"{pointer}/op")
    return operator.build(spec, measure, pointer)


def _list_order(name: Any, pointer: str) -> ListOrder:
    if name not in _LIST_ORDERS or not isinstance(name, str):
        raise invalid_query("order_by", f"expected one of {', '.join(_LIST_ORDERS)}", pointer)
    return name  # type: ignore[return-value] # it is one of them


def _percentile(spec: FieldSpec, measure: Mapping[str, Any], pointer: str) -> Percentile:
    p = measure.get("p")
    written = p if isinstance(p, list) else [p]
    numbers = [as_decimal(number) for number in written]
    wrong = any(number is None or not 0 <= number <= 100 for number in numbers)
    if wrong or not 1 <= len(written) <= MAX_PERCENTILES:
        expected = f"expected a number from 0 to 100, or an array of 1 to {MAX_PERCENTILES}"
        raise invalid_query("type", expected, f"{pointer}/p")
    shares = tuple(Fraction(number) for number in numbers if number is not None)
    return Percentile(spec.name, shares, tuple(written))


def _distinct(spec: FieldSpec, measure: Mapping[str, Any], pointer: str) -> Distinct:
    limit = whole_number(measure.get("limit", DEFAULT_LIMIT), f"{pointer}/limit", 0, MAX_LIMIT)
    order = _list_order(measure.get("order", "value"), f"{pointer}/order")
    return Distinct(spec.name, limit, order)


def _histogram(spec: FieldSpec, measure: Mapping[str, Any], pointer: str) -> Histogram:
    bins, bounds, by = measure.get("bins"), measure.get("bounds"), measure.get("by")
    if [bins, bounds, by].count(None) != 2:
        raise invalid_query("type", "expected one of bins, bounds and by", pointer)
    if by is not None:
        return Histogram(spec.name, None, (), (), _period(spec, by, f"{pointer}/by"))
    if bins is not None:
        whole_number(bins, f"{pointer}/bins", 1, MAX_BINS)
        return Histogram(spec.name, bins, (), ())
    if not isinstance(bounds, list) or not 2 <= len(bounds) <= MAX_BINS + 1:
        expected = f"expected an array of 2 to {MAX_BINS + 1} ascending numbers"
        raise invalid_query("type", expected, f"{pointer}/bounds")
    if not spec.field_type.is_number:
        return Histogram(spec.name, None, _edges(spec, bounds, pointer), tuple(bounds))
    numbers: list[Decimal] = []
    for position, bound in enumerate(bounds):
        number = as_decimal(bound)
        if number is None or (numbers and number <= numbers[-1]):
            raise invalid_query(
                "type", "expected ascending numbers", f"{pointer}/bounds/{position}"
            )
        numbers.append(number)
    edges = [spec.numbers.clamp(number, ROUND_CEILING) for number in numbers[:-1]]
    # The last bin includes its end.
    edges.append(spec.numbers.clamp(numbers[-1], ROUND_FLOOR) + 1)
    return Histogram(spec.name, None, tuple(edges), tuple(bounds))


def _edges(spec: FieldSpec, bounds: list[Any], pointer: str) -> tuple[int, ...]:
    """Edges for a field with a format. The last bin includes its end."""
    edges: list[int] = []
    for position, bound in enumerate(bounds):
        try:
            span = spec.field_type.read_span(spec, bound)
        except ValueRefused as refused:
            raise invalid_query(
                refused.code, refused.detail, f"{pointer}/bounds/{position}"
            ) from None
        if edges and span.first <= edges[-1]:
            raise invalid_query("type", "expected ascending values", f"{pointer}/bounds/{position}")
        edges.append(span.first)
    edges[-1] = span.last + 1
    return tuple(edges)


@dataclass(frozen=True, slots=True)
class _Operator:
    """``members``: the allowed members besides ``field``. ``build``: makes the measure from the
    field's spec, the members as sent, and the pointer to the measure.
    """

    build: Callable[[FieldSpec, Mapping[str, Any], str], Measure]
    members: tuple[str, ...] = ()
    of_strings: bool = False
    of_dates: bool = False


MEASURES = {
    "count": _Operator(lambda spec, *_: Count(spec.name), of_strings=True),
    "min": _Operator(lambda spec, *_: Extreme(spec.name, highest=False), of_strings=True),
    "max": _Operator(lambda spec, *_: Extreme(spec.name, highest=True), of_strings=True),
    "sum": _Operator(lambda spec, *_: Sum(spec.name)),
    "avg": _Operator(lambda spec, *_: Average(spec.name)),
    "variance": _Operator(lambda spec, *_: Variance(spec.name, is_root=False)),
    "stddev": _Operator(lambda spec, *_: Variance(spec.name, is_root=True)),
    "percentile": _Operator(_percentile, ("p",), of_dates=True),
    "histogram": _Operator(_histogram, ("bins", "bounds", "by"), of_dates=True),
    "distinct": _Operator(_distinct, ("limit", "order"), of_strings=True),
}

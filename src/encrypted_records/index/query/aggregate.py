"""Measures over the rows that match, from columns alone: exact, whatever the numbers.

Sums are of 64-bit offsets, added in halves so that nothing overflows, and leave as integers of
any size; averages are rounded once, at the end. Of long strings, only those are opened on whose
order the answer depends or that it shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto import values
from encrypted_records.errors import InvalidQuery
from encrypted_records.index.columns.dictionary import Codes
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.global_dictionary import (
    GlobalDictionary,
    build_global_dictionary,
)
from encrypted_records.index.query.grouping import (
    CodeCounts,
    add_by_group,
    choose_first,
    combine_codes,
    count_below,
    count_by_code,
    count_present,
    cut_bins,
    is_best,
    is_of_several,
)
from encrypted_records.index.query.long_strings import Texts
from encrypted_records.index.query.periods import by_period, cut_periods, show_period
from encrypted_records.model.aggregations import (
    MAX_BINS,
    Aggregation,
    Average,
    Count,
    Distinct,
    Extreme,
    Histogram,
    Measure,
    Percentile,
    Sum,
)
from encrypted_records.model.definition import SchemaDefinition, Value
from encrypted_records.model.formats import Period

#: Decimals of an average beyond its field's.
AVERAGE_DECIMALS = 6
_WIDE = Context(prec=150)


@dataclass(frozen=True, slots=True)
class AggregateLimits:
    """``groups`` that one request may have, and values that an answer may show beside those of its
    groups."""

    groups: int = 100_000
    shown: int = 200_000


STANDARD = AggregateLimits()


@dataclass(frozen=True, slots=True)
class Bucket:
    """``values`` are those of the fields that rows are grouped by; one result per measure."""

    values: tuple[Value, ...]
    results: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Aggregated:
    """``total`` counts all groups; ``groups`` are the first of them."""

    groups: list[Bucket]
    total: int


def aggregate(
    aggregation: Aggregation,
    definition: SchemaDefinition,
    parts: Sequence[Candidates],
    texts: Texts,
    limits: AggregateLimits = STANDARD,
) -> Aggregated | None:
    """The answer; None where ``texts`` now wants some.

    Args:
        parts: the rows that match, all of them certain.

    Raises:
        DoesNotOpen: a column that is needed does not open.
        InvalidQuery: too many groups, values to show, or long strings to open.
    """
    fields = {name: build_global_dictionary(name, parts) for name in sorted(aggregation.fields)}
    work = _Work(definition, texts, fields, limits)
    rows = sum(len(part) for part in parts)
    if aggregation.group_by:
        answer = work.measure_groups(aggregation)
    else:
        answer = work.measure_all(aggregation, rows)
    return None if texts.wanted else answer


@dataclass(frozen=True, slots=True)
class _Work:
    """The fields of some rows. A text that is not known yet is wanted of ``texts``, and anything
    stands in for it: the answer is dropped then."""

    definition: SchemaDefinition
    texts: Texts
    fields: Mapping[str, GlobalDictionary]
    limits: AggregateLimits

    def measure_all(self, aggregation: Aggregation, rows: int) -> Aggregated:
        results = [self.measure(measure, None, [rows]) for measure in aggregation.measures]
        return Aggregated([Bucket((), tuple(result[0] for result in results))], 1)

    def measure_groups(self, aggregation: Aggregation) -> Aggregated | None:
        keys = [
            self._grouping(name, period)
            for name, period in zip(aggregation.group_by, aggregation.periods, strict=True)
        ]
        only_counted = all(measure.field is None for measure in aggregation.measures)
        if only_counted and len(keys) == 1:
            # How often each code is there is enough, and needs no row.
            present = np.flatnonzero(keys[0].counts)
            members, counts = present[:, None], keys[0].counts[present]
        else:
            members, group_of = combine_codes(keys)
            counts = np.bincount(group_of, minlength=len(members))
        if len(members) > self.limits.groups:
            raise InvalidQuery(
                f"the records fall into more than {self.limits.groups} groups",
                code="too_many_groups",
                hint="narrow the condition, or group by fields with fewer values",
            )
        levels = []
        for at, field in enumerate(keys):
            ranks = field.ranks(members[:, at], self.texts)
            if ranks is None:
                return None
            levels.append(ranks[members[:, at]])
        by_value = np.empty(len(members), np.int64)
        by_value[np.lexsort(tuple(reversed(levels)))] = np.arange(len(members))
        chosen = choose_first(by_value, counts, aggregation.order, aggregation.limit)
        _refuse_long(
            aggregation.measures, len(chosen), int(counts[chosen].sum()), self.limits.shown
        )
        if only_counted:
            results: list[list[Any]] = [counts[chosen].tolist()] * len(aggregation.measures)
        else:
            results = self._measure_chosen(aggregation.measures, chosen, counts, group_of)
        groups = [
            Bucket(
                tuple(
                    self._group_value(one, int(code), period)
                    for one, code, period in zip(keys, codes, aggregation.periods, strict=True)
                ),
                tuple(result[at] for result in results),
            )
            for at, codes in enumerate(members[chosen])
        ]
        return Aggregated(groups, len(members))

    def _grouping(self, name: str, period: Period | None) -> GlobalDictionary:
        field = self.fields[name]
        return field if period is None else by_period(self.definition.fields[name], field, period)

    def _group_value(self, field: GlobalDictionary, code: int, period: Period | None) -> Value:
        if code == 0 or period is None:
            return self._value(field, code)
        return show_period(self.definition.fields[field.field], int(field.keys[code - 1]), period)

    def _measure_chosen(
        self, measures: Sequence[Measure], chosen: Codes, counts: Codes, group_of: Codes
    ) -> list[list[Any]]:
        """Each measure of each of the groups that are shown."""
        number = np.full(len(counts), -1)
        number[chosen] = np.arange(len(chosen))
        rows = number[group_of]
        work = self
        if len(chosen) < len(counts):
            kept = rows >= 0
            rows = rows[kept]
            shown = {name: field.only(kept) for name, field in self.fields.items()}
            work = _Work(self.definition, self.texts, shown, self.limits)
        shares = counts[chosen].tolist()
        return [work.measure(measure, rows, shares) for measure in measures]

    def measure(self, measure: Measure, rows: Codes | None, counts: list[int]) -> list[Any]:
        """The measure of each group.

        Args:
            rows: which group each row is in; None where all are in one.
            counts: how many rows each group has.
        """
        if measure.field is None:
            return counts
        field = self.fields[measure.field]
        match measure:
            case Count():
                return count_present(field, rows, len(counts))
            case Extreme():
                return self._extreme(field, rows, len(counts), highest=measure.highest)
            case Sum():
                return self._sums(field, rows, len(counts), _scale)
            case Average():
                return self._sums(field, rows, len(counts), _average)
        counted = count_by_code(field, rows, len(counts))
        match measure:
            case Percentile():
                return [self._percentiles(field, one, measure) for one in counted]
            case Histogram():
                return [self._histogram(field, one, measure) for one in counted]
            case Distinct():
                return [self._distinct(field, one, measure) for one in counted]

    def _sums(
        self,
        field: GlobalDictionary,
        rows: Codes | None,
        groups: int,
        shown: Callable[[int, int, int], Any],
    ) -> list[Any]:
        """``shown`` of each group's exact sum in grid points, its number of values, and the
        field's precision; None for a group without values."""
        keys: NDArray[Any] = field.keys
        # A schema has fewer than 2**32 rows, so the sum of halves of their keys fits.
        halves = (keys >> np.uint64(32), keys & np.uint64(2**32 - 1))
        if rows is None:
            many = field.counts[1:].astype(np.uint64)
            high, low = ([int((half * many).sum())] for half in halves)
        else:
            present = field.codes > 0
            at, rows_of = field.codes[present] - 1, rows[present]
            high, low = (add_by_group(half[at], rows_of, groups) for half in halves)
        numbers = self.definition.fields[field.field].numbers
        return [
            shown((upper << 32) + lower + count * numbers.lowest, count, numbers.precision)
            if count
            else None
            for upper, lower, count in zip(
                high, low, count_present(field, rows, groups), strict=True
            )
        ]

    def _extreme(
        self, field: GlobalDictionary, rows: Codes | None, groups: int, *, highest: bool
    ) -> list[Value]:
        """By the index first, then by opened records among the values that it cannot order."""
        extremes: list[Value] = [None] * groups
        if rows is None:
            if not field.long:
                last = len(field.keys)
                return [self._value(field, (last if highest else 1) if last else 0)]
            field = field.one_row_per_key()
            rows = np.zeros(len(field.codes), np.int64)
        present = field.codes > 0
        field, rows = field.only(present), rows[present]
        near = is_best(field.classes[field.codes], rows, groups, highest)
        field, rows = field.only(near), rows[near]
        ranks = field.ranks(field.codes[is_of_several(field.codes, rows)], self.texts)
        if ranks is not None:
            best = is_best(ranks[field.codes], rows, groups, highest)
            shown, first = np.unique(rows[best], return_index=True)
            for group, code in zip(shown, field.codes[best][first], strict=True):
                extremes[group] = self._value(field, int(code))
        return extremes

    def _percentiles(
        self, field: GlobalDictionary, counted: CodeCounts, measure: Percentile
    ) -> list[Value]:
        codes, counts = counted
        if not len(codes):
            return [None for _ in measure.p]
        upto = np.cumsum(counts)
        # The k-th value is the first that at least k of n values do not exceed.
        ranks = [max(1, math.ceil(share * int(upto[-1]) / 100)) for share in measure.p]
        return [self._value(field, int(codes[np.searchsorted(upto, rank)])) for rank in ranks]

    def _histogram(
        self, field: GlobalDictionary, counted: CodeCounts, measure: Histogram
    ) -> dict[str, Any]:
        spec = self.definition.fields[field.field]
        codes, counts = counted
        points: NDArray[Any] = field.keys[codes - 1]
        if measure.bins is not None or measure.by is not None:
            if measure.by is not None:
                edges = cut_periods(spec, points, measure.by, MAX_BINS)
            else:
                starts = cut_bins(points, measure.bins or 0)
                edges = [*starts, int(points[-1]) + 1] if starts else []
            bounds = [
                (values.from_offset(spec, start), values.from_offset(spec, after - 1))
                for start, after in pairwise(edges)
            ]
        else:
            edges = [edge - spec.numbers.lowest for edge in measure.edges]
            bounds = list(pairwise(measure.asked))
        upto = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        below = [int(upto[count_below(points, edge)]) for edge in edges]
        return {
            "below": below[0] if below else 0,
            "above": int(upto[-1]) - below[-1] if below else 0,
            "bins": [
                {"from": start, "to": end, "count": after - before}
                for (start, end), (before, after) in zip(bounds, pairwise(below), strict=True)
            ],
        }

    def _distinct(
        self, field: GlobalDictionary, counted: CodeCounts, measure: Distinct
    ) -> dict[str, Any]:
        codes, counts = counted
        ranks = field.ranks(codes, self.texts) if measure.limit else None
        listed: NDArray[np.intp] = np.zeros(0, np.intp)
        if ranks is not None:
            listed = choose_first(ranks[codes], counts, measure.order, measure.limit)
        return {
            "count": len(codes),
            "values": [
                {"value": self._value(field, int(codes[at])), "count": int(counts[at])}
                for at in listed
            ],
        }

    def _value(self, field: GlobalDictionary, code: int) -> Value:
        """The value of a code; a text as it is compared, in NFC."""
        if code == 0:
            return None
        key = field.keys[code - 1].item()
        spec = self.definition.fields[field.field]
        if isinstance(key, int):
            return values.from_offset(spec, key)
        if spec.kind == "uuid":
            return values.from_uuid_key(key)
        return field.text(code, self.texts)


def _refuse_long(measures: Sequence[Measure], groups: int, rows: int, most: int) -> None:
    """
    Args:
        groups, rows: how many groups are shown, and how many rows these have.
        most: values that may be shown.

    Raises:
        InvalidQuery: the measures of these would show more than ``most`` values.
    """
    shown = 0
    for measure in measures:
        match measure:
            case Percentile():
                shown += groups * len(measure.p)
            case Histogram():
                shown += groups * measure.most_bins
            case Distinct():
                shown += min(groups * measure.limit, rows)
            case _:
                shown += groups
    if shown > most:
        raise InvalidQuery(
            f"the answer would show more than {most} values",
            code="too_many_values",
            hint="ask for fewer groups, bins or values of a list, or in several requests",
        )


def _scale(total: int, _count: int, precision: int) -> int | Decimal:
    return total if precision == 0 else Decimal(total).scaleb(-precision, _WIDE)


def _average(total: int, count: int, precision: int) -> Decimal:
    """Rounded half to even, once."""
    rounded = round(Fraction(total * 10**AVERAGE_DECIMALS, count))
    return Decimal(rounded).scaleb(-precision - AVERAGE_DECIMALS, _WIDE)

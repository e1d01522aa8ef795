"""What measures show of the values that were taken in (:mod:`.tallies`)."""

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
from encrypted_records.index.query.grouping import choose_first, count_below, cut_bins
from encrypted_records.index.query.long_strings import Texts
from encrypted_records.index.query.ordered_keys import OrderedKeys
from encrypted_records.index.query.periods import cut_periods, show_period
from encrypted_records.index.query.tallies import Tally, Values
from encrypted_records.model.aggregations import (
    MAX_BINS,
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
class Shown:
    """A text that is not known yet is wanted of ``texts``, and anything stands in for it."""

    definition: SchemaDefinition
    texts: Texts

    def group_value(self, field: OrderedKeys, code: int, period: Period | None) -> Value:
        if code == 0 or period is None:
            return self._value(field, code)
        return show_period(self.definition.fields[field.field], int(field.keys[code - 1]), period)

    def results(
        self, measures: Sequence[Measure], tallies: Mapping[str, Tally], counts: list[int]
    ) -> list[list[Any]]:
        """Each measure of each group.

        Args:
            counts: how many rows each group has.
        """
        tables: dict[str, list[Values]] = {}
        for name, tally in tallies.items():
            if tally.table is not None:
                tables[name] = _split(tally.table.values, len(counts))
        results: list[list[Any]] = []
        for measure in measures:
            if measure.field is None:
                results.append(counts)
                continue
            tally = tallies[measure.field]
            match measure:
                case Count():
                    results.append(tally.present.tolist())
                case Extreme():
                    found = _split(tally.extremes[measure.highest].values, len(counts))
                    results.append(self._extreme(measure, found))
                case Sum():
                    results.append(self._sums(measure.field, tally, _scale))
                case Average():
                    results.append(self._sums(measure.field, tally, _average))
                case Percentile():
                    found = tables[measure.field]
                    results.append([self._percentiles(measure, one) for one in found])
                case Histogram():
                    found = tables[measure.field]
                    results.append([self._histogram(measure, one) for one in found])
                case Distinct():
                    found = tables[measure.field]
                    results.append([self._distinct(measure, one) for one in found])
        return results

    def _sums(self, name: str, tally: Tally, shown: Callable[[int, int, int], Any]) -> list[Any]:
        """``shown`` of each group's exact sum in grid points, its number of values, and the
        field's precision; None for a group without values."""
        numbers = self.definition.fields[name].numbers
        high, low = tally.halves.tolist()
        return [
            shown((upper << 32) + lower + count * numbers.lowest, count, numbers.precision)
            if count
            else None
            for upper, lower, count in zip(high, low, tally.present.tolist(), strict=True)
        ]

    def _extreme(self, measure: Extreme, groups: Sequence[Values]) -> list[Value]:
        """Of the values that the index cannot order, by opened records."""
        extremes: list[Value] = []
        for one in groups:
            field = OrderedKeys(measure.field, one.keys, one.positions)
            codes = np.arange(1, len(one) + 1)
            ranks = field.ranks(codes, self.texts) if len(one) > 1 else None
            if not len(one) or (len(one) > 1 and ranks is None):
                extremes.append(None)
                continue
            at = 0
            if ranks is not None:
                at = int(np.argmax(ranks[codes]) if measure.highest else np.argmin(ranks[codes]))
            extremes.append(self._value(field, at + 1))
        return extremes

    def _percentiles(self, measure: Percentile, one: Values) -> list[Value]:
        if not len(one):
            return [None for _ in measure.p]
        field = OrderedKeys(measure.field, one.keys, one.positions)
        upto = np.cumsum(one.counts)
        # The k-th value is the first that at least k of n values do not exceed.
        ranks = [max(1, math.ceil(share * int(upto[-1]) / 100)) for share in measure.p]
        return [self._value(field, int(np.searchsorted(upto, rank)) + 1) for rank in ranks]

    def _histogram(self, measure: Histogram, one: Values) -> dict[str, Any]:
        spec = self.definition.fields[measure.field]
        points: NDArray[Any] = one.keys
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
        upto = np.concatenate((np.zeros(1, np.int64), np.cumsum(one.counts)))
        below = [int(upto[count_below(points, edge)]) for edge in edges]
        return {
            "below": below[0] if below else 0,
            "above": int(upto[-1]) - below[-1] if below else 0,
            "bins": [
                {"from": start, "to": end, "count": after - before}
                for (start, end), (before, after) in zip(bounds, pairwise(below), strict=True)
            ],
        }

    def _distinct(self, measure: Distinct, one: Values) -> dict[str, Any]:
        field = OrderedKeys(measure.field, one.keys, one.positions)
        codes = np.arange(1, len(one) + 1)
        ranks = field.ranks(codes, self.texts) if measure.limit else None
        listed: NDArray[np.intp] = np.zeros(0, np.intp)
        if ranks is not None:
            listed = choose_first(ranks[codes], one.counts, measure.order, measure.limit)
        return {
            "count": len(codes),
            "values": [
                {"value": self._value(field, int(at) + 1), "count": int(one.counts[at])}
                for at in listed
            ],
        }

    def _value(self, field: OrderedKeys, code: int) -> Value:
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


def _split(found: Values, groups: int) -> list[Values]:
    """The values of each group."""
    ends = np.searchsorted(found.groups, np.arange(groups), "right").tolist()
    return [found.only(slice(*bounds)) for bounds in pairwise([0, *ends])]


def _scale(total: int, _count: int, precision: int) -> int | Decimal:
    return total if precision == 0 else Decimal(total).scaleb(-precision, _WIDE)


def _average(total: int, count: int, precision: int) -> Decimal:
    """Rounded half to even, once."""
    rounded = round(Fraction(total * 10**AVERAGE_DECIMALS, count))
    return Decimal(rounded).scaleb(-precision - AVERAGE_DECIMALS, _WIDE)

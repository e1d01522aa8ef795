"""Results of measures from the accumulated values (:mod:`.tallies`).

Groups and lists of values are sorted, which may require opening long strings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto import values
from encrypted_records.index.columns.column import Keys
from encrypted_records.index.columns.dictionary import Codes, has_long
from encrypted_records.index.log.snapshot import Positions
from encrypted_records.index.query.key_sets import Texts, classes_of, find_mixed, inner_ranks
from encrypted_records.index.query.row_groups import (
    choose_first,
    count_below,
    cut_bins,
    cut_periods,
    show_period,
)
from encrypted_records.index.query.tallies import Cells, FieldTally, GroupValues
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
    Variance,
)
from encrypted_records.model.definition import SchemaDefinition, Value
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.field_types.calendar import Period


class OrderedKeys:
    """A *code* is 0 for an absent value, else 1 + the index of its key."""

    def __init__(self, field: str, keys: Keys, positions: Positions) -> None:
        """
        Args:
            positions: for each key of a long string, the position of a row that has it.
        """
        self.field = field
        self.keys = keys
        self._positions = positions
        self._long = has_long(keys)

    @cached_property
    def _classes(self) -> Codes:
        """A number for each code; equal numbers mean that only opened records give the order."""
        by_class = classes_of(self.keys)
        new = np.ones(len(by_class), np.bool_)
        new[1:] = by_class[1:] != by_class[:-1]
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(new)))

    def ranks(self, codes: Codes, texts: Texts) -> Codes | None:
        """The order of codes, exact for the given codes; None if ``texts`` now wants some."""
        ranks: Codes = np.arange(len(self.keys) + 1)
        if not self._long:
            return ranks
        used = np.unique(codes[codes > 0])
        distinct: NDArray[Any] = self.keys[used - 1]
        for members in find_mixed(distinct):
            for at in members:
                self.text(int(used[at]), texts)
        if texts.wanted:
            return None
        order = np.lexsort((inner_ranks(self.field, distinct, texts), self._classes[used]))
        ranks[used[order]] = used
        return ranks

    def text(self, code: int, texts: Texts) -> str:
        """The text of a code; an empty placeholder for a text that is now wanted."""
        key = bytes(self.keys[code - 1])
        return texts.text(self.field, key, lambda: int(self._positions[code - 1]))


#: Decimals of an average in addition to its field's.
AVERAGE_DECIMALS = 6
_WIDE = Context(prec=150)


@dataclass(frozen=True, slots=True)
class MeasureResults:
    """Builds the results. A text that is not known yet is requested from ``texts``, and a
    placeholder is shown in its place.
    """

    definition: SchemaDefinition
    texts: Texts

    def group_value(self, field: OrderedKeys, code: int, period: Period | None) -> Value:
        if code == 0 or period is None:
            return self._value(field, code)
        return show_period(self.definition.fields[field.field], int(field.keys[code - 1]), period)

    def results(
        self, measures: Sequence[Measure], tallies: Mapping[str, FieldTally], counts: list[int]
    ) -> list[list[Any]]:
        """Each measure of each group.

        Args:
            counts: the number of rows of each group.
        """
        tables: dict[str, list[GroupValues]] = {}
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
                case Variance():
                    results.append(self._variances(measure, tally))
                case Percentile():
                    found = tables[measure.field]
                    results.append([self._percentiles(measure, counts) for counts in found])
                case Histogram():
                    found = tables[measure.field]
                    results.append([self._histogram(measure, counts) for counts in found])
                case Distinct():
                    found = tables[measure.field]
                    results.append([self._distinct(measure, counts) for counts in found])
                case _:
                    assert_never(measure)
        return results

    def _variances(self, measure: Variance, tally: FieldTally) -> list[Decimal | None]:
        """The variance of each group; None for fewer than two values. The field's lowest value, the
        origin of keys, makes no difference."""
        precision = self.definition.fields[measure.field].numbers.precision
        found: list[Decimal | None] = []
        for at, count in enumerate(tally.present.tolist()):
            if count < 2:
                found.append(None)
                continue
            upper, lower = tally.halves[:, at].tolist()
            total = (upper << 32) + lower
            squared = Fraction(count * tally.squares_of(at) - total**2, count * (count - 1))
            found.append((_root if measure.is_root else _square)(squared, precision))
        return found

    def _sums(
        self, name: str, tally: FieldTally, shown: Callable[[int, int, int], Any]
    ) -> list[Any]:
        """The result of ``shown`` for each group's exact sum in grid points, its number of values,
        and the field's precision; None for a group without values."""
        numbers = self.definition.fields[name].numbers
        high, low = tally.halves.tolist()
        return [
            shown((upper << 32) + lower + count * numbers.lowest, count, numbers.precision)
            if count
            else None
            for upper, lower, count in zip(high, low, tally.present.tolist(), strict=True)
        ]

    def _extreme(self, measure: Extreme, groups: Sequence[GroupValues]) -> list[Value]:
        """The extremes of values that the index cannot order, from opened records."""
        extremes: list[Value] = []
        for group in groups:
            field = OrderedKeys(measure.field, group.keys, group.positions)
            codes = np.arange(1, len(group) + 1)
            ranks = field.ranks(codes, self.texts) if len(group) > 1 else None
            if not len(group) or (len(group) > 1 and ranks is None):
                extremes.append(None)
                continue
            at = 0
            if ranks is not None:
                at = int(np.argmax(ranks[codes]) if measure.highest else np.argmin(ranks[codes]))
            extremes.append(self._value(field, at + 1))
        return extremes

    def _percentiles(self, measure: Percentile, group: GroupValues) -> list[Value]:
        if not len(group):
            return [None for _ in measure.p]
        field = OrderedKeys(measure.field, group.keys, group.positions)
        return [self._value(field, int(at) + 1) for at in _find_shares(measure, group)]

    def _histogram(self, measure: Histogram, group: GroupValues) -> dict[str, Any]:
        spec = self.definition.fields[measure.field]
        points: NDArray[Any] = group.keys
        edges = self.edges(measure, points)
        if measure.edges:
            bounds = list(pairwise(measure.written))
        else:
            bounds = [
                (values.from_offset(spec, start), values.from_offset(spec, after - 1))
                for start, after in pairwise(edges)
            ]
        upto = np.concatenate((np.zeros(1, np.int64), np.cumsum(group.counts)))
        below = [int(upto[count_below(points, edge)]) for edge in edges]
        return {
            "below": below[0] if below else 0,
            "above": int(upto[-1]) - below[-1] if below else 0,
            "bins": [
                {"from": start, "to": end, "count": after - before}
                for (start, end), (before, after) in zip(bounds, pairwise(below), strict=True)
            ],
        }

    def edges(self, measure: Measure, points: NDArray[Any]) -> list[int]:
        """The bin edges, as offsets, for values between the outermost ``points``: the beginnings of
        a histogram's bins, and the end of the last bin."""
        if not isinstance(measure, Histogram):
            return []
        spec = self.definition.fields[measure.field]
        if measure.by is not None:
            return cut_periods(spec, points, measure.by, MAX_BINS)
        if measure.bins is not None:
            starts = cut_bins(points, measure.bins)
            return [*starts, int(points[-1]) + 1] if starts else []
        return [edge - spec.numbers.lowest for edge in measure.edges]

    def refine(self, tallies: Mapping[str, FieldTally]) -> dict[str, FieldTally]:
        """Empty tallies with finer cells, for the fields whose values must be accumulated again
        because a measure needs more precision."""
        again: dict[str, FieldTally] = {}
        for name, tally in tallies.items():
            if tally.table is None:
                continue
            groups = _split(tally.table.values, len(tally.present))
            cells = tally.table.cells
            if cells.is_exact:
                continue
            need = _FinerCells(cells)
            for measure in tally.measures:
                for group in filter(len, groups):
                    self._note_need(need, measure, group)
            if need.is_open:
                again[name] = tally.within(need.finer)
        return again

    def _note_need(self, need: _FinerCells, measure: Measure, group: GroupValues) -> None:
        """Record the cells of a group that a measure needs more precisely."""
        match measure:
            case Percentile():
                need.keys(group.keys[_find_shares(measure, group)])
            case Histogram():
                if measure.edges or need.keys(group.keys[[0, -1]]):
                    need.cuts(self.edges(measure, group.keys), group.keys)
            case Distinct():
                pass  # values that are shown singly are not counted in cells
            case Count() | Extreme() | Sum() | Average() | Variance():
                pass  # these need no table of values
            case _:
                assert_never(measure)

    def _distinct(self, measure: Distinct, group: GroupValues) -> dict[str, Any]:
        field = OrderedKeys(measure.field, group.keys, group.positions)
        codes = np.arange(1, len(group) + 1)
        ranks = field.ranks(codes, self.texts) if measure.limit else None
        listed: NDArray[np.intp] = np.zeros(0, np.intp)
        if ranks is not None:
            listed = choose_first(ranks[codes], group.counts, measure.order, measure.limit)
        return {
            "count": len(codes),
            "values": [
                {"value": self._value(field, int(at) + 1), "count": int(group.counts[at])}
                for at in listed
            ],
        }

    def _value(self, field: OrderedKeys, code: int) -> Value:
        """The value of a code; a text is in NFC, as it is compared."""
        if code == 0:
            return None
        key = field.keys[code - 1].item()
        spec = self.definition.fields[field.field]
        if spec.kind is KeyKind.TEXT:
            return field.text(code, self.texts)
        return values.from_key(spec, key)


class _FinerCells:
    """The cells that must be counted more precisely."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._firsts: set[int] = set()
        self._cuts: set[int] = set()
        self.is_open = False

    def keys(self, firsts: NDArray[Any]) -> bool:
        """Require that each of these cells is a single key; returns whether they are."""
        self._firsts.update(firsts.tolist())
        known = bool(np.all(self._cells.lasts(firsts) == firsts))
        self.is_open |= not known
        return known

    def cuts(self, edges: Sequence[int], firsts: NDArray[Any]) -> None:
        """Require that no edge is inside a cell of a group, given the first keys of its cells."""
        inside = [edge for edge in edges if 0 < edge < 2**64]
        self._cuts.update(inside)
        before = np.searchsorted(firsts, np.array(inside, np.uint64))
        ends = self._cells.lasts(firsts)
        self.is_open |= any(
            at and int(ends[at - 1]) >= edge for at, edge in zip(before, inside, strict=True)
        )

    @property
    def finer(self) -> Cells:
        cells = self._cells
        return Cells.within(cells, self._firsts, self._cuts, widest=max(0, cells.shift - 1))


def list_ranks(measure: Measure, count: int) -> list[int]:
    """The ranks, from 1, of the values that a measure needs. For a percentile, the k-th value is
    the first that at least k values do not exceed."""
    match measure:
        case Percentile():
            return [max(1, math.ceil(share * count / 100)) for share in measure.p]
        case Histogram():
            return [1, count]
        case Extreme():
            return [count if measure.highest else 1]
        case _:
            return []


def count_shown(measure: Measure, groups: int, rows: int) -> int:
    """Maximum number of values that a measure shows for ``groups`` groups with ``rows`` rows."""
    match measure:
        case Percentile():
            return groups * len(measure.p)
        case Histogram():
            return groups * measure.most_bins
        case Distinct():
            return min(groups * measure.limit, rows)
        case _:
            return groups


def _find_shares(measure: Percentile, group: GroupValues) -> NDArray[np.intp]:
    """The indexes of the needed values of a group, which is not empty."""
    upto = np.cumsum(group.counts)
    return np.searchsorted(upto, list_ranks(measure, int(upto[-1])))


def _split(found: GroupValues, groups: int) -> list[GroupValues]:
    """The values of each group."""
    ends = np.searchsorted(found.groups, np.arange(groups), "right").tolist()
    return [found.only(slice(*bounds)) for bounds in pairwise([0, *ends])]


def _scale(total: int, _count: int, precision: int) -> int | Decimal:
    return total if precision == 0 else Decimal(total).scaleb(-precision, _WIDE)


def _average(total: int, count: int, precision: int) -> Decimal:
    """Rounded half to even, once."""
    rounded = round(Fraction(total * 10**AVERAGE_DECIMALS, count))
    return Decimal(rounded).scaleb(-precision - AVERAGE_DECIMALS, _WIDE)


def _square(squared: Fraction, precision: int) -> Decimal:
    """Rounded half to even, once."""
    rounded = round(squared * 10**AVERAGE_DECIMALS)
    return Decimal(rounded).scaleb(-2 * precision - AVERAGE_DECIMALS, _WIDE)


def _root(squared: Fraction, precision: int) -> Decimal:
    """Rounded half to even, once."""
    exact = squared * 10 ** (2 * AVERAGE_DECIMALS)
    doubled = math.isqrt(math.floor(4 * exact))
    rounded = (doubled + 1) // 2
    if rounded % 2 and doubled**2 == 4 * exact:  # half way
        rounded -= doubled % 2
    return Decimal(rounded).scaleb(-precision - AVERAGE_DECIMALS, _WIDE)

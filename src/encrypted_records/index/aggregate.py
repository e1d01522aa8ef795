"""Measures over the rows that match, from columns alone: exact, whatever the numbers.

Sums are of 64-bit offsets, added in halves so that nothing overflows, and leave as integers of
any size; averages are rounded once, at the end. Of long strings, only those are opened on whose
order the answer depends or that it shows.
"""

from __future__ import annotations

import math
from bisect import bisect_left
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
from encrypted_records.index.candidates import Candidates
from encrypted_records.index.encoded import Codes, Encoded, encode
from encrypted_records.index.long_texts import Texts
from encrypted_records.model.aggregations import (
    Aggregation,
    Average,
    Count,
    Distinct,
    Extreme,
    Histogram,
    ListOrder,
    Measure,
    Percentile,
    Sum,
)
from encrypted_records.model.definition import SchemaDefinition, Value

#: Groups that are told apart in one request.
MAX_GROUPS = 100_000
#: Decimals of an average beyond its field's.
AVERAGE_DECIMALS = 6
_WIDE = Context(prec=150)


@dataclass(frozen=True, slots=True)
class Group:
    """``values`` are those of the fields that are grouped by; one result per measure."""

    values: tuple[Value, ...]
    results: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Aggregated:
    """``total`` counts all groups, of which ``groups`` are the first."""

    groups: list[Group]
    total: int


def aggregate(
    asked: Aggregation,
    definition: SchemaDefinition,
    parts: Sequence[Candidates],
    texts: Texts,
) -> Aggregated | None:
    """The answer; None where ``texts`` now wants some.

    Args:
        parts: the rows that match, all of them certain.

    Raises:
        DoesNotOpen: a column that is needed does not open.
        InvalidQuery: too many groups, or too many long strings to open.
    """
    fields = {name: encode(name, parts) for name in sorted(asked.fields)}
    work = _Work(definition, texts, fields)
    rows = sum(len(part) for part in parts)
    found = work.grouped(asked) if asked.group_by else work.whole(asked, rows)
    return None if texts.wanted else found


#: Sorted codes of one group, all different, and how often each is there.
_Counted = tuple[Codes, Codes]


@dataclass(frozen=True, slots=True)
class _Work:
    """The fields of some rows. A text that is not known yet is wanted of ``texts``, and anything
    stands in for it: the answer is dropped then."""

    definition: SchemaDefinition
    texts: Texts
    fields: Mapping[str, Encoded]

    def whole(self, asked: Aggregation, rows: int) -> Aggregated:
        one: Codes = np.zeros(rows, np.int64)
        results = [self.measure(measure, one, 1) for measure in asked.measures]
        return Aggregated([Group((), tuple(result[0] for result in results))], 1)

    def grouped(self, asked: Aggregation) -> Aggregated | None:
        keys = [self.fields[name] for name in asked.group_by]
        members, group_of = _combined([one.codes for one in keys])
        if len(members) > MAX_GROUPS:
            raise InvalidQuery(
                f"the records fall into more than {MAX_GROUPS} groups",
                code="too_many_groups",
                hint="narrow the condition, or group by fields with fewer values",
            )
        levels = []
        for at, one in enumerate(keys):
            ranks = one.ranks(one.codes, self.texts)
            if ranks is None:
                return None
            levels.append(ranks[members[:, at]])
        counts = np.bincount(group_of, minlength=len(members))
        chosen = _listed(levels, counts, asked.order)[: asked.limit]
        # The rows of groups that are shown, numbered as these are.
        number = np.full(len(members), -1)
        number[chosen] = np.arange(len(chosen))
        kept = number[group_of] >= 0
        shown = {name: field.only(kept) for name, field in self.fields.items()}
        work = _Work(self.definition, self.texts, shown)
        rows = number[group_of][kept]
        results = [work.measure(measure, rows, len(chosen)) for measure in asked.measures]
        groups = [
            Group(
                tuple(self._value(one, int(code)) for one, code in zip(keys, codes, strict=True)),
                tuple(result[at] for result in results),
            )
            for at, codes in enumerate(members[chosen])
        ]
        return Aggregated(groups, len(members))

    def measure(self, measure: Measure, rows: Codes, groups: int) -> list[Any]:
        """The measure of each group; ``rows`` says which group each row is in."""
        if measure.field is None:
            return _counted(rows, groups)
        field = self.fields[measure.field]
        match measure:
            case Count():
                return _counted(rows[field.codes > 0], groups)
            case Extreme():
                return self._extreme(field, rows, groups, highest=measure.highest)
            case Sum():
                return self._sums(field, rows, groups, _scaled)
            case Average():
                return self._sums(field, rows, groups, _average)
        counted = _by_code(field, rows, groups)
        match measure:
            case Percentile():
                return [self._percentiles(field, one, measure) for one in counted]
            case Histogram():
                return [self._histogram(field, one, measure) for one in counted]
            case Distinct():
                return [self._distinct(field, one, measure) for one in counted]

    def _sums(
        self, field: Encoded, rows: Codes, groups: int, shown: Callable[[int, int, int], Any]
    ) -> list[Any]:
        """``shown`` of each group's exact sum in grid points, its number of values, and the
        field's precision; None for a group without values."""
        present = field.codes > 0
        rows = rows[present]
        keys: NDArray[Any] = field.keys[field.codes[present] - 1]
        halves = []
        for half in (keys >> np.uint64(32), keys & np.uint64(2**32 - 1)):
            # A schema has fewer than 2**32 rows, so the sum of their halves fits.
            added = np.zeros(groups, np.uint64)
            np.add.at(added, rows, half)
            halves.append(added.tolist())
        numbers = self.definition.fields[field.field].numbers
        return [
            shown((high << 32) + low + count * numbers.lowest, count, numbers.precision)
            if count
            else None
            for high, low, count in zip(*halves, _counted(rows, groups), strict=True)
        ]

    def _extreme(self, field: Encoded, rows: Codes, groups: int, *, highest: bool) -> list[Value]:
        """First by what the index knows, then among those that this leaves equal."""
        found: list[Value] = [None] * groups
        present = field.codes > 0
        field, rows = field.only(present), rows[present]
        near = _is_best(field.classes[field.codes], rows, groups, highest)
        field, rows = field.only(near), rows[near]
        ranks = field.ranks(field.codes[_of_several(field.codes, rows)], self.texts)
        if ranks is not None:
            best = _is_best(ranks[field.codes], rows, groups, highest)
            shown, first = np.unique(rows[best], return_index=True)
            for group, code in zip(shown, field.codes[best][first], strict=True):
                found[group] = self._value(field, int(code))
        return found

    def _percentiles(self, field: Encoded, counted: _Counted, asked: Percentile) -> list[Value]:
        codes, counts = counted
        if not len(codes):
            return [None for _ in asked.p]
        upto = np.cumsum(counts)
        # The k-th value is the first that at least k of n values do not exceed.
        ranks = [max(1, math.ceil(share * int(upto[-1]) / 100)) for share in asked.p]
        return [self._value(field, int(codes[np.searchsorted(upto, rank)])) for rank in ranks]

    def _histogram(self, field: Encoded, counted: _Counted, asked: Histogram) -> dict[str, Any]:
        spec = self.definition.fields[field.field]
        codes, counts = counted
        points = field.keys[codes - 1].tolist()
        if asked.bins is not None:
            starts = _equal_bins(points, asked.bins)
            edges = [*starts, points[-1] + 1] if points else []
            bounds = [
                (values.from_offset(spec, start), values.from_offset(spec, after - 1))
                for start, after in pairwise(edges)
            ]
        else:
            edges = [edge - spec.numbers.lowest for edge in asked.edges]
            bounds = list(pairwise(asked.asked))
        upto = [0, *np.cumsum(counts).tolist()]
        below = [upto[bisect_left(points, edge)] for edge in edges]
        return {
            "below": below[0] if below else 0,
            "above": upto[-1] - below[-1] if below else 0,
            "bins": [
                {"from": start, "to": end, "count": after - before}
                for (start, end), (before, after) in zip(bounds, pairwise(below), strict=True)
            ],
        }

    def _distinct(self, field: Encoded, counted: _Counted, asked: Distinct) -> dict[str, Any]:
        codes, counts = counted
        ranks = field.ranks(codes, self.texts) if asked.limit else None
        listed: NDArray[np.intp] = np.zeros(0, np.intp)
        if ranks is not None:
            listed = _listed([ranks[codes]], counts, asked.order)[: asked.limit]
        return {
            "count": len(codes),
            "values": [
                {"value": self._value(field, int(codes[at])), "count": int(counts[at])}
                for at in listed
            ],
        }

    def _value(self, field: Encoded, code: int) -> Value:
        """The value behind a code; a text as it is compared, in NFC."""
        if code == 0:
            return None
        key = field.keys[code - 1].item()
        if isinstance(key, int):
            return values.from_offset(self.definition.fields[field.field], key)
        return field.text(code, self.texts)


def _combined(columns: Sequence[Codes]) -> tuple[NDArray[np.int64], Codes]:
    """The different combinations of codes, one a row, and which of them each row of data has."""
    group_of: Codes = np.zeros(len(columns[0]), np.int64)
    first: NDArray[np.intp] = np.zeros(0, np.intp)
    for codes in columns:
        # Both are below the number of rows, so that their product is an int64.
        together = group_of * (int(codes.max(initial=0)) + 1) + codes
        _, first, group_of = np.unique(together, return_index=True, return_inverse=True)
    return np.stack([codes[first] for codes in columns], axis=1), group_of


def _by_code(field: Encoded, rows: Codes, groups: int) -> list[_Counted]:
    """Each group's codes with their counts, without those of absent values."""
    width = len(field.keys) + 1
    if groups == 1:
        counts = np.bincount(field.codes, minlength=width)
        together = np.flatnonzero(counts)
        counts = counts[together]
    else:
        together, counts = np.unique(rows * width + field.codes, return_counts=True)
    present = together % width > 0
    together, counts = together[present], counts[present]
    ends = np.searchsorted(together // width, np.arange(groups), "right")[:-1]
    return list(zip(np.split(together % width, ends), np.split(counts, ends), strict=True))


def _listed(levels: Sequence[Codes], counts: Codes, order: ListOrder) -> NDArray[np.intp]:
    """How a list of values with their counts is shown; equal counts are ordered by value."""
    by_value = tuple(reversed(levels))
    if order == "value":
        return np.lexsort(by_value)
    if order == "-value":
        return np.lexsort(by_value)[::-1]
    return np.lexsort((*by_value, counts if order == "count" else -counts))


def _counted(rows: Codes, groups: int) -> list[int]:
    found: list[int] = np.bincount(rows, minlength=groups).tolist()
    return found


def _is_best(ranks: Codes, rows: Codes, groups: int, highest: bool) -> NDArray[np.bool_]:
    """Which rows have the lowest or the highest rank of their group."""
    signed = -ranks if highest else ranks
    best = np.full(groups, np.iinfo(np.int64).max)
    np.minimum.at(best, rows, signed)
    found: NDArray[np.bool_] = signed == best[rows]
    return found


def _of_several(codes: Codes, rows: Codes) -> NDArray[np.bool_]:
    """The rows of groups that have more than one code."""
    width = int(codes.max(initial=0)) + 1
    groups, counts = np.unique(np.unique(rows * width + codes) // width, return_counts=True)
    return np.isin(rows, groups[counts > 1])


def _equal_bins(points: Sequence[int], bins: int) -> list[int]:
    """Where bins of one width begin; fewer where there are fewer points than bins."""
    if not points:
        return []
    width = -(-(points[-1] - points[0] + 1) // bins)
    return list(range(points[0], points[-1] + 1, width))


def _scaled(total: int, _count: int, precision: int) -> int | Decimal:
    return total if precision == 0 else Decimal(total).scaleb(-precision, _WIDE)


def _average(total: int, count: int, precision: int) -> Decimal:
    """Rounded half to even, once."""
    rounded = round(Fraction(total * 10**AVERAGE_DECIMALS, count))
    return Decimal(rounded).scaleb(-precision - AVERAGE_DECIMALS, _WIDE)

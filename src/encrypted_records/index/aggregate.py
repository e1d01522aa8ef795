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
from encrypted_records.index.candidates import Candidates
from encrypted_records.index.coded import Codes
from encrypted_records.index.encoded import Encoded, encode
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
#: Tables of this many entries per row, and some more, are quicker than sorting.
_ROOM, _LITTLE = 4, 1 << 16


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
        results = [self.measure(measure, None, [rows]) for measure in asked.measures]
        return Aggregated([Group((), tuple(result[0] for result in results))], 1)

    def grouped(self, asked: Aggregation) -> Aggregated | None:
        keys = [self.fields[name] for name in asked.group_by]
        only_counted = all(measure.field is None for measure in asked.measures)
        if only_counted and len(keys) == 1:
            # How often each code is there tells all, and takes no look at any row.
            present = np.flatnonzero(keys[0].counts)
            members, counts = present[:, None], keys[0].counts[present]
        else:
            members, group_of = _combined(keys)
            counts = np.bincount(group_of, minlength=len(members))
        if len(members) > MAX_GROUPS:
            raise InvalidQuery(
                f"the records fall into more than {MAX_GROUPS} groups",
                code="too_many_groups",
                hint="narrow the condition, or group by fields with fewer values",
            )
        levels = []
        for at, one in enumerate(keys):
            ranks = one.ranks(members[:, at], self.texts)
            if ranks is None:
                return None
            levels.append(ranks[members[:, at]])
        by_value = np.empty(len(members), np.int64)
        by_value[np.lexsort(tuple(reversed(levels)))] = np.arange(len(members))
        chosen = _listed(by_value, counts, asked.order, asked.limit)
        if only_counted:
            results: list[list[Any]] = [counts[chosen].tolist()] * len(asked.measures)
        else:
            results = self._of_groups(asked.measures, chosen, counts, group_of)
        groups = [
            Group(
                tuple(self._value(one, int(code)) for one, code in zip(keys, codes, strict=True)),
                tuple(result[at] for result in results),
            )
            for at, codes in enumerate(members[chosen])
        ]
        return Aggregated(groups, len(members))

    def _of_groups(
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
            work = _Work(self.definition, self.texts, shown)
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
                return _present(field, rows, len(counts))
            case Extreme():
                return self._extreme(field, rows, len(counts), highest=measure.highest)
            case Sum():
                return self._sums(field, rows, len(counts), _scaled)
            case Average():
                return self._sums(field, rows, len(counts), _average)
        counted = _by_code(field, rows, len(counts))
        match measure:
            case Percentile():
                return [self._percentiles(field, one, measure) for one in counted]
            case Histogram():
                return [self._histogram(field, one, measure) for one in counted]
            case Distinct():
                return [self._distinct(field, one, measure) for one in counted]

    def _sums(
        self,
        field: Encoded,
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
            high, low = (_added(half[at], rows_of, groups) for half in halves)
        numbers = self.definition.fields[field.field].numbers
        return [
            shown((upper << 32) + lower + count * numbers.lowest, count, numbers.precision)
            if count
            else None
            for upper, lower, count in zip(high, low, _present(field, rows, groups), strict=True)
        ]

    def _extreme(
        self, field: Encoded, rows: Codes | None, groups: int, *, highest: bool
    ) -> list[Value]:
        """First by what the index knows, then among those that this leaves equal."""
        found: list[Value] = [None] * groups
        if rows is None:
            if not field.long:
                last = len(field.keys)
                return [self._value(field, (last if highest else 1) if last else 0)]
            field = field.once()
            rows = np.zeros(len(field.codes), np.int64)
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
        points: NDArray[Any] = field.keys[codes - 1]
        if asked.bins is not None:
            starts = _equal_bins(points, asked.bins)
            edges = [*starts, int(points[-1]) + 1] if starts else []
            bounds = [
                (values.from_offset(spec, start), values.from_offset(spec, after - 1))
                for start, after in pairwise(edges)
            ]
        else:
            edges = [edge - spec.numbers.lowest for edge in asked.edges]
            bounds = list(pairwise(asked.asked))
        upto = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        below = [int(upto[_before(points, edge)]) for edge in edges]
        return {
            "below": below[0] if below else 0,
            "above": int(upto[-1]) - below[-1] if below else 0,
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
            listed = _listed(ranks[codes], counts, asked.order, asked.limit)
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


def _combined(fields: Sequence[Encoded]) -> tuple[NDArray[np.int64], Codes]:
    """The different combinations of codes, one a row, and which of them each row of data has."""
    first, *others = fields
    members, group_of = _dense(first.codes, len(first.keys) + 1)
    found = [members]
    for field in others:
        # Both are below the number of rows, so that their product is an int64.
        width = len(field.keys) + 1
        together, group_of = _dense(group_of * width + field.codes, len(members) * width)
        found = [codes[together // width] for codes in found]
        found.append(together % width)
        members = together
    return np.stack(found, axis=1), group_of


def _dense(numbers: Codes, space: int) -> tuple[Codes, Codes]:
    """The different ones of numbers below ``space``, and for each number which of them it is."""
    if space > _ROOM * len(numbers) + _LITTLE:
        return np.unique(numbers, return_inverse=True)
    here = np.zeros(space, np.bool_)
    here[numbers] = True
    distinct = np.flatnonzero(here)
    place: Codes = np.zeros(space, np.int64)
    place[distinct] = np.arange(len(distinct))
    return distinct, place[numbers]


def _by_code(field: Encoded, rows: Codes | None, groups: int) -> list[_Counted]:
    """Each group's codes with their counts, without those of absent values."""
    width = len(field.keys) + 1
    if rows is None:
        together = np.flatnonzero(field.counts)
        counts = field.counts[together]
    else:
        together, at = _dense(rows * width + field.codes, groups * width)
        counts = np.bincount(at, minlength=len(together))
    present = together % width > 0
    together, counts = together[present], counts[present]
    ends = np.searchsorted(together // width, np.arange(groups), "right")[:-1]
    return list(zip(np.split(together % width, ends), np.split(counts, ends), strict=True))


def _listed(ranks: Codes, counts: Codes, order: ListOrder, limit: int) -> NDArray[np.intp]:
    """The first ``limit`` of a list of values with their counts; equal counts are ordered by value.

    Args:
        ranks: of the values, all different.
    """
    # Both are below 2**32, and one number of both is quicker to choose by than two.
    sorting = {
        "value": ranks,
        "-value": -ranks,
        "count": (counts << 32) + ranks,
        "-count": ranks - (counts << 32),
    }[order]
    if limit >= len(sorting):
        return np.argsort(sorting)
    chosen = np.argpartition(sorting, limit)[:limit]
    return chosen[np.argsort(sorting[chosen])]


def _present(field: Encoded, rows: Codes | None, groups: int) -> list[int]:
    """How many rows of each group have the field."""
    if rows is None:
        return [int(field.counts[1:].sum())]
    found: list[int] = np.bincount(rows[field.codes > 0], minlength=groups).tolist()
    return found


def _added(numbers: NDArray[np.uint64], rows: Codes, groups: int) -> list[int]:
    """The sum of each group's numbers."""
    found = np.zeros(groups, np.uint64)
    np.add.at(found, rows, numbers)
    added: list[int] = found.tolist()
    return added


def _before(points: NDArray[Any], edge: int) -> int:
    """How many of these sorted offsets are below ``edge``, which may be far outside of theirs."""
    return int(np.searchsorted(points, np.uint64(max(0, edge)))) if edge < 2**64 else len(points)


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


def _equal_bins(points: NDArray[Any], bins: int) -> list[int]:
    """Where bins of one width begin; fewer where there are fewer points than bins."""
    if not len(points):
        return []
    first, last = int(points[0]), int(points[-1])
    return list(range(first, last + 1, -(-(last - first + 1) // bins)))


def _scaled(total: int, _count: int, precision: int) -> int | Decimal:
    return total if precision == 0 else Decimal(total).scaleb(-precision, _WIDE)


def _average(total: int, count: int, precision: int) -> Decimal:
    """Rounded half to even, once."""
    rounded = round(Fraction(total * 10**AVERAGE_DECIMALS, count))
    return Decimal(rounded).scaleb(-precision - AVERAGE_DECIMALS, _WIDE)

"""Numbers by group: counts, sums and extremes of codes, all of it in numpy.

A *code* is as in :mod:`.global_dictionary`: 0 for an absent value, else 1 + the index of its key.
``rows`` says which group each row is in, None where all are in one; ``groups`` how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.index.columns.dictionary import Codes
from encrypted_records.index.query.global_dictionary import GlobalDictionary
from encrypted_records.model.aggregations import ListOrder

#: Tables of this many entries per row, and some more, are quicker than sorting.
_ENTRIES_PER_ROW, _MORE_ENTRIES = 4, 1 << 16

#: Sorted codes of one group, all different, and how often each is there.
CodeCounts = tuple[Codes, Codes]


def combine_codes(fields: Sequence[GlobalDictionary]) -> tuple[NDArray[np.int64], Codes]:
    """The distinct combinations of codes, one a row, and which of them each row of data has."""
    first, *others = fields
    members, group_of = renumber(first.codes, len(first.keys) + 1)
    columns = [members]
    for field in others:
        # Both are below the number of rows, so that their product is an int64.
        width = len(field.keys) + 1
        together, group_of = renumber(group_of * width + field.codes, len(members) * width)
        columns = [codes[together // width] for codes in columns]
        columns.append(together % width)
        members = together
    return np.stack(columns, axis=1), group_of


def renumber(numbers: Codes, space: int) -> tuple[Codes, Codes]:
    """The distinct ones of numbers below ``space``, and for each number the index of its own."""
    if space > _ENTRIES_PER_ROW * len(numbers) + _MORE_ENTRIES:
        return np.unique(numbers, return_inverse=True)
    here = np.zeros(space, np.bool_)
    here[numbers] = True
    distinct = np.flatnonzero(here)
    index: Codes = np.zeros(space, np.int64)
    index[distinct] = np.arange(len(distinct))
    return distinct, index[numbers]


def count_by_code(field: GlobalDictionary, rows: Codes | None, groups: int) -> list[CodeCounts]:
    """Each group's codes with their counts, without those of absent values."""
    width = len(field.keys) + 1
    if rows is None:
        together = np.flatnonzero(field.counts)
        counts = field.counts[together]
    else:
        together, at = renumber(rows * width + field.codes, groups * width)
        counts = np.bincount(at, minlength=len(together))
    present = together % width > 0
    together, counts = together[present], counts[present]
    ends = np.searchsorted(together // width, np.arange(groups), "right")[:-1]
    return list(zip(np.split(together % width, ends), np.split(counts, ends), strict=True))


def choose_first(ranks: Codes, counts: Codes, order: ListOrder, limit: int) -> NDArray[np.intp]:
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


def count_present(field: GlobalDictionary, rows: Codes | None, groups: int) -> list[int]:
    """How many rows of each group have the field."""
    if rows is None:
        return [int(field.counts[1:].sum())]
    counts: list[int] = np.bincount(rows[field.codes > 0], minlength=groups).tolist()
    return counts


def add_by_group(numbers: NDArray[np.uint64], rows: Codes, groups: int) -> list[int]:
    """The sum of each group's numbers."""
    totals = np.zeros(groups, np.uint64)
    np.add.at(totals, rows, numbers)
    sums: list[int] = totals.tolist()
    return sums


def count_below(points: NDArray[Any], edge: int) -> int:
    """How many of these sorted offsets are below ``edge``, which may be far outside their range."""
    return int(np.searchsorted(points, np.uint64(max(0, edge)))) if edge < 2**64 else len(points)


def is_best(ranks: Codes, rows: Codes, groups: int, highest: bool) -> NDArray[np.bool_]:
    """Which rows have the lowest or the highest rank of their group."""
    signed = -ranks if highest else ranks
    best = np.full(groups, np.iinfo(np.int64).max)
    np.minimum.at(best, rows, signed)
    are_best: NDArray[np.bool_] = signed == best[rows]
    return are_best


def is_of_several(codes: Codes, rows: Codes) -> NDArray[np.bool_]:
    """The rows of groups that have more than one code."""
    width = int(codes.max(initial=0)) + 1
    groups, counts = np.unique(np.unique(rows * width + codes) // width, return_counts=True)
    return np.isin(rows, groups[counts > 1])


def cut_bins(points: NDArray[Any], bins: int) -> list[int]:
    """Where bins of one width begin; fewer where there are fewer points than bins."""
    if not len(points):
        return []
    first, last = int(points[0]), int(points[-1])
    return list(range(first, last + 1, -(-(last - first + 1) // bins)))

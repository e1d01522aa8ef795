"""Numbers of groups and of values, all of it in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.index.columns.column import Keys
from encrypted_records.index.columns.dictionary import Codes
from encrypted_records.model.aggregations import ListOrder

#: Tables of this many entries per row, and some more, are quicker than sorting.
_ENTRIES_PER_ROW, _MORE_ENTRIES = 4, 1 << 16


class Numbering:
    """Numbers for different keys from 0 on, in the order in which they come."""

    def __init__(self) -> None:
        self._sorted: NDArray[Any] | None = None
        self._numbers: Codes = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, keys: Keys) -> Codes:
        """The numbers of keys, all different and sorted."""
        if self._sorted is None or not len(self._sorted):
            if not len(keys):
                return np.zeros(0, np.int64)
            self._sorted, self._numbers = keys, np.arange(len(keys))
            return self._numbers
        at = np.searchsorted(self._sorted, keys)
        within = np.minimum(at, len(self._sorted) - 1)
        new = self._sorted[within] != keys
        numbers: Codes = self._numbers[within]
        count = int(np.count_nonzero(new))
        if count:
            numbers[new] = np.arange(len(self), len(self) + count)
            self._sorted = np.insert(self._sorted, at[new], keys[new])
            self._numbers = np.insert(self._numbers, at[new], numbers[new])
        return numbers

    @property
    def keys(self) -> NDArray[Any]:
        """The keys by their numbers."""
        if self._sorted is None:
            return np.zeros(0, np.uint64)
        keys = np.empty_like(self._sorted)
        keys[self._numbers] = self._sorted
        return keys


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


def count_below(points: NDArray[Any], edge: int) -> int:
    """The number of sorted offsets below ``edge``, which may be far outside their range."""
    return int(np.searchsorted(points, np.uint64(max(0, edge)))) if edge < 2**64 else len(points)


def cut_bins(points: NDArray[Any], bins: int) -> list[int]:
    """The beginnings of bins of equal width; fewer than ``bins`` if there are fewer points."""
    if not len(points):
        return []
    first, last = int(points[0]), int(points[-1])
    return list(range(first, last + 1, -(-(last - first + 1) // bins)))

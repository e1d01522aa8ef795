"""Cells: stretches of neighbouring keys of numbers, counted together where there are very many.

A percentile and a bin need to know where they lie among all values, and not all of these. So values
that would take too much memory are counted in cells, and those that matter are looked at again, in
finer cells, until each of these is one key.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.index.columns.dictionary import Codes

Points = NDArray[Any]

_HIGHEST = 2**64 - 1
#: Cells of more keys than this are not made.
_WIDEST = 63


def _from_zero() -> Points:
    return np.zeros(1, np.uint64)


def _whole() -> NDArray[np.bool_]:
    return np.ones(1, np.bool_)


@dataclass(frozen=True, eq=False, slots=True)
class Cells:
    """All keys, parted at ``begins``, of which the first is 0. A part that is ``fine`` is parted
    further, at each multiple of ``2**shift``; any other part is one cell.

    ``widest`` is the greatest ``shift`` that there may be.
    """

    begins: Points = field(default_factory=_from_zero)
    fine: NDArray[np.bool_] = field(default_factory=_whole)
    shift: int = 0
    widest: int = _WIDEST

    @classmethod
    def within(
        cls, some: Cells, firsts: Collection[int], cuts: Collection[int], *, widest: int
    ) -> Cells:
        """Fine where some of other cells are.

        Args:
            firsts: the first keys of these.
            cuts: keys with which a cell begins.
        """
        wanted = np.array(sorted(firsts), np.uint64)
        lasts = some.lasts(wanted)
        behind = {last + 1 for last in lasts.tolist()}
        points = sorted({0, *firsts, *behind, *cuts} - {_HIGHEST + 1})
        begins = np.array(points, np.uint64)
        at = np.searchsorted(wanted, begins, "right") - 1
        fine = np.zeros(len(begins), np.bool_)
        if len(wanted):
            fine = (at >= 0) & (lasts[at] >= begins)
        return cls(begins, fine, 0, widest)

    @property
    def is_exact(self) -> bool:
        """Whether each key is a cell."""
        return self.shift == 0 and bool(self.fine.all())

    def firsts(self, keys: Points) -> Points:
        """The first key of each one's cell."""
        at = np.searchsorted(self.begins, keys, "right") - 1
        begins = self.begins[at]
        inner = keys >> np.uint64(self.shift) << np.uint64(self.shift)
        return np.where(self.fine[at], np.maximum(begins, inner), begins)

    def lasts(self, firsts: Points) -> Points:
        """The last key of each cell."""
        at = np.searchsorted(self.begins, firsts, "right") - 1
        ends = np.append(self.begins[1:] - np.uint64(1), np.uint64(_HIGHEST))[at]
        inner = firsts | np.uint64((1 << self.shift) - 1)
        return np.where(self.fine[at], np.minimum(ends, inner), ends)

    def wider(self, groups: Codes, keys: Points, most: int) -> Cells | None:
        """The finest cells of which these have at most ``most``; None if there are no such cells.

        Args:
            groups: the groups for which the keys are counted separately; sorted, and the keys
                within each.
        """

        def fits(shift: int) -> bool:
            firsts = replace(self, shift=shift).firsts(keys)
            new = (firsts[1:] != firsts[:-1]) | (groups[1:] != groups[:-1])
            return 1 + int(np.count_nonzero(new)) <= most

        shifts = range(self.shift + 1, self.widest + 1)
        at = bisect_left(shifts, True, key=fits)
        return replace(self, shift=shifts[at]) if at < len(shifts) else None

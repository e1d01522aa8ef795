"""Tallies accumulate the values of a field for its measures, part by part, for each group.

Sums, counts and extremes keep a number or a key per group. Percentiles, histograms and lists of
values keep each distinct value of each group. If lists of values need too much memory, they are
refused.

A percentile and a bin need ranks among all values, not all values. If values that are not listed
would take too much memory, they are counted in *cells*, stretches of neighbouring keys. The cells
that matter are counted again in finer cells, until each of these is a single key.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto.format import INDEX_KEY_BYTES, INDEX_KEY_PREFIX
from encrypted_records.errors import InvalidQuery
from encrypted_records.index.columns.column import Keys
from encrypted_records.index.columns.dictionary import Codes, Halves, split_halves
from encrypted_records.index.columns.packing import matrix
from encrypted_records.index.log.snapshot import Positions
from encrypted_records.model.aggregations import Extreme, Measure, Needs

Points = NDArray[Any]

_HIGHEST = 2**64 - 1
#: Maximum ``shift``: a cell has at most ``2**63`` keys.
_WIDEST = 63


def _from_zero() -> Points:
    return np.zeros(1, np.uint64)


def _single_cell() -> NDArray[np.bool_]:
    return np.ones(1, np.bool_)


@dataclass(frozen=True, eq=False, slots=True)
class Cells:
    """A partition of all keys at ``begins``, the first of which is 0. A ``fine`` part is divided
    further, at each multiple of ``2**shift``; any other part is a single cell.

    ``widest`` is the maximum ``shift``.
    """

    begins: Points = field(default_factory=_from_zero)
    fine: NDArray[np.bool_] = field(default_factory=_single_cell)
    shift: int = 0
    widest: int = _WIDEST

    @classmethod
    def within(
        cls, cells: Cells, firsts: Collection[int], cuts: Collection[int], *, widest: int
    ) -> Cells:
        """A partition that is fine inside some cells of another.

        Args:
            firsts: the first keys of these cells.
            cuts: keys at which a cell must begin.
        """
        wanted = np.array(sorted(firsts), np.uint64)
        lasts = cells.lasts(wanted)
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
        """Whether each cell is a single key."""
        return self.shift == 0 and bool(self.fine.all())

    def firsts(self, keys: Points) -> Points:
        """The first key of each key's cell."""
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
        """The finest cells such that the keys are in at most ``most`` of them; None if there are no
        such cells.

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


#: Number of new values after which values are sorted.
_PENDING = 1 << 18
_HIGHEST_KEY = np.iinfo(np.uint64).max


@dataclass(frozen=True, slots=True)
class DistinctLimits:
    """Limits on the bytes of distinct values. Above ``usual``, numbers are counted in wider cells,
    if that reduces them enough; more than ``most`` are never kept. Sorting temporarily takes four
    times as much."""

    usual: int = 8 << 20
    most: int = 128 << 20


DISTINCT_LIMITS = DistinctLimits()

#: Facts that each source of values provides, besides their number: a column, or a directory that
#: lists its values;
EVERYTHING = ~Needs.NUMBER
#: a directory that lists none;
DIRECTORY = Needs.ENDS
#: ranks among the values of nearly all rows, from directories and a few pages;
ALL_RANKS = Needs.ENDS | Needs.RANKS
#: these with the sums of columns, which are kept per segment;
RANKS_AND_SUMS = ALL_RANKS | Needs.SUMS
#: and the same for a segment among others, without ranks.
ENDS_AND_SUMS = DIRECTORY | Needs.SUMS


class GroupValues:
    """Values of groups: each entry's group, key, number of rows, and the position of one of these
    rows, or -1 if no key is of a long string."""

    __slots__ = ("counts", "groups", "keys", "positions")

    def __init__(self, groups: Codes, keys: Keys, counts: Codes, positions: Positions) -> None:
        self.groups, self.keys, self.counts, self.positions = groups, keys, counts, positions

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.groups, self.keys, self.counts, self.positions))

    def only(self, kept: NDArray[np.bool_] | NDArray[np.intp] | slice) -> GroupValues:
        return GroupValues(
            self.groups[kept], self.keys[kept], self.counts[kept], self.positions[kept]
        )

    def merged(self) -> GroupValues:
        """The values by group and key, each pair once."""
        order = np.argsort(self.keys, kind="stable")
        if np.any(self.groups[1:] != self.groups[:-1]):
            order = order[np.argsort(self.groups[order], kind="stable")]
        groups, keys = self.groups[order], self.keys[order]
        new = np.ones(len(order), np.bool_)
        new[1:] = (groups[1:] != groups[:-1]) | (keys[1:] != keys[:-1])
        starts = np.flatnonzero(new)
        groups, keys = groups[starts], keys[starts]
        counts = self.counts[order]
        counts = np.add.reduceat(counts, starts) if len(starts) else counts
        return GroupValues(groups, keys, counts, self.positions[order[starts]])


def join(parts: Sequence[GroupValues]) -> GroupValues:
    """Join several; all keys have the same kind."""
    non_empty = [part for part in parts if len(part)]
    if not non_empty:
        none = np.zeros(0, np.int64)
        return GroupValues(none, np.zeros(0, np.uint64), none, none)
    return GroupValues(
        np.concatenate([part.groups for part in non_empty]),
        np.concatenate([part.keys for part in non_empty]),
        np.concatenate([part.counts for part in non_empty]),
        np.concatenate([part.positions for part in non_empty]),
    )


class FieldTally:
    """The tally of one field, for all measures of the field."""

    def __init__(
        self,
        groups: int,
        measures: Sequence[Measure],
        kept: DistinctLimits = DISTINCT_LIMITS,
        cells: Cells | None = None,
    ) -> None:
        """
        Args:
            groups: the number of groups.
            kept: the limits on distinct values.
            cells: the cells in which values are counted; if None, each value is separate.
        """
        self.measures = measures
        self._kept = kept
        self.needs = Needs.NUMBER
        for measure in measures:
            self.needs |= measure.needs
        self.present = np.zeros(groups, np.int64)
        self.adds = bool(self.needs & (Needs.SUMS | Needs.SQUARES))
        #: for each group the sums of the keys' upper and lower 32 bits
        self.halves = np.zeros((2, groups), np.uint64)
        squared = groups if Needs.SQUARES in self.needs else 0
        #: for each group the sums of the squares of the upper halves, of their products with the
        #: lower halves, and of the squares of the lower halves; each as sums of its upper and lower
        #: 32 bits
        self.squares = np.zeros((3, 2, squared), np.uint64)
        ends = {measure.highest for measure in measures if isinstance(measure, Extreme)}
        self.extremes = {highest: _Extremes(groups, highest) for highest in ends}
        wants = bool(self.needs & (Needs.RANKS | Needs.VALUES))
        lists = Needs.VALUES in self.needs
        self.table = _Table(kept, cells or Cells(), lists=lists) if wants else None

    def within(self, cells: Cells) -> FieldTally:
        """An empty tally for the same measures."""
        return FieldTally(len(self.present), self.measures, self._kept, cells)

    @property
    def of_values(self) -> bool:
        """Whether counting equal values before adding them is faster."""
        return self.table is not None or bool(self.extremes)

    def add(
        self, values: GroupValues, tells: Needs = EVERYTHING, halves: Halves | None = None
    ) -> None:
        """
        Args:
            tells: the facts for which ``values`` are exact, if some keys stand for others; then
                there is a single group.
            halves: the sums of all values, if ``tells`` includes them and keys stand for others.

        Raises:
            InvalidQuery: ``too_many_values``.
        """
        assert self.needs in tells
        if not len(values):
            return
        np.add.at(self.present, values.groups, values.counts)
        if halves is not None:
            self.halves[:, values.groups[0]] += np.array([halves.upper, halves.lower], np.uint64)
        elif self.adds:
            # A schema has fewer than 2**32 rows, so the sum of halves of their keys fits.
            many = values.counts.astype(np.uint64)
            for half, part in zip(self.halves, split_halves(values.keys), strict=True):
                np.add.at(half, values.groups, part * many)
            if Needs.SQUARES in self.needs:
                self._add_squares(values.groups, values.keys, many)
        for extreme in self.extremes.values():
            extreme.add(values)
        if self.table is not None:
            self.table.add(values)

    def _add_squares(self, groups: Codes, keys: Keys, many: NDArray[np.uint64]) -> None:
        upper, lower = split_halves(keys)
        products = (upper * upper, upper * lower, lower * lower)
        for sums, product in zip(self.squares, products, strict=True):
            for half, part in zip(sums, split_halves(product), strict=True):
                np.add.at(half, groups, part * many)

    def squares_of(self, group: int) -> int:
        """The sum of the squares of a group's keys."""
        sums: list[list[int]] = self.squares[:, :, group].tolist()
        first, second, third = ((upper << 32) + lower for upper, lower in sums)
        return (first << 64) + (second << 33) + third


class _Extremes:
    """The lowest or highest key of each group: for long strings, all keys of the class."""

    def __init__(self, groups: int, highest: bool) -> None:
        self._count = groups
        self._highest = highest
        self._values: list[GroupValues] = []

    def add(self, values: GroupValues) -> None:
        both = join([*self._values, self._best(values)])
        self._values = [self._best(both).merged()]

    @property
    def values(self) -> GroupValues:
        return join(self._values)

    def _best(self, values: GroupValues) -> GroupValues:
        kept = np.arange(len(values))
        for word in _words(values.keys):
            words = ~word[kept] if self._highest else word[kept]
            best = np.full(self._count, _HIGHEST_KEY)
            np.minimum.at(best, values.groups[kept], words)
            kept = kept[words == best[values.groups[kept]]]
        return values.only(kept)


class _Table:
    """The distinct values of each group; for numbers, possibly the nonempty cells."""

    def __init__(self, kept: DistinctLimits, cells: Cells, *, lists: bool) -> None:
        """
        Args:
            lists: whether values are shown singly, so that cells cannot replace them.
        """
        self._kept = kept
        self.lists = lists
        self.cells = cells
        self._values = join([])
        self._pending: list[GroupValues] = []
        self._left = _PENDING

    def add(self, values: GroupValues) -> None:
        self._pending.append(values)
        self._left -= len(values)
        if self._left < 0:
            self._settle()

    @property
    def values(self) -> GroupValues:
        """The values by group and key; cells are represented by their first keys."""
        if self._pending:
            self._settle()
        return self._values

    def _settle(self) -> None:
        values = join([self._values, *self._pending])
        self._values, self._pending = join([]), []
        reduced = self._in_cells(values)
        del values
        if reduced.nbytes > self._kept.usual:
            reduced = self._widened(reduced)
        self._values = reduced
        self._left = max(_PENDING, len(reduced) // 2)

    def _widened(self, values: GroupValues) -> GroupValues:
        bytes_each = -(-values.nbytes // len(values))
        for most in () if self.lists else (self._kept.usual, self._kept.most):
            if values.nbytes > most:
                # Half of the room is left for later values.
                wider = self.cells.wider(values.groups, values.keys, most // 2 // bytes_each)
                if wider is not None:
                    self.cells = wider
                    return self._in_cells(values)
        if values.nbytes > self._kept.most:
            raise InvalidQuery(
                "the measures need all distinct values, and these take more than"
                f" {self._kept.most >> 20} MiB",
                code="too_many_values",
                hint="narrow the condition, or measure a field with fewer distinct values",
            )
        return values

    def _in_cells(self, values: GroupValues) -> GroupValues:
        if not self.cells.is_exact:
            firsts = self.cells.firsts(values.keys)
            values = GroupValues(values.groups, firsts, values.counts, values.positions)
        return values.merged()


def _words(keys: NDArray[Any]) -> list[NDArray[np.uint64]]:
    """Keys as columns of numbers, most significant first; long strings by their ordering part."""
    if keys.dtype.kind != "S":
        return [keys]
    cells = matrix(keys)
    prefix = np.ascontiguousarray(cells[:, :INDEX_KEY_PREFIX]).view(">u8")
    words = [word.astype(np.uint64) for word in prefix.T]
    if keys.dtype.itemsize == INDEX_KEY_BYTES:
        words.append(cells[:, INDEX_KEY_PREFIX:].any(axis=1).astype(np.uint64))
    return words

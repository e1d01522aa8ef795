"""Convert index keys to another grid, after a field's bounds were widened or it got more decimals.

A segment's keys are on the grid of the definition it was made under. They are converted to the
query's grid when a page is opened, so that code that compares keys deals with a single grid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns.column import Column, EntryBlock, Keys
from encrypted_records.index.columns.directory import Directory
from encrypted_records.model.definition import FieldSpec


@dataclass(frozen=True, slots=True)
class Rebase:
    """Maps keys up to ``last`` to ``key * factor + shift``, up to ``end``.

    It preserves the order of keys, and different keys stay different.
    """

    factor: int
    shift: int
    last: int
    end: int

    @classmethod
    def between(cls, stored: FieldSpec, shown: FieldSpec) -> Rebase | None:
        """The conversion from the grid of ``stored`` to that of ``shown``, which has at least as
        many decimals; None if keys do not change.
        """
        if stored.number is None or shown.number is None:
            return None
        was, is_now = stored.number, shown.number
        factor = 10 ** (is_now.precision - was.precision)
        shift = was.lowest * factor - is_now.lowest
        last, end = was.highest - was.lowest, is_now.highest - is_now.lowest
        if factor == 1 and shift == 0 and last == end:
            return None
        # On a grid of a single value, every key is 0, and the factor may exceed 64 bits.
        return cls(factor if last else 1, shift, last, end)

    def key(self, key: int) -> int:
        """
        Raises:
            DoesNotOpen: it is not on both grids.
        """
        moved = key * self.factor + self.shift
        if key > self.last or not 0 <= moved <= self.end:
            raise DoesNotOpen("a key lies outside of its field's bounds")
        return moved

    def keys(self, keys: Keys) -> Keys:
        """Ascending keys.

        Raises:
            DoesNotOpen: as :meth:`key`.
        """
        if not len(keys):
            return keys
        for edge in (keys[0], keys[-1]):
            self.key(int(edge))
        # Intermediate and final values are below 2**64, because the keys at both edges are.
        moved = keys.astype(np.uint64) * np.uint64(self.factor)
        if self.shift < 0:
            return moved - np.uint64(-self.shift)
        return moved + np.uint64(self.shift)

    def column(self, column: Column) -> Column:
        return Column(column.ordinals, self.keys(column.keys))

    def block(self, block: EntryBlock) -> EntryBlock:
        return replace(block, keys=self.keys(block.keys))

    def directory(self, directory: Directory) -> Directory:
        return replace(
            directory,
            firsts=self.keys(directory.firsts),
            lasts=self.keys(directory.lasts),
            runs=self.keys(directory.runs),
        )

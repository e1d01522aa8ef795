"""Sums of whole columns of numbers, and the keys of a few of their rows: read once, and then small
enough to be kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from encrypted_records.index.columns.column import OBJECT_BYTES, Keys, measure
from encrypted_records.index.columns.dictionary import Codes
from encrypted_records.index.ordinals import Ordinals, ordinals

#: What a roaring set takes for a member at most.
_MEMBER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Halves:
    """A sum of keys: of their upper and of their lower 32 bits, which a schema's rows cannot make
    overflow 64 bits."""

    upper: int = 0
    lower: int = 0

    @classmethod
    def of(cls, keys: Keys, counts: Codes | None = None) -> Halves:
        """Halves of numbers, weighted by ``counts``; None counts each number once."""
        upper, lower = split_halves(keys)
        if counts is not None:
            many = counts.astype(np.uint64)
            upper, lower = upper * many, lower * many
        return cls(int(upper.sum(dtype=np.uint64)), int(lower.sum(dtype=np.uint64)))

    def __add__(self, other: Halves) -> Halves:
        return Halves(self.upper + other.upper, self.lower + other.lower)

    def __sub__(self, other: Halves) -> Halves:
        return Halves(self.upper - other.upper, self.lower - other.lower)


@dataclass(frozen=True, eq=False, slots=True)
class ColumnSums:
    """``halves`` are of all rows that the segment indexes. ``rows`` were looked up besides, and
    ``present`` are those of them that have a key, ascending, with their ``keys``."""

    halves: Halves
    rows: BitMap
    present: Ordinals
    keys: Keys

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return measure(self.present, self.keys) + len(self.rows) * _MEMBER_BYTES + 4 * OBJECT_BYTES

    def has(self, rows: BitMap) -> bool:
        """Whether these were looked up."""
        return rows.issubset(self.rows)

    def keys_of(self, rows: BitMap) -> Keys:
        """The keys of some rows that were looked up, of those that have one, in any order."""
        if len(rows) == len(self.rows):
            return self.keys
        return self.keys[np.isin(self.present, ordinals(rows), assume_unique=True)]


def split_halves(keys: Keys) -> tuple[Keys, Keys]:
    """The upper and the lower 32 bits of numbers."""
    return keys >> np.uint64(32), keys & np.uint64(2**32 - 1)

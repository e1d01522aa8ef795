"""A column by row instead of by value: its different keys, and a number per row for the one it has.

Sorting and measuring look rows up, and need each different key once. A coded column takes four
bytes a row beside its keys, and is what a proxy keeps of a column that was opened as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto.format import INDEX_KEY_PREFIX
from encrypted_records.index.columns import Column, Keys, Ordinals, run_starts
from encrypted_records.index.packing import matrix

Codes = NDArray[np.int64]


class Coding(Protocol):
    """A field of some rows: ``keys``, sorted and all different, and which row has which.

    ``long`` is whether a key may be one of a long string (:mod:`.long_texts`).
    """

    @property
    def keys(self) -> Keys: ...

    @property
    def long(self) -> bool: ...

    def of(self, rows: Ordinals) -> NDArray[np.integer]:
        """For each row 0 where the field is absent, else 1 + the place of its key."""


@dataclass(frozen=True, eq=False, slots=True)
class Coded:
    """All rows of a segment. ``counts`` has the number of rows of each code."""

    keys: Keys
    codes: Ordinals
    counts: Codes
    long: bool

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self.keys.nbytes + self.codes.nbytes + self.counts.nbytes

    def of(self, rows: Ordinals) -> Ordinals:
        return self.codes.take(rows)


@dataclass(frozen=True, eq=False, slots=True)
class Few:
    """Some rows of a segment, ascending, each with its code."""

    keys: Keys
    rows: Ordinals
    codes: Codes
    long: bool

    def of(self, rows: Ordinals) -> Codes:
        """Only of rows that are here."""
        return self.codes[np.searchsorted(self.rows, rows)]


def coded(column: Column, covered: int) -> Coded:
    """All of ``column``, of a segment whose groups have ``covered`` rows."""
    starts = run_starts(column.keys)
    keys = column.keys[starts]
    lengths = np.diff(np.append(starts, column.present))
    codes = np.zeros(covered, np.uint32)
    codes[column.rows(0, column.present)] = np.repeat(
        np.arange(1, len(keys) + 1, dtype=np.uint32), lengths
    )
    counts: Codes = np.concatenate(([column.absent], lengths)).astype(np.int64)
    return Coded(keys, codes, counts, has_long(keys))


def few(rows: Ordinals, keys: Keys, absent: Ordinals) -> Few:
    """Rows with their keys, and rows without one, in any order."""
    distinct, codes = np.unique(keys, return_inverse=True)
    every = np.concatenate((rows, absent))
    numbers: Codes = np.concatenate((codes + 1, np.zeros(len(absent), np.int64)))
    order = np.argsort(every)
    return Few(distinct, every[order], numbers[order], has_long(distinct))


def has_long(keys: Keys) -> bool:
    """Whether one of these keys is of a string that is longer than an index key."""
    return keys.dtype.kind == "S" and bool(matrix(keys)[:, INDEX_KEY_PREFIX:].any())

"""A column by row instead of by value: its different keys, and a number per row for the one it has.

Sorting and measuring look rows up, and need each different key once. A dictionary takes one to four
bytes a row beside its keys, and is what a proxy keeps of a column that was opened as a whole. Where
the keys are too many, it keeps a :class:`PageMap` instead, which has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto.format import INDEX_KEY_PREFIX
from encrypted_records.index.columns.column import OBJECT_BYTES, Column, Keys, measure, run_starts
from encrypted_records.index.columns.packing import matrix
from encrypted_records.index.columns.texts import ColumnTexts
from encrypted_records.index.ordinals import Ordinals

Codes = NDArray[np.int64]
#: Codes as they are kept, one a row.
RowCodes = NDArray[np.unsignedinteger]


class Dictionary(Protocol):
    """A field of some rows: ``keys``, sorted and all different, and which row has which.

    ``long`` is whether a key may be one of a long string (``index.query.long_strings``).
    """

    @property
    def keys(self) -> Keys: ...

    @property
    def long(self) -> bool: ...

    def codes_of(self, rows: Ordinals) -> NDArray[np.integer]:
        """For each row 0 where the field is absent, else 1 + the index of its key."""


@dataclass(frozen=True, eq=False, slots=True)
class ColumnDictionary:
    """All rows of a segment. ``counts`` has the number of rows of each code."""

    keys: Keys
    codes: RowCodes
    counts: Codes
    long: bool

    #: what was made of the keys to test their texts, if they were tested
    _texts: list[ColumnTexts] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes in memory; more once texts were tested."""
        texts = sum(text.size + 10 * OBJECT_BYTES for text in self._texts)
        return measure(self.keys, self.codes, self.counts) + texts + OBJECT_BYTES

    @property
    def texts(self) -> ColumnTexts:
        """The keys of a string column as texts to test.

        Raises:
            DoesNotOpen: a key holds no text.
        """
        if not self._texts:
            self._texts.append(ColumnTexts(self.keys))
        return self._texts[0]

    def codes_of(self, rows: Ordinals) -> RowCodes:
        return self.codes.take(rows)


@dataclass(frozen=True, eq=False, slots=True)
class PageMap:
    """All rows of a segment, each with the page that has its key: 0 where the field is absent, else
    1 + the number of the page among those of present rows, in the order of keys."""

    pages: RowCodes

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self.pages.nbytes


#: What there is of a whole column, by row.
ByRow = ColumnDictionary | PageMap


@dataclass(frozen=True, eq=False, slots=True)
class PartialDictionary:
    """Rows of a segment in ascending order, each with its code."""

    keys: Keys
    rows: Ordinals
    codes: Codes
    long: bool

    def codes_of(self, rows: Ordinals) -> Codes:
        """Only of rows that are here."""
        return self.codes[np.searchsorted(self.rows, rows)]


def code_type(highest: int) -> np.dtype[np.unsignedinteger]:
    """The narrowest type of numbers up to ``highest``."""
    return np.min_scalar_type(highest)


def build_column_dictionary(column: Column, covered: int) -> ColumnDictionary:
    """All of ``column``, of a segment whose groups have ``covered`` rows."""
    starts = run_starts(column.keys)
    keys = column.keys[starts]
    lengths = np.diff(np.append(starts, column.present))
    kind = code_type(len(keys))
    codes = np.zeros(covered, kind)
    codes[column.rows(0, column.present)] = np.repeat(
        np.arange(1, len(keys) + 1).astype(kind), lengths
    )
    counts: Codes = np.concatenate(([column.absent], lengths)).astype(np.int64)
    return ColumnDictionary(keys, codes, counts, has_long(keys))


def build_partial_dictionary(
    rows: Ordinals, keys: Keys, absent: Ordinals, key_of: Ordinals | None = None
) -> PartialDictionary:
    """Rows with their keys, and rows without one, in any order.

    Args:
        key_of: which of the keys each row has; each has its own if None.
    """
    distinct, codes = np.unique(keys, return_inverse=True)
    if key_of is not None:
        codes = codes[key_of]
    every = np.concatenate((rows, absent))
    numbers: Codes = np.concatenate((codes + 1, np.zeros(len(absent), np.int64)))
    order = np.argsort(every)
    return PartialDictionary(distinct, every[order], numbers[order], has_long(distinct))


def has_long(keys: Keys) -> bool:
    """Whether one of these keys is of a string that is longer than an index key."""
    return keys.dtype.kind == "S" and bool(matrix(keys)[:, INDEX_KEY_PREFIX:].any())

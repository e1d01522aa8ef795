"""A global dictionary of a field over all segments, for the matching rows: the different keys, and
the key of each row.

Checks for a field that is to become required, unique or narrower use these small codes; each key is
read once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.index.columns.column import Keys, run_starts
from encrypted_records.index.columns.dictionary import Codes
from encrypted_records.index.log.snapshot import Positions
from encrypted_records.index.query.candidates import Candidates


class GlobalDictionary:
    """``keys`` are sorted and all different. ``codes`` has one number per row: 0 where the field
    is absent, else 1 + the index of its key. ``counts`` has the number of
    rows of each code, ``positions`` the rows' own.

    What has one value per row is computed on first use: most proofs need counts alone.
    """

    def __init__(
        self,
        field: str,
        keys: Keys,
        *,
        codes: Callable[[], Codes],
        positions: Callable[[], Positions],
        counts: Codes,
    ) -> None:
        self.field = field
        self.keys = keys
        self._codes = codes
        self._positions = positions
        self.counts = counts

    @cached_property
    def codes(self) -> Codes:
        return self._codes()

    @cached_property
    def positions(self) -> Positions:
        return self._positions()


def build_global_dictionary(field: str, parts: Sequence[Candidates]) -> GlobalDictionary:
    """The field of all candidates, in their order, with the keys of these rows and no others.

    Raises:
        DoesNotOpen: a column that is needed does not open.
    """
    fields = [_SegmentField(field, part) for part in parts]
    every, indexes = _unite([field.keys for field in fields])
    counts: Codes = np.zeros(len(every) + 1, np.int64)
    for part, own in zip(fields, indexes, strict=True):
        counts[0] += part.absent
        counts[1:][own] += part.counts

    def codes() -> Codes:
        mapped = (part.map_codes(own) for part, own in zip(fields, indexes, strict=True))
        return np.concatenate([np.zeros(0, np.int64), *mapped])

    def positions() -> Positions:
        return np.concatenate([np.zeros(0, np.int64), *(part.positions for part in parts)])

    return GlobalDictionary(field, every, codes=codes, positions=positions, counts=counts)


class _SegmentField:
    """The field of one segment's candidates: the keys of their rows, and how many have each."""

    def __init__(self, field: str, part: Candidates) -> None:
        self._part = part
        self._field = field
        counts = part.counts(field)
        self.absent = int(counts[0])
        self.keys: NDArray[Any] = part.dictionary(field).keys
        self.counts = counts[1:]
        #: which keys of the segment these are, unless they are all
        self._used: NDArray[np.intp] | None = None
        if not self.counts.all():
            self._used = np.flatnonzero(self.counts)
            self.keys, self.counts = self.keys[self._used], self.counts[self._used]
        self._width = len(counts)

    def map_codes(self, indexes: Codes) -> Codes:
        """The code of each row among all keys.

        Args:
            indexes: where each of its own keys is among all.
        """
        mapped: Codes = np.zeros(self._width, np.int64)
        mapped[1:][slice(None) if self._used is None else self._used] = indexes + 1
        codes: Codes = mapped[self._part.codes(self._field)]
        return codes


def _unite(held: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], list[Codes]]:
    """All different keys of several columns, sorted, and where those of each column are there.

    Most keys are in one large segment as a rule, and to sort them again takes longest: those of the
    others are inserted between them.
    """
    largest = max(range(len(held)), key=lambda at: len(held[at]), default=-1)
    if largest < 0:
        return np.zeros(0, np.uint64), []
    keys = held[largest]
    # A column of absent rows only says nothing of the type of keys.
    others = [some for at, some in enumerate(held) if at != largest and len(some)]
    if not others:
        here: Codes = np.arange(len(keys))
        return keys, [here[: len(some)] for some in held]
    beside: NDArray[Any] = np.sort(np.concatenate(others), kind="stable")
    beside = beside[run_starts(beside)]
    before = np.searchsorted(keys, beside)
    new = np.ones(len(beside), np.bool_)
    within = before < len(keys)
    new[within] = keys[before[within]] != beside[within]
    every: NDArray[Any] = np.insert(keys, before[new], beside[new])
    shifted = np.cumsum(np.bincount(before[new], minlength=len(keys)))[: len(keys)]
    indexes: list[Codes] = []
    for at, some in enumerate(held):
        if at == largest:
            indexes.append(np.arange(len(keys)) + shifted)
        else:
            indexes.append(np.searchsorted(every, some.astype(every.dtype)))
    return every, indexes

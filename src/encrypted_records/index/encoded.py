"""One field of the rows that match, over all segments: different keys, and which row has which.

What aggregates count, sum and group is these small numbers; keys are looked at once each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.index.candidates import Candidates, Places
from encrypted_records.index.coded import Codes
from encrypted_records.index.columns import Keys, run_starts
from encrypted_records.index.long_texts import Texts, classes, inner_ranks, mixed


class Encoded:
    """``keys`` are sorted and all different. ``codes`` has one number per row: 0 where the field
    is absent, else 1 + the place of its key. ``counts`` has the number of
    rows of each code, ``places`` the rows' own; ``long`` is as for :class:`.coded.Coding`.

    What goes row by row is worked out when it is first asked for: most measures need counts alone.
    """

    def __init__(
        self,
        field: str,
        keys: Keys,
        *,
        long: bool,
        codes: Callable[[], Codes],
        places: Callable[[], Places],
        counts: Codes | None = None,
    ) -> None:
        self.field = field
        self.keys = keys
        self.long = long
        self._codes = codes
        self._places = places
        if counts is not None:
            self.counts = counts

    @cached_property
    def codes(self) -> Codes:
        return self._codes()

    @cached_property
    def places(self) -> Places:
        return self._places()

    @cached_property
    def counts(self) -> Codes:
        return np.bincount(self.codes, minlength=len(self.keys) + 1)

    def only(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Encoded:
        return Encoded(
            self.field,
            self.keys,
            long=self.long,
            codes=lambda: self.codes[rows],
            places=lambda: self.places[rows],
        )

    def once(self) -> Encoded:
        """One row of each key; every key must be of some row."""
        return self.only(self._rows[1:])

    @cached_property
    def classes(self) -> Codes:
        """By code a number that is equal where only opened records tell the order."""
        if not self.long:
            return np.arange(len(self.keys) + 1)
        by_class = classes(self.keys)
        new = np.ones(len(by_class), np.bool_)
        new[1:] = by_class[1:] != by_class[:-1]
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(new)))

    def ranks(self, codes: Codes, texts: Texts) -> Codes | None:
        """The order of codes, right for those given; None where ``texts`` now wants some."""
        ranks: Codes = np.arange(len(self.keys) + 1)
        if not self.long:
            return ranks
        used = np.unique(codes[codes > 0])
        distinct: NDArray[Any] = self.keys[used - 1]
        for members in mixed(distinct):
            for at in members:
                self.text(int(used[at]), texts)
        if texts.wanted:
            return None
        order = np.lexsort((inner_ranks(self.field, distinct, texts), self.classes[used]))
        ranks[used[order]] = used
        return ranks

    def text(self, code: int, texts: Texts) -> str:
        """The text behind a code; an empty one stands for one that is now wanted."""
        key = bytes(self.keys[code - 1])
        return texts.text(self.field, key, lambda: int(self.places[self._rows[code]]))

    @cached_property
    def _rows(self) -> Codes:
        """A row of each code."""
        rows: Codes = np.zeros(len(self.keys) + 1, np.int64)
        rows[self.codes] = np.arange(len(self.codes))
        return rows


def encode(field: str, parts: Sequence[Candidates]) -> Encoded:
    """The field of all candidates, in their order, with the keys of these rows and no others.

    Raises:
        DoesNotOpen: a column that is needed does not open.
    """
    found = [_Part(field, part) for part in parts]
    held = [one.keys for one in found if len(one.keys)]
    every = held[0] if len(held) == 1 else _distinct(held)
    counts: Codes = np.zeros(len(every) + 1, np.int64)
    moved = [one.moved(every) for one in found]
    for one, to in zip(found, moved, strict=True):
        counts[to[one.used]] += one.counts[one.used]

    def codes() -> Codes:
        own = (to[one.part.codes(field)] for one, to in zip(found, moved, strict=True))
        return np.concatenate([np.zeros(0, np.int64), *own])

    def places() -> Places:
        return np.concatenate([np.zeros(0, np.int64), *(part.places for part in parts)])

    long = any(part.coding(field).long for part in parts)
    return Encoded(field, every, long=long, codes=codes, places=places, counts=counts)


class _Part:
    """The field of one segment's candidates: which codes of its own are of their rows."""

    def __init__(self, field: str, part: Candidates) -> None:
        self.part = part
        self.counts = part.counts(field)
        self.used = np.flatnonzero(self.counts)
        keys = part.coding(field).keys
        present = self.used[np.searchsorted(self.used, 1) :]
        self.keys: NDArray[Any] = keys if len(present) == len(keys) else keys[present - 1]
        self._present = present

    def moved(self, every: NDArray[Any]) -> Codes:
        """By code of the segment the code among ``every``."""
        moved: Codes = np.zeros(len(self.counts), np.int64)
        if len(self.keys) == len(every):
            moved[self._present] = np.arange(1, len(every) + 1)
        else:
            moved[self._present] = np.searchsorted(every, self.keys) + 1
        return moved


def _distinct(held: Sequence[NDArray[Any]]) -> NDArray[Any]:
    if not held:
        return np.zeros(0, np.uint64)
    # All are sorted already, which a stable sort makes use of.
    keys: NDArray[Any] = np.sort(np.concatenate(held), kind="stable")
    return keys[run_starts(keys)]

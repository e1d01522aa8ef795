"""One field of the rows that match, over all segments: different keys, and which row has which.

What aggregates count, sum and group is these small numbers; keys are looked at once each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.index.candidates import Candidates, Places, positions
from encrypted_records.index.columns import Keys
from encrypted_records.index.long_texts import Texts, classes, inner_ranks, mixed

Codes = NDArray[np.int64]


class Encoded:
    """``codes`` has one number per row: 0 where the field is absent, else 1 + the place of its
    key in ``keys``, which are sorted and all different. ``places`` are the rows' own."""

    def __init__(self, field: str, keys: Keys, codes: Codes, places: Places) -> None:
        self.field = field
        self.keys = keys
        self.codes = codes
        self.places = places

    def only(self, rows: NDArray[np.bool_]) -> Encoded:
        return Encoded(self.field, self.keys, self.codes[rows], self.places[rows])

    @cached_property
    def classes(self) -> Codes:
        """By code a number that is equal where only opened records tell the order."""
        _, found = np.unique(classes(self.keys), return_inverse=True)
        return np.concatenate((np.zeros(1, np.int64), found + 1))

    def ranks(self, codes: Codes, texts: Texts) -> Codes | None:
        """The order of codes, right for those given; None where ``texts`` now wants some."""
        ranks: Codes = np.arange(len(self.keys) + 1)
        used = np.unique(codes[codes > 0])
        distinct: NDArray[Any] = self.keys[used - 1]
        if distinct.dtype.kind != "S":
            return ranks
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
        return texts.text(self.field, key, int(self.places[self._rows[code]]))

    @cached_property
    def _rows(self) -> Codes:
        """A row of each code."""
        rows: Codes = np.zeros(len(self.keys) + 1, np.int64)
        rows[self.codes] = np.arange(len(self.codes))
        return rows


def encode(field: str, parts: Sequence[Candidates]) -> Encoded:
    """The field of all candidates, in their order.

    Raises:
        DoesNotOpen: a column that is needed does not open.
    """
    found = [_encode_one(field, part) for part in parts]
    held: list[NDArray[Any]] = [keys for keys, _ in found if len(keys)]
    every: NDArray[Any] = held[0] if len(held) == 1 else _distinct(held)
    codes = []
    for keys, own in found:
        # A code of the segment becomes the place of the same key among all.
        moved = np.zeros(len(keys) + 1, np.int64)
        if len(keys):
            moved[1:] = np.searchsorted(every, keys) + 1
        codes.append(moved[own])
    nothing: Codes = np.zeros(0, np.int64)
    places = np.concatenate([nothing, *(part.places for part in parts)])
    return Encoded(field, every, np.concatenate([nothing, *codes]), places)


def _distinct(held: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.unique(np.concatenate(held)) if held else np.zeros(0, np.uint64)


def _encode_one(field: str, part: Candidates) -> tuple[NDArray[Any], Codes]:
    column = part.segment.column(field)
    at = positions(column, part.rows) - column.absent
    new = np.ones(len(column.keys), np.bool_)
    new[1:] = column.keys[1:] != column.keys[:-1]
    number = np.cumsum(new)
    codes: Codes = np.zeros(len(at), np.int64)
    codes[at >= 0] = number[at[at >= 0]]
    # Only keys of rows that match are of interest.
    used = np.zeros(int(number[-1]) + 1 if len(number) else 1, np.bool_)
    used[codes] = True
    used[0] = False
    return column.keys[new][used[1:]], np.where(codes > 0, np.cumsum(used)[codes], 0)

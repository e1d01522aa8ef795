"""Keys of one field of the rows that match: sorted, all different, each with a row that has it.

Groups and lists of values are shown in their order, for which long strings may have to be opened.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.index.columns.column import Keys
from encrypted_records.index.columns.dictionary import Codes, has_long
from encrypted_records.index.log.snapshot import Positions
from encrypted_records.index.query.long_strings import Texts, classes, find_mixed, inner_ranks


class OrderedKeys:
    """A *code* is 0 for an absent value, else 1 + the index of its key."""

    def __init__(self, field: str, keys: Keys, positions: Positions) -> None:
        """
        Args:
            positions: of each key that of a row that has it, where it is of a long string.
        """
        self.field = field
        self.keys = keys
        self._positions = positions
        self._long = has_long(keys)

    @cached_property
    def _classes(self) -> Codes:
        """By code a number that is equal where only opened records tell the order."""
        by_class = classes(self.keys)
        new = np.ones(len(by_class), np.bool_)
        new[1:] = by_class[1:] != by_class[:-1]
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(new)))

    def ranks(self, codes: Codes, texts: Texts) -> Codes | None:
        """The order of codes, right for those given; None where ``texts`` now wants some."""
        ranks: Codes = np.arange(len(self.keys) + 1)
        if not self._long:
            return ranks
        used = np.unique(codes[codes > 0])
        distinct: NDArray[Any] = self.keys[used - 1]
        for members in find_mixed(distinct):
            for at in members:
                self.text(int(used[at]), texts)
        if texts.wanted:
            return None
        order = np.lexsort((inner_ranks(self.field, distinct, texts), self._classes[used]))
        ranks[used[order]] = used
        return ranks

    def text(self, code: int, texts: Texts) -> str:
        """The text of a code; an empty one stands for one that is now wanted."""
        key = bytes(self.keys[code - 1])
        return texts.text(self.field, key, lambda: int(self._positions[code - 1]))

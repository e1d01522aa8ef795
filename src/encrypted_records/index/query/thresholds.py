"""Thresholds: how far the first rows of all segments reach, as far as some segments show it.

Rows of one value of the first field may be in all segments, and to tell which of them are first,
pages of the second field must be read in each. Where one of the two grows with time, the last or
the first segment has them all: least and greatest values rule the others out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from pyroaring import BitMap

from encrypted_records.index.columns.dictionary import Dictionary, PartialDictionary
from encrypted_records.index.columns.outline import Outline
from encrypted_records.index.ordinals import Ordinals, bitmap, ordinals
from encrypted_records.model.queries import SortKey

#: A value in its order: none before all others.
Value = tuple[int | bytes, ...]
NONE: Value = ()
#: Of each field one.
Best = tuple[Value, ...]
T = TypeVar("T")
#: Of more rows it takes longer than it saves.
_MOST = 4096


class Threshold:
    """The values of the first two fields of the last row that is wanted; of an order by one field,
    all rows have the same second value."""

    def __init__(self, order: Sequence[SortKey], want: int) -> None:
        self._descending = [key.descending for key in order[:2]]
        self._want = want
        self._held: list[tuple[Value, ...]] = []
        self._is_known = 0 < want <= _MOST

    @property
    def is_known(self) -> bool:
        """Whether enough rows are known."""
        return self._is_known and len(self._held) >= self._want

    def add(self, rows: BitMap, fields: Sequence[Dictionary]) -> None:
        """Take in rows that match, and their fields; not very many. Long strings tell no order, so
        that nothing is known any more where there is one."""
        fields = fields[: len(self._descending)]
        if any(field.long for field in fields):
            self._is_known = False
        if not self._is_known or len(rows) > _MOST:
            return
        every = ordinals(rows)
        values = zip(*(_values(field, every) for field in fields), strict=True)
        every_row = self._in_order(enumerate([*self._held, *values]))
        self._held = [row for _, row in every_row][: self._want]

    def in_order(self, best: Mapping[bytes, Best]) -> list[bytes]:
        """Segments by their best rows."""
        return [uid for uid, _ in self._in_order(best.items())]

    def best(self, directories: Sequence[Outline | None]) -> Best:
        """The best value of each field in a segment.

        Args:
            directories: the segment's; None for a field of which it has no column.
        """
        return tuple(map(_first_value, directories, self._descending))

    def excludes(self, best: Best) -> bool:
        """Whether a segment that has no better values can have none of the first rows."""
        return self.is_known and self._is_behind(best, self._held[-1])

    def left(self, rows: BitMap, first: PartialDictionary, best: Best) -> BitMap:
        """The rows of a segment that can be among the first of all segments.

        Args:
            best: as for :meth:`excludes`.
        """
        if not self.is_known or first.long:
            return rows
        last = self._held[-1][0]
        place = 0.0
        if last != NONE:
            place = 0.5
        if last != NONE and len(first.keys):
            at = int(np.searchsorted(first.keys, np.array(last[0], first.keys.dtype)))
            is_there = at < len(first.keys) and (first.keys[at].item(),) == last
            place = at + (1.0 if is_there else 0.5)
        every = ordinals(rows)
        codes = first.codes_of(every)
        kept = codes > place if self._descending[0] else codes < place
        if not self._is_behind((last, *best[1:]), self._held[-1]):
            kept |= codes == place
        return bitmap(every[kept])

    def _in_order(self, named: Iterable[tuple[T, Best]]) -> list[tuple[T, Best]]:
        found = list(named)
        for level in reversed(range(len(self._descending))):
            found.sort(key=lambda pair: pair[1][level], reverse=self._descending[level])
        return found

    def _is_behind(self, values: Best, others: Best) -> bool:
        for own, other, descending in zip(values, others, self._descending, strict=True):
            if own != other:
                return own < other if descending else own > other
        return False


def _first_value(directory: Outline | None, descending: bool) -> Value:
    if directory is None or not directory.present or (directory.absent and not descending):
        return NONE
    least, greatest = directory.outermost.tolist()
    return (greatest,) if descending else (least,)


def _values(held: Dictionary, rows: Ordinals) -> list[Value]:
    codes, own = np.unique(held.codes_of(rows), return_inverse=True)
    present = codes[codes > 0]
    values: list[Value] = [NONE] * (len(codes) - len(present))
    values += [(key,) for key in held.keys[present - 1].tolist()]
    return [values[at] for at in own.tolist()]

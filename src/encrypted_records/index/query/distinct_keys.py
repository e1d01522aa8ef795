"""The distinct keys of a segment's column, tested one by one, and the rows that have them.

Where the directory lists the keys, they are tested there, and data pages are needed only of those
that pass. Else the whole column is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.index.columns.column import Keys
from encrypted_records.index.columns.dictionary import ColumnDictionary
from encrypted_records.index.columns.texts import ColumnTexts, Mask
from encrypted_records.index.ordinals import Ordinals, bitmap, of_masks, ordinals, take_masks
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment
from encrypted_records.index.segments.paged_column import PagedColumn


def is_whole(segment: OpenedSegment, field: str) -> bool:
    """Whether a column is in memory as a whole, or has nothing in it."""
    return not isinstance(segment, LoadedSegment) or segment.has_keys(field)


def needs_whole(segment: OpenedSegment, field: str) -> bool:
    """Whether a column must be brought into memory as a whole before its keys are tested; its
    directory must be here."""
    if is_whole(segment, field):
        return False
    assert isinstance(segment, LoadedSegment)
    return not segment.directories[field].listed


def distinct_keys(segment: OpenedSegment, field: str) -> ListedKeys | WholeKeys:
    """
    Raises:
        DoesNotOpen: the column does not open.
    """
    if needs_whole(segment, field) or is_whole(segment, field):
        return WholeKeys(segment.dictionary(field))
    column = segment.lookup(field)
    assert isinstance(column, PagedColumn)
    return ListedKeys(column)


@dataclass(frozen=True, eq=False, slots=True)
class WholeKeys:
    """Distinct keys of a column by row in memory."""

    whole: ColumnDictionary

    @property
    def keys(self) -> Keys:
        return self.whole.keys

    @property
    def texts(self) -> ColumnTexts:
        return self.whole.texts

    def missing(self, mask: Mask) -> set[int]:
        return set()

    def rows_of(self, mask: Mask) -> BitMap:
        """The rows of the keys in ``mask``."""
        if not mask.any():
            return BitMap()
        return of_masks(take_masks(np.concatenate(([False], mask)), self.whole.codes))

    def count_of(self, mask: Mask) -> int:
        """The number of rows with the keys in ``mask``, including dead rows."""
        return int(self.whole.counts[1:][mask].sum()) if mask.any() else 0

    def holders(self, mask: Mask, rows: BitMap) -> Iterable[tuple[int, int]]:
        """The keys in ``mask`` that some of ``rows`` have, each with one such row."""
        wanted = ordinals(rows)
        codes = self.whole.codes_of(wanted)
        distinct, places = np.unique(codes, return_index=True)
        for code, place in zip(distinct.tolist(), places.tolist(), strict=True):
            if code and mask[code - 1]:
                yield code - 1, int(wanted[place])


@dataclass(frozen=True, eq=False, slots=True)
class ListedKeys:
    """Distinct keys of a column whose directory lists them."""

    column: PagedColumn

    @property
    def keys(self) -> Keys:
        return self.column.directory.runs

    @property
    def texts(self) -> ColumnTexts:
        return ColumnTexts(self.keys)

    def missing(self, mask: Mask) -> set[int]:
        """The pages without which :meth:`rows_of` cannot give the rows of the keys in ``mask``."""
        return set().union(*(self.column.missing_entries(*span) for span in self._spans(mask)))

    def rows_of(self, mask: Mask) -> BitMap:
        """The rows of the keys in ``mask``."""
        pieces: list[Ordinals] = []
        for first, last in self._spans(mask):
            pieces += self.column.pieces(first, last)
        return bitmap(*pieces) if pieces else BitMap()

    def count_of(self, mask: Mask) -> int:
        """The number of rows with the keys in ``mask``, including dead rows."""
        return sum(last - first for first, last in self._spans(mask))

    def holders(self, mask: Mask, rows: BitMap) -> Iterable[tuple[int, int]]:
        """The keys in ``mask`` that some of ``rows`` have, each with one such row."""
        for at in np.flatnonzero(mask).tolist():
            alone = np.zeros(len(mask), np.bool_)
            alone[at] = True
            held = self.rows_of(alone) & rows
            if held:
                yield at, held[0]

    def _spans(self, mask: Mask) -> list[tuple[int, int]]:
        """The bounds of the keys' entries; neighbours are joined."""
        starts = self.column.directory.starts.astype(np.int64)
        edges: NDArray[np.int64] = np.append(starts, self.column.present)
        steps = np.diff(np.concatenate(([False], mask, [False])).astype(np.int8))
        firsts, lasts = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
        return list(zip(edges[firsts].tolist(), edges[lasts].tolist(), strict=True))

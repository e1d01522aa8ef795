"""Which of some rows match a comparison, looked up in a column by row.

To make the set of all rows that match takes as long as a segment is large. A caller that has some
thousands of rows already, because a column has them next in its order or because they are dead,
needs to know of these alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.index.columns.column import Edge, EntryBlock, KeyRange, Keys
from encrypted_records.index.columns.dictionary import ColumnDictionary, RowCodes
from encrypted_records.index.columns.outline import Outline
from encrypted_records.index.columns.texts import Mask
from encrypted_records.index.ordinals import Ordinals, bitmap, in_parts, of_masks, take_masks
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.reading import (
    STANDARD,
    Reading,
    ReadingLimits,
    Window,
    fill_up,
    read_pages,
)


@dataclass(frozen=True, eq=False, slots=True)
class ColumnFilter:
    """The rows whose code is ``chosen``, and ``others``. ``count`` says how many that are, dead
    ones among them."""

    codes: RowCodes
    chosen: Mask
    others: BitMap
    count: int

    def of(self, rows: BitMap) -> BitMap:
        """Those of some rows."""
        pieces = (some[self.chosen.take(self.codes.take(some))] for some in in_parts(rows))
        return bitmap(*pieces) | (self.others & rows)

    def all_rows(self) -> BitMap:
        """All of them, dead ones too."""
        return of_masks(take_masks(self.chosen, self.codes)) | self.others


def filter_column(
    segment: LoadedSegment,
    field: str,
    every: Sequence[Sequence[KeyRange]],
    limits: ReadingLimits = STANDARD,
) -> Reading[list[ColumnFilter]]:
    """A filter for some key ranges, and for some others, by a column that is here by row. Where it
    has no keys there, the pages are read in which ranges begin and end, once for all of these.

    Raises:
        DoesNotOpen: a page does not open.
    """
    by_row, directory = segment.columns[field], segment.directories[field]
    if isinstance(by_row, ColumnDictionary):
        return [_by_keys(by_row, ranges) for ranges in every]
    inner = [np.zeros(directory.present_pages + 1, np.bool_) for _ in every]
    others: list[list[Ordinals]] = [[] for _ in every]
    wanted: dict[int, list[tuple[int, KeyRange]]] = {}
    for at, ranges in enumerate(every):
        for key_range in ranges:
            pages: Sequence[int] = directory.pages(key_range)
            if len(pages) > 1:
                # Pages between the outermost two have rows of the range alone.
                code = 1 - directory.leading
                inner[at][pages[0] + 1 + code : pages[-1] + code] = True
                pages = (pages[0], pages[-1])
            for page in pages:
                wanted.setdefault(page, []).append((at, key_range))

    def take(window: Window) -> None:
        for page, block in window:
            for at, key_range in wanted.get(page, ()):
                others[at].append(entries_between(block, key_range))

    yield from read_pages(segment, field, fill_up(segment, field, wanted), take, limits)
    return [
        ColumnFilter(by_row.pages, chosen, rows, _count_rows(directory, chosen) + len(rows))
        for chosen, rows in zip(inner, (bitmap(*own) for own in others), strict=True)
    ]


def entries_between(block: EntryBlock, key_range: KeyRange) -> Ordinals:
    """The rows of a page whose keys are in a range."""
    first, last = (_entries_before(block, edge) for edge in key_range)
    return block.ordinals[first:last]


def _by_keys(by_row: ColumnDictionary, ranges: Sequence[KeyRange]) -> ColumnFilter:
    chosen = np.zeros(len(by_row.keys) + 1, np.bool_)
    for key_range in ranges:
        first, last = (_before(by_row.keys, edge) for edge in key_range)
        chosen[first + 1 : last + 1] = True
    return ColumnFilter(by_row.codes, chosen, BitMap(), int(by_row.counts[chosen].sum()))


def _count_rows(directory: Outline, chosen: NDArray[np.bool_]) -> int:
    """How many rows the chosen pages of present rows have; they are counted from 1."""
    return int(directory.page_entries[directory.leading :][chosen[1:]].sum())


def _entries_before(block: EntryBlock, edge: Edge) -> int:
    run = _before(block.keys, edge)
    return int(block.starts[run]) if run < len(block.starts) else len(block.ordinals)


def _before(keys: Keys, edge: Edge) -> int:
    return int(keys.searchsorted(np.array(edge.key, keys.dtype), edge.side))

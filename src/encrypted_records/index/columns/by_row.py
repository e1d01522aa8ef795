"""Turn a column round, page by page, in whatever order its pages come.

Each page's keys get numbers as they come; once all are here, keys are put in order and the rows'
numbers exchanged for those of the order. As soon as the keys take more than they may, the rows'
numbers are exchanged for those of their pages, and no key is kept.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from encrypted_records.index.columns.column import EntryBlock, Keys, key_type
from encrypted_records.index.columns.dictionary import (
    ByRow,
    Codes,
    ColumnDictionary,
    PageMap,
    RowCodes,
    code_type,
    has_long,
)
from encrypted_records.index.columns.outline import Outline
from encrypted_records.index.ordinals import PIECE
from encrypted_records.model.field_types.base import KeyKind

#: A key's count beside it, and the types of the rows' numbers while these are given.
_COUNT, _NARROW, _WIDE = np.dtype(np.int64), np.dtype(np.uint16), np.dtype(np.uint32)


def by_row_bytes(keys: int, width: int, covered: int) -> int:
    """The memory in bytes that :class:`ByRowBuilder` takes for ``keys`` keys of its pages, of
    ``width`` bytes each.
    """
    numbers = _NARROW if keys < np.iinfo(_NARROW).max else _WIDE
    return keys * (width + _COUNT.itemsize) + covered * numbers.itemsize


class ByRowBuilder:
    """Builder for one column; all of its pages must be taken, each once."""

    def __init__(self, kind: KeyKind, directory: Outline, covered: int, most: int) -> None:
        """
        Args:
            covered: how many rows the segment's groups have.
            most: bytes of a :class:`ColumnDictionary`.
        """
        self._kind: KeyKind = kind
        self._directory = directory
        self._most = most
        self._codes: RowCodes = np.zeros(covered, _NARROW)
        #: by number among the pages of present rows: its keys, their first number, their counts
        self._pages: dict[int, tuple[Keys, int, Codes]] | None = {}
        self._next = 1
        self._bytes = 0

    def take(self, page: int, block: EntryBlock) -> None:
        """
        Args:
            page: its number in the column.
        """
        page -= self._directory.leading
        if page < 0:
            return  # absent rows have 0 already
        # numpy stores by others through a buffer, which takes twice as long.
        rows = block.ordinals.astype(np.intp)
        if self._pages is None:
            self._codes[rows] = page + 1
            return
        count = len(block.keys)
        lengths = block.counts.astype(_COUNT)
        more = block.keys.nbytes + lengths.nbytes
        numbers = _WIDE if self._next + count > np.iinfo(_NARROW).max else self._codes.dtype
        if self._bytes + more + len(self._codes) * numbers.itemsize > self._most:
            # Before numbers become wider, or both would be in memory.
            self._leave_keys(self._pages)
            self._codes[rows] = page + 1
            return
        self._codes = self._codes.astype(numbers, copy=False)
        own = np.arange(self._next, self._next + count).astype(numbers)
        self._codes[rows] = np.repeat(own, lengths)
        self._pages[page] = (block.keys, self._next, lengths)
        self._next += count
        self._bytes += more

    def finish(self) -> ByRow:
        if self._pages is None:
            return PageMap(self._codes)
        every = [self._pages[page] for page in sorted(self._pages) if len(self._pages[page][0])]
        # Keys of pages in their order are in order; one may end a page and begin the next.
        again = {
            at
            for at, (before, after) in enumerate(pairwise(every), 1)
            if before[0][-1] == after[0][0]
        }
        distinct = sum(len(keys) for keys, _, _ in every) - len(again)
        table = np.zeros(self._next, code_type(distinct))
        counts = np.zeros(distinct + 1, np.int64)
        counts[0] = self._directory.absent
        parts: list[Keys] = [np.zeros(0, key_type(self._kind))]
        end = 1
        for at, (keys, first, lengths) in enumerate(every):
            same = int(at in again)
            begin, end = end - same, end - same + len(keys)
            table[first : first + len(keys)] = np.arange(begin, end)
            counts[begin:end] += lengths
            parts.append(keys[same:])
        self._exchange(table)
        merged = np.concatenate(parts)
        return ColumnDictionary(merged, self._codes, counts, has_long(merged))

    def _leave_keys(self, pages: dict[int, tuple[Keys, int, Codes]]) -> None:
        table = np.zeros(self._next, code_type(self._directory.present_pages))
        for page, (keys, first, _) in pages.items():
            table[first : first + len(keys)] = page + 1
        self._exchange(table)
        self._pages = None

    def _exchange(self, table: RowCodes) -> None:
        """Replace the number of each row by the one that ``table`` has for it."""
        if table.dtype.itemsize == self._codes.dtype.itemsize:
            changed = self._codes
        else:
            changed = np.zeros(len(self._codes), table.dtype)
        for first in range(0, len(self._codes), PIECE):
            some = self._codes[first : first + PIECE]
            changed[first : first + PIECE] = table.take(some)
        self._codes = changed

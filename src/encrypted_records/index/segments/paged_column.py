"""A column of a paged segment, with only some pages in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns.column import (
    Column,
    Edge,
    EntryBlock,
    KeyRange,
    Keys,
    key_type,
    search,
)
from encrypted_records.index.columns.directory import Outline
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.model.field_types.base import KeyKind


class PagedColumn:
    """A field's sorted column with only some pages loaded.

    Before reading rows, callers must put in all pages that the matching ``missing_*`` method names.
    """

    def __init__(self, directory: Outline, blocks: dict[int, EntryBlock]) -> None:
        self.directory = directory
        self._blocks = blocks

    @property
    def absent(self) -> int:
        return self.directory.absent

    @property
    def present(self) -> int:
        return self.directory.present

    def missing(self, positions: Iterable[int]) -> set[int]:
        """The numbers of the pages among these that are not loaded."""
        numbers = {int(self.directory.numbers[position]) for position in positions}
        return numbers - self._blocks.keys()

    def all_within(self, key_range: KeyRange) -> bool:
        if self.absent or self.directory.exact(key_range.first) != 0:
            return False
        return self.directory.exact(key_range.last) == self.present

    def missing_entries(self, first: int, last: int) -> set[int]:
        return self.missing(self.directory.holding(first, last))

    def missing_for(self, key_range: KeyRange) -> set[int]:
        """Missing pages that :meth:`pieces` needs for the rows of ``key_range``."""
        return self.missing(self.directory.pages(key_range))

    def missing_to_count(self, key_range: KeyRange) -> set[int]:
        """Missing pages that :meth:`at` needs to count the rows of ``key_range``."""
        unsure = [edge for edge in key_range if self.directory.exact(edge) is None]
        return self.missing(self.directory.locate(edge)[0] for edge in unsure)

    def missing_absent(self) -> set[int]:
        return self.missing(range(self.directory.leading))

    def at(self, edge: Edge) -> int:
        """The number of keys before ``edge``."""
        known = self.directory.exact(edge)
        if known is not None:
            return known
        page, _ = self.directory.locate(edge)
        block = self._block(page)
        run = search(block.keys, edge)
        within = int(block.starts[run]) if run < len(block.starts) else len(block.ordinals)
        return self.directory.start(page) - self.absent + within

    def at_all(self, edges: Sequence[Edge]) -> list[int]:
        return [self.at(edge) for edge in edges]

    def pieces(self, first: int, last: int) -> list[Ordinals]:
        """The rows of the present entries first..last-1, split by page."""
        pieces = []
        for page in self.directory.holding(first, last):
            begin = self.directory.start(page) - self.absent
            pieces.append(self._block(page).ordinals[max(0, first - begin) : last - begin])
        return pieces

    def entries(self, first: int, last: int) -> list[EntryBlock]:
        blocks = []
        for page in self.directory.holding(first, last):
            begin, block = self.directory.start(page) - self.absent, self._block(page)
            end = min(last - begin, len(block.ordinals))
            blocks.append(block.part(max(0, first - begin), end))
        return blocks

    def absent_rows(self) -> Ordinals:
        held = [self._block(page).ordinals for page in range(self.directory.leading)]
        return np.concatenate([np.zeros(0, np.uint32), *held])

    def whole(self, kind: KeyKind) -> Column:
        """Join all pages into one column.

        Raises:
            DoesNotOpen: entries of one value in two pages are out of order.
        """
        blocks = [self._block(page) for page in range(len(self.directory.ends))]
        for before, after in pairwise(blocks):
            check_order(before, after)
        none: Keys = np.zeros(0, key_type(kind))
        return Column(
            np.concatenate([np.zeros(0, np.uint32), *(block.ordinals for block in blocks)]),
            np.concatenate([none, *(block.expand() for block in blocks)]),
        )

    def _block(self, page: int) -> EntryBlock:
        return self._blocks[int(self.directory.numbers[page])]


def check_order(before: EntryBlock, after: EntryBlock) -> None:
    """
    Raises:
        DoesNotOpen: entries of one value in two pages are out of order.
    """
    same = len(before.keys) == len(after.keys) == 0 or (
        len(before.keys) > 0 and before.keys[-1] == after.keys[0]
    )
    if same and before.ordinals[-1] >= after.ordinals[0]:
        raise DoesNotOpen("a column's pages are not in order")

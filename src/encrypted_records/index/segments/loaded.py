"""A paged segment with the pages that one query has loaded, and the results computed from them.

This module does not fetch. A reader gets the numbers of the missing pages, fetches them, puts them
in, and calls again: directories come in a first round trip, data pages in a second. A query's
workspace owns its loaded segments; :func:`scope` removes what was loaded meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns import words
from encrypted_records.index.columns.dictionary import (
    ByRow,
    ColumnDictionary,
    ColumnSums,
    build_column_dictionary,
)
from encrypted_records.index.columns.directory import Outline
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.index.segments.headers import rows_digest
from encrypted_records.index.segments.mini import MiniSegment
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.index.segments.paged import PagedSegment
from encrypted_records.model.definition import column_spec
from encrypted_records.model.field_types.base import KeyKind


class PagedColumn:
    """A field's sorted column with only some pages loaded.

    Before reading rows, callers must put in all pages that the matching ``missing_*`` method names.
    """

    def __init__(self, directory: Outline, blocks: dict[int, columns.EntryBlock]) -> None:
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

    def all_within(self, key_range: columns.KeyRange) -> bool:
        if self.absent or self.directory.exact(key_range.first) != 0:
            return False
        return self.directory.exact(key_range.last) == self.present

    def missing_entries(self, first: int, last: int) -> set[int]:
        return self.missing(self.directory.holding(first, last))

    def missing_for(self, key_range: columns.KeyRange) -> set[int]:
        """Missing pages that :meth:`pieces` needs for the rows of ``key_range``."""
        return self.missing(self.directory.pages(key_range))

    def missing_to_count(self, key_range: columns.KeyRange) -> set[int]:
        """Missing pages that :meth:`at` needs to count the rows of ``key_range``."""
        unsure = [edge for edge in key_range if self.directory.exact(edge) is None]
        return self.missing(self.directory.locate(edge)[0] for edge in unsure)

    def missing_absent(self) -> set[int]:
        return self.missing(range(self.directory.leading))

    def at(self, edge: columns.Edge) -> int:
        """The number of keys before ``edge``."""
        known = self.directory.exact(edge)
        if known is not None:
            return known
        page, _ = self.directory.locate(edge)
        block = self._block(page)
        run = columns.search(block.keys, edge)
        within = int(block.starts[run]) if run < len(block.starts) else len(block.ordinals)
        return self.directory.start(page) - self.absent + within

    def at_all(self, edges: Sequence[columns.Edge]) -> list[int]:
        return [self.at(edge) for edge in edges]

    def pieces(self, first: int, last: int) -> list[Ordinals]:
        """The rows of the present entries first..last-1, split by page."""
        pieces = []
        for page in self.directory.holding(first, last):
            begin = self.directory.start(page) - self.absent
            pieces.append(self._block(page).ordinals[max(0, first - begin) : last - begin])
        return pieces

    def entries(self, first: int, last: int) -> list[columns.EntryBlock]:
        blocks = []
        for page in self.directory.holding(first, last):
            begin, block = self.directory.start(page) - self.absent, self._block(page)
            end = min(last - begin, len(block.ordinals))
            blocks.append(block.part(max(0, first - begin), end))
        return blocks

    def absent_rows(self) -> Ordinals:
        parts = [self._block(page).ordinals for page in range(self.directory.leading)]
        return np.concatenate([np.zeros(0, np.uint32), *parts])

    def whole(self, kind: KeyKind) -> columns.Column:
        """Join all pages into one column.

        Raises:
            DoesNotOpen: entries of one value in two pages are out of order.
        """
        blocks = [self._block(page) for page in range(len(self.directory.ends))]
        for before, after in pairwise(blocks):
            check_order(before, after)
        none: columns.Keys = np.zeros(0, columns.key_type(kind))
        return columns.Column(
            np.concatenate([np.zeros(0, np.uint32), *(block.ordinals for block in blocks)]),
            np.concatenate([none, *(block.expand() for block in blocks)]),
        )

    def _block(self, page: int) -> columns.EntryBlock:
        return self._blocks[int(self.directory.numbers[page])]


def check_order(before: columns.EntryBlock, after: columns.EntryBlock) -> None:
    """
    Raises:
        DoesNotOpen: entries of one value in two pages are out of order.
    """
    same = len(before.keys) == len(after.keys) == 0 or (
        len(before.keys) > 0 and before.keys[-1] == after.keys[0]
    )
    if same and before.ordinals[-1] >= after.ordinals[0]:
        raise DoesNotOpen("a column's pages are not in order")


class LoadedSegment(PagedSegment):
    """A paged segment with the pages that were put in."""

    def __init__(self, opened: OpenedHeader) -> None:
        super().__init__(opened)
        #: opened data pages by number
        self.blocks: dict[int, columns.EntryBlock] = {}
        #: whole row-major columns by field; a column with its keys needs no pages
        self.columns: dict[str, ByRow] = {}
        #: the sums of columns by field
        self.sums: dict[str, ColumnSums] = {}

    def put(self, number: int, sealed: bytes) -> None:
        """Open and keep a page that was missing.

        Raises:
            DoesNotOpen: as :meth:`open_page`.
        """
        block = self.open_page(number, sealed)
        if block is not None:
            self.blocks[number] = block

    def missing_columns(self, names: Iterable[str]) -> set[int]:
        """The missing pages that :meth:`column` and :meth:`dictionary` need; directories come
        first."""
        names = [name for name in names if not self.has_keys(name)]
        missing = self.missing_directories(names)
        if missing:
            return missing
        return set().union(*map(self.column_pages, names)) - self.blocks.keys()

    def lookup(self, name: str) -> columns.Lookup:
        """The column of a field, as far as it is loaded; its directory must be loaded."""
        return self._paged(name) if self.has_column(name) else self._missing(name)

    def _missing(self, name: str) -> columns.Column:
        kind = column_spec(self.definition, name).kind
        return (
            words.undecided(self.rows) if kind is KeyKind.WORDS else columns.absent(self.rows, kind)
        )

    def _paged(self, name: str) -> PagedColumn:
        return PagedColumn(self.directories[name], self.blocks)

    def column(self, name: str) -> columns.Column:
        """The whole column of a field; all absent if the field is younger than the segment.

        Raises:
            DoesNotOpen: it lists other rows than the segment has, or a row twice.
        """
        if not self.has_column(name):
            return self._missing(name)
        column = self._paged(name).whole(column_spec(self.definition, name).kind)
        rows, room = column.ordinals, self.directories.rooms.get(name)
        if room is not None:
            words.check(column, room)
            rows = words.rows_of(column)
        # The directory states as many rows as the segment has, so equal sets list each row once.
        if len(rows) != self.count or rows_digest(rows, self.covered) != self.stated_rows:
            raise DoesNotOpen("a column lists other rows than its segment has")
        return column

    def dictionary(self, name: str) -> ColumnDictionary:
        """The whole row-major column of a field; it is kept in :attr:`columns`.

        Raises:
            DoesNotOpen: as :meth:`column`.
        """
        column = self.columns.get(name)
        if not isinstance(column, ColumnDictionary):
            column = build_column_dictionary(self.column(name), self.covered)
            self.columns[name] = column
        return column

    def has_keys(self, name: str) -> bool:
        """Whether a field's whole row-major column is loaded with its keys, or is empty."""
        column = self.columns.get(name)
        return isinstance(column, ColumnDictionary) or not self.has_column(name)


#: A segment as the memory cache keeps it, for all queries.
KeptSegment = MiniSegment | OpenedHeader
#: A segment of either form, opened as far as it is loaded.
OpenedSegment = MiniSegment | LoadedSegment


def load(kept: KeptSegment) -> OpenedSegment:
    """A segment for one query; a paged segment has no page yet."""
    return LoadedSegment(kept) if isinstance(kept, OpenedHeader) else kept


@contextmanager
def scope(*segments: object) -> Iterator[None]:
    """On exit, remove the pages, row-major columns and sums that were added to large segments.

    Code that loads data opens a scope, so that memory holds only the data in use. Directories stay.
    Scopes may be nested and overlap: each removes what was added after it began.

    Args:
        segments: of either form; minis are in memory as a whole.
    """
    loaded = [segment for segment in segments if isinstance(segment, LoadedSegment)]
    caches: list[dict[Any, Any]] = []
    for segment in loaded:
        caches += (segment.blocks, segment.columns, segment.sums)
    before = [set(cache) for cache in caches]
    try:
        yield
    finally:
        for cache, names_before in zip(caches, before, strict=True):
            for name in cache.keys() - names_before:
                del cache[name]

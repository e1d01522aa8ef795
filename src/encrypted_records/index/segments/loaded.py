"""A paged segment with the pages that one question has of it, and what it made of them.

Nothing here fetches. A reader gets the numbers of the missing pages, fetches them from wherever
they are, puts them in, and asks again: directories come in a first round, data pages in a second.
A question's workspace owns its loaded segments; :func:`scope` takes out of them what came in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns import words
from encrypted_records.index.columns.column import Column, EntryBlock, Lookup
from encrypted_records.index.columns.dictionary import (
    ByRow,
    ColumnDictionary,
    ColumnSums,
    build_column_dictionary,
)
from encrypted_records.index.segments.headers import rows_digest
from encrypted_records.index.segments.mini import MiniSegment
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.index.segments.paged import PagedSegment
from encrypted_records.index.segments.paged_column import PagedColumn
from encrypted_records.model.definition import column_spec
from encrypted_records.model.field_types.base import KeyKind


class LoadedSegment(PagedSegment):
    """A paged segment, as much of which is here as was put in."""

    def __init__(self, opened: OpenedHeader) -> None:
        super().__init__(opened)
        #: opened data pages by number
        self.blocks: dict[int, EntryBlock] = {}
        #: whole columns by field, by row; where one has its keys, its pages are not needed for it
        self.columns: dict[str, ByRow] = {}
        #: of fields, what their columns add up to
        self.sums: dict[str, ColumnSums] = {}

    def put(self, number: int, sealed: bytes) -> None:
        """Open a page that was missing, and keep it.

        Raises:
            DoesNotOpen: as :meth:`open_page`.
        """
        block = self.open_page(number, sealed)
        if block is not None:
            self.blocks[number] = block

    def missing_columns(self, names: Iterable[str]) -> set[int]:
        """The pages without which :meth:`column` and :meth:`dictionary` cannot open these;
        directories come first."""
        names = [name for name in names if not self.has_keys(name)]
        missing = self.missing_directories(names)
        if missing:
            return missing
        return set().union(*map(self.column_pages, names)) - self.blocks.keys()

    def lookup(self, name: str) -> Lookup:
        """The column of a field, as far as it is here; its directory must be."""
        return self._paged(name) if self.has_column(name) else self._missing(name)

    def _missing(self, name: str) -> Column:
        kind = column_spec(self.definition, name).kind
        return (
            words.undecided(self.rows) if kind is KeyKind.WORDS else columns.absent(self.rows, kind)
        )

    def _paged(self, name: str) -> PagedColumn:
        return PagedColumn(self.directories[name], self.blocks)

    def column(self, name: str) -> Column:
        """The whole column of a field; of one that is younger than the segment, all absent.

        Raises:
            DoesNotOpen: it lists other rows than the segment has, or one twice.
        """
        if not self.has_column(name):
            return self._missing(name)
        column = self._paged(name).whole(column_spec(self.definition, name).kind)
        rows, room = column.ordinals, self.directories.rooms.get(name)
        if room is not None:
            words.check(column, room)
            rows = words.rows_of(column)
        # The directory states as many as the segment has, so equal sets list each row once.
        if len(rows) != self.count or rows_digest(rows, self.covered) != self.stated_rows:
            raise DoesNotOpen("a column lists other rows than its segment has")
        return column

    def dictionary(self, name: str) -> ColumnDictionary:
        """The whole column of a field by row; it is kept in :attr:`columns`.

        Raises:
            DoesNotOpen: as :meth:`column`.
        """
        whole = self.columns.get(name)
        if not isinstance(whole, ColumnDictionary):
            whole = build_column_dictionary(self.column(name), self.covered)
            self.columns[name] = whole
        return whole

    def has_keys(self, name: str) -> bool:
        """Whether a field's whole column is here by row with its keys, or has nothing in it."""
        whole = self.columns.get(name)
        return isinstance(whole, ColumnDictionary) or not self.has_column(name)


#: A segment as memory keeps it, for all questions.
KeptSegment = MiniSegment | OpenedHeader
#: A segment of either form, opened as far as it is here.
OpenedSegment = MiniSegment | LoadedSegment


def load(kept: KeptSegment) -> OpenedSegment:
    """A segment for one question, of which a large one has no page yet."""
    return LoadedSegment(kept) if isinstance(kept, OpenedHeader) else kept


@contextmanager
def scope(*segments: object) -> Iterator[None]:
    """Take pages, columns by row and sums that come into large segments meanwhile out again.

    Code that brings something opens one, so that memory has what is worked on alone. Directories
    stay. Scopes may be inside one another and overlap: each takes out what came after it began.

    Args:
        segments: of either form; minis are in memory as a whole.
    """
    every = [segment for segment in segments if isinstance(segment, LoadedSegment)]
    held: list[dict[Any, Any]] = []
    for segment in every:
        held += (segment.blocks, segment.columns, segment.sums)
    before = [set(own) for own in held]
    try:
        yield
    finally:
        for own, there in zip(held, before, strict=True):
            for name in own.keys() - there:
                del own[name]

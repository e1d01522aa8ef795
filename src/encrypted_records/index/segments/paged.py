"""Open a paged segment page by page, as far as a query needs it (docs/SPEC.md, section 6.2).

Nothing here fetches. A reader gets the numbers of the missing pages, fetches them from wherever
they are, puts them in, and asks again: directories come in a first round, data pages in a second.

Each page is checked when it is put in: it is authentic for its number; its entries are in order, as
many as its directory says, of keys that the directory says. A whole column is checked as well to
list exactly the segment's rows, each once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from pyroaring import BitMap

from encrypted_records.crypto import sealing
from encrypted_records.crypto.format import PAGE_DATA
from encrypted_records.crypto.keys import CoverKey, SchemaKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns import pages, words
from encrypted_records.index.columns.column import Column, EntryBlock, Lookup
from encrypted_records.index.columns.dictionary import (
    ByRow,
    ColumnDictionary,
    build_column_dictionary,
)
from encrypted_records.index.columns.footprint import OBJECT_BYTES
from encrypted_records.index.columns.outline import Outline
from encrypted_records.index.columns.sums import ColumnSums
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.index.segments.directories import SegmentDirectories
from encrypted_records.index.segments.headers import rows_digest
from encrypted_records.index.segments.mini import MiniSegment
from encrypted_records.index.segments.opened_header import OpenedHeader, PageRole
from encrypted_records.index.segments.paged_column import PagedColumn
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.records import Segment, SegmentHeader
from encrypted_records.model.word_columns import column_spec


class PagedSegment:
    """A paged segment with its header opened, and as many of its pages as were put in."""

    def __init__(
        self,
        key: SchemaKey,
        definition: SchemaDefinition,
        segment: Segment,
        sealed: SegmentHeader,
        opened: OpenedHeader | None = None,
        made: SchemaDefinition | None = None,
    ) -> None:
        """Check that the header belongs to ``segment``.

        Args:
            definition: gives fields their names, and keys their grids.
            made: under which the segment was made, if that is another.
            opened: its header, where that is open already.

        Raises:
            DoesNotOpen: header altered, or of another segment, schema or key.
            Unsupported: as :class:`OpenedHeader`.
        """
        self.segment = segment
        self._key = key
        self._definition = definition
        self._sealed = sealed
        self._made = made
        self.directories = SegmentDirectories(
            opened or OpenedHeader(key, definition, segment, sealed, made)
        )
        #: opened data pages by number
        self.blocks: dict[int, EntryBlock] = {}
        #: whole columns by field, by row; where one has its keys, its pages are not needed for it
        self.columns: dict[str, ByRow] = {}
        #: of fields, what their columns add up to
        self.sums: dict[str, ColumnSums] = {}
        #: of fields, about how many different keys they have (:mod:`.reading`)
        self.key_counts: dict[str, int] = {}

    def share(self) -> PagedSegment:
        """The same segment, for a reader with its own pages and columns."""
        other = PagedSegment(
            self._key,
            self._definition,
            self.segment,
            self._sealed,
            self.directories.opened,
            self._made,
        )
        other.key_counts = self.key_counts
        return other

    @property
    def view(self) -> bytes:
        """Names the segment as it is open here: with the names and grids of one definition."""
        return self.segment.uid + self._definition.digest

    @property
    def definition(self) -> SchemaDefinition:
        """Gives fields their names, and keys their grids."""
        return self._definition

    @property
    def count(self) -> int:
        return self.segment.count

    @property
    def covered(self) -> int:
        """How many local ordinals its groups have."""
        return self.segment.count + self.segment.purged

    @property
    def size(self) -> int:
        """Bytes in memory, without directories, data pages and columns."""
        return self.directories.opened.size + len(self._sealed.data) + OBJECT_BYTES * 8

    @cached_property
    def rows(self) -> Ordinals:
        """Every local ordinal of its groups.

        More than are indexed, where a merge left dead rows out; a reader removes all dead rows from
        every answer.
        """
        return np.arange(self.covered, dtype=np.uint32)

    @cached_property
    def everything(self) -> BitMap:
        """:attr:`rows` as a set."""
        return BitMap(range(self.covered))

    # --- what is missing ---------------------------------------------------------------------

    @property
    def cover(self) -> CoverKey:
        """Draws pages that are asked for beside those that are needed."""
        return self._key.cover

    def missing_directories(self, names: Iterable[str]) -> set[int]:
        """The pages of these fields' directories that are not here."""
        return self.directories.missing(names)

    def missing_columns(self, names: Iterable[str]) -> set[int]:
        """The pages without which :meth:`column` and :meth:`dictionary` cannot open these;
        directories come first."""
        names = [
            name for name in names if self.directories.has_field(name) and not self.has_keys(name)
        ]
        missing = self.missing_directories(names)
        if missing:
            return missing
        paged = (self._paged(name) for name in names)
        return set().union(*(one.missing(range(len(one.directory.ends))) for one in paged))

    # --- putting pages in --------------------------------------------------------------------

    def put(self, number: int, sealed: bytes) -> None:
        """Open a page that was missing, and keep it.

        Raises:
            DoesNotOpen: altered, of another number or segment, or in contradiction to its
                directory.
        """
        role, content = self._open(number, sealed)
        if role.kind == PAGE_DATA:
            self.blocks[number] = self._open_block(role, content)
        else:
            self.directories.put(number, content)

    def open_block(self, number: int, sealed: bytes) -> EntryBlock:
        """Open a data page and do not keep it.

        Raises:
            DoesNotOpen: as :meth:`put`.
        """
        role, content = self._open(number, sealed)
        if role.kind != PAGE_DATA:
            raise DoesNotOpen("a page is not one that its segment names")
        return self._open_block(role, content)

    def _open(self, number: int, sealed: bytes) -> tuple[PageRole, bytes]:
        role = self.directories.role(number)
        if role is None:
            raise DoesNotOpen("a page is not one that its segment names")
        plain = sealing.open_page(
            self.directories.page_key(role.field),
            role.kind,
            number,
            sealed,
            schema_context=sealing.context_of(self._key),
            segment=self.segment.uid,
            field=column_spec(self._definition, role.field).id_bytes,
        )
        return role, pages.unframe(plain)

    def _open_block(self, role: PageRole, content: bytes) -> EntryBlock:
        kind = column_spec(self._definition, role.field).kind
        directory, page = self.directories[role.field], role.index
        first, last = directory.start(page), directory.start(page + 1)
        present = page >= directory.leading
        block = pages.open_block(
            content, kind, last - first, present=present, packed=self.directories.packed
        )
        if np.any(block.ordinals >= self.covered):
            raise DoesNotOpen("a page lists rows that its segment lacks")
        rebase = self.directories.rebases.get(role.field)
        if present and rebase:
            block = rebase.block(block)
        if present:
            if directory.bounds is None:
                _check_listing(directory, first - directory.absent, last - directory.absent, block)
            elif not directory.bounds.agree(page - directory.leading, block):
                raise DoesNotOpen("a page has other keys than its directory says")
        return block

    # --- reading -----------------------------------------------------------------------------

    def lookup(self, name: str) -> Lookup:
        """The column of a field, as far as it is here; its directory must be."""
        return self._paged(name) if self.has_column(name) else self._missing(name)

    def has_column(self, name: str) -> bool:
        """Whether the segment has such a column; not if it is younger."""
        return self.directories.has_field(name)

    def _missing(self, name: str) -> Column:
        kind = column_spec(self._definition, name).kind
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
        column = self._paged(name).whole(column_spec(self._definition, name).kind)
        rows, room = column.ordinals, self.directories.rooms.get(name)
        if room is not None:
            words.check(column, room)
            rows = words.rows_of(column)
        # The directory states as many as the segment has, so equal sets list each row once.
        if len(rows) != self.count or rows_digest(rows, self.covered) != self.stated_rows:
            raise DoesNotOpen("a column lists other rows than its segment has")
        return column

    @property
    def stated_rows(self) -> bytes:
        """The digest of the rows that the header says are indexed."""
        return self.directories.header.rows

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


#: A segment of either form, opened as far as it is here.
OpenedSegment = MiniSegment | PagedSegment


@contextmanager
def scope(*segments: object) -> Iterator[None]:
    """Take pages, columns by row and sums that come into large segments meanwhile out again.

    Code that brings something opens one, so that memory has what is worked on alone. Directories
    stay. Scopes may be inside one another and overlap: each takes out what came after it began.

    Args:
        segments: of either form; minis are in memory as a whole.
    """
    every = [segment for segment in segments if isinstance(segment, PagedSegment)]
    held: list[dict[Any, Any]] = []
    for one in every:
        held += (one.blocks, one.columns, one.sums)
    before = [set(own) for own in held]
    try:
        yield
    finally:
        for own, there in zip(held, before, strict=True):
            for name in own.keys() - there:
                del own[name]


def _check_listing(directory: Outline, first: int, last: int, block: EntryBlock) -> None:
    """The page has the values that the directory lists there, and they begin there."""
    start = int(np.searchsorted(directory.starts, first, "right")) - 1
    end = int(np.searchsorted(directory.starts, last, "left"))
    begins = np.maximum(directory.starts[start:end].astype(np.int64) - first, 0)
    if not (
        np.array_equal(directory.runs_between(start, end), block.keys)
        and np.array_equal(begins, block.starts)
    ):
        raise DoesNotOpen("a page has other values than its directory lists")

"""Open a paged segment page by page, as far as a query needs it (docs/SPEC.md, section 6.2).

Each page is checked when it is opened: it is authentic for its number; its entries are in order, as
many as its directory says, of keys that the directory says. A whole column is checked as well to
list exactly the segment's rows, each once.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from pyroaring import BitMap

from encrypted_records.crypto import sealing
from encrypted_records.crypto.format import PAGE_DATA
from encrypted_records.crypto.keys import CoverKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import pages
from encrypted_records.index.columns.column import EntryBlock
from encrypted_records.index.columns.outline import Outline
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.index.segments.directories import SegmentDirectories
from encrypted_records.index.segments.mini import MiniSegment
from encrypted_records.index.segments.opened_header import OpenedHeader, PageRole
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.records import Segment
from encrypted_records.model.word_columns import column_spec


class PagedSegment:
    """A paged segment with its header opened, and the directories that one reader has of it: all
    that it takes to open its pages. The pages themselves are its reader's own (:mod:`.loaded`)."""

    def __init__(self, opened: OpenedHeader) -> None:
        self.directories = SegmentDirectories(opened)

    @property
    def opened(self) -> OpenedHeader:
        """The header, which all readers share."""
        return self.directories.opened

    @property
    def segment(self) -> Segment:
        return self.opened.segment

    @property
    def view(self) -> bytes:
        """The view under which the header was opened; see :attr:`OpenedHeader.view`."""
        return self.opened.view

    @property
    def definition(self) -> SchemaDefinition:
        """Gives fields their names, and keys their grids."""
        return self.opened.definition

    @property
    def count(self) -> int:
        return self.segment.count

    @property
    def covered(self) -> int:
        """How many local ordinals its groups have."""
        return self.segment.count + self.segment.purged

    @property
    def size(self) -> int:
        """Bytes in memory, without directories."""
        return self.opened.size

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
        return self.opened.key.cover

    def missing_directories(self, names: Iterable[str]) -> set[int]:
        """The pages of these fields' directories that are not here."""
        return self.directories.missing(names)

    # --- putting pages in --------------------------------------------------------------------

    def open_page(self, number: int, sealed: bytes) -> EntryBlock | None:
        """Open a page. One of a directory is kept; what a data page has is returned.

        Raises:
            DoesNotOpen: altered, of another number or segment, or in contradiction to its
                directory.
        """
        role, content = self._open(number, sealed)
        if role.kind == PAGE_DATA:
            return self._open_block(role, content)
        self.directories.put(number, content)
        return None

    def open_block(self, number: int, sealed: bytes) -> EntryBlock:
        """The entries of a data page.

        Raises:
            DoesNotOpen: as :meth:`open_page`.
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
            schema_context=sealing.context_of(self.opened.key),
            segment=self.segment.uid,
            field=column_spec(self.definition, role.field).id_bytes,
        )
        return role, pages.unframe(plain)

    def _open_block(self, role: PageRole, content: bytes) -> EntryBlock:
        kind = column_spec(self.definition, role.field).kind
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

    # --- columns -----------------------------------------------------------------------------

    def has_column(self, name: str) -> bool:
        """Whether the segment has such a column; not if it is younger."""
        return self.directories.has_field(name)

    def column_pages(self, name: str) -> list[int]:
        """The numbers of the data pages of a column, whose directory is here."""
        numbers: list[int] = self.directories[name].numbers.tolist()
        return numbers

    @property
    def stated_rows(self) -> bytes:
        """The digest of the rows that the header says are indexed."""
        return self.directories.header.rows


#: An input of a merge, of either form.
MergeInput = MiniSegment | PagedSegment


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

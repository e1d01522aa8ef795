"""Open a paged segment page by page, as far as a query needs it (docs/SPEC.md, section 6.2).

Each page is checked when it is opened: it is authentic for its number, its entries are in order,
and their count and keys agree with the directory. A whole column must also list exactly the
segment's rows, each once.

Each reader has its own directories of a paged segment, which give each page number's role. A
directory is decoded once all of its pages are loaded; only its outline is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
from pyroaring import BitMap

from encrypted_records.crypto import sealing
from encrypted_records.crypto.format import PAGE_DATA
from encrypted_records.crypto.keys import CoverKey, IndexKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import directory, pages
from encrypted_records.index.columns.column import EntryBlock
from encrypted_records.index.columns.directory import Outline
from encrypted_records.index.columns.rebase import Rebase
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.index.segments.cuts import Zone, decode_zone, encode_zone
from encrypted_records.index.segments.headers import PagedHeader
from encrypted_records.index.segments.mini import MiniSegment
from encrypted_records.index.segments.opened_header import OpenedHeader, PageRole
from encrypted_records.model.definition import SchemaDefinition, column_spec
from encrypted_records.model.records import Segment


class PagedSegment:
    """A paged segment's opened header and the directories of one reader, which together can open
    its pages. The reader keeps the pages (:mod:`.loaded`)."""

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
        """The number of local ordinals of its groups."""
        return self.segment.count + self.segment.purged

    @property
    def size(self) -> int:
        """Bytes in memory, without directories."""
        return self.opened.size

    @cached_property
    def rows(self) -> Ordinals:
        """Every local ordinal of its groups.

        These are more than the indexed rows if a merge left out dead rows; a reader removes all
        dead rows from every answer.
        """
        return np.arange(self.covered, dtype=np.uint32)

    @cached_property
    def everything(self) -> BitMap:
        """:attr:`rows` as a set."""
        return BitMap(range(self.covered))

    # --- what is missing ---------------------------------------------------------------------

    @property
    def cover(self) -> CoverKey:
        """Draws the cover pages that are fetched with the needed pages."""
        return self.opened.key.cover

    def missing_directories(self, names: Iterable[str]) -> set[int]:
        """The pages of these fields' directories that are not here."""
        return self.directories.missing(names)

    # --- putting pages in --------------------------------------------------------------------

    def open_page(self, number: int, sealed: bytes) -> EntryBlock | None:
        """Open a page. A directory page is kept; the entries of a data page are returned.

        Raises:
            DoesNotOpen: the page was altered, has another number or segment, or contradicts its
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
        if int(block.ordinals.max()) >= self.covered:
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
        """Whether the segment has the column; false if the field is younger."""
        return self.directories.has_field(name)

    def column_pages(self, name: str) -> list[int]:
        """The numbers of the data pages of a column, whose directory must be loaded."""
        numbers: list[int] = self.directories[name].numbers.tolist()
        return numbers

    @property
    def stated_rows(self) -> bytes:
        """The header's digest of the indexed rows."""
        return self.directories.header.rows


#: An input of a merge, of either form.
MergeInput = MiniSegment | PagedSegment


def _check_listing(directory: Outline, first: int, last: int, block: EntryBlock) -> None:
    """Check that the page has the values that the directory lists, with the listed beginnings."""
    start = int(np.searchsorted(directory.starts, first, "right")) - 1
    end = int(np.searchsorted(directory.starts, last, "left"))
    begins = np.maximum(directory.starts[start:end].astype(np.int64) - first, 0)
    if not (
        np.array_equal(directory.runs_between(start, end), block.keys)
        and np.array_equal(begins, block.starts)
    ):
        raise DoesNotOpen("a page has other values than its directory lists")


class SegmentDirectories:
    """Safe to use from several threads."""

    def __init__(self, opened: OpenedHeader) -> None:
        self.opened = opened
        self._lock = threading.Lock()
        #: opened directory pages, until their directory is complete
        self._parts: dict[int, bytes] = {}
        self._complete: dict[str, Outline] = {}

    def __getitem__(self, field: str) -> Outline:
        """The directory of a field; all of its pages must be loaded."""
        return self._complete[field]

    def get(self, field: str) -> Outline | None:
        """The directory of a field; None unless all of its pages are loaded."""
        return self._complete.get(field)

    def use(self, field: str, complete: Outline) -> None:
        """Adopt a directory that another reader of this segment, in this view, has decoded.

        Raises:
            DoesNotOpen: as :meth:`OpenedHeader.claim`.
        """
        numbers = complete.numbers
        # The header may have been opened again since.
        if len(numbers) and self.opened.owner(int(numbers[0])) != field:
            self.opened.claim(field, numbers)
        with self._lock:
            self._complete[field] = complete

    @property
    def header(self) -> PagedHeader:
        return self.opened.header

    @property
    def zones(self) -> Mapping[str, Zone]:
        return self.opened.zones

    @property
    def rooms(self) -> Mapping[str, int]:
        """The number of entries for which each word column has room, by field."""
        return self.opened.rooms

    @property
    def rebases(self) -> Mapping[str, Rebase]:
        """The conversions of fields whose keys are on another grid, by field."""
        return self.opened.rebases

    def has_field(self, name: str) -> bool:
        """Whether the segment has the column; false if the field is younger."""
        return name in self.opened.numbers

    def page_key(self, name: str) -> IndexKey:
        """The key of the pages of a field and of its directory."""
        return self.opened.page_key(name)

    @property
    def packed(self) -> bool:
        return bool(self.header.packed)

    def role(self, number: int) -> PageRole | None:
        """The role of a page number, as far as the loaded directories name it."""
        page = self.opened.directory_page(number)
        if page is not None:
            return page
        name = self.opened.owner(number)
        complete = None if name is None else self._complete.get(name)
        index = None if complete is None else complete.index_of(number)
        return None if name is None or index is None else PageRole(name, PAGE_DATA, index)

    def field_of(self, number: int) -> str | None:
        """The field to whose directory this page belongs; None for other pages."""
        page = self.opened.directory_page(number)
        return None if page is None else page.field

    def missing(self, names: Iterable[str]) -> set[int]:
        """The pages of these fields' directories that are not here."""
        wanted = [name for name in names if self.has_field(name) and name not in self._complete]
        if not wanted:
            return set()
        # Wait for another thread that may have put in the last page and be decoding the directory.
        with self._lock:
            return {
                number
                for name in wanted
                if name not in self._complete
                for number in self.opened.numbers[name].tolist()
                if number not in self._parts
            }

    def without_own(self, numbers: Iterable[int]) -> set[int]:
        """The page numbers that do not belong to loaded directory pages."""
        return {number for number in numbers if not self._has(number)}

    def _has(self, number: int) -> bool:
        page = self.opened.directory_page(number)
        return page is not None and (page.field in self._complete or number in self._parts)

    def put(self, number: int, content: bytes) -> None:
        """Keep an opened directory page.

        Raises:
            DoesNotOpen: the page completes the directory, which is not a directory of this segment.
        """
        name = self.field_of(number)
        assert name is not None
        with self._lock:
            if name not in self._complete:
                self._parts[number] = content
                self._assemble(name)

    def _assemble(self, name: str) -> None:
        """Decode the field's directory, if all of its pages are loaded."""
        opened = self.opened
        pages = opened.numbers[name].tolist()
        if any(number not in self._parts for number in pages):
            return
        # Remove the pages first: if the directory cannot be decoded, all its pages are missing
        # again.
        parts = [self._parts.pop(number) for number in pages]
        complete = directory.decode(
            b"".join(parts),
            kind := opened.specs[name].kind,
            count=opened.rooms.get(name, opened.segment.count),
            pages=opened.segment.pages,
            packed=self.packed,
        )
        zone = encode_zone(complete.firsts, complete.lasts, kind)
        if decode_zone(zone, kind) != opened.stated[name]:
            raise DoesNotOpen("a segment's header states other keys than its directories")
        if name in opened.rebases:
            complete = opened.rebases[name].directory(complete)
        opened.claim(name, complete.numbers)
        self._complete[name] = Outline.of(complete)

"""Open a paged segment, page by page, as far as a question needs it (docs/SPEC.md, section 6.2).

Nothing here fetches. A reader asks which pages are missing, gets them from wherever they are, puts
them in, and asks again: directories come in a first round, data pages in a second.

What is checked as a page is put in: it is authentic in its place; its entries are in order, as
many as its directory says, of keys that the directory says. Opening a whole column checks also
that it lists exactly the segment's rows, each once.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np
from pyroaring import BitMap

from encrypted_records.crypto import sealing
from encrypted_records.crypto.format import PAGE_DATA, PAGE_DIRECTORY
from encrypted_records.crypto.keys import IndexKey, SchemaKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index import columns, directory, pages
from encrypted_records.index.coded import Coded, coded
from encrypted_records.index.columns import Block, Column, Keys, Lookup, Ordinals, key_type
from encrypted_records.index.directory import Directory
from encrypted_records.index.segments import OpenSegment
from encrypted_records.index.spans import Edge, Span
from encrypted_records.model.definition import FieldType, SchemaDefinition
from encrypted_records.model.records import Segment

_NUMBER = np.dtype(">u4")


class PagedHeader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a paged segment's header says, sealed; its length depends on sizes alone.

    ``groups`` and ``rows`` are digests (:func:`groups_digest`, :func:`rows_digest`), since a large
    segment has many of both. ``directories`` holds the page numbers of each field's directory.
    """

    format: int
    form: str
    groups: bytes
    fields: list[str]
    rows: bytes
    packed: Literal[0, 1]
    directories: list[bytes]
    inputs: list[bytes]


_headers = msgspec.msgpack.Decoder(PagedHeader)


def groups_digest(groups: Iterable[tuple[bytes, int]]) -> bytes:
    """SHA-256 over uid and base of each group."""
    state = hashlib.sha256()
    for uid, base in groups:
        state.update(uid + base.to_bytes(4, "big"))
    return state.digest()


def rows_digest(rows: Ordinals, covered: int) -> bytes:
    """SHA-256 over one bit per local ordinal below ``covered``, set for those in ``rows``."""
    mask = np.zeros(covered, np.bool_)
    mask[rows] = True
    return hashlib.sha256(np.packbits(mask).tobytes()).digest()


def encode_numbers(numbers: Ordinals) -> bytes:
    return numbers.astype(_NUMBER).tobytes()


@dataclass(frozen=True, slots=True)
class _Place:
    """What a page number stands for: a page of a field's column or of its directory."""

    field: str
    kind: int
    position: int


class PagedColumn:
    """A field's sorted column, of which only some pages are here.

    Whoever asks for rows sees to it that :meth:`missing` was empty for what they need.
    """

    def __init__(self, found: Directory, blocks: dict[int, Block]) -> None:
        self.directory = found
        self._blocks = blocks

    @property
    def absent(self) -> int:
        return self.directory.absent

    @property
    def present(self) -> int:
        return self.directory.present

    def missing(self, positions: Iterable[int]) -> set[int]:
        """The numbers of those pages that are not here."""
        numbers = {int(self.directory.numbers[position]) for position in positions}
        return numbers - self._blocks.keys()

    def all_within(self, span: Span) -> bool:
        if self.absent or self.directory.exact(span.first) != 0:
            return False
        return self.directory.exact(span.last) == self.present

    def missing_entries(self, first: int, last: int) -> set[int]:
        return self.missing(self.directory.holding(first, last))

    def missing_for(self, span: Span) -> set[int]:
        """Pages without which :meth:`pieces` cannot tell the rows of ``span``."""
        return self.missing(self.directory.pages(span))

    def missing_to_count(self, span: Span) -> set[int]:
        """Pages without which :meth:`at` cannot tell how many rows ``span`` has."""
        unsure = [edge for edge in span if self.directory.exact(edge) is None]
        return self.missing(self.directory.locate(edge)[0] for edge in unsure)

    def missing_absent(self) -> set[int]:
        return self.missing(range(self.directory.leading))

    def at(self, edge: Edge) -> int:
        """How many keys lie before ``edge``."""
        known = self.directory.exact(edge)
        if known is not None:
            return known
        page, _ = self.directory.locate(edge)
        block = self._block(page)
        run = int(np.searchsorted(block.keys, np.array(edge.key, block.keys.dtype), edge.side))
        within = int(block.starts[run]) if run < len(block.starts) else len(block.ordinals)
        return self.directory.start(page) - self.absent + within

    def pieces(self, first: int, last: int) -> list[Ordinals]:
        """The rows of the present entries first..last-1, as they lie in pages."""
        found = []
        for page in self.directory.holding(first, last):
            begin = self.directory.start(page) - self.absent
            found.append(self._block(page).ordinals[max(0, first - begin) : last - begin])
        return found

    def entries(self, first: int, last: int) -> list[Block]:
        found = []
        for page in self.directory.holding(first, last):
            begin, block = self.directory.start(page) - self.absent, self._block(page)
            end = min(last - begin, len(block.ordinals))
            found.append(block.part(max(0, first - begin), end))
        return found

    def absent_rows(self) -> Ordinals:
        held = [self._block(page).ordinals for page in range(self.directory.leading)]
        return np.concatenate([np.zeros(0, np.uint32), *held])

    def whole(self, kind: FieldType) -> Column:
        """All of it as one column.

        Raises:
            DoesNotOpen: entries of one value that lie in two pages are out of order.
        """
        blocks = [self._block(page) for page in range(len(self.directory.ends))]
        for before, after in pairwise(blocks):
            same = len(before.keys) == len(after.keys) == 0 or (
                len(before.keys) > 0 and before.keys[-1] == after.keys[0]
            )
            if same and before.ordinals[-1] >= after.ordinals[0]:
                raise DoesNotOpen("a column's pages are not in order")
        none: Keys = np.zeros(0, key_type(kind))
        return Column(
            np.concatenate([np.zeros(0, np.uint32), *(block.ordinals for block in blocks)]),
            np.concatenate([none, *(block.expanded() for block in blocks)]),
        )

    def _block(self, page: int) -> Block:
        return self._blocks[int(self.directory.numbers[page])]


class PagedSegment:
    """A paged segment with its header opened, and as much of its pages as was put in."""

    def __init__(self, key: SchemaKey, definition: SchemaDefinition, segment: Segment) -> None:
        """Check that the header belongs to ``segment``.

        Raises:
            DoesNotOpen: header altered, or of another segment, schema or key.
        """
        self.segment = segment
        self._key = key
        self._definition = definition
        self._header = _open_header(key, definition, segment)
        self._places: dict[int, _Place] = {}
        for name, numbers in zip(self._header.fields, self._header.directories, strict=True):
            for position, number in enumerate(np.frombuffer(numbers, _NUMBER)):
                self._name_page(int(number), _Place(name, PAGE_DIRECTORY, position))
        self._keys: dict[str, IndexKey] = {}
        self._lock = threading.Lock()
        self._parts: dict[int, bytes] = {}
        self._directories: dict[str, Directory] = {}
        #: opened data pages by number
        self.blocks: dict[int, Block] = {}
        #: whole columns by field; where one is, its pages are not needed for it
        self.columns: dict[str, Coded] = {}

    def over(self, blocks: dict[int, Block]) -> PagedSegment:
        """The same segment, with the same directories, for a reader with data pages and columns of
        its own."""
        other = object.__new__(PagedSegment)
        other.__dict__ |= self.__dict__
        other.blocks = blocks
        other.columns = {}
        return other

    def _name_page(self, number: int, place: _Place) -> None:
        if number in self._places or number >= self.segment.pages:
            raise DoesNotOpen("a segment's directories name a page twice, or one it lacks")
        self._places[number] = place

    @property
    def count(self) -> int:
        return self.segment.count

    @property
    def covered(self) -> int:
        """How many local ordinals its groups have."""
        return self.segment.count + self.segment.purged

    @property
    def size(self) -> int:
        """Bytes of directories held, and of the header's page numbers."""
        parts = sum(len(part) for part in self._parts.values())
        held = sum(found.size for found in self._directories.values())
        return parts + held + sum(len(numbers) for numbers in self._header.directories)

    @cached_property
    def rows(self) -> Ordinals:
        """Every local ordinal of its groups.

        More than are indexed, where a merge left dead rows out; those are among the dead rows
        that a reader takes off every answer.
        """
        return np.arange(self.covered, dtype=np.uint32)

    @cached_property
    def everything(self) -> BitMap:
        """:attr:`rows` as a set."""
        return BitMap(range(self.covered))

    # --- what is missing ---------------------------------------------------------------------

    def missing_directories(self, names: Iterable[str]) -> set[int]:
        """The pages of these fields' directories that are not here."""
        wanted = [name for name in names if self._indexes(name) and name not in self._directories]
        return {
            int(number)
            for name in wanted
            for number in self._directory_pages(name)
            if int(number) not in self._parts
        }

    def missing_columns(self, names: Iterable[str]) -> set[int]:
        """The pages without which :meth:`column` and :meth:`coded` cannot open these; directories
        come first."""
        names = [name for name in names if self._indexes(name) and name not in self.columns]
        missing = self.missing_directories(names)
        if missing:
            return missing
        found = (self._paged(name) for name in names)
        return set().union(*(one.missing(range(len(one.directory.ends))) for one in found))

    def _indexes(self, name: str) -> bool:
        return name in self._header.fields

    def _directory_pages(self, name: str) -> Ordinals:
        at = self._header.fields.index(name)
        return np.frombuffer(self._header.directories[at], _NUMBER).astype(np.uint32)

    # --- putting pages in --------------------------------------------------------------------

    def put(self, number: int, sealed: bytes) -> None:
        """Open a page that was missing, and keep it.

        Raises:
            DoesNotOpen: altered, of another place, or in contradiction to its directory.
        """
        place = self._places.get(number)
        if place is None:
            raise DoesNotOpen("a page of a segment is none that it names")
        spec = self._definition.fields[place.field]
        key = self._keys.get(place.field)
        if key is None:
            key = self._keys[place.field] = self._key.field(spec).index(self.segment.uid)
        plain = sealing.open_page(
            key,
            place.kind,
            number,
            sealed,
            schema_place=sealing.place(self._key),
            segment=self.segment.uid,
            name=place.field.encode(),
        )
        content = pages.unframe(plain)
        if place.kind == PAGE_DATA:
            self.blocks[number] = self._opened(place, content, spec.type)
            return
        # Readers share directories, and may bring the same one at the same time.
        with self._lock:
            if place.field not in self._directories:
                self._parts[number] = content
                self._assemble(place.field, spec.type)

    def _assemble(self, name: str, kind: FieldType) -> None:
        """The field's directory, once all of its pages are here."""
        numbers = [int(number) for number in self._directory_pages(name)]
        if any(number not in self._parts for number in numbers):
            return
        found = directory.decode(
            b"".join(self._parts[number] for number in numbers),
            kind,
            count=self.count,
            pages=self.segment.pages,
            packed=bool(self._header.packed),
        )
        for position, number in enumerate(found.numbers):
            self._name_page(int(number), _Place(name, PAGE_DATA, position))
        self._directories[name] = found
        for number in numbers:
            del self._parts[number]

    def _opened(self, place: _Place, content: bytes, kind: FieldType) -> Block:
        found, page = self._directories[place.field], place.position
        first, last = found.start(page), found.start(page + 1)
        present = page >= found.leading
        block = pages.open_block(
            content, kind, last - first, present=present, packed=bool(self._header.packed)
        )
        if np.any(block.ordinals >= self.covered):
            raise DoesNotOpen("a page lists rows that its segment lacks")
        if present:
            _check_edges(found, page - found.leading, block)
            if found.listed:
                _check_listing(found, first - found.absent, last - found.absent, block)
        return block

    # --- reading -----------------------------------------------------------------------------

    def lookup(self, name: str) -> Lookup:
        """The column of a field, as far as it is here; its directory must be."""
        return self._paged(name) if self._indexes(name) else columns.absent(self.rows)

    def _paged(self, name: str) -> PagedColumn:
        return PagedColumn(self._directories[name], self.blocks)

    def column(self, name: str) -> Column:
        """The whole column of a field; of one that is younger than the segment, all absent.

        Raises:
            DoesNotOpen: it lists other rows than the segment has, or one twice.
        """
        if not self._indexes(name):
            return columns.absent(self.rows)
        column = self._paged(name).whole(self._definition.fields[name].type)
        # As many as the segment has, which the directory was held against: so each once.
        if rows_digest(column.ordinals, self.covered) != self._header.rows:
            raise DoesNotOpen("a column lists other rows than its segment has")
        return column

    def coded(self, name: str) -> Coded:
        """The whole column of a field by row; it is kept in :attr:`columns`.

        Raises:
            DoesNotOpen: as :meth:`column`.
        """
        found = self.columns.get(name)
        if found is None:
            found = self.columns[name] = coded(self.column(name), self.covered)
        return found


#: A segment of either form, opened as far as it is here.
Opened = OpenSegment | PagedSegment


def _open_header(key: SchemaKey, definition: SchemaDefinition, segment: Segment) -> PagedHeader:
    plain = sealing.open_header(
        key.meta(segment.uid),
        segment.header,
        schema_place=sealing.place(key),
        segment=segment.uid,
    )
    try:
        header = _headers.decode(plain)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise DoesNotOpen("a segment's header is of an unknown format") from None
    if header.format != 1 or header.form != segment.form:
        raise DoesNotOpen("a segment's header states another form than its commit")
    if header.groups != groups_digest(segment.groups):
        raise DoesNotOpen("a segment's header states other groups than its commit")
    if any(name not in definition.fields for name in header.fields):
        raise DoesNotOpen("a segment indexes a field that the definition lacks")
    if not len(set(header.fields)) == len(header.fields) == len(header.directories):
        raise DoesNotOpen("a segment's header has not one directory per field")
    if any(not numbers or len(numbers) % _NUMBER.itemsize for numbers in header.directories):
        raise DoesNotOpen("a segment's header has page numbers cut short")
    return header


def _check_edges(found: Directory, page: int, block: Block) -> None:
    if block.keys[0] != found.firsts[page] or block.keys[-1] != found.lasts[page]:
        raise DoesNotOpen("a page has other keys than its directory says")


def _check_listing(found: Directory, first: int, last: int, block: Block) -> None:
    """The page has the values that the directory lists there, and they begin there."""
    start = int(np.searchsorted(found.starts, first, "right")) - 1
    end = int(np.searchsorted(found.starts, last, "left"))
    begins = np.maximum(found.starts[start:end].astype(np.int64) - first, 0)
    if not (
        np.array_equal(found.runs[start:end], block.keys) and np.array_equal(begins, block.starts)
    ):
        raise DoesNotOpen("a page has other values than its directory lists")

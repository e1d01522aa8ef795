"""A paged segment's opened header, which all readers of the segment share.

It has the page numbers of the directories, and records the data pages that each directory names, so
that no page belongs to two fields. Each reader has its own directories (:mod:`.paged`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from encrypted_records.crypto.format import PAGE_DIRECTORY
from encrypted_records.crypto.keys import IndexKey, SchemaKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns.column import OBJECT_BYTES, measure
from encrypted_records.index.columns.rebase import Rebase
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.index.segments.cuts import Zone, decode_zone
from encrypted_records.index.segments.headers import (
    PagedHeader,
    decode_numbers,
    groups_digest,
    named_column,
    open_header,
)
from encrypted_records.model.definition import SchemaDefinition, same_column
from encrypted_records.model.records import Segment, SegmentHeader

#: Memory overhead of the specs, zones, keys and page numbers of one column, in bytes.
_COLUMN_BYTES = 20 * OBJECT_BYTES


@dataclass(frozen=True, slots=True)
class PageRole:
    """The role of a page: number ``index`` of the pages of a field's column or directory."""

    field: str
    kind: int
    index: int


class OpenedHeader:
    """Safe to use from several threads."""

    def __init__(
        self,
        key: SchemaKey,
        definition: SchemaDefinition,
        segment: Segment,
        sealed: SegmentHeader,
        made: SchemaDefinition | None = None,
    ) -> None:
        """Open the header, and check that it belongs to ``segment``.

        Args:
            definition: gives fields their names, and keys their grids.
            made: the definition under which the segment was made, if it is another.

        Raises:
            DoesNotOpen: the header was altered, or is of another segment, schema or key.
            Unsupported: as :func:`open_header`.
        """
        self.key = key
        #: gives fields their names, and keys their grids
        self.definition = definition
        self.segment = segment
        #: samples of columns by field (:func:`.reading.sample_column`)
        self.samples: dict[str, tuple[int, int]] = {}
        self._made = made or definition
        self.header = _open_paged_header(key, segment, sealed)
        named = [
            named_column(definition, self._made, number, kind)
            for number, kind in zip(self.header.fields, self.header.kinds, strict=True)
        ]
        self.specs = {spec.name: spec for spec, _ in named}
        if len(self.specs) < len(named):
            raise DoesNotOpen("a segment's header does not have one directory per column")
        #: the number of entries for which each word column has room
        self.rooms = {spec.name: room for spec, room in named if room is not None}
        #: the page numbers of each directory
        self.numbers = {
            spec.name: decode_numbers(encoded)
            for (spec, _), encoded in zip(named, self.header.directories, strict=True)
        }
        #: conversions of the fields whose keys are on another grid
        self.rebases: dict[str, Rebase] = {}
        #: zones on the grid that queries use, and as the header states them
        self.zones: dict[str, Zone] = {}
        self.stated: dict[str, Zone] = {}
        for (spec, room), encoded in zip(named, self.header.zones, strict=True):
            stored_spec = spec if room is not None else self._made.by_id[spec.id]
            rebase = Rebase.between(stored_spec, spec)
            zone = self.stated[spec.name] = decode_zone(encoded, spec.kind)
            if rebase:
                self.rebases[spec.name] = rebase
                zone = zone.moved(rebase.key)
            self.zones[spec.name] = zone
        self._names = list(self.specs)
        #: by page: 0; 1 + the index of the field whose directory names it as data; or, for a
        #: directory page, the number of fields + 1
        self._owners = np.zeros(segment.pages, np.min_scalar_type(len(self._names) + 1))
        self._directory_pages: dict[int, PageRole] = {}
        for name, numbers in self.numbers.items():
            self._mark(numbers, len(self._names) + 1)
            for index, number in enumerate(numbers.tolist()):
                self._directory_pages[number] = PageRole(name, PAGE_DIRECTORY, index)
        self._lock = threading.Lock()
        self._page_keys: dict[str, IndexKey] = {}

    @property
    def view(self) -> bytes:
        """Identifies the opened segment with the names and grids of its definition."""
        return self.segment.uid + self.definition.digest

    @property
    def size(self) -> int:
        """Bytes in memory."""
        encoded = sum(map(len, self.header.directories)) + sum(map(len, self.header.zones))
        columns = len(self._names) * _COLUMN_BYTES + 2 * encoded
        return measure(self._owners) + columns + len(self._directory_pages) * 2 * OBJECT_BYTES

    def page_key(self, name: str) -> IndexKey:
        """The key of the pages of a field and of its directory."""
        key = self._page_keys.get(name)
        if key is None:
            stored_spec = same_column(self._made, self.specs[name])
            assert stored_spec is not None
            key = self._page_keys[name] = self.key.field(stored_spec).index(self.segment.uid)
        return key

    def directory_page(self, number: int) -> PageRole | None:
        """The role of a page if it belongs to a directory; otherwise None."""
        return self._directory_pages.get(number)

    def owner(self, number: int) -> str | None:
        """The field whose directory names the page as data; None if no directory does so far."""
        code = int(self._owners[number]) if 0 <= number < len(self._owners) else 0
        return self._names[code - 1] if 0 < code <= len(self._names) else None

    def claim(self, name: str, numbers: Ordinals) -> None:
        """Record the data pages that the directory of a field names. Repeated calls are allowed.

        Raises:
            DoesNotOpen: another directory names some of them, or the segment lacks some.
        """
        with self._lock:
            self._mark(numbers, self._names.index(name) + 1)

    def _mark(self, numbers: Ordinals, code: int) -> None:
        if np.any(numbers >= len(self._owners)):
            raise DoesNotOpen("a segment's directories name a page that it lacks")
        owners = self._owners[numbers]
        is_directory = code > len(self._names)
        if np.any((owners != 0) & ((owners != code) | is_directory)) or (
            is_directory and len(set(numbers.tolist())) < len(numbers)
        ):
            raise DoesNotOpen("a segment's directories name a page twice")
        self._owners[numbers] = code


def _open_paged_header(key: SchemaKey, segment: Segment, sealed: SegmentHeader) -> PagedHeader:
    header = open_header(key, segment, sealed, PagedHeader)
    if header.groups != groups_digest(segment.groups):
        raise DoesNotOpen("a segment's header states other groups than its commit")
    if len(header.fields) != len(header.directories):
        raise DoesNotOpen("a segment's header does not have one directory per field")
    if len(header.zones) != len(header.fields):
        raise DoesNotOpen("a segment's header does not have a least and a greatest key per field")
    return header

"""A paged segment's header and directories, which all readers of the segment share.

They say what each page number stands for. A directory is decoded once all of its pages are here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from encrypted_records.crypto.format import PAGE_DATA, PAGE_DIRECTORY
from encrypted_records.crypto.keys import IndexKey, SchemaKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import directory
from encrypted_records.index.columns.directory import Directory
from encrypted_records.index.columns.rebase import Rebase
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.index.segments.headers import (
    PagedHeader,
    decode_numbers,
    groups_digest,
    named_column,
    open_header,
)
from encrypted_records.index.segments.zones import Zone, decode_zone, encode_zone
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.records import Segment, SegmentHeader
from encrypted_records.model.word_columns import same_column


@dataclass(frozen=True, slots=True)
class PageRole:
    """What a page number stands for: the page ``index`` of a field's column or directory."""

    field: str
    kind: int
    index: int


class SegmentDirectories:
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
            made: under which the segment was made, if that is another.

        Raises:
            DoesNotOpen: header altered, or of another segment, schema or key.
            Unsupported: as :func:`open_header`.
        """
        self._key = key
        self._segment = segment
        self._definition = definition
        self._made = made or definition
        self.header = _open_paged_header(key, segment, sealed)
        named = [
            named_column(definition, self._made, number, kind)
            for number, kind in zip(self.header.fields, self.header.kinds, strict=True)
        ]
        self._specs = {spec.name: spec for spec, _ in named}
        if len(self._specs) < len(named):
            raise DoesNotOpen("a segment's header has not one directory per column")
        #: of columns of words, for how many entries they have room
        self.rooms = {spec.name: room for spec, room in named if room is not None}
        self._numbers = {
            spec.name: decode_numbers(encoded)
            for (spec, _), encoded in zip(named, self.header.directories, strict=True)
        }
        #: of the fields whose keys lie on another grid
        self.rebases: dict[str, Rebase] = {}
        self.zones: dict[str, Zone] = {}
        self._stated: dict[str, Zone] = {}
        for (spec, room), encoded in zip(named, self.header.zones, strict=True):
            own = spec if room is not None else self._made.by_id[spec.id]
            rebase = Rebase.between(own, spec)
            zone = self._stated[spec.name] = decode_zone(encoded, spec.kind)
            if rebase:
                self.rebases[spec.name] = rebase
                zone = zone.moved(rebase.key)
            self.zones[spec.name] = zone
        self.roles: dict[int, PageRole] = {}
        for name, numbers in self._numbers.items():
            for index, number in enumerate(numbers.tolist()):
                self._assign(number, PageRole(name, PAGE_DIRECTORY, index))
        self._lock = threading.Lock()
        #: opened directory pages, until their directory is complete
        self._parts: dict[int, bytes] = {}
        self._complete: dict[str, Directory] = {}
        self._page_keys: dict[str, IndexKey] = {}

    def __getitem__(self, field: str) -> Directory:
        """The directory of a field, all of whose pages are here."""
        return self._complete[field]

    def has_field(self, name: str) -> bool:
        """Whether the segment has such a column; it does not if that is younger."""
        return name in self._numbers

    def page_key(self, name: str) -> IndexKey:
        """The key of the pages of a field and of its directory."""
        key = self._page_keys.get(name)
        if key is None:
            own = same_column(self._made, self._specs[name])
            assert own is not None
            key = self._page_keys[name] = self._key.field(own).index(self._segment.uid)
        return key

    @property
    def packed(self) -> bool:
        return bool(self.header.packed)

    @property
    def size(self) -> int:
        """Bytes of directories in memory, and of the header's page numbers."""
        parts = sum(len(part) for part in self._parts.values())
        complete = sum(one.size for one in self._complete.values())
        return parts + complete + sum(len(encoded) for encoded in self.header.directories)

    def missing(self, names: Iterable[str]) -> set[int]:
        """The pages of these fields' directories that are not here."""
        wanted = [name for name in names if self.has_field(name) and name not in self._complete]
        if not wanted:
            return set()
        # Another reader may have brought the last page, and be decoding them: that is waited for.
        with self._lock:
            return {
                number
                for name in wanted
                if name not in self._complete
                for number in self._numbers[name].tolist()
                if number not in self._parts
            }

    def put(self, number: int, content: bytes) -> None:
        """Keep an opened directory page.

        Raises:
            DoesNotOpen: with it, the directory is complete and not one of this segment.
        """
        name = self.roles[number].field
        # Readers share directories, and may bring the same one at the same time.
        with self._lock:
            if name not in self._complete:
                self._parts[number] = content
                self._assemble(name, self._numbers[name])

    def _assemble(self, name: str, numbers: Ordinals) -> None:
        """Decode the field's directory, once all of its pages are here."""
        pages = numbers.tolist()
        if any(number not in self._parts for number in pages):
            return
        # Out of here first: of a directory that cannot be decoded, all pages are missing again.
        parts = [self._parts.pop(number) for number in pages]
        complete = directory.decode(
            b"".join(parts),
            kind := self._specs[name].kind,
            count=self.rooms.get(name, self._segment.count),
            pages=self._segment.pages,
            packed=self.packed,
        )
        zone = encode_zone(complete.firsts, complete.lasts, kind)
        if decode_zone(zone, kind) != self._stated[name]:
            raise DoesNotOpen("a segment's header states other keys than its directories")
        if name in self.rebases:
            complete = self.rebases[name].directory(complete)
        for index, number in enumerate(complete.numbers.tolist()):
            self._assign(number, PageRole(name, PAGE_DATA, index))
        self._complete[name] = complete

    def _assign(self, number: int, role: PageRole) -> None:
        if number in self.roles or number >= self._segment.pages:
            raise DoesNotOpen("a segment's directories name a page twice, or one it lacks")
        self.roles[number] = role


def _open_paged_header(key: SchemaKey, segment: Segment, sealed: SegmentHeader) -> PagedHeader:
    header = open_header(key, segment, sealed, PagedHeader)
    if header.groups != groups_digest(segment.groups):
        raise DoesNotOpen("a segment's header states other groups than its commit")
    if len(header.fields) != len(header.directories):
        raise DoesNotOpen("a segment's header has not one directory per field")
    if len(header.zones) != len(header.fields):
        raise DoesNotOpen("a segment's header has not a least and a greatest key per field")
    return header
